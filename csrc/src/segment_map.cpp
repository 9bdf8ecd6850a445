#include "spo/segment_map.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace spo {
namespace {

// Bits of Slot::own beside its tally. A slot of a discarded page reads as 0, so it is not live.
constexpr std::uint64_t kLive = std::uint64_t{1} << 31, kFrozen = std::uint64_t{1} << 63,
                        kFlags = kLive | kFrozen;

// Leaves grow 3, 4, 6, 8, 12, ... pages up to a largest size, and are then split: into two of 3/4 of it if
// the keys fall evenly, so that blocks are at least 53 % full. The first ones are split early, so that one
// growing leaf is little beside the others.
constexpr std::uint64_t kFirstPages = 4, kEarlyDepth = 4;
// Large leaves have whole huge pages. Small ones make processes that share a file wait less for one another's
// growth.
constexpr std::uint64_t kLargeLeaf = 2048, kSmallLeaf = 64, kSmallLeafDepth = 12;
constexpr std::uint64_t kHugePages = Mapping::kHugePage / Mapping::kPage;

std::uint64_t next_size(std::uint64_t pages) {
  return std::has_single_bit(pages) ? pages / 2 * 3 : pages / 3 * 4;
}

std::uint32_t most_used(std::uint64_t pages) {
  return static_cast<std::uint32_t>(pages * Mapping::kPage / sizeof(SegmentMap::Slot) * 4 / 5);
}

// A size for a leaf that has been split: room for a third more keys, unless that needs more than it had
// before.
std::uint64_t size_for(std::uint32_t used, std::uint64_t most) {
  std::uint64_t pages = 3;
  while (pages < most && most_used(pages) / 4 * 3 < used) pages = next_size(pages);
  return pages;
}

std::uint64_t first_bits(std::uint64_t hash, std::uint64_t count) { return hash >> 1 >> (63 - count); }
std::uint32_t bit_at(std::uint64_t hash, std::uint32_t depth) {
  return static_cast<std::uint32_t>(hash >> (63 - depth) & 1);
}

std::size_t home(const Key& key, std::size_t slots) {
  return static_cast<std::size_t>((key.b >> 32) * slots >> 32);
}

// joined(), for tallies that nothing bounds.
Tally capped(Tally a, Tally b) {
  const Tally sum = joined(a, b);
  return Tally{std::min(successes_of(sum), kMostVisits)} << 32 | std::min(visits_of(sum), kMostVisits);
}

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(std::string("the file is damaged: ") + what);
}

}  // namespace

SegmentMap::SegmentMap(Mapping& mapping, Owners& owners, Head& head, std::uint64_t directory,
                       std::uint64_t nodes, std::uint64_t first_block)
    : mapping_(mapping),
      owners_(owners),
      head_(head),
      directory_(reinterpret_cast<std::atomic<std::uint32_t>*>(mapping.at(directory))),
      nodes_(reinterpret_cast<Node*>(mapping.at(nodes))),
      nodes_offset_(nodes),
      directory_offset_(directory),
      first_block_(first_block) {}

std::uint64_t SegmentMap::most_pages(std::uint64_t depth) const {
  if (depth < kEarlyDepth) return kFirstPages;
  return mapping_.shared() && depth < kSmallLeafDepth ? kSmallLeaf : kLargeLeaf;
}

void SegmentMap::create(std::uint64_t capacity) {
  head_.next_page = first_block_ / Mapping::kPage;
  std::uint32_t depth = 0;
  std::uint64_t pages = kFirstPages;
  if (capacity > most_used(kFirstPages)) {
    // A few more than the mean: leaves fill unevenly.
    const auto fits = [&](std::uint64_t size) {
      return most_used(size) - most_used(size) / 16 >= capacity >> depth;
    };
    for (depth = kEarlyDepth; depth < kDirectoryDepth - 2 && !fits(most_pages(depth));) ++depth;
    for (pages = 3; pages < most_pages(depth) && !fits(pages);) pages = next_size(pages);
  }
  // A full tree of this depth: node 0, then the levels one after the other, children side by side.
  head_.nodes = (std::uint64_t{2} << depth) - 1;
  extend_tables(0, head_.nodes, depth);
  std::uint32_t id = 0;
  for (std::uint32_t level = 0; level <= depth; ++level) {
    for (std::uint64_t prefix = 0; prefix < std::uint64_t{1} << level; ++prefix, ++id) {
      node(id).depth = level;
      node(id).prefix = prefix;
      node(id).word = level < depth ? (2 * std::uint64_t{id} + 1) << 1 : leaf_word(allocate(pages), pages);
      directory_[(std::uint64_t{1} << level) + prefix] = id;
    }
  }
  head_.directory_depth = depth;
}

