#pragma once
#include <cstddef>
#include <functional>

namespace spo {

// Calls body(i) once for each i < count, on at most `threads` threads of a process-wide pool, the caller's
// among them, and returns when all calls have. If another thread is using the pool, the caller does the work
// alone. The first exception is thrown again here. Works in a forked child, which starts a pool of its own.
void parallel_for(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& body);

}  // namespace spo
