#pragma once
#include <atomic>
#include <cstdint>

#include "spo/state_table.hpp"

namespace spo {

// Where things lie in a table's mapping; a shared file is exactly this, in the words of the machine.
constexpr std::uint64_t kOwnersOffset = 4096, kOriginsOffset = 32768, kDirectoryOffset = 131072,
                        kNodesOffset = 1 << 20, kBlocksOffset = 6 << 20;
constexpr std::uint64_t kMostOrigins = 2048;

static_assert(kOwnersOffset + Owners::kEntries * sizeof(Owners::Entry) <= kOriginsOffset);
static_assert(kDirectoryOffset + SegmentMap::kDirectoryBytes <= kNodesOffset);
static_assert(kNodesOffset + SegmentMap::kMostNodes * sizeof(SegmentMap::Node) <= kBlocksOffset);

// Options as files hold them.
struct StoredOptions {
  double alpha, zeta, omega_k;
  std::int64_t xi, g_max;
  std::uint64_t seeded;
  HashKey seed;
};

StoredOptions stored(const StateTable::Options& options);
StateTable::Options options_from(const StoredOptions& stored);
Digest random_digest();
// Whether a table can have given this row.
bool plausible(const SegmentMap::Row& row);
const StateTable::Options& checked(const StateTable::Options& options);

struct StateTable::Origin {
  Digest name;
  std::atomic<std::uint64_t> to;  // the last delta of it that was merged
};

static_assert(kOriginsOffset + kMostOrigins * 24 <= kDirectoryOffset);

// The last delta, so that one that got lost can be asked for again, and one half written is finished.
struct StateTable::Journal {
  struct Row {
    Key key;
    Tally tally, cut;
  };
  std::uint64_t pages, from, to, trajectories, own_trajectories;
  std::atomic<std::uint64_t> rows;
  std::atomic<std::uint64_t> applied;

  Row* begin() { return reinterpret_cast<Row*>(this + 1); }
};

struct StateTable::File {
  // Written once.
  struct Fixed {
    char magic[16];
    std::uint64_t version;
    StoredOptions options;
    Digest origin, check;

    void sign();
    bool signed_right() const;
  } fixed;

  SegmentMap::Head head;
  std::atomic<std::uint64_t> clock;    // trajectories: own in the low half, others' in the high one
  std::atomic<std::uint64_t> journal;  // where the last delta's is; 0: none
  std::atomic<std::uint64_t> origins;  // how many
  std::atomic<std::uint32_t> lock;     // for deltas and merges of them
  std::atomic<std::uint32_t> closed;   // 1: nobody maps it, and `seal` is its contents' digest
  Digest seal;
};

}  // namespace spo
