// The state table's core, one thread: state_table_core KEYS
//
// Hashed keys in random order, in trajectories of 30: nanoseconds a key for insertion (growth from nothing
// included), for an update of a known key and for a look-up; and the longest call, of 3,000 keys, while the
// table grew. benchmarks/state_table.py compiles and runs it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "spo/state_table.hpp"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLength = 30, kBatch = 100 * kLength;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class Call>
double worst_call(std::span<const spo::Key> keys, Call&& call) {
  double worst = 0.0;
  for (std::size_t at = 0; at < keys.size(); at += kBatch) {
    const Clock::time_point start = Clock::now();
    call(keys.subspan(at, std::min(kBatch, keys.size() - at)));
    worst = std::max(worst, seconds_since(start));
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::size_t count = std::strtoull(argv[1], nullptr, 10) / kBatch * kBatch;
  spo::StateTable table({}, 0);
  std::vector<spo::Key> keys(count);
  for (std::size_t i = 0; i < count; ++i)
    keys[i] = table.state_key({reinterpret_cast<const char*>(&i), sizeof i});

  const std::vector<std::uint64_t> lengths(kBatch / kLength, kLength);
  const std::vector<std::uint8_t> successes(lengths.size(), 1);
  const auto update = [&](std::span<const spo::Key> batch) { table.update(batch, lengths, successes); };
  const auto look_up = [&](std::span<const spo::Key> batch) { table.tallies(batch); };
  std::mt19937_64 random(1);
  const auto report = [&](const char* name, auto&& call) {
    const Clock::time_point start = Clock::now();
    const double worst = worst_call(keys, call);
    std::printf("%s %.1f ns, longest call %.2f ms\n", name,
                seconds_since(start) / static_cast<double>(count) * 1e9, worst * 1e3);
    std::shuffle(keys.begin(), keys.end(), random);
  };
  report("insert", update);
  report("update", update);
  report("look-up", look_up);
  std::printf("%.1f bytes a state\n", static_cast<double>(table.bytes()) / static_cast<double>(table.size()));
  return 0;
}
