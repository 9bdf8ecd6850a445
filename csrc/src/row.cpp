#include "row.hpp"

#include <cmath>
#include <cstring>

#include "half.hpp"

namespace spo {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLn2 = 0.6931471805599453;

template <class T>
void put(T* out, std::int64_t stride, std::int64_t n, float value) {
  for (std::int64_t i = 0; i < n; ++i) out[i * stride] = narrow<T>(value);
}

void put(Dtype dtype, void* out, std::int64_t stride, std::int64_t n, float value) {
  switch (dtype) {
    case Dtype::bfloat16: return put(static_cast<BFloat16*>(out), stride, n, value);
    case Dtype::float16: return put(static_cast<Float16*>(out), stride, n, value);
    default: return put(static_cast<float*>(out), stride, n, value);
  }
}

// (z - m) / temperature of the chosen entry. The float difference would do for the sum, not for the result.
double shifted(float chosen, const Row& row, double maximum) {
  return (static_cast<double>(row_kernel().capped(chosen, row.softcap)) - maximum) / row.temperature;
}

double logprob_of(float chosen, const Row& row, const RowStats& stats) {
  if (chosen == -kInfinity && !std::isnan(stats.sum)) return -kInfinity;
  return shifted(chosen, row, stats.maximum) - std::log(stats.sum);
}

double chosen_gradient(float chosen, const Row& row, const RowStats& stats, Upstream upstream) {
  const double logprob = logprob_of(chosen, row, stats), p = std::exp(logprob);
  // 1 - p as -expm1(log p): the difference loses everything when p is near 1
  double gradient = -upstream.logprob * std::expm1(logprob);
  if (upstream.entropy != 0) gradient -= upstream.entropy * p * (logprob + stats.entropy);
  if (row.softcap != 0) {
    const double t = std::tanh(static_cast<double>(chosen) / row.softcap);
    gradient *= 1 - t * t;
  }
  return gradient / row.temperature;
}

}  // namespace

float logit_at(const Row& row, std::int64_t i) {
  switch (row.dtype) {
    case Dtype::bfloat16: return widen(static_cast<const BFloat16*>(row.data)[i * row.stride]);
    case Dtype::float16: return widen(static_cast<const Float16*>(row.data)[i * row.stride]);
    default: return static_cast<const float*>(row.data)[i * row.stride];
  }
}

void write_zeros(Dtype dtype, std::int64_t n, void* out, std::int64_t stride) {
  if (stride == 1) {
    std::memset(out, 0, static_cast<std::size_t>(n) * size_of(dtype));
  } else {
    put(dtype, out, stride, n, 0.0f);
  }
}

RowScore score_of(const RowSums& sums, float chosen, const Row& row, bool with_entropy) {
  RowScore score{0, {sums.maximum, sums.sum, 0}};
  score.logprob = logprob_of(chosen, row, score.stats);
  if (with_entropy && sums.sum != 0) {
    const double entropy = std::log(sums.sum) - kLn2 * sums.weighted / sums.sum;
    score.stats.entropy = entropy < 0 ? 0 : entropy;
  }
  return score;
}

RowScore score_row(const Row& row, std::int64_t token, bool with_entropy) {
  RowSums sums;
  row_kernel().add(row, with_entropy, sums);
  return score_of(sums, logit_at(row, token), row, with_entropy);
}

void write_piece_gradient(const Row& piece, std::int64_t first, std::int64_t token, float chosen,
                          const RowStats& stats, Upstream upstream, void* out, std::int64_t out_stride) {
  if (stats.maximum == -kInfinity && !std::isnan(stats.sum)) {
    write_zeros(piece.dtype, piece.size, out, out_stride);
    return;
  }
  if (chosen == -kInfinity) upstream.logprob = 0;
  // p = 2^t / sum and log p = t ln 2 - log sum, so the gradient is 2^t (constant + slope t)
  const double share = 1 / (stats.sum * piece.temperature);
  double constant = -upstream.logprob * share, slope = 0;
  if (upstream.entropy != 0) {
    constant -= upstream.entropy * share * (stats.entropy - std::log(stats.sum));
    slope = -upstream.entropy * share * kLn2;
  }
  if (std::isinf(stats.maximum)) constant = std::numeric_limits<double>::quiet_NaN();
  row_kernel().gradient(piece, stats.maximum, constant, slope, out, out_stride);

  const std::int64_t place = token - first;
  if (place < 0 || place >= piece.size || chosen == -kInfinity) return;
  void* entry =
      static_cast<char*>(out) + place * out_stride * static_cast<std::int64_t>(size_of(piece.dtype));
  put(piece.dtype, entry, 1, 1, static_cast<float>(chosen_gradient(chosen, piece, stats, upstream)));
}

void write_row_gradient(const Row& row, std::int64_t token, const RowStats& stats, Upstream upstream,
                        void* out, std::int64_t out_stride) {
  write_piece_gradient(row, 0, token, logit_at(row, token), stats, upstream, out, out_stride);
}

}  // namespace spo
