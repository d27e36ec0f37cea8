// parallel_for over helper threads of our own.
//
// The chunks of a call are dealt out before it starts: each of its threads owns a stretch of consecutive chunks and
// takes them from the front; whoever has none left steals from the back of the others' stretches. On a quiet machine,
// then, the same thread gets the same part of a tensor, kernel after kernel, and finds it in its cache. On a busy one,
// where a helper may start milliseconds late, the caller has done the helper's work by then: it never waits for a
// thread that has not started, only for chunks that are being computed. Where a helper keeps losing its core in the
// midst of them, callers do without helpers for a while.
//
// Helpers that have run out of work spin for a moment, so that the next kernel finds them awake (a small net starts one
// every 10 us, and to wake a sleeping thread takes longer than that), then they sleep.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include <gradus/core/error.h>
#include <gradus/core/parallel.h>

namespace gradus {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr int kMaxThreads = 128;  // of one call, the caller included
constexpr int kMaxCalls = 16;     // at a time; those beyond run serially
// How long a thread spins before it sleeps; how much of a gap between two looks at the clock, in which the core may
// have been given to others, counts as that; and how often a helper may change its core.
constexpr microseconds kSpin{200}, kGap{50}, kMovesApart{1000};
// From when on a helper that has been woken is late; what helpers are credited with at most, for a call and in all; and
// the longest time that callers do without them.
constexpr microseconds kLate{1000}, kMostGain{1000}, kMostCredit{100'000}, kLongestPause{1'000'000};

std::atomic<int> thread_limit{0};
thread_local constinit bool inside = false;
struct InsideGuard {
  InsideGuard() { inside = true; }
  ~InsideGuard() { inside = false; }
};

int default_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS"))
    if (const int wanted = std::atoi(text); wanted > 0) return wanted;
#ifdef __linux__
  cpu_set_t allowed;  // what taskset and batch systems leave us
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Spins until `done()`; false when that has taken more than kSpin. Time in which the core was given to others does not
// count. It never yields: who has yielded comes back when a busy scheduler sees fit, who has slept is woken at once.
template <class Done>
bool spin(Done&& done) {
  Clock::duration spun{0};
  for (Clock::time_point last = Clock::now(); spun < kSpin;) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      pause();
    }
    const Clock::time_point now = Clock::now();
    spun += std::min<Clock::duration>(now - last, kGap);
    last = now;
  }
  return done();
}

// The processor that this thread runs on, and a way from it: asks the scheduler for any other that we may use, then for
// all of them again, which lets the thread stay where it has gone.
#ifdef __linux__
int current_cpu() { return sched_getcpu(); }
void leave_cpu(int cpu) {
  cpu_set_t allowed;
  if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) == 0) return;
  sched_setaffinity(0, sizeof others, &others);
  sched_setaffinity(0, sizeof allowed, &allowed);
}
#else
int current_cpu() { return -1; }
void leave_cpu(int) {}
#endif

void run_chunk(int64_t chunk, int64_t count, int64_t grain, const RangeFunction& body) {
  body(chunk * grain, std::min(count, (chunk + 1) * grain));
}

void run_serially(int64_t chunks, int64_t count, int64_t grain, const RangeFunction& body) {
  for (int64_t chunk = 0; chunk < chunks; ++chunk) run_chunk(chunk, count, grain, body);
}

// Units [first, last) that nobody has taken yet, for one call: {generation : 32, first : 16, last : 16} in one word, so
// that whoever takes a unit knows in the same moment that it belongs to the call that he has read about.
struct alignas(64) Stretch {
  std::atomic<uint64_t> word{0};

