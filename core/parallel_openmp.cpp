#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include <gradus/core/parallel.h>

namespace gradus {
namespace {
std::atomic<int> thread_limit{0};
}

int num_threads() {
  const int limit = thread_limit.load(std::memory_order_relaxed);
  return limit > 0 ? limit : omp_get_max_threads();
}

void set_num_threads(int threads) { thread_limit = std::max(1, threads); }

bool detail::in_parallel_region() { return omp_in_parallel(); }

void parallel_for(int64_t count, int64_t grain, RangeFunction body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<int64_t>(chunks, num_threads()));
  if (threads <= 1 || detail::serial_thread || omp_in_parallel()) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk * grain, std::min(count, (chunk + 1) * grain));
    return;
  }
  std::exception_ptr error;
  std::atomic<bool> failed{false};
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (failed.load(std::memory_order_relaxed)) continue;
    try {
      body(chunk * grain, std::min(count, (chunk + 1) * grain));
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace gradus
