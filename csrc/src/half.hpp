// The two 16-bit floating formats, bit by bit. Unnamed, so that a file compiled for other instructions has
// its own.
#pragma once
#include <cstdint>
#include <cstring>

namespace spo {
namespace {

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

[[maybe_unused]] float widen(float x) { return x; }

[[maybe_unused]] float widen(BFloat16 x) { return bits_as<float>(std::uint32_t{x.bits} << 16); }

[[maybe_unused]] float widen(Float16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits} >> 15 << 31, exponent = x.bits >> 10 & 31,
                      mantissa = x.bits & 1023;
  if (exponent == 31) return bits_as<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) {  // a multiple of 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return bits_as<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

template <class T>
T narrow(float x);

template <>
[[maybe_unused]] float narrow<float>(float x) {
  return x;
}

template <>
[[maybe_unused]] BFloat16 narrow<BFloat16>(float x) {
  const auto bits = bits_as<std::uint32_t>(x);
  if (x != x) return {static_cast<std::uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

template <>
[[maybe_unused]] Float16 narrow<Float16>(float x) {
  const auto bits = bits_as<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<std::uint16_t>(sign | 0x7e00)};
  if (magnitude >= 0x477ff000)
    return {static_cast<std::uint16_t>(sign | 0x7c00)};  // rounds to 65536 or is more
  if (magnitude < 0x38800000) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    const float sum = bits_as<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (bits_as<std::uint32_t>(sum) - 0x3f000000))};
  }
  return {static_cast<std::uint16_t>(sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13)};
}

}  // namespace
}  // namespace spo
