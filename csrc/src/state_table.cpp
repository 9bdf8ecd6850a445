#include "spo/state_table.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>

#include "spo/evidence.hpp"
#include "spo/faults.hpp"
#include "state_layout.hpp"

namespace spo {
namespace {

constexpr std::size_t kAhead = 16;  // look-ups in flight

// Pairs are hashed like states; without this the text of a pair could name a state.
constexpr std::uint64_t kPairTag = 0x9e3779b97f4a7c15ULL;

Key key_of(const Digest& digest) { return {digest.a == 0 ? 1 : digest.a, digest.b}; }

std::uint64_t low_half(std::uint64_t word) { return word & 0xffffffff; }

void append_size(std::string& out, std::uint64_t size) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(size >> (8 * i)));
}

// Which keys of the running trajectory were there already.
class Visited {
 public:
  explicit Visited(std::size_t longest) : slots_(std::bit_ceil(2 * longest + 1)) {}

  void start() { ++trajectory_; }
  bool insert(StateTable::Keys keys, std::size_t index) {
    for (std::size_t at = keys[index].b & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[at];
      if (slot.trajectory != trajectory_) {
        slot = {trajectory_, index};
        return true;
      }
      if (keys[slot.index] == keys[index]) return false;
    }
  }

 private:
  struct Slot {
    std::uint64_t trajectory = 0;
    std::size_t index = 0;
  };
  std::vector<Slot> slots_;
  std::uint64_t trajectory_ = 0;
};

}  // namespace

const StateTable::Options& checked(const StateTable::Options& options) {
  Faults faults("StateTable");
  const auto number = [&](const char* name, double value) {
    if (!(value >= 0.0 && std::isfinite(value)))
      faults.add(std::string(name) + ": expected a finite number >= 0, got " + text(value));
  };
  number("alpha", options.alpha);
  number("zeta", options.zeta);
  number("omega_k", options.omega_k);
  if (options.xi < 0) faults.add("xi: expected a whole number >= 0, got " + std::to_string(options.xi));
  if (options.g_max < 1)
    faults.add("g_max: expected a whole number >= 1, got " + std::to_string(options.g_max));
  faults.raise();
  return options;
}

Digest random_digest() {
  std::random_device source;
  const auto word = [&] { return std::uint64_t{source()} << 32 | source(); };
  return {word() | 1, word()};
}

StateTable::StateTable(const Options& options, std::uint64_t capacity)
    : options_(checked(options)), mapping_(std::make_unique<Mapping>()) {
  attach();
  format(capacity);
}

void StateTable::attach() {
  auto* entries = reinterpret_cast<Owners::Entry*>(mapping_->at(kOwnersOffset));
  owners_ = std::make_unique<Owners>(mapping_->shared() ? entries : nullptr);
  map_ = std::make_unique<SegmentMap>(*mapping_, *owners_, file().head, kDirectoryOffset, kNodesOffset,
                                      kBlocksOffset);
}

void StateTable::format(std::uint64_t capacity) {
  mapping_->extend(0, kDirectoryOffset);
  File& fresh = file();
  fresh.fixed.options = stored(options_);
  fresh.fixed.origin = random_digest();
  map_->create(capacity);
  fresh.fixed.sign();
}

StateTable::File& StateTable::file() const { return *reinterpret_cast<File*>(mapping_->at(0)); }

std::uint64_t StateTable::t() const {
  const std::uint64_t clock = file().clock.load();
  return 1 + low_half(clock) + (clock >> 32);
}

std::uint64_t StateTable::size() {
  owners_->enter();
  return map_->states();
}

std::uint64_t StateTable::bytes() const { return map_->bytes(); }

Digest StateTable::origin() const { return file().fixed.origin; }

Key StateTable::state_key(std::string_view state) const {
  return key_of(options_.seed ? keyed_digest128(state, *options_.seed) : digest128(state));
}

Key StateTable::pair_key(std::string_view state, std::string_view action, std::string& scratch) const {
  scratch.clear();
  append_size(scratch, state.size());
  scratch += state;
  append_size(scratch, action.size());
  scratch += action;
  Digest digest = options_.seed ? keyed_digest128(scratch, *options_.seed) : digest128(scratch);
  digest.a ^= kPairTag;
  return key_of(digest);
}

