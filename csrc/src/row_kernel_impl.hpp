// The row kernel over any kind of lanes. Each file that includes it compiles it for other instructions, so
// all of it lies in an unnamed namespace and calls nothing inline that the linker could take from another
// file.
#pragma once
#include <cstdint>
#include <limits>

#include "half.hpp"
#include "row_kernel.hpp"

namespace spo {
namespace {

constexpr std::int64_t kStep = 32;     // numbers a round of the inner loops takes
constexpr std::int64_t kBlock = 1024;  // numbers between two looks at the maximum: 4 KiB, well within L1
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLog2e = 1.4426950408889634, kNan = std::numeric_limits<double>::quiet_NaN();

// Minimax of (2^f - 1) / f on [-1/2, 1/2] in relative error of 2^f: 9.1e-8. Exact at 0, where the maximum
// lies.
constexpr float kPower[] = {0.69314700f, 0.24022242f, 0.055507336f, 0.0096715130f, 0.0013264727f};
// To add it to t rounds t to an integer n and leaves n + 127 in the lowest bits: shifted by 23 they are 2^n.
constexpr float kRound = 12582912.0f + 127.0f;

// 2^t with t = n + f.
template <class L>
struct Power {
  L integer;  // 2^n
  L q, f;     // 2^f = 1 + q f
  L t;

