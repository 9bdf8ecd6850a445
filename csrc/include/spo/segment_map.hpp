#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "spo/hash.hpp"
#include "spo/mapping.hpp"
#include "spo/owners.hpp"

namespace spo {

/// A 128-bit key. `a` is never 0: that marks an empty slot.
using Key = Digest;

/// Two counts in one word, so that no reader sees one without the other: visits in the low half, successes in
/// the high one. A word of 0 visits and 1 success is a mark: it joins by "or" where counts add.
using Tally = std::uint64_t;
constexpr Tally kMark = Tally{1} << 32;
constexpr std::uint32_t kMostVisits = 0x7fffffff;

constexpr std::uint32_t visits_of(Tally tally) { return static_cast<std::uint32_t>(tally); }
constexpr std::uint32_t successes_of(Tally tally) { return static_cast<std::uint32_t>(tally >> 32); }
constexpr Tally joined(Tally a, Tally b) { return visits_of(a | b) == 0 ? a | b : a + b; }

/// Extendible hashing from keys to tallies, in one Mapping: a tree over the first bits of a key's hash whose
/// leaves are blocks of open addressing.
///
///   * Look-ups and additions to a key that is there take no lock. Insertions lock one leaf; so does a leaf's
///     growth: its block is copied into a larger one, or into two.
///   * A copied block is never used again, its pages go back to the system. So a leaf's word (which block it
///   has) is
///     a version: unchanged after a look-up means that the look-up was right.
///   * Growth freezes a slot (one bit of its word) when it copies it. An addition is a compare-and-swap that
///   fails
///     on a frozen or discarded slot, and is then made to the copy: none is lost, none made twice.
///   * Every change becomes visible by one store, so that a process may die anywhere. What it was copying,
///   whoever
///     takes over its lock copies again.
///
/// A slot keeps what this table counted itself (own), what came from other tables (foreign), and how much of
/// own the last delta told (cut).
class SegmentMap {
 public:
  struct Slot {
    std::atomic<std::uint64_t> a, b, own, foreign, cut;
  };
  static_assert(sizeof(Slot) == 40);

  struct alignas(64) Node {
    std::atomic<std::uint64_t> word;     // leaf or fork; see segment_map.cpp
    std::atomic<std::uint64_t> pending;  // the block that growth is filling
    std::atomic<std::uint32_t> lock, used, states, depth;
    std::atomic<std::uint64_t> prefix;  // the first `depth` bits of its keys, as a number
  };
  static_assert(sizeof(Node) == 64);

  struct Head {
    std::atomic<std::uint64_t> next_page;   // where the next block starts
    std::atomic<std::uint64_t> live_pages;  // in blocks
    std::atomic<std::uint64_t> nodes;
    std::atomic<std::uint64_t> directory_depth;
  };

  /// One key as merges and files carry it.
  struct Row {
    Key key;
    Tally tally;
  };

  static constexpr std::uint32_t kDirectoryDepth = 16, kMostNodes = 1u << 16;
  static constexpr std::uint64_t kDirectoryBytes = sizeof(std::uint32_t) << (kDirectoryDepth + 1);

  /// Over parts of `mapping`; blocks start at `first_block`. Call create() or check() before anything else.
  SegmentMap(Mapping& mapping, Owners& owners, Head& head, std::uint64_t directory, std::uint64_t nodes,
             std::uint64_t first_block);

  /// Makes the empty map, with room for `capacity` keys.
  void create(std::uint64_t capacity);
  /// Throws std::invalid_argument unless the tree is one and every block lies in the file; with `contents`,
  /// also unless every slot is where it belongs.
  void check(bool contents);

  /// Own and foreign together; 0 if the key is not there.
  Tally find(const Key& key) const;
  void add(const Key& key, Tally tally) { add(key, tally, Side::own); }
  void add_foreign(const Key& key, Tally tally) { add(key, tally, Side::foreign); }
  /// Sets how much of a key's own tally the last delta told.
  void set_cut(const Key& key, Tally cut);
  /// Fetches what find() or add() will read.
  void prefetch(const Key& key) const;

  /// Keys with visits.
  std::uint64_t states();
  std::uint64_t bytes() const { return head_.live_pages.load() * Mapping::kPage; }

