// Deltas between tables, and merges.
#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

#include "spo/faults.hpp"
#include "state_layout.hpp"

namespace spo {
namespace {

// How much larger a tally is than the part of it that was told before.
Tally gained(Tally now, Tally before) { return visits_of(now) == 0 ? now & ~before : now - before; }

std::uint64_t own_trajectories(std::uint64_t clock) { return clock & 0xffffffff; }

void check_rows(std::span<const SegmentMap::Row> rows, Faults& faults) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (plausible(rows[i])) continue;
    faults.add("row " + std::to_string(i) + ": expected 0 <= successes <= visits, got " +
               std::to_string(successes_of(rows[i].tally)) + " of " +
               std::to_string(visits_of(rows[i].tally)));
  }
}

}  // namespace

bool plausible(const SegmentMap::Row& row) {
  const std::uint32_t visits = visits_of(row.tally), successes = successes_of(row.tally);
  return row.key.a != 0 &&
         (row.tally == kMark || (visits > 0 && successes <= visits && visits <= kMostVisits));
}

std::span<StateTable::Origin> StateTable::origins() const {
  auto* first = reinterpret_cast<Origin*>(mapping_->at(kOriginsOffset));
  return {first, std::min(file().origins.load(), kMostOrigins)};
}

StateTable::Journal* StateTable::journal() const {
  const std::uint64_t offset = file().journal.load(std::memory_order_acquire);
  return offset == 0 ? nullptr : reinterpret_cast<Journal*>(mapping_->at(offset));
}

std::uint64_t StateTable::mark() const {
  const Journal* last = journal();
  return last ? last->to : 0;
}

Held StateTable::exclusive() {
  owners_->enter();
  return Held(*owners_, file().lock, [] {});
}

StateTable::Delta StateTable::delta_since(std::uint64_t mark) {
  const Held held = exclusive();
  finish_cut();
  Journal* const last = journal();
  const std::uint64_t to = last ? last->to : 0, from = last ? last->from : 0;
  if (mark != 0 && mark != to && mark != from) {
    Faults faults("delta_since");
    faults.add("mark: expected 0, " + std::to_string(to) + " (the last delta's end) or " +
               std::to_string(from) + " (its start), got " + std::to_string(mark));
    faults.raise();
  }

  Delta delta{origin(), mark, to, 0, options_, {}};
  std::vector<Tally> cuts;
  const bool again = mark != 0 && mark != to;  // the last delta once more, and what came after it
  if (again) {
    for (std::uint64_t i = 0; i < last->rows; ++i) {
      delta.rows.push_back({last->begin()[i].key, last->begin()[i].tally});
      cuts.push_back(last->begin()[i].cut);
    }
  }
  bool changed = false;
  const auto take = [&](const SegmentMap::Slot& slot) {
    const Tally own = SegmentMap::own_of(slot), cut = slot.cut.load(std::memory_order_relaxed);
    changed |= own != cut;
    const Tally gain = gained(own, mark == 0 ? 0 : cut);
    if (gain == 0) return;
    delta.rows.push_back({SegmentMap::key_of(slot), gain});
    cuts.push_back(own);
  };
  map_->for_each(take, [] {});
  // After the rows, so that whatever they count is counted.
  const std::uint64_t now = own_trajectories(file().clock.load()), before = last ? last->own_trajectories : 0;
  changed |= now != before;
  delta.trajectories = now - (mark == 0 ? 0 : before) + (again ? last->trajectories : 0);
  if (changed) {
    ++delta.to;
    // A key that is there twice gets the later row's cut, the newer one.
    publish_cut(delta, cuts, now);
  }
  return delta;
}

void StateTable::publish_cut(const Delta& delta, std::span<const Tally> cuts,
                             std::uint64_t own_trajectories) {
  const std::uint64_t bytes = sizeof(Journal) + cuts.size() * sizeof(Journal::Row);
  const std::uint64_t pages = (bytes + Mapping::kPage - 1) / Mapping::kPage, offset = map_->allocate(pages);
  auto* fresh = new (mapping_->at(offset))
      Journal{pages, delta.from, delta.to, delta.trajectories, own_trajectories, cuts.size(), 0};
  for (std::size_t i = 0; i < cuts.size(); ++i)
    new (fresh->begin() + i) Journal::Row{delta.rows[i].key, delta.rows[i].tally, cuts[i]};
  const std::uint64_t old = file().journal.exchange(offset, std::memory_order_acq_rel);
  if (old != 0) map_->release(old, reinterpret_cast<Journal*>(mapping_->at(old))->pages);
  finish_cut();
}

// Also what a process did not finish that died: setting a cut twice is setting it once.
void StateTable::finish_cut() {
  Journal* const last = journal();
  if (!last || last->applied.load(std::memory_order_acquire) != 0) return;
  for (std::uint64_t i = 0; i < last->rows; ++i) map_->set_cut(last->begin()[i].key, last->begin()[i].cut);
  last->applied.store(1, std::memory_order_release);
  if (last->from != 0 || last->pages == 1) return;
  // From 0 on everything can be told again without it.
  const std::uint64_t offset = file().journal.load(), pages = last->pages;
  last->rows.store(0, std::memory_order_release);
  last->pages = 1;
  map_->release(offset + Mapping::kPage, pages - 1);
}

void StateTable::remember(const Digest& origin, std::uint64_t to) {
  const std::span<Origin> known = origins();
  const auto entry =
      std::find_if(known.begin(), known.end(), [&](const Origin& o) { return o.name == origin; });
  if (entry != known.end()) return entry->to.store(to);
  Origin& fresh = known.data()[known.size()];
  fresh.name = origin;
  fresh.to.store(to);
  ++file().origins;
}

bool StateTable::merge(const Delta& delta) {
  check_options(delta.options, "delta");
  Faults faults("delta");
  check_rows(delta.rows, faults);
  if (delta.from > delta.to)
    faults.add("expected from <= to, got " + std::to_string(delta.from) + " and " + std::to_string(delta.to));
  const Held held = exclusive();
  if (delta.origin == origin()) return faults.raise(), false;
  const std::span<Origin> known = origins();
  const auto entry =
      std::find_if(known.begin(), known.end(), [&](const Origin& o) { return o.name == delta.origin; });
  const std::uint64_t last = entry == known.end() ? 0 : entry->to.load();
  const bool repeat = delta.to <= last;
  if (!repeat && delta.from != last) {
    faults.add("from: expected " + std::to_string(last) +
               ", where the last delta of this origin ended, got " + std::to_string(delta.from) +
               (delta.from > last ? ": deltas between them are missing" : ": part of it was merged already"));
  }
  if (!repeat && entry == known.end() && known.size() == kMostOrigins)
    faults.add("origin: expected at most " + std::to_string(kMostOrigins) + " different ones");
  faults.raise();
  if (repeat) return false;

  count_trajectories(0, delta.trajectories);
  for (const SegmentMap::Row& row : delta.rows) map_->add_foreign(row.key, row.tally);
  remember(delta.origin, delta.to);
  return true;
}

void StateTable::merge(StateTable& other) {
  check_options(other.options_, "other");
  owners_->enter();
  other.owners_->enter();
  count_trajectories(other.t() - 1, 0);
  std::vector<SegmentMap::Row> rows;
  const auto take = [&](const SegmentMap::Slot& slot) {
    rows.push_back({SegmentMap::key_of(slot), SegmentMap::total_of(slot)});
  };
  other.map_->for_each(take, [&] {
    for (const SegmentMap::Row& row : rows) map_->add(row.key, row.tally);
    rows.clear();
  });
}

}  // namespace spo
