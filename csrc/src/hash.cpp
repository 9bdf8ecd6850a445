#include "spo/hash.hpp"

#include <bit>
#include <cstddef>
#include <cstring>

namespace spo {
namespace {

using Word = std::uint64_t;

// Odd words without a pattern: the binary digits of the square roots of 2, 3, 5 and 7.
constexpr Word kA = 0x6a09e667f3bcc909ULL, kB = 0xbb67ae8584caa73bULL, kC = 0x3c6ef372fe94f82bULL,
               kD = 0xa54ff53a5f1d36f1ULL;

Word little_endian(const char* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

Word finish(Word x) {
  x ^= x >> 32;
  x *= kC;
  x ^= x >> 29;
  x *= kD;
  return x ^ (x >> 32);
}

__extension__ using Product = unsigned __int128;

struct Lane {
  Word x, y;

  // One multiplication for two words. They join the product's halves, so that a word that makes the product 0 is
  // not lost, and the rotation keeps blocks that change places apart.
  void absorb(Word first, Word second) {
    const Product product = static_cast<Product>(first ^ kA) * (second ^ kB);
    x = std::rotl(x, 29) + (static_cast<Word>(product) ^ second);
    y = std::rotl(y, 37) + (static_cast<Word>(product >> 64) ^ first);
  }
  void absorb(const char* bytes) { absorb(little_endian(bytes), little_endian(bytes + 8)); }
};

// The last bytes of a text as words, padded with zeros.
template <std::size_t N>
struct Tail {
  char bytes[N] = {};
  explicit Tail(std::string_view rest) {
    if (!rest.empty()) std::memcpy(bytes, rest.data(), rest.size());
  }
};

struct Sip {
  Word v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }
  void absorb(Word word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
  Word squeeze() {
    for (int i = 0; i < 4; ++i) round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

Digest digest128(std::string_view bytes) {
  // Four variables while the text is long, so that they stay in registers.
  Lane first{kA, kB}, second{kC, kD}, third{kB, kC}, fourth{kD, kA};
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 64; left -= 64, at += 64) {
    first.absorb(at);
    second.absorb(at + 16);
    third.absorb(at + 32);
    fourth.absorb(at + 48);
  }
  Lane lanes[4] = {first, second, third, fourth};
  int lane = 0;
  for (; left >= 16; left -= 16, at += 16) lanes[lane++].absorb(at);
  if (left > 0) lanes[lane].absorb(Tail<16>({at, left}).bytes);

  Lane& all = lanes[0];
  if (bytes.size() > 16) {
    for (int i = 1; i < 4; ++i) all.absorb(lanes[i].x, lanes[i].y);
  }
  Word a = all.x ^ bytes.size(), b = all.y;
  a += b;
  b += a;
  a = finish(a);
  b = finish(b);
  a += b;
  b += a;
  return {a, b};
}

Digest keyed_digest128(std::string_view bytes, const HashKey& key) {
  Sip sip{key.a ^ 0x736f6d6570736575ULL, key.b ^ 0x646f72616e646f6dULL ^ 0xee, key.a ^ 0x6c7967656e657261ULL,
          key.b ^ 0x7465646279746573ULL};
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) sip.absorb(little_endian(at));
  sip.absorb(little_endian(Tail<8>({at, left}).bytes) | static_cast<Word>(bytes.size()) << 56);
  sip.v2 ^= 0xee;
  const Word a = sip.squeeze();
  sip.v1 ^= 0xdd;
  return {a, sip.squeeze()};
}

Hash128 hash128(std::string_view bytes) {
  const Digest digest = digest128(bytes);
  Hash128 out;
  for (std::size_t i = 0; i < 8; ++i) {
    out[i] = static_cast<unsigned char>(digest.a >> (8 * i));
    out[i + 8] = static_cast<unsigned char>(digest.b >> (8 * i));
  }
  return out;
}

}  // namespace spo
