#include "spo/cpu_path.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "row_kernel.hpp"

namespace spo {
namespace {

bool runs_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

const RowKernel* fastest() {
  const RowKernel* avx2 = runs_avx2() ? avx2_row_kernel() : nullptr;
  return avx2 ? avx2 : &portable_row_kernel;
}

const RowKernel* machines_own() {
  const char* wish = std::getenv("SPO_FAST_CPU");
  return wish && std::string(wish) == "portable" ? &portable_row_kernel : fastest();
}

std::atomic<const RowKernel*>& chosen() {
  static std::atomic<const RowKernel*> kernel{machines_own()};
  return kernel;
}

}  // namespace

const RowKernel& row_kernel() { return *chosen().load(std::memory_order_relaxed); }

std::string cpu_path() { return row_kernel().name; }

void choose_cpu_path(const std::string& name) {
  for (const RowKernel* kernel : {fastest(), &portable_row_kernel}) {
    if (kernel->name == name) {
      chosen() = kernel;
      return;
    }
  }
  if (!name.empty()) {
    throw std::invalid_argument("name: expected '" + std::string(fastest()->name) +
                                "', 'portable' or '', got '" + name + "'");
  }
  chosen() = machines_own();
}

}  // namespace spo
