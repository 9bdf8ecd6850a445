// The row kernel in plain C++, for machines without AVX2.
#include "row_kernel_impl.hpp"

namespace spo {
namespace {

struct Lanes {
  static constexpr int kWidth = 8;
  float v[kWidth];

  template <class Make>
  static Lanes each(const Make& make) {
    Lanes r;
    for (int i = 0; i < kWidth; ++i) r.v[i] = make(i);
    return r;
  }
  static Lanes all(float x) {
    return each([x](int) { return x; });
  }
  template <class T>
  static void load(const T* x, Lanes& a, Lanes& b) {
    a = each([x](int i) { return widen(x[i]); });
    b = each([x](int i) { return widen(x[i + kWidth]); });
  }
  template <class T>
  static void store(T* x, Lanes a, Lanes b) {
    for (int i = 0; i < kWidth; ++i) x[i] = narrow<T>(a.v[i]);
    for (int i = 0; i < kWidth; ++i) x[i + kWidth] = narrow<T>(b.v[i]);
  }
  template <std::size_t bytes>
  static void prefetch(const void*) {}

  Lanes exponent() const {
    return each([this](int i) { return bits_as<float>(bits_as<std::uint32_t>(v[i]) << 23); });
  }
  Lanes magnitude() const {
    return each([this](int i) { return v[i] < 0 ? -v[i] : v[i]; });
  }
  Lanes with_sign_of(Lanes o) const {
    return each([this, &o](int i) { return __builtin_signbit(o.v[i]) ? -v[i] : v[i]; });
  }
  Lanes infinite_or(Lanes o) const {
    return each([this, &o](int i) { return v[i] == kInfinity || v[i] == -kInfinity ? v[i] : o.v[i]; });
  }
  float largest() const {
    float r = v[0];
    for (const float x : v) r = x > r ? x : r;
    return r;
  }
  double total() const {
    double r = 0;
    for (const float x : v) r += x;
    return r;
  }
};

Lanes operator+(Lanes a, Lanes b) {
  return Lanes::each([&](int i) { return a.v[i] + b.v[i]; });
}
Lanes operator-(Lanes a, Lanes b) {
  return Lanes::each([&](int i) { return a.v[i] - b.v[i]; });
}
Lanes operator*(Lanes a, Lanes b) {
  return Lanes::each([&](int i) { return a.v[i] * b.v[i]; });
}
Lanes operator/(Lanes a, Lanes b) {
  return Lanes::each([&](int i) { return a.v[i] / b.v[i]; });
}
Lanes fma(Lanes a, Lanes b, Lanes c) { return a * b + c; }
Lanes fms(Lanes a, Lanes b, Lanes c) { return a * b - c; }
// Of a NaN and a number, the second: as the instructions do it.
Lanes max(Lanes a, Lanes b) {
  return Lanes::each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
Lanes min(Lanes a, Lanes b) {
  return Lanes::each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}

}  // namespace

const RowKernel portable_row_kernel{"portable", add_any<Lanes>, gradient_any<Lanes>, capped<Lanes>};

}  // namespace spo
