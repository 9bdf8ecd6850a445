#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace spo {

using Hash128 = std::array<unsigned char, 16>;

// MurmurHash3 x64 128 with seed 0, read byte by byte: the same on every machine and build.
Hash128 hash128(std::string_view bytes);

}  // namespace spo
