#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spo/hash.hpp"
#include "spo/mapping.hpp"
#include "spo/owners.hpp"
#include "spo/segment_map.hpp"

namespace spo {

/// The statistics of 3SPO: how often each state was visited and how often that ended well, over keys.
///
/// Private memory, or a file that processes share. Any thread of any process may call anything at any time; a
/// call that meets others sees some of what they do. Batches are checked before anything changes;
/// std::invalid_argument names what is wrong, std::system_error comes from the system.
class StateTable {
 public:
  struct Options {
    double alpha = 50.0;
    std::int64_t xi = 10;
    double zeta = 0.1;
    double omega_k = 0.1;
    std::int64_t g_max = 8;
    std::optional<HashKey> seed;  // none: digest128
    bool operator==(const Options&) const = default;
  };

  struct Delta {
    Digest origin;           // which table
    std::uint64_t from, to;  // which of its changes: after mark `from`, up to mark `to`
    std::uint64_t trajectories;
    Options options;
    std::vector<SegmentMap::Row> rows;
  };

  using Keys = std::span<const Key>;

  StateTable(const Options& options, std::uint64_t capacity);
  /// Maps `path`, which is made if it does not exist.
  StateTable(const Options& options, std::uint64_t capacity, const std::string& path);
  ~StateTable();

  const Options& options() const { return options_; }
  /// Trajectories counted, plus 1.
  std::uint64_t t() const;
  std::uint64_t size();
  std::uint64_t bytes() const;
  Digest origin() const;
  std::uint64_t mark() const;

  Key state_key(std::string_view state) const;
  /// `scratch` is overwritten.
  Key pair_key(std::string_view state, std::string_view action, std::string& scratch) const;

  /// Trajectory i has the next lengths[i] keys and ended with successes[i].
  void update(Keys keys, std::span<const std::uint64_t> lengths, std::span<const std::uint8_t> successes);
  std::vector<Tally> tallies(Keys keys);
  std::vector<double> scores(Keys keys);
  std::vector<std::int64_t> rollout_counts(Keys keys);
  std::vector<double> novelty_weights(Keys keys);
  std::vector<double> step_rewards(Keys keys, Keys next, std::span<const std::uint8_t> successes);
  void mark_explored(Keys pairs);
  std::vector<std::uint8_t> are_explored(Keys pairs);

  /// States by their visits: how many states have exactly so many.
  std::map<std::uint32_t, std::uint64_t> visit_histogram();
  /// sum over states of q^2 / (p + epsilon q): p the share of visits here, q in `reference`.
  double l1_coverage(StateTable& reference, double epsilon);

  /// What this table itself counted after `mark`: 0, or the `to` of the last delta, or that delta's `from`.
  Delta delta_since(std::uint64_t mark);
  /// False: the table has this delta already.
  bool merge(const Delta& delta);
  void merge(StateTable& other);

  /// A checksummed copy, to a descriptor.
  void write(int descriptor);
  static std::unique_ptr<StateTable> read(int descriptor);

 private:
  struct File;
  struct Origin;
  struct Journal;

  void attach();
  void format(std::uint64_t capacity);
  bool make_shared(std::uint64_t capacity, const std::string& path, const std::string& fresh);
  void open_shared(const Options& given);
  Digest contents_digest() const;
  File& file() const;
  std::span<Origin> origins() const;
  Journal* journal() const;
  void count_trajectories(std::uint64_t own, std::uint64_t foreign);
  template <class Each>
  void look_up(Keys keys, Each&& each);
  double score(double alpha_log_t, Tally tally) const;
  bool hopeless(Tally tally) const;
  Held exclusive();
  void remember(const Digest& origin, std::uint64_t to);
  void finish_cut();
  void publish_cut(const Delta& delta, std::span<const Tally> cuts, std::uint64_t own_trajectories);
  void check_options(const Options& other, const char* what) const;

  Options options_;
  std::unique_ptr<Mapping> mapping_;
  std::unique_ptr<Owners> owners_;
  std::unique_ptr<SegmentMap> map_;
};

/// Numbers of (group, key) pairs in order of first appearance.
std::vector<std::int64_t> number_pairs(std::span<const Key> keys, std::span<const std::int64_t> groups);

}  // namespace spo
