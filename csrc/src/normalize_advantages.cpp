#include "spo/normalize_advantages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu_kernels.hpp"
#include "segment_kernel_impl.hpp"
#include "spo/threads.hpp"

namespace spo {
namespace {

// Below this many tokens waking a thread costs more than it saves.
constexpr std::int64_t kWorthAThread = 1 << 15;

// A set of values: its mean, as a distance from one of them, and the squares of the distances from the mean.
struct Spread {
  double count = 0, pivot = 0, offset = 0, squares = 0;
  double least = std::numeric_limits<double>::infinity(), most = -least;

  // The pivot is a value of the set, so what cancels here is at most `count` times what stays.
  static Spread of(const Moments& m) {
    if (m.count == 0) return {};
    const double squares = m.squares - m.sum * (m.sum / m.count);
    return {m.count, m.pivot, m.sum / m.count, squares < 0 ? 0 : squares, m.least, m.most};
  }

  // Chan, Golub and LeVeque 1983: nothing cancels, whichever set comes first.
  void join(const Spread& part) {
    if (part.count == 0) return;
    if (count == 0) {
      *this = part;
      return;
    }
    const double all = count + part.count, distance = part.pivot - pivot + part.offset - offset;
    squares += part.squares + distance * distance * (count * part.count / all);
    offset += distance * (part.count / all);
    count = all;
    least = std::min(least, part.least);
    most = std::max(most, part.most);
  }

  double mean() const { return pivot + offset; }
};

// Statistics of groups from those of their segments, in the order of the segments.
class Groups {
 public:
  Groups(const Array& groups, std::size_t segments) : of_(segments, 0), spreads_(groups ? segments : 1) {
    if (groups) {
      const Column column(groups);
      for (std::size_t s = 0; s < segments; ++s)
        of_[s] = static_cast<std::size_t>(column.integer(static_cast<std::int64_t>(s)));
    }
  }

  void join(std::size_t segment, const Spread& part) { spreads_[of_[segment]].join(part); }
  double mean(std::size_t segment) const { return spreads_[of_[segment]].mean(); }

  // Asked for by what the set is, not by its rounded variance: seven times 0.1 has one of 1e-34.
  bool varies(std::size_t segment) const {
    const Spread& set = spreads_[of_[segment]];
    return (set.least != set.most || std::isnan(set.offset)) && set.count > 1;
  }
  double deviation(std::size_t segment) const {
    const Spread& set = spreads_[of_[segment]];
    return std::sqrt(set.squares / (set.count - 1));
  }

 private:
  std::vector<std::size_t> of_;
  std::vector<Spread> spreads_;
};

// (value - shift) / divisor of a segment's group; nothing if the result is 0 whatever the value is.
struct Normal {
  double shift = 0, divisor = 1;
  bool nothing = false;
};

Normal normal(const Groups& groups, std::size_t segment, const NormalizeOptions& options) {
  if (!groups.varies(segment)) return {0, 1, options.center};
  return {options.center ? groups.mean(segment) : 0,
          options.scale ? groups.deviation(segment) + options.eps : 1, false};
}

void normalize_segments(const AdvantageArrays& arrays, const NormalizeOptions& options, const Array& out) {
  const auto n = static_cast<std::size_t>(arrays.advantages.size());
  std::vector<double> values(n), weights(n, 1.0);
  Column(arrays.advantages).load(0, values);
  if (arrays.lengths) Column(arrays.lengths).load(0, weights);
  const auto counts = [&](std::size_t s) {
    return weights[s] > 0 ? (options.by_token ? weights[s] : 1.0) : 0.0;
  };
  Groups groups(arrays.groups, n);
  for (std::size_t s = 0; s < n; ++s)
    groups.join(s, {counts(s), values[s], values[s] - values[s], 0, values[s], values[s]});
  const Column results(out);
  for (std::size_t s = 0; s < n; ++s) {
    const Normal by = normal(groups, s, options);
    const bool zero = by.nothing || weights[s] <= 0;
    results.store(static_cast<std::int64_t>(s), zero ? 0 : (values[s] - by.shift) / by.divisor);
  }
}

// Tokens, segment by segment. Where the arrays allow it their own memory is read, else a copy in float64.
class TokenSegments {
 public:
  TokenSegments(const AdvantageArrays& arrays, const Array& out)
      : values_(arrays.advantages), mask_(arrays.mask), out_(out), in_line_(lies_in_line(arrays, out)) {
    if (in_line_) {
      numbers_ = static_cast<const float*>(arrays.advantages.data);
      bytes_ = static_cast<const std::uint8_t*>(arrays.mask.data);
      results_ = static_cast<float*>(out.data);
    }
    if (arrays.cu_seqlens) {
      const Column offsets(arrays.cu_seqlens);
      for (std::int64_t b = 0; b < arrays.cu_seqlens.size(); ++b) starts_.push_back(offsets.integer(b));
    } else {
      for (std::int64_t b = 0; b <= arrays.mask.shape[0]; ++b) starts_.push_back(b * arrays.mask.shape[1]);
    }
  }

