#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace spo {

using Hash128 = std::array<unsigned char, 16>;

/// The same 128 bits as two little-endian words.
struct Digest {
  std::uint64_t a = 0, b = 0;
  bool operator==(const Digest&) const = default;
};

/// The secret of a seeded hash.
using HashKey = Digest;

/// 128 bits of a text, the same on every machine and build: four lanes of 16 bytes, whose two words are
/// multiplied and join their lane with the product's halves. Not for text that an adversary writes.
Digest digest128(std::string_view bytes);

/// SipHash-2-4 with 128 bits of output: whoever does not know the key cannot make two texts meet.
Digest keyed_digest128(std::string_view bytes, const HashKey& key);

/// The bytes of digest128.
Hash128 hash128(std::string_view bytes);

}  // namespace spo
