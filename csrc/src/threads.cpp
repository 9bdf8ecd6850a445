#include "spo/threads.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace spo {
namespace {

class Pool {
 public:
  const pid_t owner = getpid();

  void run(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& body) {
    const std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) {
      for (std::size_t i = 0; i < count; ++i) body(i);
      return;
    }
    Job job{count, std::max<std::size_t>(1, count / (threads * 8)), body};
    {
      const std::lock_guard lock(mutex_);
      for (; workers_ + 1 < threads; ++workers_) std::thread([this] { work_forever(); }).detach();
      job_ = &job;
      places_ = threads - 1;
    }
    wake_.notify_all();
    job.work();
    std::unique_lock lock(mutex_);
    job_ = nullptr;
    done_.wait(lock, [this] { return active_ == 0; });
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  struct Job {
    std::size_t count, grain;
    const std::function<void(std::size_t)>& body;
    std::atomic<std::size_t> next{0};
    std::mutex error_mutex{};
    std::exception_ptr error{};

    void work() {
      for (std::size_t first; (first = next.fetch_add(grain)) < count;) {
        try {
          for (std::size_t i = first; i < std::min(first + grain, count); ++i) body(i);
        } catch (...) {
          const std::lock_guard lock(error_mutex);
          if (!error) error = std::current_exception();
        }
      }
    }
  };

  void work_forever() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return job_ && places_ > 0; });
      Job& job = *job_;
      --places_;
      ++active_;
      lock.unlock();
      job.work();
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  std::mutex turn_;  // held by the caller whose job runs
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  std::size_t places_ = 0, active_ = 0, workers_ = 0;
};

// Never destroyed: its threads may outlive every static object. A forked child has none of the threads, and
// perhaps a locked mutex, so it leaves the parent's pool alone.
Pool& pool() {
  static std::atomic<Pool*> current{nullptr};
  Pool* found = current.load();
  while (!found || found->owner != getpid()) {
    auto* fresh = new Pool;
    if (current.compare_exchange_strong(found, fresh)) return *fresh;
    delete fresh;
  }
  return *found;
}

}  // namespace

void parallel_for(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& body) {
  threads = std::min(threads, count);
  if (threads <= 1) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  pool().run(count, threads, body);
}

}  // namespace spo
