#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace spo {

/// The processes that map a table, and the locks they hold. A lock is a word in the mapping that names its
/// owner; one whose owner has died is taken over by whoever waits for it.
///
/// Private memory has one process: there an owner is a pid, and any other pid is that of the parent before a
/// fork.
class Owners {
 public:
  struct Entry {
    std::atomic<std::uint64_t> owner;    // generation in the high half, pid in the low one
    std::atomic<std::uint64_t> machine;  // boot in the high half, namespace of pids in the low one
    std::atomic<std::uint64_t> started;  // generation in the top bits, time in the rest; written last
  };
  static constexpr std::size_t kEntries = 512;

  /// `entries` is nullptr for private memory.
  explicit Owners(Entry* entries) : entries_(entries) {}
  ~Owners();
  Owners(const Owners&) = delete;
  Owners& operator=(const Owners&) = delete;

  /// To be called before locks are taken: makes this process, which may be a forked child, known.
  void enter();

  /// Takes the lock; true if it was a dead owner's, so that what it guards may be half done.
  bool lock(std::atomic<std::uint32_t>& word) {
    std::uint32_t free = 0;
    return !word.compare_exchange_strong(free, self(), std::memory_order_acquire) && wait(word);
  }
  static void unlock(std::atomic<std::uint32_t>& word) { word.store(0, std::memory_order_release); }

  /// Whether this process, not only the parent that it was forked from, has called enter().
  bool entered() const;
  bool alive(std::uint32_t owner) const;
  /// Whether anyone else alive maps the table.
  bool others() const;

 private:
  std::uint32_t self() const {
    return static_cast<std::uint32_t>(self_.load(std::memory_order_relaxed) >> 32);
  }
  bool wait(std::atomic<std::uint32_t>& word);
  std::uint32_t enlist();

  Entry* entries_;
  std::atomic<std::uint64_t> self_{0};  // owner word in the high half, the pid it belongs to in the low one
};

/// Holds a lock of Owners; runs `repair` first if its owner had died.
class Held {
 public:
  template <class Repair>
  Held(Owners& owners, std::atomic<std::uint32_t>& word, Repair&& repair) : word_(word) {
    if (!owners.lock(word)) return;
    try {
      repair();
    } catch (...) {
      Owners::unlock(word);
      throw;
    }
  }
  ~Held() { Owners::unlock(word_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  std::atomic<std::uint32_t>& word_;
};

}  // namespace spo
