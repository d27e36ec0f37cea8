// parallel_for over std::thread: a pool that lives as long as the process.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <gradus/core/parallel.h>

namespace gradus {
namespace {

std::atomic<int> thread_limit{0};
thread_local bool inside = false;

int default_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS"))
    if (const int wanted = std::atoi(text); wanted > 0) return wanted;
  return std::max(1u, std::thread::hardware_concurrency());
}

// One job at a time; callers queue on `submit_`.
class Pool {
 public:
  ~Pool() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  void run(int64_t count, int64_t grain, int64_t chunks, int threads, RangeFunction body) {
    std::lock_guard one_job(submit_);
    {
      std::lock_guard lock(mutex_);
      while (static_cast<int>(workers_.size()) < threads - 1)
        workers_.emplace_back([this, seen = generation_]() mutable { work(seen); });
      body_ = &body, count_ = count, grain_ = grain, chunks_ = chunks;
      next_ = 0;
      error_ = nullptr;
      helpers_ = threads - 1;
      busy_ = static_cast<int>(workers_.size());
      ++generation_;
    }
    wake_.notify_all();
    drain();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void work(uint64_t seen) {
    for (;;) {
      bool helps;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
        if (stop_) return;
        seen = generation_;
        helps = helpers_-- > 0;
      }
      if (helps) drain();
      std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_all();
    }
  }

  void drain() {
    inside = true;
    for (int64_t chunk; (chunk = next_.fetch_add(1)) < chunks_;) {
      try {
        (*body_)(chunk * grain_, std::min(count_, (chunk + 1) * grain_));
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        next_ = chunks_;
      }
    }
    inside = false;
  }

  std::mutex submit_, mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> workers_;
  const RangeFunction* body_ = nullptr;
  int64_t count_ = 0, grain_ = 0, chunks_ = 0;
  std::atomic<int64_t> next_{0};
  std::exception_ptr error_;
  uint64_t generation_ = 0;
  int helpers_ = 0, busy_ = 0;
  bool stop_ = false;
};

}  // namespace

int num_threads() {
  const int limit = thread_limit.load(std::memory_order_relaxed);
  static const int fallback = default_threads();
  return limit > 0 ? limit : fallback;
}

void set_num_threads(int threads) { thread_limit = std::max(1, threads); }

bool detail::in_parallel_region() { return inside; }

void parallel_for(int64_t count, int64_t grain, RangeFunction body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<int64_t>(chunks, num_threads()));
  if (threads <= 1 || detail::serial_thread || inside) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk * grain, std::min(count, (chunk + 1) * grain));
    return;
  }
  static Pool pool;
  pool.run(count, grain, chunks, threads, body);
}

}  // namespace gradus