std::uint64_t SegmentMap::allocate(std::uint64_t pages) {
  std::uint64_t first = head_.next_page.load(), start;
  do {
    start = pages >= kHugePages && !mapping_.shared() ? (first + kHugePages - 1) / kHugePages * kHugePages
                                                      : first;
    if ((start + pages) * Mapping::kPage > mapping_.size())
      throw std::length_error("StateTable: no room left");
  } while (!head_.next_page.compare_exchange_weak(first, start + pages));
  mapping_.extend(start * Mapping::kPage, pages * Mapping::kPage);
  head_.live_pages += pages;
  return start * Mapping::kPage;
}

// Nodes `first` on and a level of the directory, which a file has only as far as they are used.
void SegmentMap::extend_tables(std::uint64_t first, std::uint64_t count, std::uint64_t level) {
  if (!mapping_.shared()) return;
  mapping_.extend(nodes_offset_ + first * sizeof(Node), count * sizeof(Node));
  const std::uint64_t entries = std::uint64_t{1} << level;
  mapping_.extend(directory_offset_ + entries * sizeof(std::uint32_t), entries * sizeof(std::uint32_t));
}

bool SegmentMap::inside(std::uint64_t offset, std::uint64_t pages) const {
  const std::uint64_t end = head_.next_page.load();
  return pages > 0 && pages <= end && offset % Mapping::kPage == 0 && offset >= first_block_ &&
         offset / Mapping::kPage <= end - pages && end * Mapping::kPage <= mapping_.size() &&
         (!mapping_.shared() || offset + pages * Mapping::kPage <= mapping_.file_bytes());
}

void SegmentMap::release(std::uint64_t offset, std::uint64_t pages) {
  mapping_.discard(offset, pages * Mapping::kPage);
  head_.live_pages -= pages;
}

Tally SegmentMap::own_of(const Slot& slot) { return slot.own.load(std::memory_order_relaxed) & ~kFlags; }

Tally SegmentMap::total_of(const Slot& slot) {
  return joined(own_of(slot), slot.foreign.load(std::memory_order_relaxed));
}

SegmentMap::Node& SegmentMap::leaf_of(const Key& key, std::uint64_t& word) const {
  // The directory is a hint: an entry may name an ancestor of the leaf.
  const std::uint64_t depth = head_.directory_depth.load(std::memory_order_acquire);
  std::uint32_t id =
      directory_[(std::uint64_t{1} << depth) + first_bits(key.a, depth)].load(std::memory_order_acquire);
  while (true) {
    Node& found = node(id);
    word = found.word.load(std::memory_order_acquire);
    if (!is_fork(word)) return found;
    id = child_of(word) + bit_at(key.a, found.depth.load(std::memory_order_relaxed));
  }
}

SegmentMap::Probe SegmentMap::probe(std::span<Slot> block, const Key& key, const Slot* from) {
  std::size_t i = from ? static_cast<std::size_t>(from - block.data()) : home(key, block.size());
  for (std::size_t left = block.size(); left > 0; --left) {
    Slot& slot = block[i];
    const std::uint64_t a = slot.a.load(std::memory_order_acquire);
    if (a == 0) return {&slot, false};
    if (a == key.a && slot.b.load(std::memory_order_relaxed) == key.b) return {&slot, true};
    if (++i == block.size()) i = 0;
  }
  throw std::runtime_error("StateTable: a block has no empty slot; the file was damaged while in use");
}

