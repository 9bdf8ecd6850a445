// Runs every kernel on memory of exactly the size it may touch, on both code paths, for a sanitiser to watch.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <vector>

#include "spo/cpu_path.hpp"
#include "spo/normalize_advantages.hpp"
#include "spo/policy_loss.hpp"
#include "spo/token_logprob.hpp"

namespace {

using Shape = std::vector<std::int64_t>;

// Heap memory of its own for each array: one byte too far is a fault.
class Arena {
 public:
  spo::Array make(spo::Dtype dtype, const Shape& shape, double value) {
    spo::Array array{nullptr, dtype, shape, Shape(shape.size(), 1)};
    for (std::size_t axis = shape.size(); axis-- > 1;)
      array.strides[axis - 1] = array.strides[axis] * shape[axis];
    memory_.push_back(std::make_unique<char[]>(static_cast<std::size_t>(array.size()) * spo::size_of(dtype)));
    array.data = memory_.back().get();
    const spo::Column column(array);
    for (std::int64_t i = 0; i < array.size(); ++i)
      column.store(i, value + 0.25 * static_cast<double>(i % 7));
    return array;
  }
  spo::Array ids(const Shape& shape, std::int64_t vocabulary) {
    spo::Array array = make(spo::Dtype::int64, shape, 0);
    for (std::int64_t i = 0; i < array.size(); ++i)
      spo::Column(array).store(i, static_cast<double>(i * 13 % vocabulary));
    return array;
  }
  spo::Array mask(const Shape& shape) {
    spo::Array array = make(spo::Dtype::boolean, shape, 0);
    for (std::int64_t i = 0; i < array.size(); ++i) spo::Column(array).store(i, i % 3 != 1);
    return array;
  }