  /// Calls visit(slot) for each key, a leaf at a time under its lock; `done()` after each leaf, without it.
  template <class Visit, class Done>
  void for_each(Visit&& visit, Done&& done) {
    std::vector<std::uint32_t> open{0};
    while (!open.empty()) {
      const std::uint32_t id = open.back();
      open.pop_back();
      {
        const Held held = hold(node(id));
        const std::uint64_t word = node(id).word.load(std::memory_order_acquire);
        if (is_fork(word)) {
          open.push_back(child_of(word) + 1);
          open.push_back(child_of(word));
          continue;
        }
        for (const Slot& slot : block_of(word)) {
          if (slot.a.load(std::memory_order_relaxed) != 0) visit(slot);
        }
      }
      done();
    }
  }

  /// Calls visit(bytes) for everything that a file's map consists of; only for one that nobody else uses.
  template <class Visit>
  void for_each_part(Visit&& visit) const {
    std::vector<std::uint32_t> open{0};
    while (!open.empty()) {
      const Node& next = node(open.back());
      open.pop_back();
      visit(std::string_view(reinterpret_cast<const char*>(&next), sizeof next));
      const std::uint64_t word = next.word.load(std::memory_order_acquire);
      if (is_fork(word)) {
        open.push_back(child_of(word) + 1);
        open.push_back(child_of(word));
      } else {
        visit(std::string_view(reinterpret_cast<const char*>(mapping_.at(offset_of(word))),
                               pages_of(word) * Mapping::kPage));
      }
    }
    const std::uint64_t entries = std::uint64_t{1} << head_.directory_depth.load();
    visit(
        std::string_view(reinterpret_cast<const char*>(directory_ + entries), entries * sizeof *directory_));
  }

  static Key key_of(const Slot& slot) {
    return {slot.a.load(std::memory_order_relaxed), slot.b.load(std::memory_order_relaxed)};
  }
  static Tally own_of(const Slot& slot);
  static Tally total_of(const Slot& slot);

  /// Whether allocate() may have given these pages.
  bool inside(std::uint64_t offset, std::uint64_t pages) const;
  /// `pages` of the mapping for something else than a block.
  std::uint64_t allocate(std::uint64_t pages);
  void release(std::uint64_t offset, std::uint64_t pages);

 private:
  enum class Side { own, foreign };
  struct Probe {
    Slot* slot;
    bool found;
  };

  static bool is_fork(std::uint64_t word) { return (word & 1) == 0; }
  static std::uint32_t child_of(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 1); }
  static std::uint64_t pages_of(std::uint64_t word) { return word >> 1 & 0x1fff; }
  static std::uint64_t offset_of(std::uint64_t word) { return word >> 14 << 12; }
  static std::uint64_t leaf_word(std::uint64_t offset, std::uint64_t pages) {
    return offset >> 12 << 14 | pages << 1 | 1;
  }

  std::uint64_t most_pages(std::uint64_t depth) const;
  void extend_tables(std::uint64_t first, std::uint64_t count, std::uint64_t level);
  Node& node(std::uint32_t id) const { return nodes_[id]; }
  std::span<Slot> block_of(std::uint64_t word) const {
    return {reinterpret_cast<Slot*>(mapping_.at(offset_of(word))),
            pages_of(word) * Mapping::kPage / sizeof(Slot)};
  }
  Node& leaf_of(const Key& key, std::uint64_t& word) const;
  Held hold(Node& node) {
    return Held(owners_, node.lock, [&] { repair(node); });
  }
  static Probe probe(std::span<Slot> block, const Key& key, const Slot* from = nullptr);

  void add(const Key& key, Tally tally, Side side);
  bool add_to(Slot& slot, Tally tally);
  void insert(Node& node, Slot& slot, const Key& key, Tally tally, Side side);
  bool full(const Node& node, std::uint64_t word) const;
  void grow(Node& node);
  void copy_frozen(std::span<Slot> from, std::span<Node*> to, std::span<const std::uint64_t> words,
                   std::uint32_t depth);
  void publish_split(Node& node, std::uint32_t child);
  void repair(Node& node);

  Mapping& mapping_;
  Owners& owners_;
  Head& head_;
  std::atomic<std::uint32_t>* directory_;
  Node* nodes_;
  std::uint64_t nodes_offset_, directory_offset_, first_block_;
};

}  // namespace spo
