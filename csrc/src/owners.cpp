#include "spo/owners.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>

#include "spo/hash.hpp"

namespace spo {
namespace {

constexpr std::uint32_t kIndexBits = 10, kGenerationBits = 32 - kIndexBits;
constexpr std::uint32_t kIndexMask = (1u << kIndexBits) - 1, kGenerationMask = (1u << kGenerationBits) - 1;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What the system says of a process: when it started (0: unknown), and whether it only waits to be reaped.
struct Standing {
  std::uint64_t started = 0;
  bool over = false;
};

Standing standing_of(std::uint32_t pid) {
  const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat");
  // Fields are counted from the last parenthesis: the name before it may hold anything.
  std::size_t at = text.rfind(')');
  if (at == std::string::npos || at + 2 >= text.size()) return {};
  const char state = text[at + 2];
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  if (at == std::string::npos) return {};
  return {std::strtoull(text.c_str() + at, nullptr, 10), state == 'Z' || state == 'X'};
}

std::uint64_t machine() {
  static const std::uint64_t found = [] {
    struct stat names {};
    const bool known = stat("/proc/self/ns/pid", &names) == 0;
    const std::uint64_t boot = digest128(read_file("/proc/sys/kernel/random/boot_id")).a;
    return (boot & ~std::uint64_t{0xffffffff}) | (known ? names.st_ino & 0xffffffff : 0);
  }();
  return found;
}

std::uint32_t high(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
std::uint64_t pair_of(std::uint32_t high, std::uint32_t low) { return std::uint64_t{high} << 32 | low; }

std::uint64_t stamp(std::uint32_t generation, std::uint64_t time) {
  return std::uint64_t{generation} << (64 - kGenerationBits) |
         (time & (~std::uint64_t{0} >> kGenerationBits));
}

bool living(const Owners::Entry& entry, std::uint64_t owner) {
  const std::uint64_t started = entry.started.load(), where = entry.machine.load(), here = machine();
  if (started >> (64 - kGenerationBits) != high(owner)) return true;  // it enlists at this moment
  if (high(where) != high(here)) return false;                        // before the last reboot
  if (low(where) != low(here)) return true;  // another namespace's pids say nothing here
  if (kill(static_cast<pid_t>(low(owner)), 0) != 0 && errno == ESRCH) return false;
  const Standing now = standing_of(low(owner));
  return !now.over && (now.started == 0 || stamp(high(owner), now.started) == started);
}

}  // namespace

Owners::~Owners() {
  if (!entries_ || !entered()) return;
  std::atomic<std::uint64_t>& owner = entries_[self() & kIndexMask].owner;
  owner.store(pair_of(high(owner.load()), 0));
}

bool Owners::entered() const { return low(self_.load()) == static_cast<std::uint32_t>(getpid()); }

void Owners::enter() {
  if (entered()) return;
  const std::uint32_t owner = entries_ ? enlist() : static_cast<std::uint32_t>(getpid());
  self_.store(pair_of(owner, static_cast<std::uint32_t>(getpid())));
}

// An owner's number is its entry's index and generation, so that a new process in a dead one's entry owns
// none of the locks that the dead one left.
std::uint32_t Owners::enlist() {
  const auto pid = static_cast<std::uint32_t>(getpid());
  for (std::uint32_t i = 0; i < kEntries; ++i) {
    Entry& entry = entries_[i];
    std::uint64_t old = entry.owner.load();
    if (low(old) != 0 && living(entry, old)) continue;
    const std::uint32_t generation = std::max((high(old) + 1) & kGenerationMask, 1u);
    if (!entry.owner.compare_exchange_strong(old, pair_of(generation, pid))) continue;
    entry.machine.store(machine());
    entry.started.store(stamp(generation, standing_of(pid).started));
    return generation << kIndexBits | i;
  }
  throw std::runtime_error("StateTable: " + std::to_string(kEntries) + " processes map this file already");
}

bool Owners::alive(std::uint32_t owner) const {
  if (!entries_) return owner == static_cast<std::uint32_t>(getpid());
  if ((owner & kIndexMask) >= kEntries) return false;
  const Entry& entry = entries_[owner & kIndexMask];
  const std::uint64_t now = entry.owner.load();
  return high(now) == owner >> kIndexBits && low(now) != 0 && living(entry, now);
}

bool Owners::others() const {
  if (!entries_) return false;
  for (std::uint32_t i = 0; i < kEntries; ++i) {
    const std::uint64_t owner = entries_[i].owner.load();
    const bool own = entered() && i == (self() & kIndexMask);
    if (!own && low(owner) != 0 && living(entries_[i], owner)) return true;
  }
  return false;
}

bool Owners::wait(std::atomic<std::uint32_t>& word) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point look{};  // when to ask next whether the owner lives
  for (int spins = 0;; ++spins) {
    std::uint32_t owner = 0;
    if (word.compare_exchange_weak(owner, self(), std::memory_order_acquire)) return false;
    if (owner == 0 || spins < 64) continue;
    std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (look == Clock::time_point{}) look = now + std::chrono::milliseconds(1);
    if (now < look) continue;
    look = now + std::chrono::milliseconds(20);
    if (!alive(owner) && word.compare_exchange_strong(owner, self(), std::memory_order_acquire)) return true;
  }
}

}  // namespace spo
