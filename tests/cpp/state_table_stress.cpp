// Eight threads on one state table, for builds with a sanitizer: state_table_stress FOLDER
//
// They insert, count, look up, save and tell deltas at once, in memory and through two mappings of one file;
// at the end every count is known.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "spo/state_table.hpp"

namespace {

using spo::StateTable;

constexpr int kThreads = 8, kRounds = 40, kKeys = 400;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "state_table_stress: %s\n", what);
  std::abort();
}

std::vector<spo::Key> keys_of(const StateTable& table, const std::string& prefix, bool pairs = false) {
  std::vector<spo::Key> keys;
  std::string scratch;
  for (int i = 0; i < kKeys; ++i) {
    const std::string state = prefix + std::to_string(i);
    keys.push_back(pairs ? table.pair_key(state, "go", scratch) : table.state_key(state));
  }
  return keys;
}

void work(StateTable& table, StateTable& told, int thread) {
  const int sink = open("/dev/null", O_WRONLY);
  std::uint64_t mark = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<spo::Key> keys = keys_of(table, std::to_string(round) + " ");
    for (const spo::Key& own : keys_of(table, std::to_string(thread) + "," + std::to_string(round) + " "))
      keys.push_back(own);
    const std::uint64_t lengths[] = {keys.size() / 2, keys.size() - keys.size() / 2};
    const std::uint8_t successes[] = {1, 0};
    table.update(keys, lengths, successes);
    for (const spo::Tally tally : table.tallies(keys))
      require(spo::visits_of(tally) > 0, "a counted state is unknown");
    table.scores(keys);
    const std::vector<spo::Key> pairs = keys_of(table, std::to_string(round) + " ", true);
    table.mark_explored(pairs);
    for (const std::uint8_t found : table.are_explored(pairs)) require(found, "a marked pair is unknown");
    if (thread == 0) {
      const StateTable::Delta delta = table.delta_since(mark);
      told.merge(delta);
      mark = delta.to;
    }
    if (thread == 1 && round % 8 == 0) table.write(sink);
    if (thread == 2) require(table.size() >= kKeys, "states are missing");
    if (thread == 3 && round % 8 == 0) table.visit_histogram();
  }
  close(sink);
}

void check(StateTable& table) {
  require(table.t() == 1 + 2 * kThreads * kRounds, "trajectories were lost");
  require(table.size() == std::uint64_t{kKeys} * kRounds * (1 + kThreads), "states were lost");
  for (int round = 0; round < kRounds; ++round) {
    for (const spo::Tally tally : table.tallies(keys_of(table, std::to_string(round) + " ")))
      require(spo::visits_of(tally) == kThreads, "visits were lost");
  }
}

// Half of the threads use `second`, which may be the same table.
void stress(StateTable& first, StateTable& second) {
  StateTable told({}, 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { work(i % 2 == 0 ? first : second, told, i); });
  for (std::thread& thread : threads) thread.join();
  check(first);
  check(second);
  told.merge(first.delta_since(first.mark()));
  check(told);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  {
    StateTable table({}, 0);
    stress(table, table);
  }
  const std::string path = std::string(argv[1]) + "/shared";
  {
    StateTable first({}, 0, path), second({}, 0, path);
    stress(first, second);
  }
  StateTable again({}, 0, path);
  check(again);
  std::puts("every count is right");
  return 0;
}
