// The segment kernel in plain C++, for any kind of values. Unnamed, so that a file compiled for other
// instructions has its own.
#pragma once
#include "segment_kernel.hpp"

namespace spo {
namespace {

// sums in flight: enough to hide the latency of an addition
constexpr std::int64_t kLanes = 8;

double total(const double (&lanes)[kLanes]) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// Calls body(k, value, counted) for every entry: eight neighbours have k = 0 to 7, the rest k = 0.
template <class T, class Body>
void for_lanes(const T* values, const std::uint8_t* mask, std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t k = 0; k < kLanes; ++k) body(k, static_cast<double>(values[i + k]), mask[i + k] != 0);
  }
  for (; i < n; ++i) body(0, static_cast<double>(values[i]), mask[i] != 0);
}

template <class T>
[[maybe_unused]] void moments(const T* values, const std::uint8_t* mask, std::int64_t n, Moments& result) {
  std::int64_t first = 0;
  while (first < n && mask[first] == 0) ++first;
  if (first == n) return;
  const auto pivot = static_cast<double>(values[first]);
  double count[kLanes] = {}, sum[kLanes] = {}, squares[kLanes] = {}, least[kLanes], most[kLanes];
  for (std::int64_t k = 0; k < kLanes; ++k) least[k] = most[k] = pivot;
  for_lanes(values, mask, n, [&](std::int64_t k, double value, bool counted) {
    const double x = counted ? value : pivot;
    count[k] += counted ? 1.0 : 0.0;
    sum[k] += x - pivot;
    squares[k] += (x - pivot) * (x - pivot);
    least[k] = x < least[k] ? x : least[k];
    most[k] = x > most[k] ? x : most[k];
  });
  result = {total(count), pivot, total(sum), total(squares), least[0], most[0]};
  for (std::int64_t k = 1; k < kLanes; ++k) {
    result.least = least[k] < result.least ? least[k] : result.least;
    result.most = most[k] > result.most ? most[k] : result.most;
  }
}

template <class T, class Out>
void apply(const T* values, const std::uint8_t* mask, std::int64_t n, Scaling scaling, Out* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = (static_cast<double>(values[i]) - scaling.shift) * scaling.factor;
    out[i] = static_cast<Out>(mask[i] != 0 ? x : 0.0);
  }
}

}  // namespace
}  // namespace spo
