#include "spo/hash.hpp"

namespace spo {
namespace {

std::uint64_t rotate_left(std::uint64_t x, int n) { return (x << n) | (x >> (64 - n)); }

std::uint64_t finish(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

std::uint64_t little_endian(const unsigned char* bytes, std::size_t count) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < count; ++i) word |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return word;
}

}  // namespace

Hash128 hash128(std::string_view bytes) {
  constexpr std::uint64_t c1 = 0x87c37b91114253d5ULL, c2 = 0x4cf5ad432745937fULL;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const std::size_t size = bytes.size(), tail = size % 16;
  std::uint64_t h1 = 0, h2 = 0;
  const auto mix1 = [&](std::uint64_t k) { h1 ^= rotate_left(k * c1, 31) * c2; };
  const auto mix2 = [&](std::uint64_t k) { h2 ^= rotate_left(k * c2, 33) * c1; };
  for (std::size_t i = 0; i + 16 <= size; i += 16) {
    mix1(little_endian(data + i, 8));
    h1 = (rotate_left(h1, 27) + h2) * 5 + 0x52dce729;
    mix2(little_endian(data + i + 8, 8));
    h2 = (rotate_left(h2, 31) + h1) * 5 + 0x38495ab5;
  }
  const unsigned char* rest = data + (size - tail);
  if (tail > 8) mix2(little_endian(rest + 8, tail - 8));
  if (tail > 0) mix1(little_endian(rest, tail < 8 ? tail : 8));
  h1 ^= size;
  h2 ^= size;
  h1 += h2;
  h2 += h1;
  h1 = finish(h1);
  h2 = finish(h2);
  h1 += h2;
  h2 += h1;
  Hash128 digest;
  for (int i = 0; i < 8; ++i) {
    digest[static_cast<std::size_t>(i)] = static_cast<unsigned char>(h1 >> (8 * i));
    digest[static_cast<std::size_t>(i + 8)] = static_cast<unsigned char>(h2 >> (8 * i));
  }
  return digest;
}

}  // namespace spo
