// parallel_for on our own helper threads, or on OpenMP's (parallel_openmp.cpp). parallel_call.h distributes the chunks
// of a call.
//
// The caller never waits for a helper that has not started, only for chunks that are being computed: the chunks of a
// helper that starts late are computed by the caller and the other helpers. If the operating system keeps taking cores
// from helpers within chunks, callers work without helpers for a while (Helpfulness).
//
// A helper without work spins for a moment before it sleeps, so that the next kernel finds it awake: a small net starts
// a kernel every 10 us, and waking a sleeping thread takes longer.
#include <cstdlib>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>

#include <gradus/core/parallel/parallel_call.h>
#include <gradus/core/platform/process.h>

namespace gradus {
namespace {

using namespace detail;

constexpr int kMaxCalls = 16;  // parallel_for calls of all threads at a time; further calls run serially
// kMovesApart: minimum time between two moves of a helper to another core. kLate: delay after which a woken helper
// counts as late.
constexpr microseconds kMovesApart{1000}, kLate{1000};

std::atomic<int> thread_limit{0};

int default_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS"))
    if (const int wanted = std::atoi(text); wanted > 0) return wanted;
  return num_cores();
}

ThreadRuntime checked(ThreadRuntime runtime) {
  GRADUS_CHECK(runtime == ThreadRuntime::pool || has_openmp(), ValueError,
               "the thread runtime openmp is not in this build: configure it with -DGRADUS_OPENMP=ON");
  return runtime;
}

ThreadRuntime default_runtime() {
  const char* wanted = std::getenv("GRADUS_THREAD_RUNTIME");
  if (wanted == nullptr) return ThreadRuntime::pool;
  for (const ThreadRuntime runtime : {ThreadRuntime::pool, ThreadRuntime::openmp})
    if (wanted == std::string_view(name(runtime))) return checked(runtime);
  GRADUS_FAIL(ValueError, "the variable GRADUS_THREAD_RUNTIME is '", wanted, "', neither pool nor openmp");
}

std::atomic<ThreadRuntime>& current_runtime() {
  static std::atomic<ThreadRuntime> runtime{default_runtime()};
  return runtime;
}

// The helper threads and the calls that they work on.
class Pool {
 public:
  void run(int64_t chunks, int64_t count, int64_t grain, int threads, const RangeFunction& body) {
    const Clock::time_point start = Clock::now();
    const ScopedValue<bool> inside(inside_chunk, true);
    if (helpfulness_.pausing(start)) return run_serially(chunks, count, grain, body);
    Call* call = claim();
    threads = std::min(threads, 1 + start_helpers(std::min(threads, kMaxThreads) - 1));
    if (!call || threads == 1) {
      if (call) call->release();
      return run_serially(chunks, count, grain, body);
    }
    call->open(chunks, count, grain, threads, body);
    caller_core_.store(platform::current_core(), relaxed);
    news_.fetch_add(1);
    for (int i = 1; i < threads; ++i) wake(helpers_[i], start);
    const int computed = call->join(0);
    const Clock::time_point alone = Clock::now();
    const Clock::time_point end = call->wait() ? Clock::now() : alone;
    helpfulness_.settle(call->units(), computed, start, alone, end);
    const std::exception_ptr error = call->take_error();
    call->release();
    if (error) std::rethrow_exception(error);
  }

 private:
  struct alignas(64) Helper {
    std::atomic<int> asleep{0};
    std::atomic<Clock::rep> woken{0};  // time of the last wake-up
  };

  // Returns the call object that this thread used last if it is free, else another free one.
  Call* claim() {
    static thread_local constinit int last = 0;
    for (int i = 0; i < kMaxCalls; ++i) {
      const int at = (last + i) % kMaxCalls;
      if (!calls_[at].claim()) continue;
      last = at;
      int used = calls_used_.load(relaxed);
      while (used <= at && !calls_used_.compare_exchange_weak(used, at + 1)) {}
      return &calls_[at];
    }
    return nullptr;
  }

  // Starts helpers until there are `wanted` if possible, and returns their number.
  int start_helpers(int wanted) {
    int running = helper_count_.load(acquire);
    if (running >= wanted) [[likely]]
      return running;
    std::lock_guard lock(start_mutex_);
    forget_at_fork();
    for (running = helper_count_.load(); running < wanted; helper_count_.store(++running)) {
      try {
        std::thread([this, self = running + 1] { help(self); }).detach();
      } catch (const std::system_error&) {  // the system grants no more threads; fewer will do
        break;
      }
    }
    return running;
  }

