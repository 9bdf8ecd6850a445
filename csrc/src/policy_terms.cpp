#include "policy_terms.hpp"

#include <algorithm>
#include <cmath>

namespace spo {
namespace {

double saturate(double x, double limit) { return x > limit ? limit : x < -limit ? -limit : x; }

bool beyond(double x, double limit) { return x > limit || x < -limit; }

// The clipped surrogate, its branch, and its slope by the log-ratio.
void add_surrogate(double advantage, const PolicyLossOptions& options, TokenTerms& terms) {
  const double plain = -advantage * terms.ratio;
  // min and max pass a NaN ratio on
  double bounded_ratio = terms.ratio;
  if (bounded_ratio < 1 - options.clip_low) bounded_ratio = 1 - options.clip_low;
  if (bounded_ratio > 1 + options.clip_high) bounded_ratio = 1 + options.clip_high;
  const double bounded = -advantage * bounded_ratio;
  terms.clipped = bounded > plain;
  if (options.dual_clip && advantage < 0) {
    const double cap = -*options.dual_clip * advantage;
    terms.capped = plain > cap || (terms.clipped && bounded > cap);
    if (terms.capped) {
      terms.loss = cap;
      return;
    }
  }
  if (terms.clipped) {
    terms.loss = bounded;
  } else if (advantage != 0) {  // of A = 0 the loss is 0 whatever the ratio is
    terms.loss = terms.log_ratio_slope = plain;
  }
}

void add_kl(const TokenNumbers& x, const PolicyLossOptions& options, TokenTerms& terms) {
  const double difference = log_difference(x.ref_logprob, x.logprob);
  const double u = saturate(difference, options.kl_log_ratio_clamp);
  double slope = 0;
  switch (options.kl_estimator) {
    case KlEstimator::k1:
      terms.kl = -u;
      slope = 1;
      break;
    case KlEstimator::k2:
      terms.kl = u * u / 2;
      slope = -u;
      break;
    case KlEstimator::k3:
      terms.kl = std::expm1(u) - u;
      slope = -std::expm1(u);
      break;
  }
  if (options.kl_coef == 0) return;
  terms.loss += options.kl_coef * terms.kl;
  if (beyond(difference, options.kl_log_ratio_clamp) || equal_infinities(x.ref_logprob, x.logprob)) return;
  terms.logprob_slope = options.kl_coef * slope;
}

}  // namespace

bool equal_infinities(double a, double b) { return a == b && std::isinf(a); }

double log_difference(double a, double b) { return equal_infinities(a, b) ? 0 : a - b; }

TokenTerms token_terms(const TokenNumbers& x, double d, TokenInputs given, const PolicyLossOptions& options) {
  TokenTerms terms;
  terms.log_ratio = saturate(d, options.log_ratio_clamp);
  terms.ratio = std::exp(terms.log_ratio);
  add_surrogate(x.advantage, options, terms);
  if (beyond(d, options.log_ratio_clamp)) terms.log_ratio_slope = 0;
  if (given.rollout && options.rollout_is_cap) {
    const double weight = std::exp(log_difference(x.old_logprob, x.rollout_logprob));
    terms.weight = weight > *options.rollout_is_cap ? *options.rollout_is_cap : weight;
    if (x.advantage != 0) {
      terms.loss *= terms.weight;
      if (terms.log_ratio_slope != 0) terms.log_ratio_slope *= terms.weight;
    }
  }
  if (given.ref) add_kl(x, options, terms);
  if (given.entropy && options.entropy_coef != 0) terms.loss -= options.entropy_coef * x.entropy;
  return terms;
}

Weights::Weights(const PolicyLossTokens& tokens, const PolicyLossOptions& options) : options_(options) {
  if (tokens.cu_seqlens) {
    const Column offsets(tokens.cu_seqlens);
    for (std::int64_t b = 0; b < tokens.cu_seqlens.size(); ++b) starts_.push_back(offsets.integer(b));
  } else {
    const std::int64_t width = tokens.mask.shape[1];
    for (std::int64_t b = 0; b <= tokens.mask.shape[0]; ++b) starts_.push_back(b * width);
  }
  const Column mask(tokens.mask);
  std::int64_t total = 0, occupied = 0;
  std::vector<double> row;
  for (std::int64_t b = 0; b < sequences(); ++b) {
    row.resize(static_cast<std::size_t>(first(b + 1) - first(b)));
    mask.load(first(b), row);
    lengths_.push_back(std::count_if(row.begin(), row.end(), [](double m) { return m != 0; }));
    total += lengths_.back();
    occupied += lengths_.back() > 0;
  }
  const auto local = static_cast<double>(options.aggregation == Aggregation::token_mean ? total : occupied);
  const double count = tokens.normalizer ? Column(tokens.normalizer)[0] : local;
  scale_ = count == 0 ? 0 : 1 / count;
}

std::int64_t Weights::sequence_of(std::int64_t token) const {
  return std::upper_bound(starts_.begin(), starts_.end(), token) - starts_.begin() - 1;
}

double Weights::of_sequence(std::int64_t sequence) const {
  switch (options_.aggregation) {
    case Aggregation::seq_mean_token_mean:
      return scale_ / static_cast<double>(std::max<std::int64_t>(1, length(sequence)));
    case Aggregation::seq_mean_token_sum_norm: return scale_ / options_.max_length;
    default: return scale_;
  }
}

void LossSums::add(const TokenTerms& terms, double weight) {
  // a normalizer of 0 makes the loss 0, whatever it was
  if (weight != 0) loss_ += weight * terms.loss;
  clipped_ += terms.clipped;
  capped_ += terms.capped;
  kl_ += terms.kl;
  log_ratio_ += terms.log_ratio;
  ratio_ += terms.ratio;
  rollout_ += terms.weight;
  rescale(terms.ratio);
  const double relative = terms.ratio == 0 ? 0 : terms.ratio / largest_;
  relative_ += relative;
  squares_ += relative * relative;
  tokens_ += 1;
}

void LossSums::add(const LossSums& other) {
  if (other.tokens_ == 0) return;
  loss_ += other.loss_;
  clipped_ += other.clipped_;
  capped_ += other.capped_;
  kl_ += other.kl_;
  log_ratio_ += other.log_ratio_;
  ratio_ += other.ratio_;
  rollout_ += other.rollout_;
  rescale(other.largest_);
  const double factor = other.largest_ == 0 ? 0 : other.largest_ / largest_;
  relative_ += other.relative_ * factor;
  squares_ += other.squares_ * factor * factor;
  tokens_ += other.tokens_;
}

void LossSums::rescale(double ratio_max) {
  if (ratio_max <= largest_ || std::isnan(largest_)) return;
  const double factor = largest_ / ratio_max;
  relative_ *= factor;
  squares_ *= factor * factor;
  largest_ = ratio_max;
}

PolicyLossResult LossSums::result() const {
  const double n = std::max(1.0, tokens_);
  const double ess = tokens_ == 0 ? 0 : relative_ * relative_ / squares_ / tokens_;
  return {loss_,
          {clipped_ / n, capped_ / n, -log_ratio_ / n, ratio_ / n, largest_, kl_ / n, rollout_ / n, ess,
           tokens_}};
}

}  // namespace spo
