// The row kernel for AVX2, FMA and F16C. CMake compiles this file for them; nothing here runs before they are
// found.
#include "row_kernel.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

#include "row_kernel_impl.hpp"

namespace spo {
namespace {

struct Lanes {
  __m256 v;

  static Lanes all(float x) { return {_mm256_set1_ps(x)}; }

  static void load(const float* x, Lanes& a, Lanes& b) {
    a.v = _mm256_loadu_ps(x);
    b.v = _mm256_loadu_ps(x + 8);
  }
  static void store(float* x, Lanes a, Lanes b) {
    _mm256_storeu_ps(x, a.v);
    _mm256_storeu_ps(x + 8, b.v);
  }
  // Even entries to a, odd ones to b: two instructions for sixteen numbers. Only store needs to know.
  static void load(const BFloat16* x, Lanes& a, Lanes& b) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    a.v = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    b.v = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(~0xffff)));
  }
  static void store(BFloat16* x, Lanes a, Lanes b) {
    const __m256i pairs = _mm256_or_si256(_mm256_srli_epi32(a.rounded(), 16),
                                          _mm256_and_si256(b.rounded(), _mm256_set1_epi32(~0xffff)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), pairs);
  }
  static void load(const Float16* x, Lanes& a, Lanes& b) {
    a.v = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    b.v = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + 8)));
  }
  static void store(Float16* x, Lanes a, Lanes b) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(x), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(x + 8), _mm256_cvtps_ph(b.v, _MM_FROUND_TO_NEAREST_INT));
  }
  template <std::size_t bytes>
  static void prefetch(const void* x) {
    for (std::size_t i = 0; i < bytes; i += 64) _mm_prefetch(static_cast<const char*>(x) + i, _MM_HINT_T0);
  }

  Lanes exponent() const { return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 23))}; }
  Lanes magnitude() const { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), v)}; }
  Lanes with_sign_of(Lanes o) const { return {_mm256_or_ps(v, _mm256_and_ps(_mm256_set1_ps(-0.0f), o.v))}; }
  Lanes infinite_or(Lanes o) const {
    const __m256 infinite = _mm256_cmp_ps(magnitude().v, _mm256_set1_ps(kInfinity), _CMP_EQ_OQ);
    return {_mm256_blendv_ps(o.v, v, infinite)};
  }
  float largest() const {
    float x[8], r;
    _mm256_storeu_ps(x, v);
    r = x[0];
    for (const float y : x) r = y > r ? y : r;
    return r;
  }
  double total() const {
    float x[8];
    _mm256_storeu_ps(x, v);
    double r = 0;
    for (const float y : x) r += y;
    return r;
  }
  // The bits of the nearest bfloat16, ties to even, in the upper half. A NaN loses its payload, lest it round
  // to 0.
  __m256i rounded() const {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(near, _mm256_set1_epi32(0x7fc00000), nan);
  }
};

Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_ps(a.v, b.v)}; }
Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_ps(a.v, b.v)}; }
Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_ps(a.v, b.v)}; }
Lanes operator/(Lanes a, Lanes b) { return {_mm256_div_ps(a.v, b.v)}; }
Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
Lanes fms(Lanes a, Lanes b, Lanes c) { return {_mm256_fmsub_ps(a.v, b.v, c.v)}; }
// Of a NaN and a number, the second.
Lanes max(Lanes a, Lanes b) { return {_mm256_max_ps(a.v, b.v)}; }
Lanes min(Lanes a, Lanes b) { return {_mm256_min_ps(a.v, b.v)}; }

const RowKernel kernel{"avx2", add_any<Lanes>, gradient_any<Lanes>, capped<Lanes>};

}  // namespace

const RowKernel* avx2_row_kernel() { return &kernel; }

}  // namespace spo
#else
namespace spo {

const RowKernel* avx2_row_kernel() { return nullptr; }

}  // namespace spo
#endif
