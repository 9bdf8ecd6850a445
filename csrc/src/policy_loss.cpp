#include "spo/policy_loss.hpp"

#include <algorithm>
#include <numeric>

#include "policy_terms.hpp"
#include "spo/threads.hpp"
#include "token_rows.hpp"

namespace spo {
namespace {

// Below this many tokens waking a thread costs more than it saves.
constexpr std::int64_t kWorthAThread = 1 << 11;

struct Columns {
  explicit Columns(const PolicyLossTokens& tokens)
      : old_logprobs(tokens.old_logprobs),
        advantages(tokens.advantages),
        mask(tokens.mask),
        rollout_logprobs(tokens.rollout_logprobs),
        ref_logprobs(tokens.ref_logprobs),
        entropy(tokens.entropy),
        segment_ids(tokens.segment_ids),
        given{static_cast<bool>(rollout_logprobs), static_cast<bool>(ref_logprobs),
              static_cast<bool>(entropy)},
        per_sequence(tokens.per_sequence) {}

  Column old_logprobs, advantages, mask, rollout_logprobs, ref_logprobs, entropy, segment_ids;
  TokenInputs given;
  bool per_sequence;
};

// The action tokens of one sequence.
class Sequence {
 public:
  Sequence(const Column& logprobs, const Columns& columns, std::int64_t number, std::int64_t first,
           std::int64_t last) {
    const auto width = static_cast<std::size_t>(last - first);
    std::vector<double> values(width);
    columns.mask.load(first, values);
    for (std::size_t i = 0; i < width; ++i) {
      if (values[i] != 0) places.push_back(first + static_cast<std::int64_t>(i));
    }
    numbers.resize(places.size());
    const auto read = [&](const Column& column, double TokenNumbers::* member) {
      if (!column) return;
      column.load(first, values);
      for (std::size_t k = 0; k < places.size(); ++k) {
        numbers[k].*member = values[static_cast<std::size_t>(places[k] - first)];
      }
    };
    read(logprobs, &TokenNumbers::logprob);
    read(columns.old_logprobs ? columns.old_logprobs : logprobs, &TokenNumbers::old_logprob);
    if (!columns.per_sequence) read(columns.advantages, &TokenNumbers::advantage);
    if (columns.per_sequence && !places.empty()) {
      const double advantage = columns.advantages[number];
      for (TokenNumbers& x : numbers) x.advantage = advantage;
    }
    read(columns.rollout_logprobs, &TokenNumbers::rollout_logprob);
    read(columns.ref_logprobs, &TokenNumbers::ref_logprob);
    read(columns.entropy, &TokenNumbers::entropy);
    log_ratios.reserve(places.size());
    for (const TokenNumbers& x : numbers) log_ratios.push_back(log_difference(x.logprob, x.old_logprob));
  }

  // The tokens, unit by unit: those of one unit are neighbours in `order`, and `ends` says where each unit
  // stops.
  void divide(RatioLevel level, const Column& segment_ids) {
    order.resize(places.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (level == RatioLevel::token) return;
    if (level == RatioLevel::sequence) {
      if (!order.empty()) ends.push_back(order.size());
      return;
    }
    std::vector<std::int64_t> ids;
    for (const std::int64_t place : places) ids.push_back(segment_ids.integer(place));
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
    for (std::size_t k = 1; k <= order.size(); ++k) {
      if (k == order.size() || ids[order[k]] != ids[order[k - 1]]) ends.push_back(k);
    }
  }

  std::vector<std::int64_t> places;
  std::vector<TokenNumbers> numbers;
  std::vector<double> log_ratios;
  std::vector<std::size_t> order, ends;
};

// Calls body(first, last) for the range of each unit in the sequence's order.
template <class Body>
void for_units(const Sequence& sequence, const Body& body) {
  std::size_t first = 0;
  for (const std::size_t last : sequence.ends) {
    body(first, last);
    first = last;
  }
}

double mean(const std::vector<double>& values, const std::vector<std::size_t>& order, std::size_t first,
            std::size_t last) {
  double sum = 0;
  for (std::size_t k = first; k < last; ++k) sum += values[order[k]];
  return sum / static_cast<double>(last - first);
}

class Loss {
 public:
  Loss(const Array& logprobs, const PolicyLossTokens& tokens, const PolicyLossOptions& options,
       const Array& grad_logprobs, const Array& grad_entropy)
      : logprobs_(logprobs),
        columns_(tokens),
        options_(options),
        weights_(tokens, options),
        grad_logprobs_(grad_logprobs),
        grad_entropy_(grad_entropy) {}

  std::int64_t sequences() const { return weights_.sequences(); }