  static void forget_at_fork();

  static void wake(Helper& helper, Clock::time_point now) {
    if (!helper.asleep.load()) return;
    helper.woken.store(now.time_since_epoch().count(), relaxed);
    if (helper.asleep.exchange(0)) helper.asleep.notify_one();
  }

  [[noreturn]] void help(int self) {
    inside_chunk = true;
    Helper& me = helpers_[self];
    for (Clock::time_point moved;;) {
      const uint32_t heard = news_.load();
      // Schedulers tend to wake a thread on its waker's core, and on a busy machine leave it there. On the caller's
      // core a helper is useless, so it moves away.
      if (const int core = platform::current_core(); core >= 0 && core == caller_core_.load(relaxed)) {
        if (const Clock::time_point now = Clock::now(); now - moved > kMovesApart) {
          moved = now;
          platform::leave_core(core);
        }
      }
      bool computed = false;
      for (int i = 0; i < calls_used_.load(relaxed); ++i) computed = calls_[i].join(self) > 0 || computed;
      if (computed || spin([&] { return news_.load(acquire) != heard; })) continue;
      // A caller first increments news_, then looks for sleeping helpers. A helper does the reverse: it first marks
      // itself as asleep, then reads news_ again. So no call is missed.
      me.asleep.store(1);
      if (news_.load() == heard) {
        me.asleep.wait(1);
        const Clock::time_point now = Clock::now();
        const Clock::duration late = now.time_since_epoch() - Clock::duration(me.woken.load(relaxed));
        if (late > kLate) helpfulness_.lost(late, now);
      }
      me.asleep.store(0);
    }
  }

  alignas(64) std::atomic<uint32_t> news_{0};  // calls opened so far
  std::atomic<int> caller_core_{-1};           // core on which the last call was opened
  alignas(64) std::atomic<int> calls_used_{0};
  std::atomic<int> helper_count_{0};
  std::mutex start_mutex_;
  Helpfulness helpfulness_;
  Helper helpers_[kMaxThreads];
  Call calls_[kMaxCalls];
};

// Not destroyed at exit, because helpers may still read it.
Pool& pool() {
  alignas(Pool) static unsigned char room[sizeof(Pool)];
  static Pool* const instance = new (room) Pool;
  return *instance;
}

// A forked child has no helper threads, and the calls are in an arbitrary state, so the pool is constructed again.
void Pool::forget_at_fork() {
  [[maybe_unused]] static const bool registered = (platform::on_fork([] { new (&pool()) Pool; }), true);
}

}  // namespace

int num_cores() {
  static const int cores = platform::allowed_cores();
  return cores;
}

int num_threads() {
  const int limit = thread_limit.load(relaxed);
  static const int fallback = default_threads();
  return limit > 0 ? limit : fallback;
}

void set_num_threads(int threads) {
  GRADUS_CHECK(threads > 0, ValueError, "set_num_threads needs a positive number, got ", threads);
  thread_limit = threads;
}

ThreadRuntime thread_runtime() { return current_runtime().load(relaxed); }

void set_thread_runtime(ThreadRuntime runtime) { current_runtime() = checked(runtime); }

int parallel_slots(int64_t count, int64_t grain) {
  if (count <= grain || serial_thread || inside_chunk) return 1;
  return static_cast<int>(std::clamp<int64_t>(ceil_div(count, std::max<int64_t>(grain, 1)), 1, num_threads()));
}

void parallel_for(int64_t count, int64_t grain, RangeFunction body) {
  parallel_for(count, grain, parallel_slots(count, grain), body);
}

void parallel_for(int64_t count, int64_t grain, int slots, RangeFunction body) {
  if (count <= 0 || skips_chunks) return;
  if (count <= grain) return body(0, count, 0);
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = ceil_div(count, grain);
  const int threads = static_cast<int>(std::min<int64_t>(chunks, slots));
  if (threads <= 1 || serial_thread || inside_chunk) return run_serially(chunks, count, grain, body);
  if (thread_runtime() == ThreadRuntime::openmp && run_on_openmp(chunks, count, grain, threads, body)) return;
  pool().run(chunks, count, grain, threads, body);
}

}  // namespace gradus