void SegmentMap::prefetch(const Key& key) const {
  std::uint64_t word;
  leaf_of(key, word);
  const std::span<Slot> block = block_of(word);
  const auto* slot = reinterpret_cast<const char*>(&block[home(key, block.size())]);
  __builtin_prefetch(slot, 1);
  __builtin_prefetch(slot + 64, 1);
}

Tally SegmentMap::find(const Key& key) const {
  while (true) {
    std::uint64_t word;
    const Node& leaf = leaf_of(key, word);
    const Probe at = probe(block_of(word), key);
    Tally own = 0, foreign = 0;
    if (at.found) {
      own = at.slot->own.load(std::memory_order_acquire) & ~kFlags;
      foreign = at.slot->foreign.load(std::memory_order_acquire);
    }
    if (leaf.word.load(std::memory_order_acquire) == word) return joined(own, foreign);
  }
}

// False: the slot is frozen or gone.
bool SegmentMap::add_to(Slot& slot, Tally tally) {
  std::uint64_t old = slot.own.load(std::memory_order_relaxed);
  while ((old & kFlags) == kLive) {
    const std::uint64_t sum = joined(old & ~kLive, tally) | kLive;
    if (sum == old || slot.own.compare_exchange_weak(old, sum, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void SegmentMap::add(const Key& key, Tally tally, Side side) {
  while (true) {
    std::uint64_t word;
    Node& leaf = leaf_of(key, word);
    Probe at = probe(block_of(word), key);
    if (at.found && side == Side::own && add_to(*at.slot, tally)) return;

    const Held held = hold(leaf);
    if (leaf.word.load(std::memory_order_acquire) != word) continue;
    at = probe(block_of(word), key, at.slot);
    if (!at.found) {
      if (full(leaf, word)) grow(leaf);
      else return insert(leaf, *at.slot, key, tally, side);
    } else if (side == Side::foreign) {
      const Tally foreign = at.slot->foreign.load(std::memory_order_relaxed);
      at.slot->foreign.store(capped(foreign, tally), std::memory_order_release);
      return;
    } else if (add_to(*at.slot, tally)) {
      return;
    } else {
      grow(leaf);  // a process died while it did this, and who took over could not
    }
  }
}

void SegmentMap::insert(Node& node, Slot& slot, const Key& key, Tally tally, Side side) {
  slot.b.store(key.b, std::memory_order_relaxed);
  slot.own.store(kLive | (side == Side::own ? tally : 0), std::memory_order_relaxed);
  slot.foreign.store(side == Side::foreign ? tally : 0, std::memory_order_relaxed);
  slot.cut.store(0, std::memory_order_relaxed);
  node.used.store(node.used.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (visits_of(tally) > 0)
    node.states.store(node.states.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  slot.a.store(key.a, std::memory_order_release);
}

void SegmentMap::set_cut(const Key& key, Tally cut) {
  std::uint64_t word;
  while (true) {
    Node& leaf = leaf_of(key, word);
    const Held held = hold(leaf);
    if (leaf.word.load(std::memory_order_acquire) != word) continue;
    const Probe at = probe(block_of(word), key);
    if (at.found) at.slot->cut.store(cut, std::memory_order_relaxed);
    return;
  }
}

bool SegmentMap::full(const Node& node, std::uint64_t word) const {
  return node.used.load(std::memory_order_relaxed) >= most_used(pages_of(word));
}

void SegmentMap::grow(Node& node) {
  const std::uint64_t word = node.word.load(std::memory_order_relaxed), old = pages_of(word);
  const std::uint32_t depth = node.depth.load(std::memory_order_relaxed);
  const bool split = std::has_single_bit(old) && old >= most_pages(depth);
  std::uint64_t pages[2] = {next_size(old), 0};
  if (split) {
    std::uint32_t used[2] = {};
    for (const Slot& slot : block_of(word)) {
      const Key key = key_of(slot);
      if (key.a != 0) ++used[bit_at(key.a, depth)];
    }
    for (int side = 0; side < 2; ++side) pages[side] = size_for(used[side], old);
  }

  // Whatever can fail comes before anything is frozen.
  std::uint32_t child = 0;
  if (split) {
    const std::uint64_t first = head_.nodes.fetch_add(2);
    if (first + 2 > kMostNodes) {
      head_.nodes -= 2;
      throw std::length_error("StateTable: no room left");
    }
    child = static_cast<std::uint32_t>(first);
    extend_tables(first, 2, std::min<std::uint64_t>(depth + 1, kDirectoryDepth));
  }
  const std::uint64_t offset = allocate(pages[0] + pages[1]);
  const std::uint64_t words[2] = {leaf_word(offset, pages[0]),
                                  leaf_word(offset + pages[0] * Mapping::kPage, pages[1])};
  node.pending.store(leaf_word(offset, pages[0] + pages[1]), std::memory_order_release);

  if (split) {
    for (std::uint32_t side = 0; side < 2; ++side) {
      Node& fresh = this->node(child + side);
      fresh.depth.store(depth + 1, std::memory_order_relaxed);
      fresh.prefix.store(2 * node.prefix.load(std::memory_order_relaxed) + side, std::memory_order_relaxed);
      fresh.word.store(words[side], std::memory_order_relaxed);
    }
    Node* children[2] = {&this->node(child), &this->node(child + 1)};
    copy_frozen(block_of(word), children, words, depth);
    node.word.store(std::uint64_t{child} << 1, std::memory_order_release);
    publish_split(node, child);
  } else {
    Node* self[1] = {&node};
    copy_frozen(block_of(word), self, words, depth);
    node.word.store(words[0], std::memory_order_release);
  }
  node.pending.store(0, std::memory_order_release);
  release(offset_of(word), old);
}

// Copies a block into the blocks `words` and counts them for their nodes, freezing what it copies.
void SegmentMap::copy_frozen(std::span<Slot> from, std::span<Node*> to, std::span<const std::uint64_t> words,
                             std::uint32_t depth) {
  std::uint32_t used[2] = {}, states[2] = {};
  const std::span<Slot> blocks[2] = {block_of(words[0]), block_of(words[to.size() - 1])};
  for (Slot& slot : from) {
    const Key key = key_of(slot);
    if (key.a == 0) continue;
    const std::uint64_t own = slot.own.fetch_or(kFrozen, std::memory_order_acq_rel) & ~kFrozen;
    const std::uint32_t side = to.size() == 2 ? bit_at(key.a, depth) : 0;
    Slot& copy = *probe(blocks[side], key).slot;
    copy.b.store(key.b, std::memory_order_relaxed);
    copy.own.store(own, std::memory_order_relaxed);
    copy.foreign.store(slot.foreign.load(std::memory_order_relaxed), std::memory_order_relaxed);
    copy.cut.store(slot.cut.load(std::memory_order_relaxed), std::memory_order_relaxed);
    copy.a.store(key.a, std::memory_order_relaxed);
    ++used[side];
    states[side] += visits_of(total_of(copy)) > 0;
  }
  for (std::size_t side = 0; side < to.size(); ++side) {
    to[side]->used.store(used[side], std::memory_order_relaxed);
    to[side]->states.store(states[side], std::memory_order_relaxed);
  }
}

// Points directory entries at the children. Several processes may do so at once: any ancestor is a right
// entry.
void SegmentMap::publish_split(Node& node, std::uint32_t child) {
  std::uint64_t top = head_.directory_depth.load(std::memory_order_acquire);
  const std::uint64_t depth = node.depth.load(std::memory_order_relaxed);
  const auto level = [&](std::uint64_t at) { return directory_ + (std::uint64_t{1} << at); };
  if (depth == top && top < kDirectoryDepth) {
    for (std::uint64_t i = 0; i < std::uint64_t{1} << top; ++i) {
      const std::uint32_t id = level(top)[i].load(std::memory_order_acquire);
      for (std::uint64_t side = 0; side < 2; ++side)
        level(top + 1)[2 * i + side].store(id, std::memory_order_release);
    }
    if (head_.directory_depth.compare_exchange_strong(top, top + 1, std::memory_order_acq_rel)) ++top;
  }
  if (depth >= top) return;
  const std::uint64_t below = top - depth, first = node.prefix.load(std::memory_order_relaxed) << below;
  for (std::uint64_t i = 0; i < std::uint64_t{1} << below; ++i) {
    const auto side = static_cast<std::uint32_t>(i >> (below - 1));
    level(top)[first + i].store(child + side, std::memory_order_release);
  }
}

// After a dead owner: the counts may be off by what it was inserting, and it may have frozen slots.
void SegmentMap::repair(Node& node) {
  const std::uint64_t word = node.word.load(std::memory_order_acquire), pending = node.pending.load();
  if (pending != 0) {
    if (!is_fork(word) && offset_of(pending) != offset_of(word))
      release(offset_of(pending), pages_of(pending));
    node.pending.store(0);
  }
  if (is_fork(word)) return;
  std::uint32_t used = 0, states = 0;
  bool frozen = false;
  for (const Slot& slot : block_of(word)) {
    if (slot.a.load(std::memory_order_acquire) == 0) continue;
    frozen |= (slot.own.load(std::memory_order_relaxed) & kFrozen) != 0;
    ++used;
    states += visits_of(total_of(slot)) > 0;
  }
  node.used.store(used, std::memory_order_relaxed);
  node.states.store(states, std::memory_order_relaxed);
  if (frozen) grow(node);
}

std::uint64_t SegmentMap::states() {
  std::uint64_t count = 0;
  std::vector<std::uint32_t> open{0};
  while (!open.empty()) {
    Node& next = node(open.back());
    open.pop_back();
    const std::uint32_t owner = next.lock.load(std::memory_order_acquire);
    if (owner != 0 && !owners_.alive(owner)) hold(next);
    const std::uint64_t word = next.word.load(std::memory_order_acquire);
    if (!is_fork(word)) {
      count += next.states.load(std::memory_order_relaxed);
      continue;
    }
    open.push_back(child_of(word));
    open.push_back(child_of(word) + 1);
  }
  return count;
}

void SegmentMap::check(bool contents) {
  // Read anew at each use: another process may make the tree grow.
  const auto nodes = [&] { return head_.nodes.load(); };
  const std::uint64_t top = head_.directory_depth.load();
  require(nodes() >= 1 && nodes() <= kMostNodes && top <= kDirectoryDepth, "its counts are impossible");
  require(node(0).depth == 0 && node(0).prefix == 0, "its tree has no root");
  std::vector<std::uint32_t> open{0};
  std::uint64_t seen = 0;
  while (!open.empty()) {
    const std::uint32_t id = open.back();
    const Node& next = node(id);
    open.pop_back();
    require(++seen <= nodes(), "its tree has a cycle");
    const std::uint64_t word = next.word.load();
    const std::uint32_t depth = next.depth.load();
    const std::uint64_t pending = next.pending.load();
    require(pending == 0 || inside(offset_of(pending), pages_of(pending)), "a block is out of place");
    if (is_fork(word)) {
      const std::uint64_t child = word >> 1;
      require(child > 0 && child + 1 < nodes() && depth < 63, "a node has no children");
      for (std::uint32_t side = 0; side < 2; ++side) {
        const Node& below = node(static_cast<std::uint32_t>(child) + side);
        require(below.depth == depth + 1 && below.prefix == 2 * next.prefix + side, "a node is out of place");
        open.push_back(static_cast<std::uint32_t>(child) + side);
      }
      continue;
    }
    require(inside(offset_of(word), pages_of(word)), "it is truncated, or a block is out of place");
    if (!contents) continue;
    for (const Slot& slot : block_of(word)) {
      const Key key = key_of(slot);
      if (key.a == 0) continue;
      const std::uint64_t own = slot.own.load(), foreign = slot.foreign.load(),
                          all = joined(own & ~kFlags, foreign);
      require(first_bits(key.a, depth) == next.prefix && (own & kLive) != 0 && (foreign & kFlags) == 0 &&
                  (visits_of(all) == 0 ? all == kMark : successes_of(all) <= visits_of(all)),
              "a state is out of place");
    }
  }
  for (std::uint64_t i = 0; i < std::uint64_t{1} << top; ++i) {
    const std::uint32_t id = directory_[(std::uint64_t{1} << top) + i].load();
    require(id < nodes() && node(id).depth <= top && i >> (top - node(id).depth) == node(id).prefix,
            "its directory is damaged");
  }
}

}  // namespace spo
