// A call of parallel_for while threads are at work on it, whoever started them: the pool's helpers (parallel.cpp) or
// OpenMP (parallel_openmp.cpp).
//
// The chunks of a call are dealt out before it starts: each of its threads owns a stretch of consecutive chunks and
// takes them from the front; whoever has none left steals from the back of the others' stretches. On a quiet machine,
// then, the same thread gets the same part of a tensor, kernel after kernel, and finds it in its cache. On a busy one,
// where a thread may start milliseconds late, the others have done its work by then.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

#include <gradus/core/formulas/ceil_div.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::detail {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr int kMaxThreads = 128;  // of one call, the caller included
// How long a thread spins before it sleeps; how much of a gap between two looks at the clock, in which the core may
// have been given to others, counts as that.
constexpr microseconds kSpin{200}, kGap{50};
// What other threads are credited with at most, for a call and in all; and the longest time that callers do without
// them.
constexpr microseconds kMostGain{1000}, kMostCredit{100'000}, kLongestPause{1'000'000};

struct InsideGuard {
  InsideGuard() { inside_chunk = true; }
  ~InsideGuard() { inside_chunk = false; }
};

inline void pause() {
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

inline void run_chunk(int64_t chunk, int64_t count, int64_t grain, int slot, const RangeFunction& body) {
  body(chunk * grain, std::min(count, (chunk + 1) * grain), slot);
}

inline void run_serially(int64_t chunks, int64_t count, int64_t grain, const RangeFunction& body) {
  for (int64_t chunk = 0; chunk < chunks; ++chunk) run_chunk(chunk, count, grain, 0, body);
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
    auto begin = [&](int thread) { return ceil_div(thread * units, threads); };
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
      for (int unit; (unit = stretch.take(generation, i == 0)) >= 0; ++computed) compute(unit, self);
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
  void compute(int unit, int slot) {
    const int64_t chunks = chunks_.load(std::memory_order_relaxed), count = count_.load(std::memory_order_relaxed);
    const int64_t grain = grain_.load(std::memory_order_relaxed), units = units_.load(std::memory_order_relaxed);
    const RangeFunction& body = *body_.load(std::memory_order_relaxed);
    try {
      for (int64_t chunk = unit * chunks / units; chunk < (unit + 1) * chunks / units; ++chunk) {
        if (failed_.load(std::memory_order_relaxed)) return;
        run_chunk(chunk, count, grain, slot, body);
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
// caller, who then waits as long. (A call on OpenMP's threads waits for those that have no chunk, too.) Where that has
// cost more than helpers have saved, nobody asks for help for some time, and twice as long each time it happens again
// soon.
class Helpfulness {
 public:
  bool pausing(Clock::time_point now) const {
    return now.time_since_epoch().count() < pause_end_.load(std::memory_order_relaxed);
  }
  // A call whose caller has computed some of its units from `start` to `alone`, and waited for the others until `end`.
  void settle(int units, int computed, Clock::time_point start, Clock::time_point alone, Clock::time_point end) {
    computed = std::max(computed, 1);
    const Clock::duration unit = (alone - start) / computed, waited = end - alone;
    if (waited > kSpin + 4 * unit) lost(waited, end);  // longer than a unit can take
    gained((units - computed) * unit);
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
  void gained(Clock::duration time) {
    const Clock::rep credit =
        credit_.load(std::memory_order_relaxed) + std::min<Clock::duration>(time, kMostGain).count();
    credit_.store(std::min(credit, Clock::duration(kMostCredit).count()), std::memory_order_relaxed);
  }

  std::atomic<Clock::rep> credit_{0}, pause_{0}, pause_end_{0};
};

}  // namespace gradus::detail
