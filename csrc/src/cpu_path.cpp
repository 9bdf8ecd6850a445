#include "spo/cpu_path.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "cpu_kernels.hpp"

namespace spo {
namespace {

bool runs_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

struct Path {
  const char* name;
  const RowKernel& rows;
  const SegmentKernel& segments;
};

const Path portable{"portable", portable_row_kernel, portable_segment_kernel};

const Path* fastest() {
  static const Path* const found = [] {
    const RowKernel* rows = avx2_row_kernel();
    const SegmentKernel* segments = avx2_segment_kernel();
    if (!rows || !segments || !runs_avx2()) return &portable;
    static const Path avx2{"avx2", *rows, *segments};
    return &avx2;
  }();
  return found;
}

const Path* machines_own() {
  const char* wish = std::getenv("SPO_FAST_CPU");
  return wish && std::string(wish) == portable.name ? &portable : fastest();
}

std::atomic<const Path*>& chosen() {
  static std::atomic<const Path*> path{machines_own()};
  return path;
}

const Path& current() { return *chosen().load(std::memory_order_relaxed); }

}  // namespace

const RowKernel& row_kernel() { return current().rows; }

const SegmentKernel& segment_kernel() { return current().segments; }

std::string cpu_path() { return current().name; }

void choose_cpu_path(const std::string& name) {
  if (name.empty()) {
    chosen() = machines_own();
  } else if (name == portable.name) {
    chosen() = &portable;
  } else if (name == fastest()->name) {
    chosen() = fastest();
  } else {
    throw std::invalid_argument("name: expected '" + std::string(fastest()->name) +
                                "', 'portable' or '', got '" + name + "'");
  }
}

}  // namespace spo