  void fill(uint32_t generation, int first, int last) {
    word.store(uint64_t{generation} << 32 | static_cast<uint64_t>(first) << 16 | static_cast<uint64_t>(last),
               std::memory_order_release);
  }
  // A unit, or -1 where there is none left.
  int take(uint32_t generation, bool from_front) {
    uint64_t seen = word.load(std::memory_order_acquire);
    for (;;) {
      const int first = static_cast<int>(seen >> 16 & 0xffff), last = static_cast<int>(seen & 0xffff);
      if (static_cast<uint32_t>(seen >> 32) != generation || first == last) return -1;
      const uint64_t rest = from_front ? seen + 0x10000 : seen - 1;
      if (word.compare_exchange_weak(seen, rest, std::memory_order_acq_rel, std::memory_order_acquire))
        return from_front ? first : last - 1;
    }
  }
};

// A call of parallel_for that helpers may join. Calls are reused and never freed: a helper that comes late reads of
// another call, or of none, and finds no unit of the generation that it knows.
class Call {
 public:
  // Makes the call the caller's own; false when it is another's.
  bool claim() {
    return !claimed_.load(std::memory_order_relaxed) && !claimed_.exchange(true, std::memory_order_acquire);
  }
  void release() { claimed_.store(false, std::memory_order_release); }

  void open(int64_t chunks, int64_t count, int64_t grain, int threads, const RangeFunction& body) {
    // Claiming costs the more, the more there are to claim: many chunks are taken several at a time.
    const int units = static_cast<int>(std::min<int64_t>(chunks, threads * 64));
    body_.store(&body, std::memory_order_relaxed);
    chunks_.store(chunks, std::memory_order_relaxed);
    count_.store(count, std::memory_order_relaxed);
    grain_.store(grain, std::memory_order_relaxed);
    units_.store(units, std::memory_order_relaxed);
    unfinished_.store(units, std::memory_order_relaxed);
    ++generation_;
    // Rounded up: the caller, who starts first, has the longest stretch.
    auto begin = [&](int thread) { return (thread * units + threads - 1) / threads; };
    for (int i = 0; i < threads; ++i) stretches_[i].fill(generation_, begin(i), begin(i + 1));
    header_.store(uint64_t{generation_} << 32 | static_cast<uint64_t>(threads), std::memory_order_release);
  }

  // Computes units until none is left to begin: as the call's thread `self`, 0 being the caller. Returns their number.
  int join(int self) {
    const uint64_t header = header_.load(std::memory_order_acquire);
    const auto generation = static_cast<uint32_t>(header >> 32);
    const int threads = static_cast<int>(header & 0xffffffff);
    if (self >= threads) return 0;
    int computed = 0;
    for (int i = 0; i < threads; ++i) {
      Stretch& stretch = stretches_[(self + i) % threads];
      for (int unit; (unit = stretch.take(generation, i == 0)) >= 0; ++computed) compute(unit);
    }
    // From here on the call may be over and its place taken by the next one.
    if (computed > 0 && unfinished_.fetch_sub(computed) == computed) unfinished_.notify_one();
    return computed;
  }

  // Waits for what helpers have begun; false when there was nothing to wait for.
  bool wait() {
    header_.store(0, std::memory_order_relaxed);
    auto finished = [&] { return unfinished_.load(std::memory_order_acquire) == 0; };
    if (finished()) return false;
    if (!spin(finished))
      for (int left; (left = unfinished_.load(std::memory_order_acquire)) > 0;) unfinished_.wait(left);
    return true;
  }

  int units() const { return units_.load(std::memory_order_relaxed); }

  // The first exception.
  std::exception_ptr take_error() {
    if (!failed_.load(std::memory_order_relaxed)) [[likely]]
      return nullptr;
    failed_.store(false, std::memory_order_relaxed);
    return std::exchange(error_, nullptr);
  }

