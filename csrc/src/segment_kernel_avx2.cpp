// The segment kernel for AVX2 and FMA. CMake compiles this file for them; nothing here runs before they are
// found.
#include "segment_kernel.hpp"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#include "segment_kernel_impl.hpp"

namespace spo {
namespace {

// All bits set where one of eight bytes is not 0.
__m256i counted(const std::uint8_t* mask) {
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(mask)));
  return _mm256_cmpgt_epi32(bytes, _mm256_setzero_si256());
}

__m256d lower(__m256 x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
__m256d upper(__m256 x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }

double total(__m256d x) {
  double v[4];
  _mm256_storeu_pd(v, x);
  return (v[0] + v[2]) + (v[1] + v[3]);
}

void join_rest(const float* values, const std::uint8_t* mask, std::int64_t n, Moments& result) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (mask[i] == 0) continue;
    const auto x = static_cast<double>(values[i]);
    result.count += 1;
    result.sum += x - result.pivot;
    result.squares += (x - result.pivot) * (x - result.pivot);
    result.least = x < result.least ? x : result.least;
    result.most = x > result.most ? x : result.most;
  }
}

void wide_moments(const float* values, const std::uint8_t* mask, std::int64_t n, Moments& result) {
  std::int64_t first = 0;
  while (first < n && mask[first] == 0) ++first;
  if (first == n) return;
  const __m256 pivot = _mm256_set1_ps(values[first]);
  const __m256d center = _mm256_set1_pd(values[first]);
  __m256 least = pivot, most = pivot;
  __m256d low = _mm256_setzero_pd(), high = low, low_squares = low, high_squares = low;
  __m256i count = _mm256_setzero_si256();
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i set = counted(mask + i);
    const __m256 x = _mm256_blendv_ps(pivot, _mm256_loadu_ps(values + i), _mm256_castsi256_ps(set));
    count = _mm256_sub_epi32(count, set);
    least = _mm256_min_ps(x, least);  // a NaN, given first, is passed over: it shows in the sum
    most = _mm256_max_ps(x, most);
    const __m256d a = _mm256_sub_pd(lower(x), center), b = _mm256_sub_pd(upper(x), center);
    low = _mm256_add_pd(low, a);
    high = _mm256_add_pd(high, b);
    low_squares = _mm256_fmadd_pd(a, a, low_squares);
    high_squares = _mm256_fmadd_pd(b, b, high_squares);
  }
  float smallest[8], largest[8];
  std::int32_t counts[8];
  _mm256_storeu_ps(smallest, least);
  _mm256_storeu_ps(largest, most);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(counts), count);
  result = {0, values[first], total(_mm256_add_pd(low, high)),
            total(_mm256_add_pd(low_squares, high_squares)), values[first], values[first]};
  for (int k = 0; k < 8; ++k) {
    result.count += counts[k];
    result.least = smallest[k] < result.least ? smallest[k] : result.least;
    result.most = largest[k] > result.most ? largest[k] : result.most;
  }
  join_rest(values + i, mask + i, n - i, result);
}

void wide_apply(const float* values, const std::uint8_t* mask, std::int64_t n, Scaling scaling, float* out) {
  const __m256d shift = _mm256_set1_pd(scaling.shift), factor = _mm256_set1_pd(scaling.factor);
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(values + i);
    const __m128 a = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_sub_pd(lower(x), shift), factor));
    const __m128 b = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_sub_pd(upper(x), shift), factor));
    _mm256_storeu_ps(out + i, _mm256_and_ps(_mm256_set_m128(b, a), _mm256_castsi256_ps(counted(mask + i))));
  }
  apply(values + i, mask + i, n - i, scaling, out + i);
}

const SegmentKernel kernel{wide_moments, wide_apply};

}  // namespace

const SegmentKernel* avx2_segment_kernel() { return &kernel; }

}  // namespace spo
#else
namespace spo {

const SegmentKernel* avx2_segment_kernel() { return nullptr; }

}  // namespace spo
#endif
