// The loss of one token, its slopes, and the sums that make a loss and metrics of many.
#pragma once
#include <vector>

#include "spo/policy_loss.hpp"

namespace spo {

// A token's numbers; what was not given is absent from the options' point of view, see TokenInputs.
struct TokenNumbers {
  double logprob, old_logprob, advantage, rollout_logprob, ref_logprob, entropy;
};

struct TokenInputs {
  bool rollout, ref, entropy;  // which numbers count
};

struct TokenTerms {
  double loss = 0;
  double log_ratio_slope =
      0;  // of the loss by the log-ratio; 0 where it is clipped, capped or beyond the clamp
  double logprob_slope = 0;  // of the rest of the loss, by the log-prob itself
  double log_ratio = 0, ratio = 0, kl = 0, weight = 1;
  bool clipped = false, capped = false;
};

// a - b; two equal infinities differ by 0, and then nothing flows.
double log_difference(double a, double b);
bool equal_infinities(double a, double b);

// Terms of a token whose unit has the mean log-ratio `d`, not clamped yet.
TokenTerms token_terms(const TokenNumbers& x, double d, TokenInputs given, const PolicyLossOptions& options);

// Which tokens belong to a sequence, and what a token's loss weighs in the whole.
class Weights {
 public:
  Weights(const PolicyLossTokens& tokens, const PolicyLossOptions& options);

  std::int64_t sequences() const { return static_cast<std::int64_t>(starts_.size()) - 1; }
  std::int64_t first(std::int64_t sequence) const { return starts_[static_cast<std::size_t>(sequence)]; }
  std::int64_t sequence_of(std::int64_t token) const;
  std::int64_t length(std::int64_t sequence) const { return lengths_[static_cast<std::size_t>(sequence)]; }
  double of_sequence(std::int64_t sequence) const;

 private:
  const PolicyLossOptions& options_;
  std::vector<std::int64_t> starts_, lengths_;
  double scale_ = 0;  // one over the count, or 0
};

// Sums over tokens, in an order that the caller fixes.
class LossSums {
 public:
  void add(const TokenTerms& terms, double weight);
  void add(const LossSums& other);
  PolicyLossResult result() const;

 private:
  void rescale(double ratio_max);

  double loss_ = 0, clipped_ = 0, capped_ = 0, kl_ = 0, log_ratio_ = 0, ratio_ = 0, rollout_ = 0;
  double largest_ = 0, relative_ = 0, squares_ = 0;  // ratios relative to the largest: squares overflow early
  double tokens_ = 0;
};

}  // namespace spo