void StateTable::count_trajectories(std::uint64_t own, std::uint64_t foreign) {
  std::uint64_t old = file().clock.load(), now;
  do {
    const std::uint64_t owns = low_half(old) + own, all = owns + (old >> 32) + foreign;
    if (own > kMostVisits || foreign > kMostVisits || all > kMostVisits)
      throw std::length_error("StateTable: expected at most " + std::to_string(kMostVisits) +
                              " trajectories");
    now = ((old >> 32) + foreign) << 32 | owns;
  } while (!file().clock.compare_exchange_weak(old, now));
}

void StateTable::update(Keys keys, std::span<const std::uint64_t> lengths,
                        std::span<const std::uint8_t> successes) {
  owners_->enter();
  // Counted first: no state then has more visits than there were trajectories.
  count_trajectories(lengths.size(), 0);
  std::vector<SegmentMap::Row> rows;
  rows.reserve(keys.size());
  Visited visited(lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end()));
  std::size_t next = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const Tally tally = 1 | (successes[i] ? kMark : 0);
    visited.start();
    for (const std::size_t end = next + lengths[i]; next < end; ++next) {
      if (visited.insert(keys, next)) rows.push_back({keys[next], tally});
    }
  }
  for (std::size_t i = 0; i < std::min(kAhead, rows.size()); ++i) map_->prefetch(rows[i].key);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) map_->prefetch(rows[i + kAhead].key);
    map_->add(rows[i].key, rows[i].tally);
  }
}

template <class Each>
void StateTable::look_up(Keys keys, Each&& each) {
  for (std::size_t i = 0; i < std::min(kAhead, keys.size()); ++i) map_->prefetch(keys[i]);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i + kAhead < keys.size()) map_->prefetch(keys[i + kAhead]);
    each(i, map_->find(keys[i]));
  }
}

std::vector<Tally> StateTable::tallies(Keys keys) {
  std::vector<Tally> out(keys.size());
  look_up(keys, [&](std::size_t i, Tally tally) { out[i] = tally; });
  return out;
}

// The gate's other side: too many failures, and too small a share of successes.
bool StateTable::hopeless(Tally tally) const {
  const auto visits = static_cast<double>(visits_of(tally)),
             successes = static_cast<double>(successes_of(tally));
  return visits - successes >= static_cast<double>(options_.xi) &&
         !(successes / (visits + 1e-6) > options_.zeta);
}

double StateTable::score(double alpha_log_t, Tally tally) const {
  const auto visits = static_cast<double>(visits_of(tally)),
             successes = static_cast<double>(successes_of(tally));
  if (visits == 0.0) return 1.0;
  return hopeless(tally) ? 0.0 : std::exp(-alpha_log_t * (successes / (visits + 1e-6)));
}

std::vector<double> StateTable::scores(Keys keys) {
  const double alpha_log_t = options_.alpha * std::log(static_cast<double>(t()));
  std::vector<double> out(keys.size());
  look_up(keys, [&](std::size_t i, Tally tally) { out[i] = score(alpha_log_t, tally); });
  return out;
}

std::vector<std::int64_t> StateTable::rollout_counts(Keys keys) {
  const double alpha_log_t = options_.alpha * std::log(static_cast<double>(t()));
  const auto most = static_cast<double>(options_.g_max);
  std::vector<std::int64_t> out(keys.size());
  look_up(keys, [&](std::size_t i, Tally tally) {
    if (tally != 0 && hopeless(tally)) return;
    out[i] =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(most * score(alpha_log_t, tally))));
  });
  return out;
}

std::vector<double> StateTable::novelty_weights(Keys keys) {
  std::vector<double> out(keys.size());
  look_up(keys, [&](std::size_t i, Tally tally) {
    out[i] = 0.5 * std::exp(-options_.omega_k * static_cast<double>(visits_of(tally)));
  });
  return out;
}

std::vector<double> StateTable::step_rewards(Keys keys, Keys next, std::span<const std::uint8_t> successes) {
  const double alpha_log_t = options_.alpha * std::log(static_cast<double>(t()));
  const std::vector<Tally> after = tallies(next);
  std::vector<double> out(keys.size());
  look_up(keys, [&](std::size_t i, Tally tally) {
    const double weight = 0.5 * std::exp(-options_.omega_k * static_cast<double>(visits_of(tally)));
    const double gain = score(alpha_log_t, tally) - score(alpha_log_t, after[i]);
    out[i] =
        weight * (keys[i] == next[i] ? 0.0 : 1.0) + (0.5 - weight) * gain + 0.5 * (successes[i] ? 1.0 : 0.0);
  });
  return out;
}