  L fraction() const { return fma(q, f, L::all(1.0f)); }
};

// 2^t with t = d c; `least` is the d of t = -127, whose integer part comes out as exactly 0.
template <class L>
Power<L> power(L d, L least, L c) {
  d = max(least, d);
  const L shifted = fma(d, c, L::all(kRound));
  const L f = fms(d, c, shifted - L::all(kRound));
  L q = fma(L::all(kPower[4]), f, L::all(kPower[3]));
  q = fma(q, f, L::all(kPower[2]));
  q = fma(q, f, L::all(kPower[1]));
  q = fma(q, f, L::all(kPower[0]));
  return {shifted.exponent(), q, f, d * c};
}

template <class L, class T>
float block_max(const T* x, std::int64_t n) {
  L a = L::all(-kInfinity), b = a;
  for (std::int64_t i = 0; i < n; i += kStep) {
    L p, q, r, s;
    L::load(x + i, p, q);
    L::load(x + i + kStep / 2, r, s);
    a = max(p, max(r, a));  // a NaN, given first, is passed over: it shows in the sum
    b = max(q, max(s, b));
  }
  return max(a, b).largest();
}

template <class L, class T, bool weighted>
void block_sum(const T* x, std::int64_t n, float maximum, float c, RowSums& sums) {
  const L top = L::all(maximum), factor = L::all(c), least = L::all(-127.0f / c);
  L sum[4], heavy[4];
  for (int k = 0; k < 4; ++k) sum[k] = heavy[k] = L::all(0.0f);
  for (std::int64_t i = 0; i < n; i += kStep) {
    L v[4];
    L::load(x + i, v[0], v[1]);
    L::load(x + i + kStep / 2, v[2], v[3]);
    L::template prefetch<kStep * sizeof(T)>(x + i + kBlock + kBlock / 4);
    for (int k = 0; k < 4; ++k) {
      const Power<L> p = power(v[k] - top, least, factor);
      if constexpr (weighted) {
        const L e = p.fraction() * p.integer;
        sum[k] = sum[k] + e;
        heavy[k] = fma(e, p.t, heavy[k]);
      } else {
        sum[k] = fma(p.fraction(), p.integer, sum[k]);
      }
    }
  }
  sums.sum += ((sum[0] + sum[1]) + (sum[2] + sum[3])).total();
  if constexpr (weighted) sums.weighted += ((heavy[0] + heavy[1]) + (heavy[2] + heavy[3])).total();
}

template <class L, class T, bool sloped>
void block_gradient(const T* x, std::int64_t n, float maximum, float c, float constant, float slope, T* out) {
  const L top = L::all(maximum), factor = L::all(c), least = L::all(-127.0f / c);
  const L constants = L::all(constant), slopes = L::all(slope);
  for (std::int64_t i = 0; i < n; i += kStep / 2) {
    L v[2];
    L::load(x + i, v[0], v[1]);
    for (int k = 0; k < 2; ++k) {
      const Power<L> p = power(v[k] - top, least, factor);
      const L share = sloped ? fma(slopes, p.t, constants) : constants;
      v[k] = p.fraction() * (p.integer * share);
    }
    L::store(out + i, v[0], v[1]);
  }
}

// cap tanh(x / cap) and its derivative; tanh |y| = -e / (2 + e) with e = 2^(-2 |y| log2 e) - 1 keeps small y
// exact.
template <class L>
void block_cap(const float* x, std::int64_t n, float cap, float* z, float* derivative) {
  const L inverse = L::all(1.0f / cap), scale = L::all(cap), ten = L::all(10.0f), one = L::all(1.0f);
  const L least = L::all(-1e30f), factor = L::all(static_cast<float>(-2 * kLog2e));
  for (std::int64_t i = 0; i < n; i += kStep / 2) {
    L v[2], slope[2];
    L::load(x + i, v[0], v[1]);
    for (int k = 0; k < 2; ++k) {
      const Power<L> p = power(min(ten, v[k].magnitude() * inverse), least, factor);
      const L e = fma(p.q * p.f, p.integer, p.integer - one);
      const L t = (L::all(0.0f) - e) / (L::all(2.0f) + e);
      slope[k] = one - t * t;
      v[k] = v[k].infinite_or((t * scale).with_sign_of(v[k]));
    }
    L::store(z + i, v[0], v[1]);
    if (derivative) L::store(derivative + i, slope[0], slope[1]);
  }
}

// c, kept where -127 / c is a number: beyond, a row is uniform or its maximum alone to any precision.
inline float exponent_scale(double temperature) {
  const double c = kLog2e / temperature;
  return static_cast<float>(c < 1e-36 ? 1e-36 : c > 1e36 ? 1e36 : c);
}

template <class T>
struct Staged {
  T numbers[kBlock];
};

// n numbers of a row in a line, padded with -inf to a whole step; in place unless `copy` or the layout ask
// for a copy.
template <class T>
const T* line_up(const T* x, std::int64_t n, std::int64_t stride, bool copy, Staged<T>& staged) {
  if (stride == 1 && n % kStep == 0 && !copy) return x;
  for (std::int64_t i = 0; i < n; ++i) staged.numbers[i] = x[i * stride];
  for (std::int64_t i = n; i % kStep != 0; ++i) staged.numbers[i] = narrow<T>(-kInfinity);
  return staged.numbers;
}

inline std::int64_t whole_steps(std::int64_t n) { return (n + kStep - 1) / kStep * kStep; }

template <class T>
bool has_nan(const T* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (const float v = widen(x[i]); v != v) return true;
  }
  return false;
}

template <class L, class T>
void add_block(const T* x, std::int64_t n, float c, bool weighted, RowSums& sums) {
  if (const double largest = block_max<L>(x, n); largest > sums.maximum) {
    if (sums.sum != 0) {  // what was summed so far was relative to the smaller maximum
      const double lift = (sums.maximum - largest) * c, factor = __builtin_exp2(lift);
      sums.weighted = factor * (sums.weighted + sums.sum * lift);
      sums.sum *= factor;
    }
    sums.maximum = largest;
  }
  if (__builtin_isinf(sums.maximum)) {
    if (sums.maximum > 0 || has_nan(x, n)) sums.sum = sums.weighted = kNan;
  } else if (weighted) {
    block_sum<L, T, true>(x, n, static_cast<float>(sums.maximum), c, sums);
  } else {
    block_sum<L, T, false>(x, n, static_cast<float>(sums.maximum), c, sums);
  }
}

template <class T>
void widen_all(const T* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = widen(x[i]);
}

template <class L, class T>
void add(const Row& row, bool weighted, RowSums& sums) {
  const T* x = static_cast<const T*>(row.data);
  const float c = exponent_scale(row.temperature);
  Staged<T> staged;
  for (std::int64_t first = 0; first < row.size; first += kBlock) {
    const std::int64_t n = row.size - first < kBlock ? row.size - first : kBlock, padded = whole_steps(n);
    const T* line = line_up(x + first * row.stride, n, row.stride, false, staged);
    if (row.softcap == 0) {
      add_block<L>(line, padded, c, weighted, sums);
    } else {
      float z[kBlock];
      widen_all(line, padded, z);
      block_cap<L>(z, padded, row.softcap, z, nullptr);
      add_block<L>(z, padded, c, weighted, sums);
    }
  }
}

template <class L, class T>
void block_gradient(const T* x, std::int64_t n, float maximum, float c, double constant, double slope,
                    T* out) {
  const float a = static_cast<float>(constant), b = static_cast<float>(slope);
  if (slope == 0) {
    block_gradient<L, T, false>(x, n, maximum, c, a, b, out);
  } else {
    block_gradient<L, T, true>(x, n, maximum, c, a, b, out);
  }
}

template <class L, class T>
void gradient(const Row& row, double maximum, double constant, double slope, void* out,
              std::int64_t out_stride) {
  const T* x = static_cast<const T*>(row.data);
  T* to = static_cast<T*>(out);
  const float c = exponent_scale(row.temperature), top = static_cast<float>(maximum);
  const bool finite = __builtin_isfinite(constant) && __builtin_isfinite(slope);
  Staged<T> staged, staged_out;
  for (std::int64_t first = 0; first < row.size; first += kBlock) {
    const std::int64_t n = row.size - first < kBlock ? row.size - first : kBlock, padded = whole_steps(n);
    const T* line = line_up(x + first * row.stride, n, row.stride, !finite, staged);
    T* target = to + first * out_stride;
    T* result = out_stride == 1 && n == padded ? target : staged_out.numbers;
    if (row.softcap == 0) {
      block_gradient<L>(line, padded, top, c, constant, slope, result);
    } else {
      float z[kBlock], derivative[kBlock], product[kBlock];
      widen_all(line, padded, z);
      block_cap<L>(z, padded, row.softcap, z, derivative);
      block_gradient<L>(z, padded, top, c, constant, slope, product);
      for (std::int64_t i = 0; i < n; ++i) result[i] = narrow<T>(product[i] * derivative[i]);
    }
    if (!finite) {  // 0 times it is NaN
      for (std::int64_t i = 0; i < n; ++i) {
        if (widen(line[i]) == -kInfinity) result[i] = narrow<T>(0.0f);
      }
    }
    if (result == target) continue;
    for (std::int64_t i = 0; i < n; ++i) target[i * out_stride] = result[i];
  }
}

template <class L>
void add_any(const Row& row, bool weighted, RowSums& sums) {
  switch (row.dtype) {
    case Dtype::bfloat16: return add<L, BFloat16>(row, weighted, sums);
    case Dtype::float16: return add<L, Float16>(row, weighted, sums);
    default: return add<L, float>(row, weighted, sums);
  }
}

template <class L>
void gradient_any(const Row& row, double maximum, double constant, double slope, void* out,
                  std::int64_t stride) {
  switch (row.dtype) {
    case Dtype::bfloat16: return gradient<L, BFloat16>(row, maximum, constant, slope, out, stride);
    case Dtype::float16: return gradient<L, Float16>(row, maximum, constant, slope, out, stride);
    default: return gradient<L, float>(row, maximum, constant, slope, out, stride);
  }
}

template <class L>
float capped(float x, float softcap) {
  if (softcap == 0) return x;
  float z[kStep];
  for (float& v : z) v = x;
  block_cap<L>(z, kStep, softcap, z, nullptr);
  return z[0];
}

}  // namespace
}  // namespace spo
