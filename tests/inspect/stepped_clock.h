#pragma once

#include <gradus/core/runtime/observer.h>

namespace gradus::test {

/// While it exists, no time passes on the clock of observer_time() but what pass() is given.
class SteppedClock {
 public:
  SteppedClock() {
    detail::observer_clock = [] { return seconds_; };
  }
  SteppedClock(const SteppedClock&) = delete;
  SteppedClock& operator=(const SteppedClock&) = delete;
  ~SteppedClock() { detail::observer_clock = nullptr; }
  static void pass(int milliseconds) { seconds_ += 1e-3 * milliseconds; }

 private:
  static inline double seconds_ = 0;
};

}  // namespace gradus::test
