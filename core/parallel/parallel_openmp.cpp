// parallel_for on OpenMP's threads. No other file uses OpenMP.
//
// OpenMP starts the threads, binds them and lets them wait (OMP_PROC_BIND, OMP_WAIT_POLICY, OMP_THREAD_LIMIT). The
// chunks are distributed as in the pool. The difference is the barrier at the end: the caller waits for all threads of
// its team, including those that got no core while the others did their work. A call cannot know in advance whether a
// thread will be late, but it can measure how long it waits afterwards. If these waits cost more time than the team
// saves, the pool serves calls for a while.
#include <gradus/core/parallel/parallel_call.h>

#ifdef _OPENMP
#include <omp.h>

#include <vector>

#include <gradus/core/platform/process.h>

namespace gradus {
namespace {

using namespace detail;

// At most one call runs at a time: each calling thread has its own team, and two teams would compete for cores.
struct Team {
  Call call;
  Helpfulness helpfulness;
  std::atomic<bool> lost{false};  // true in a forked child, which does not have the threads that OpenMP expects
};

Team& team() {
  static Team* const instance = [] {
    platform::on_fork([] { team().lost = true; });
    return new Team;
  }();
  return *instance;
}

// If OpenMP binds threads, allows this thread to run on the cores of the places [first, last).
void move_to_places(int first, int last) {
  if (omp_get_proc_bind() == omp_proc_bind_false) return;
  std::vector<int> cores;
  for (int place = first; place < last; ++place) {
    std::vector<int> ids(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data());
    cores.insert(cores.end(), ids.begin(), ids.end());
  }
  platform::bind_to_cores(cores);
}

#ifndef __clang__
// If OpenMP binds threads, g++'s runtime binds the program's first thread when it is loaded, and the threads and
// processes that this thread starts (the pool's helpers, a loader's workers, ranks) inherit its core. So the thread is
// unbound until it has a team.
[[maybe_unused]] const bool is_free = (move_to_places(0, omp_get_num_places()), true);
#endif

}  // namespace

bool has_openmp() { return true; }

bool detail::run_on_openmp(int64_t chunks, int64_t count, int64_t grain, int threads, const RangeFunction& body) {
  const Clock::time_point start = Clock::now();
  Team& own = team();
  if (own.lost || own.helpfulness.pausing(start) || !own.call.claim()) return false;
  [[maybe_unused]] static thread_local const bool is_bound =
      (move_to_places(omp_get_place_num(), omp_get_place_num() + 1), true);
  threads = std::min(threads, kMaxThreads);
  own.call.open(chunks, count, grain, threads, body);
  int computed = 0;
  Clock::time_point alone = start;
#pragma omp parallel num_threads(threads)
  {
    const ScopedValue<bool> inside(inside_chunk, true);
    const int thread = omp_get_thread_num(), units = own.call.join(thread);
    if (thread == 0) computed = units, alone = Clock::now();
  }
  own.helpfulness.settle(own.call.units(), computed, start, alone, Clock::now());
  const std::exception_ptr error = own.call.take_error();
  own.call.release();
  if (error) std::rethrow_exception(error);
  return true;
}

}  // namespace gradus
#else
bool gradus::has_openmp() { return false; }
bool gradus::detail::run_on_openmp(int64_t, int64_t, int64_t, int, const RangeFunction&) { return false; }
#endif