  std::size_t count() const { return starts_.size() - 1; }

  Moments moments_of(std::size_t s) const {
    Moments result;
    if (in_line_) {
      segment_kernel().moments(numbers_ + starts_[s], bytes_ + starts_[s], length(s), result);
    } else {
      const Copy copy(*this, s);
      moments(copy.values.data(), copy.mask.data(), length(s), result);
    }
    return result;
  }

  void write(std::size_t s, const Normal& by) const {
    if (in_line_ && !by.nothing) {
      segment_kernel().apply(numbers_ + starts_[s], bytes_ + starts_[s], length(s),
                             {by.shift, 1 / by.divisor}, results_ + starts_[s]);
      return;
    }
    const Copy copy(*this, s);
    for (std::size_t i = 0; i < copy.values.size(); ++i) {
      const bool zero = by.nothing || copy.mask[i] == 0;
      out_.store(starts_[s] + static_cast<std::int64_t>(i),
                 zero ? 0 : (copy.values[i] - by.shift) / by.divisor);
    }
  }

 private:
  struct Copy {
    Copy(const TokenSegments& segments, std::size_t s) {
      const auto n = static_cast<std::size_t>(segments.length(s));
      std::vector<double> flags(n);
      values.resize(n);
      mask.resize(n);
      segments.values_.load(segments.starts_[s], values);
      segments.mask_.load(segments.starts_[s], flags);
      for (std::size_t i = 0; i < n; ++i) mask[i] = flags[i] != 0;
    }
    std::vector<double> values;
    std::vector<std::uint8_t> mask;
  };

  static bool contiguous(const Array& array) {
    const Offsets offsets(array.shape, array.strides);
    return array.size() < 2 || (offsets[1] == 1 && offsets[array.size() - 1] == array.size() - 1);
  }
  static bool lies_in_line(const AdvantageArrays& arrays, const Array& out) {
    const bool bytes = arrays.mask.dtype == Dtype::boolean || arrays.mask.dtype == Dtype::uint8;
    return bytes && arrays.advantages.dtype == Dtype::float32 && out.dtype == Dtype::float32 &&
           contiguous(arrays.advantages) && contiguous(arrays.mask) && contiguous(out);
  }
  std::int64_t length(std::size_t s) const { return starts_[s + 1] - starts_[s]; }

  Column values_, mask_, out_;
  bool in_line_;
  const float* numbers_ = nullptr;
  const std::uint8_t* bytes_ = nullptr;
  float* results_ = nullptr;
  std::vector<std::int64_t> starts_;
};

void normalize_tokens(const AdvantageArrays& arrays, const NormalizeOptions& options, const Array& out,
                      std::size_t threads) {
  const TokenSegments segments(arrays, out);
  const std::size_t n = segments.count();
  if (arrays.advantages.size() < kWorthAThread) threads = 1;
  Groups groups(arrays.groups, n);
  std::vector<Spread> parts(n);
  parallel_for(n, threads, [&](std::size_t s) { parts[s] = Spread::of(segments.moments_of(s)); });
  if (!options.by_token) {
    for (Spread& part : parts) {
      if (part.count > 0) part = {1, part.mean(), part.offset - part.offset, 0, part.mean(), part.mean()};
    }
  }
  for (std::size_t s = 0; s < n; ++s) groups.join(s, parts[s]);
  parallel_for(n, threads, [&](std::size_t s) { segments.write(s, normal(groups, s, options)); });
}

}  // namespace

void normalize_advantages(const AdvantageArrays& arrays, const NormalizeOptions& options, const Array& out,
                          std::size_t threads) {
  if (arrays.advantages.size() == 0) return;
  if (arrays.mask) {
    normalize_tokens(arrays, options, out, threads);
  } else {
    normalize_segments(arrays, options, out);
  }
}

}  // namespace spo