 private:
  std::vector<std::unique_ptr<char[]>> memory_;
};

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

void token_logprobs(spo::Dtype dtype, std::int64_t vocabulary, double softcap, bool transposed) {
  Arena arena;
  spo::TokenRows rows{arena.make(dtype, {2, 3, vocabulary}, -1),
                      arena.ids({2, 3}, vocabulary),
                      arena.mask({2, 3}),
                      arena.make(spo::Dtype::float32, {2, 3}, 0.5),
                      1,
                      softcap};
  if (transposed) rows.logits.strides = {1, 2, 6};
  const spo::Array logprobs = arena.make(spo::Dtype::float32, {2, 3}, NAN);
  const spo::Array entropy = arena.make(spo::Dtype::float32, {2, 3}, NAN);
  const spo::Array stats = arena.make(spo::Dtype::float64, {2, 3, 3}, NAN);
  const spo::Array gradient = arena.make(dtype, {2, 3, vocabulary}, NAN);
  spo::token_logprob_forward(rows, logprobs, entropy, stats, 2);
  spo::token_logprob_backward(rows, stats, logprobs, entropy, gradient, false, 2);
  for (std::int64_t i = 0; i < gradient.size(); ++i)
    check(std::isfinite(spo::Column(gradient)[i]), "gradient");
  spo::token_logprob_backward(rows, stats, logprobs, entropy, rows.logits, false, 2);
}

void tiles(std::int64_t vocabulary, std::int64_t width) {
  Arena arena;
  const spo::Array ids = arena.ids({5}, vocabulary), logprobs = arena.make(spo::Dtype::float32, {5}, NAN),
                   entropy = arena.make(spo::Dtype::float32, {5}, NAN),
                   sums = arena.make(spo::Dtype::float64, {5, 3}, 0),
                   chosen = arena.make(spo::Dtype::float64, {5}, 0);
  for (std::int64_t i = 0; i < 15; ++i) spo::Column(sums).store(i, i % 3 == 0 ? -INFINITY : 0);
  spo::TokenRows tile{{}, ids, {}, {}, 1, 0};
  for (std::int64_t first = 0; first < vocabulary; first += width) {
    tile.logits = arena.make(spo::Dtype::float32, {5, std::min(width, vocabulary - first)}, -1);
    spo::add_tile(tile, first, true, sums, chosen, 2);
  }
  spo::score_tiles(tile, sums, chosen, logprobs, entropy);
  spo::write_tile_gradient(tile, (vocabulary - 1) / width * width, sums, chosen, logprobs, entropy, 2);
  for (std::int64_t i = 0; i < 5; ++i) check(spo::Column(logprobs)[i] <= 0, "log-prob of tiles");
}

void losses(spo::RatioLevel level, spo::Aggregation aggregation, std::int64_t vocabulary) {
  Arena arena;
  const auto numbers = [&] { return arena.make(spo::Dtype::float32, {2, 3}, -2); };
  const spo::Array mask = arena.mask({2, 3}),
                   gradient = arena.make(spo::Dtype::float32, {2, 3, vocabulary}, NAN);
  const spo::PolicyLossTokens tokens{numbers(),
                                     arena.make(spo::Dtype::float32, {2}, -1),
                                     mask,
                                     numbers(),
                                     numbers(),
                                     numbers(),
                                     arena.ids({2, 3}, 2),
                                     {},
                                     {},
                                     true};
  const spo::PolicyLossOptions options{0.2, 0.28, 2,           2, 0.1, spo::KlEstimator::k3,
                                       10,  0.01, aggregation, 3, 20,  level};
  const spo::Array by_logprobs = numbers(), by_entropy = numbers();
  check(std::isfinite(spo::policy_loss(numbers(), tokens, options, by_logprobs, by_entropy, 2).loss), "loss");
  if (level != spo::RatioLevel::token) return;
  const spo::TokenRows rows{arena.make(spo::Dtype::float32, {2, 3, vocabulary}, -1),
                            arena.ids({2, 3}, vocabulary),
                            mask,
                            {},
                            0.9,
                            0};
  check(std::isfinite(spo::fused_policy_loss(rows, tokens, options, gradient, false, 2).loss), "fused loss");
}

void advantages(std::int64_t width) {
  for (const bool by_token : {true, false}) {
    Arena arena;
    const spo::Array groups = arena.ids({3}, 3), out = arena.make(spo::Dtype::float32, {3, width}, NAN);
    const spo::Array tokens = arena.make(spo::Dtype::float32, {3, width}, 1), mask = arena.mask({3, width});
    spo::normalize_advantages({tokens, {}, mask, {}, groups}, {by_token, true, true, 1e-8}, out, 2);
    for (std::int64_t i = 0; i < out.size(); ++i) check(std::isfinite(spo::Column(out)[i]), "advantage");
    const spo::Array segments = arena.make(spo::Dtype::float64, {3}, 1),
                     result = arena.make(spo::Dtype::float64, {3}, 1);
    spo::normalize_advantages({segments, arena.ids({3}, 3), {}, {}, {}}, {by_token, true, true, 1e-8}, result,
                              1);
  }
}

void all() {
  for (const std::int64_t vocabulary : {1, 5, 31, 32, 33, 1023, 1024, 1025, 4097}) {
    for (const auto dtype : {spo::Dtype::float32, spo::Dtype::bfloat16, spo::Dtype::float16}) {
      for (const double softcap : {0.0, 5.0}) {
        for (const bool transposed : {false, true}) token_logprobs(dtype, vocabulary, softcap, transposed);
      }
    }
    tiles(vocabulary, 32);
    for (const auto level : {spo::RatioLevel::token, spo::RatioLevel::sequence, spo::RatioLevel::segment}) {
      for (const auto aggregation : {spo::Aggregation::token_mean, spo::Aggregation::seq_mean_token_mean}) {
        losses(level, aggregation, vocabulary);
      }
    }
    advantages(vocabulary);
  }
}

}  // namespace

int main() {
  all();
  spo::choose_cpu_path("portable");
  all();
  try {
    spo::choose_cpu_path("none");
  } catch (const std::invalid_argument&) {
    std::puts("ok");
  }
}
