// The state of a running parallel_for call, shared by the threads that work on it: the pool's helpers (parallel.cpp) or
// OpenMP's (parallel_openmp.cpp).
//
// The chunks of a call are distributed before it starts: each thread owns a range of consecutive chunks and takes them
// from the front. A thread whose range is empty steals from the back of the other ranges. On an idle machine the same
// thread therefore gets the same part of a tensor in every kernel and finds it in its cache. On a busy machine, where a
// thread may start milliseconds late, the other threads have done its work by then.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

#include <gradus/core/formulas/integers.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::detail {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
constexpr auto relaxed = std::memory_order_relaxed, acquire = std::memory_order_acquire;
constexpr auto acq_rel = std::memory_order_acq_rel;

constexpr int kMaxThreads = 128;  // maximum number of threads of one call, including the caller
// kSpin: how long a thread spins before it sleeps. kGap: the most that the time between two reads of the clock adds to
// the spinning time. If more time passed, the operating system had given the core to another process.
constexpr microseconds kSpin{200}, kGap{50};
// Limits for the class Helpfulness below. kMostGain and kMostCredit limit the time that helpers are credited with
// having saved, per call and in total. kLongestPause limits the time during which callers work without helpers.
constexpr microseconds kMostGain{1000}, kMostCredit{100'000}, kLongestPause{1'000'000};

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Spins until `done()`. Returns false after spinning for kSpin, not counting time in which the core was given to
// another process. It never yields: on a busy machine the scheduler resumes a yielding thread late, but wakes a
// sleeping thread at once.
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

inline void run_chunk(int64_t chunk, int64_t count, int64_t grain, int slot, const RangeFunction& body) {
  body(chunk * grain, std::min(count, (chunk + 1) * grain), slot);
}

inline void run_serially(int64_t chunks, int64_t count, int64_t grain, const RangeFunction& body) {
  for (int64_t chunk = 0; chunk < chunks; ++chunk) run_chunk(chunk, count, grain, 0, body);
}

// The units [first, last) of one thread's range that no thread has taken yet. A unit is a few consecutive chunks; the
// generation is the number of the call. {generation : 32, first : 16, last : 16} are in one word, so that a thread that
// takes a unit checks in the same atomic operation that the unit belongs to the call that the thread has read.
struct alignas(64) Stretch {
  std::atomic<uint64_t> word{0};

  void fill(uint32_t generation, int first, int last) {
    word.store(uint64_t{generation} << 32 | static_cast<uint64_t>(first) << 16 | static_cast<uint64_t>(last),
               std::memory_order_release);
  }
  // Takes a unit; returns -1 if none is left.
  int take(uint32_t generation, bool from_front) {
    uint64_t seen = word.load(acquire);
    for (;;) {
      const int first = static_cast<int>(seen >> 16 & 0xffff), last = static_cast<int>(seen & 0xffff);
      if (static_cast<uint32_t>(seen >> 32) != generation || first == last) return -1;
      const uint64_t rest = from_front ? seen + 0x10000 : seen - 1;
      if (word.compare_exchange_weak(seen, rest, acq_rel, acquire)) return from_front ? first : last - 1;
    }
  }
};

// A call of parallel_for that helpers may join. The objects are reused and never freed. If a helper is late, the object
// is closed or already used for another call, and the helper finds no unit of the generation that it expects.
class Call {
 public:
  // Makes the caller the owner of this call; false if another thread owns it.
  bool claim() { return !claimed_.load(relaxed) && !claimed_.exchange(true, acquire); }
  void release() { claimed_.store(false, std::memory_order_release); }

  void open(int64_t chunks, int64_t count, int64_t grain, int threads, const RangeFunction& body) {
    // Taking a unit has a cost, so with many chunks a unit has several of them.
    const int units = static_cast<int>(std::min<int64_t>(chunks, threads * 64));
    body_.store(&body, relaxed);
    chunks_.store(chunks, relaxed);
    count_.store(count, relaxed);
    grain_.store(grain, relaxed);
    units_.store(units, relaxed);
    unfinished_.store(units, relaxed);
    ++generation_;
    // Rounded up, so that the caller, which starts first, has the longest range.
    auto begin = [&](int thread) { return ceil_div(thread * units, threads); };
    for (int i = 0; i < threads; ++i) stretches_[i].fill(generation_, begin(i), begin(i + 1));
    header_.store(uint64_t{generation_} << 32 | static_cast<uint64_t>(threads), std::memory_order_release);
  }

  // Computes units until all have been begun, as thread `self` of the call (0: the caller). Returns how many it
  // computed.
  int join(int self) {
    const uint64_t header = header_.load(acquire);
    const auto generation = static_cast<uint32_t>(header >> 32);
    const int threads = static_cast<int>(header & 0xffffffff);
    if (self >= threads) return 0;
    int computed = 0;
    for (int i = 0; i < threads; ++i) {
      Stretch& stretch = stretches_[(self + i) % threads];
      for (int unit; (unit = stretch.take(generation, i == 0)) >= 0; ++computed) compute(unit, self);
    }
    // After the subtraction in the next line, the call may be over and another call may use this object.
    if (computed > 0 && unfinished_.fetch_sub(computed) == computed) unfinished_.notify_one();
    return computed;
  }

  // Waits for the units that helpers have begun. Returns false if all units were complete already.
  bool wait() {
    header_.store(0, relaxed);
    auto finished = [&] { return unfinished_.load(acquire) == 0; };
    if (finished()) return false;
    if (!spin(finished))
      for (int left; (left = unfinished_.load(acquire)) > 0;) unfinished_.wait(left);
    return true;
  }

  int units() const { return units_.load(relaxed); }

  // Returns and clears the first exception.
  std::exception_ptr take_error() {
    if (!failed_.load(relaxed)) [[likely]]
      return nullptr;
    failed_.store(false, relaxed);
    return std::exchange(error_, nullptr);
  }

 private:
  void compute(int unit, int slot) {
    const int64_t chunks = chunks_.load(relaxed), count = count_.load(relaxed);
    const int64_t grain = grain_.load(relaxed), units = units_.load(relaxed);
    const RangeFunction& body = *body_.load(relaxed);
    try {
      for (int64_t chunk = unit * chunks / units; chunk < (unit + 1) * chunks / units; ++chunk) {
        if (failed_.load(relaxed)) return;
        run_chunk(chunk, count, grain, slot, body);
      }
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }

  std::atomic<uint64_t> header_{0};  // {generation : 32, threads : 32}; with 0 threads, the call is closed
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

// Decides when callers work without helpers, which is faster on a machine with more runnable threads than cores. A
// helper that loses its core within a chunk stalls the call until the scheduler's next round, and a helper that slept
// may be woken on its caller's core and stall the caller as long. (A call on OpenMP's threads also waits for threads
// without a chunk.) If these stalls have cost more than helpers have saved, no caller requests help for some time, and
// for twice as long each time it happens again soon.
class Helpfulness {
 public:
  bool pausing(Clock::time_point now) const { return now.time_since_epoch().count() < pause_end_.load(relaxed); }
  // Accounts for a call whose caller computed `computed` units from `start` to `alone`, then waited for helpers until
  // `end`.
  void settle(int units, int computed, Clock::time_point start, Clock::time_point alone, Clock::time_point end) {
    computed = std::max(computed, 1);
    const Clock::duration unit = (alone - start) / computed, waited = end - alone;
    if (waited > kSpin + 4 * unit) lost(waited, end);  // a unit takes less: a helper lost its core
    gained((units - computed) * unit);
  }
  void lost(Clock::duration time, Clock::time_point now) {
    const Clock::rep credit = credit_.load(relaxed) - time.count();
    credit_.store(std::max<Clock::rep>(credit, 0), relaxed);
    if (credit >= 0 || pausing(now)) return;
    const Clock::duration last(pause_.load(relaxed)), at = now.time_since_epoch();
    const bool soon = at - Clock::duration(pause_end_.load(relaxed)) < 4 * last;
    const Clock::duration pause = std::min<Clock::duration>(4 * time + (soon ? 2 * last : 0 * last), kLongestPause);
    pause_.store(pause.count(), relaxed);
    pause_end_.store((at + pause).count(), relaxed);
  }

 private:
  void gained(Clock::duration time) {
    const Clock::rep credit = credit_.load(relaxed) + std::min<Clock::duration>(time, kMostGain).count();
    credit_.store(std::min(credit, Clock::duration(kMostCredit).count()), relaxed);
  }

  std::atomic<Clock::rep> credit_{0}, pause_{0}, pause_end_{0};
};

/// Runs the chunks of a call on an OpenMP team of at most `threads` threads (parallel_openmp.cpp). Returns false, with
/// nothing done, if the pool has to serve the call.
bool run_on_openmp(int64_t chunks, int64_t count, int64_t grain, int threads, const RangeFunction& body);

}  // namespace gradus::detail
