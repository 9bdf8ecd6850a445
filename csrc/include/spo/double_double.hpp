#pragma once
#include <cmath>
#include <cstdint>

namespace spo {

/// An unevaluated sum hi + lo of two doubles: about 106 significant bits.
///
/// Evidence is multiplied by powers of rho and added to in whatever order results arrive. In plain doubles
/// each of those steps rounds, so a million of them in two orders would differ by more than the 1e-12 the
/// tracker promises; here the difference stays near 1e-26. It also makes powers independent of the platform's
/// libm.
struct DoubleDouble {
  double hi = 0.0;
  double lo = 0.0;
};

/// a + b exactly, for |a| >= |b| or a == 0.
inline DoubleDouble quick_two_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

/// a + b exactly (Knuth).
inline DoubleDouble two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

inline DoubleDouble add(DoubleDouble a, DoubleDouble b) {
  DoubleDouble high = two_sum(a.hi, b.hi);
  const DoubleDouble low = two_sum(a.lo, b.lo);
  high = quick_two_sum(high.hi, high.lo + low.hi);
  return quick_two_sum(high.hi, high.lo + low.lo);
}

inline DoubleDouble multiply(DoubleDouble a, DoubleDouble b) {
  const double product = a.hi * b.hi;
  const double error = std::fma(a.hi, b.hi, -product);
  return quick_two_sum(product, error + (a.hi * b.lo + a.lo * b.hi));
}

/// base^exponent for 0 < base <= 1 and exponent >= 0, by squaring: at most 63 steps; 0 once it underflows.
inline DoubleDouble power(double base, std::int64_t exponent) {
  DoubleDouble result{1.0, 0.0};
  DoubleDouble square{base, 0.0};
  for (; exponent > 0 && result.hi > 0.0; exponent >>= 1) {
    if (exponent & 1) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

}  // namespace spo
