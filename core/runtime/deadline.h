// The end of a wait. Waits take their time from here, so that no length overflows a clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace gradus {

using Milliseconds = std::chrono::milliseconds;

/// A wait that is to be longer, for Milliseconds::max() say, lasts this long: as good as for ever.
inline constexpr Milliseconds kLongestWait = std::chrono::years(100);

/// The length of a wait: a negative one is 0, and none is above kLongestWait.
constexpr Milliseconds bounded(Milliseconds timeout) { return std::clamp(timeout, Milliseconds(0), kLongestWait); }

/// A point in time that no wait outlasts.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(Milliseconds timeout) : timeout_(bounded(timeout)), end_(Clock::now() + timeout_) {}

  /// What it was set to, for messages.
  Milliseconds timeout() const { return timeout_; }
  bool passed() const { return Clock::now() >= end_; }
  /// Rounded up, so that a wait of this length does not end early; 0 once the deadline has passed.
  Milliseconds left() const { return std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(end_ - Clock::now())); }
  /// The same for poll(2), whose argument is an int.
  int poll_timeout() const { return static_cast<int>(std::min<int64_t>(left().count(), 3'600'000)); }

 private:
  Milliseconds timeout_;
  Clock::time_point end_;
};

}  // namespace gradus
