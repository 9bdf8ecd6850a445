#pragma once
#include <array>
#include <cstddef>
#include <optional>

#include "spo/array.hpp"
#include "spo/token_logprob.hpp"

namespace spo {

enum class KlEstimator { k1, k2, k3 };
enum class Aggregation { token_mean, seq_mean_token_mean, seq_mean_token_sum, seq_mean_token_sum_norm };
enum class RatioLevel { token, sequence, segment };

struct PolicyLossOptions {
  double clip_low, clip_high;
  std::optional<double> dual_clip, rollout_is_cap;
  double kl_coef;
  KlEstimator kl_estimator;
  double kl_log_ratio_clamp, entropy_coef;
  Aggregation aggregation;
  double max_length;  // read with seq_mean_token_sum_norm
  double log_ratio_clamp;
  RatioLevel ratio_level;
};

// One number a token, [B, T], or packed [N] with offsets; where the mask is 0 a token has no part in
// anything.
struct PolicyLossTokens {
  Array old_logprobs;  // not given: the log-probs themselves
  Array advantages;    // a token, or [B]: a sequence
  Array mask;
  Array rollout_logprobs, ref_logprobs, entropy, segment_ids;  // may be missing
  Array cu_seqlens;                                            // [B + 1], of packed tokens
  Array normalizer;                                            // one number in place of this batch's count
  bool per_sequence = false;                                   // how to read the advantages
};

struct PolicyLossResult {
  double loss;
  // clip_fraction, dual_clip_fraction, approx_kl, ratio_mean, ratio_max, kl_mean, rollout_is_mean, ess,
  // tokens
  std::array<double, 9> metrics;
};

// The loss of log-probs shaped like the mask, and its gradients into `grad_logprobs` and, if given,
// `grad_entropy`. Everything is computed in float64, and does not depend on the number of threads.
PolicyLossResult policy_loss(const Array& logprobs, const PolicyLossTokens& tokens,
                             const PolicyLossOptions& options, const Array& grad_logprobs,
                             const Array& grad_entropy, std::size_t threads);

// The same from logits, with ratios of tokens: each row's gradient is written to `gradient`, shaped like the
// logits and perhaps the logits themselves, while the row is in the cache. The rows' mask is the tokens'.
// Entropy is computed if its coefficient is not 0. Masked rows are set to 0 unless `clean` says that they
// are.
PolicyLossResult fused_policy_loss(const TokenRows& rows, const PolicyLossTokens& tokens,
                                   const PolicyLossOptions& options, const Array& gradient, bool clean,
                                   std::size_t threads);

}  // namespace spo