void StateTable::mark_explored(Keys pairs) {
  owners_->enter();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (i + kAhead < pairs.size()) map_->prefetch(pairs[i + kAhead]);
    map_->add(pairs[i], kMark);
  }
}

std::vector<std::uint8_t> StateTable::are_explored(Keys pairs) {
  std::vector<std::uint8_t> out(pairs.size());
  look_up(pairs, [&](std::size_t i, Tally tally) { out[i] = tally != 0; });
  return out;
}

std::map<std::uint32_t, std::uint64_t> StateTable::visit_histogram() {
  owners_->enter();
  std::map<std::uint32_t, std::uint64_t> states;
  // Most states have few visits.
  std::vector<std::uint64_t> few(4096);
  const auto count = [&](const SegmentMap::Slot& slot) {
    const std::uint32_t visits = visits_of(SegmentMap::total_of(slot));
    if (visits < few.size()) ++few[visits];
    else ++states[visits];
  };
  map_->for_each(count, [] {});
  for (std::uint32_t visits = 1; visits < few.size(); ++visits) {
    if (few[visits] > 0) states[visits] = few[visits];
  }
  return states;
}

double StateTable::l1_coverage(StateTable& reference, double epsilon) {
  check_options(reference.options_, "reference");
  owners_->enter();
  reference.owners_->enter();
  double visits = 0.0, reference_visits = 0.0;
  for (const auto& [count, states] : visit_histogram())
    visits += static_cast<double>(count) * static_cast<double>(states);
  for (const auto& [count, states] : reference.visit_histogram())
    reference_visits += static_cast<double>(count) * static_cast<double>(states);
  if (reference_visits == 0.0)
    throw std::invalid_argument("reference: expected a table with visits, got none");

  double sum = 0.0;
  std::vector<SegmentMap::Row> rows;
  const auto take = [&](const SegmentMap::Slot& slot) {
    const Tally tally = SegmentMap::total_of(slot);
    if (visits_of(tally) > 0) rows.push_back({SegmentMap::key_of(slot), tally});
  };
  reference.map_->for_each(take, [&] {
    for (const SegmentMap::Row& row : rows) {
      const double q = visits_of(row.tally) / reference_visits;
      const double p = visits == 0.0 ? 0.0 : visits_of(map_->find(row.key)) / visits;
      sum += q * q / (p + epsilon * q);
    }
    rows.clear();
  });
  return sum;
}

void StateTable::check_options(const Options& other, const char* what) const {
  if (other == options_) return;
  Faults faults(what);
  const auto differs = [&](const char* name, const std::string& own, const std::string& got) {
    if (own != got) faults.add(std::string(name) + ": expected this table's " + own + ", got " + got);
  };
  differs("alpha", text(options_.alpha), text(other.alpha));
  differs("xi", std::to_string(options_.xi), std::to_string(other.xi));
  differs("zeta", text(options_.zeta), text(other.zeta));
  differs("omega_k", text(options_.omega_k), text(other.omega_k));
  differs("g_max", std::to_string(options_.g_max), std::to_string(other.g_max));
  if (options_.seed != other.seed) faults.add("seed: expected this table's, got another");
  faults.raise();
}

std::vector<std::int64_t> number_pairs(std::span<const Key> keys, std::span<const std::int64_t> groups) {
  std::vector<std::int64_t> numbers(keys.size()), firsts;  // firsts: where each number appeared first
  std::vector<std::uint32_t> slots(std::bit_ceil(2 * keys.size() + 1));
  const std::size_t mask = slots.size() - 1;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint64_t mixed = (keys[i].b ^ static_cast<std::uint64_t>(groups[i]) * kPairTag) * kPairTag;
    for (std::size_t at = (mixed >> 20) & mask;; at = (at + 1) & mask) {
      if (slots[at] == 0) {
        numbers[i] = static_cast<std::int64_t>(firsts.size());
        firsts.push_back(static_cast<std::int64_t>(i));
        slots[at] = static_cast<std::uint32_t>(firsts.size());
        break;
      }
      const auto first = static_cast<std::size_t>(firsts[slots[at] - 1]);
      if (keys[first] == keys[i] && groups[first] == groups[i]) {
        numbers[i] = slots[at] - 1;
        break;
      }
    }
  }
  return numbers;
}

}  // namespace spo