  // Sums of one sequence; writes its gradients.
  LossSums sequence(std::int64_t number) const {
    const std::int64_t first = weights_.first(number), last = weights_.first(number + 1);
    Sequence sequence(logprobs_, columns_, number, first, last);
    sequence.divide(options_.ratio_level, columns_.segment_ids);
    std::vector<double> d = sequence.log_ratios;
    for_units(sequence, [&](std::size_t a, std::size_t b) {
      const double shared = mean(sequence.log_ratios, sequence.order, a, b);
      for (std::size_t k = a; k < b; ++k) d[sequence.order[k]] = shared;
    });
    const double weight = weights_.of_sequence(number);
    LossSums sums;
    std::vector<double> ratio_slopes(d.size()), slopes(d.size());
    for (std::size_t k = 0; k < d.size(); ++k) {
      const TokenTerms terms = token_terms(sequence.numbers[k], d[k], columns_.given, options_);
      sums.add(terms, weight);
      ratio_slopes[k] = terms.log_ratio_slope;
      slopes[k] = terms.logprob_slope;
    }
    for_units(sequence, [&](std::size_t a, std::size_t b) {
      const double shared = mean(ratio_slopes, sequence.order, a, b);
      for (std::size_t k = a; k < b; ++k) ratio_slopes[sequence.order[k]] = shared;
    });
    write(sequence, ratio_slopes, slopes, weight, first, last);
    return sums;
  }

 private:
  void write(const Sequence& sequence, const std::vector<double>& ratio_slopes,
             const std::vector<double>& slopes, double weight, std::int64_t first, std::int64_t last) const {
    std::size_t k = 0;
    for (std::int64_t i = first; i < last; ++i) {
      double by_logprob = 0, by_entropy = 0;
      if (k < sequence.places.size() && sequence.places[k] == i) {
        const TokenNumbers& x = sequence.numbers[k];
        const double through_ratio = equal_infinities(x.logprob, x.old_logprob) ? 0 : ratio_slopes[k];
        if (weight != 0) by_logprob = weight * (through_ratio + slopes[k]);
        by_entropy = -options_.entropy_coef * weight;
        ++k;
      }
      if (grad_logprobs_) grad_logprobs_.store(i, by_logprob);
      if (grad_entropy_) grad_entropy_.store(i, by_entropy);
    }
  }

  Column logprobs_;
  Columns columns_;
  const PolicyLossOptions& options_;
  Weights weights_;
  Column grad_logprobs_, grad_entropy_;
};

}  // namespace

PolicyLossResult policy_loss(const Array& logprobs, const PolicyLossTokens& tokens,
                             const PolicyLossOptions& options, const Array& grad_logprobs,
                             const Array& grad_entropy, std::size_t threads) {
  const Loss loss(logprobs, tokens, options, grad_logprobs, grad_entropy);
  if (tokens.mask.size() < kWorthAThread) threads = 1;
  std::vector<LossSums> sums(static_cast<std::size_t>(loss.sequences()));
  parallel_for(sums.size(), threads,
               [&](std::size_t b) { sums[b] = loss.sequence(static_cast<std::int64_t>(b)); });
  LossSums total;
  for (const LossSums& part : sums) total.add(part);
  return total.result();
}

PolicyLossResult fused_policy_loss(const TokenRows& rows, const PolicyLossTokens& tokens,
                                   const PolicyLossOptions& options, const Array& gradient, bool clean,
                                   std::size_t threads) {
  const RowReader reader(rows);
  const std::vector<std::int64_t> active = reader.checked_rows();
  const RowWriter writer(gradient);
  const Columns columns(tokens);
  const Weights weights(tokens, options);
  const bool with_entropy = options.entropy_coef != 0;
  const TokenInputs given{columns.given.rollout, columns.given.ref, with_entropy};
  std::vector<TokenTerms> terms(active.size());
  std::vector<double> shares(active.size());
  std::vector<std::int64_t> places(static_cast<std::size_t>(reader.count()));
  for (std::size_t k = 0; k < active.size(); ++k)
    places[static_cast<std::size_t>(active[k])] = static_cast<std::int64_t>(k);
  if (2 * static_cast<std::int64_t>(active.size()) > reader.count()) writer.expect_all();

  for_rows(active, reader.vocabulary(), threads, [&](std::int64_t i) {
    const auto k = static_cast<std::size_t>(places[static_cast<std::size_t>(i)]);
    const Row row = reader.row(i);
    const std::int64_t token = reader.token(i), sequence = weights.sequence_of(i);
    const RowScore score = score_row(row, token, with_entropy);
    // what token_logprobs and its entropy would have handed on
    const auto logprob = static_cast<double>(static_cast<float>(score.logprob));
    TokenNumbers x{logprob, logprob, columns.advantages[columns.per_sequence ? sequence : i],
                   0,       0,       score.stats.entropy};
    if (columns.old_logprobs) x.old_logprob = columns.old_logprobs[i];
    if (columns.rollout_logprobs) x.rollout_logprob = columns.rollout_logprobs[i];
    if (columns.ref_logprobs) x.ref_logprob = columns.ref_logprobs[i];
    terms[k] = token_terms(x, log_difference(logprob, x.old_logprob), given, options);
    shares[k] = weights.of_sequence(sequence);
    const double through_ratio = equal_infinities(logprob, x.old_logprob) ? 0 : terms[k].log_ratio_slope;
    Upstream upstream{0, 0};
    if (shares[k] != 0) {
      upstream = {shares[k] * (through_ratio + terms[k].logprob_slope), -options.entropy_coef * shares[k]};
    }
    write_row_gradient(row, token, score.stats, upstream, writer.row(i), writer.stride());
  });
  if (!clean) {
    for (std::int64_t i = 0; i < reader.count(); ++i) {
      if (!reader.active(i)) writer.zero(i);
    }
  }
  LossSums total;
  for (std::size_t k = 0; k < terms.size(); ++k) total.add(terms[k], shares[k]);
  return total.result();
}

}  // namespace spo