 private:
  void compute(int unit) {
    const int64_t chunks = chunks_.load(std::memory_order_relaxed), count = count_.load(std::memory_order_relaxed);
    const int64_t grain = grain_.load(std::memory_order_relaxed), units = units_.load(std::memory_order_relaxed);
    const RangeFunction& body = *body_.load(std::memory_order_relaxed);
    try {
      for (int64_t chunk = unit * chunks / units; chunk < (unit + 1) * chunks / units; ++chunk) {
        if (failed_.load(std::memory_order_relaxed)) return;
        run_chunk(chunk, count, grain, body);
      }
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }

  std::atomic<uint64_t> header_{0};  // {generation : 32, threads : 32}; no threads: closed
  std::atomic<const RangeFunction*> body_{nullptr};
  std::atomic<int64_t> chunks_{0}, count_{0}, grain_{0};
  std::atomic<int> units_{0};
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<int> unfinished_{0};
  std::exception_ptr error_;
  std::atomic<bool> claimed_{false};
  uint32_t generation_ = 0;
  Stretch stretches_[kMaxThreads];
};

// When callers do without helpers: on a machine with more work than cores. A helper that loses its core in the midst of
// a chunk stalls the call until the scheduler's next round, and one that has slept may be woken on the core of its
// caller, who then waits as long. Where that has cost more than helpers have saved, nobody asks for help for some time,
// and twice as long each time it happens again soon.
class Helpfulness {
 public:
  bool pausing(Clock::time_point now) const {
    return now.time_since_epoch().count() < pause_end_.load(std::memory_order_relaxed);
  }
  void gained(Clock::duration time) {
    const Clock::rep credit =
        credit_.load(std::memory_order_relaxed) + std::min<Clock::duration>(time, kMostGain).count();
    credit_.store(std::min(credit, Clock::duration(kMostCredit).count()), std::memory_order_relaxed);
  }
  void lost(Clock::duration time, Clock::time_point now) {
    const Clock::rep credit = credit_.load(std::memory_order_relaxed) - time.count();
    credit_.store(std::max<Clock::rep>(credit, 0), std::memory_order_relaxed);
    if (credit >= 0 || pausing(now)) return;
    const Clock::duration last(pause_.load(std::memory_order_relaxed)), at = now.time_since_epoch();
    const bool soon = at - Clock::duration(pause_end_.load(std::memory_order_relaxed)) < 4 * last;
    const Clock::duration pause = std::min<Clock::duration>(4 * time + (soon ? 2 * last : 0 * last), kLongestPause);
    pause_.store(pause.count(), std::memory_order_relaxed);
    pause_end_.store((at + pause).count(), std::memory_order_relaxed);
  }

 private:
  std::atomic<Clock::rep> credit_{0}, pause_{0}, pause_end_{0};
};

// The helpers and the calls that they look at.
class Pool {
 public:
  void run(int64_t chunks, int64_t count, int64_t grain, int threads, const RangeFunction& body) {
    const Clock::time_point start = Clock::now();
    const InsideGuard guard;
    if (helpfulness_.pausing(start)) return run_serially(chunks, count, grain, body);
    Call* call = claim();
    threads = std::min(threads, 1 + start_helpers(std::min(threads, kMaxThreads) - 1));
    if (!call || threads == 1) {
      if (call) call->release();
      return run_serially(chunks, count, grain, body);
    }
    call->open(chunks, count, grain, threads, body);
    caller_cpu_.store(current_cpu(), std::memory_order_relaxed);
    news_.fetch_add(1);
    for (int i = 1; i < threads; ++i) wake(helpers_[i], start);
    const int computed = std::max(call->join(0), 1), others = call->units() - computed;
    const Clock::time_point alone = Clock::now();
    const Clock::duration unit = (alone - start) / computed;
    if (call->wait()) {
      const Clock::time_point now = Clock::now();
      const Clock::duration waited = now - alone;
      if (waited > kSpin + 4 * unit) helpfulness_.lost(waited, now);  // longer than a unit can take
    }
    helpfulness_.gained(others * unit);
    const std::exception_ptr error = call->take_error();
    call->release();
    if (error) std::rethrow_exception(error);
  }

 private:
  struct alignas(64) Helper {
    std::atomic<int> asleep{0};
    std::atomic<Clock::rep> woken{0};  // when
  };

  // The same one each time, as long as it is free.
  Call* claim() {
    static thread_local constinit int last = 0;
    for (int i = 0; i < kMaxCalls; ++i) {
      const int at = (last + i) % kMaxCalls;
      if (!calls_[at].claim()) continue;
      last = at;
      int used = calls_used_.load(std::memory_order_relaxed);
      while (used <= at && !calls_used_.compare_exchange_weak(used, at + 1)) {}
      return &calls_[at];
    }
    return nullptr;
  }

  // Number of helpers, after an attempt to have `wanted` of them.
  int start_helpers(int wanted) {
    int running = helper_count_.load(std::memory_order_acquire);
    if (running >= wanted) [[likely]]
      return running;
    std::lock_guard lock(start_mutex_);
    forget_at_fork();
    for (running = helper_count_.load(); running < wanted; helper_count_.store(++running)) {
      try {
        std::thread([this, self = running + 1] { help(self); }).detach();
      } catch (const std::system_error&) {  // no more threads to be had: fewer will do
        break;
      }
    }
    return running;
  }

  static void forget_at_fork();

  static void wake(Helper& helper, Clock::time_point now) {
    if (!helper.asleep.load()) return;
    helper.woken.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    if (helper.asleep.exchange(0)) helper.asleep.notify_one();
  }

  [[noreturn]] void help(int self) {
    inside = true;
    Helper& me = helpers_[self];
    for (Clock::time_point moved;;) {
      const uint32_t heard = news_.load();
      // Schedulers like to wake a thread where its waker runs, and on a busy machine leave it there: the one place
      // where a helper is of no use.
      if (const int cpu = current_cpu(); cpu >= 0 && cpu == caller_cpu_.load(std::memory_order_relaxed)) {
        if (const Clock::time_point now = Clock::now(); now - moved > kMovesApart) {
          moved = now;
          leave_cpu(cpu);
        }
      }
      bool computed = false;
      for (int i = 0; i < calls_used_.load(std::memory_order_relaxed); ++i)
        computed = calls_[i].join(self) > 0 || computed;
      if (computed || spin([&] { return news_.load(std::memory_order_acquire) != heard; })) continue;
      // Who opens a call first tells the news, then looks who sleeps; we say first that we do, then look for news.
      me.asleep.store(1);
      if (news_.load() == heard) {
        me.asleep.wait(1);
        const Clock::time_point now = Clock::now();
        const Clock::duration late = now.time_since_epoch() - Clock::duration(me.woken.load(std::memory_order_relaxed));
        if (late > kLate) helpfulness_.lost(late, now);
      }
      me.asleep.store(0);
    }
  }

  alignas(64) std::atomic<uint32_t> news_{0};  // calls opened so far
  std::atomic<int> caller_cpu_{-1};            // where the last one was opened
  alignas(64) std::atomic<int> calls_used_{0};
  std::atomic<int> helper_count_{0};
  std::mutex start_mutex_;
  Helpfulness helpfulness_;
  Helper helpers_[kMaxThreads];
  Call calls_[kMaxCalls];
};

// Not destroyed at exit, when helpers may still look at it.
Pool& pool() {
  alignas(Pool) static unsigned char room[sizeof(Pool)];
  static Pool* const instance = new (room) Pool;
  return *instance;
}

// A forked child has none of the helpers, and calls in whatever state: it starts anew.
void Pool::forget_at_fork() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { new (&pool()) Pool; });
  (void)registered;
}

}  // namespace

int num_threads() {
  const int limit = thread_limit.load(std::memory_order_relaxed);
  static const int fallback = default_threads();
  return limit > 0 ? limit : fallback;
}

void set_num_threads(int threads) {
  GRADUS_CHECK(threads > 0, ValueError, "set_num_threads needs a positive number, got ", threads);
  thread_limit = threads;
}

bool detail::in_parallel_region() { return inside; }

void parallel_for(int64_t count, int64_t grain, RangeFunction body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = (count + grain - 1) / grain;
  if (chunks == 1) return body(0, count);
  const int threads = static_cast<int>(std::min<int64_t>(chunks, num_threads()));
  if (threads <= 1 || detail::serial_thread || inside) return run_serially(chunks, count, grain, body);
  pool().run(chunks, count, grain, threads, body);
}

}  // namespace gradus
