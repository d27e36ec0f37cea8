// Time limits of waits. Every timeout is clamped here, because adding a very long one to the current time would
// overflow.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace gradus {

using Milliseconds = std::chrono::milliseconds;

/// Longer waits, such as Milliseconds::max(), are shortened to this length.
inline constexpr Milliseconds kLongestWait = std::chrono::years(100);

/// Clamps the length of a wait to [0, kLongestWait].
constexpr Milliseconds bounded(Milliseconds timeout) { return std::clamp(timeout, Milliseconds(0), kLongestWait); }

/// A point in time at which a wait ends.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(Milliseconds timeout) : timeout_(bounded(timeout)), end_(Clock::now() + timeout_) {}

  /// The original timeout, for messages.
  Milliseconds timeout() const { return timeout_; }
  bool passed() const { return Clock::now() >= end_; }
  /// Time left, rounded up so that a wait of this length does not end early; 0 once the deadline has passed.
  Milliseconds left() const { return std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(end_ - Clock::now())); }
  /// Time left in milliseconds as an int, for poll(2); at most one hour.
  int poll_timeout() const { return static_cast<int>(std::min<int64_t>(left().count(), 3'600'000)); }

 private:
  Milliseconds timeout_;
  Clock::time_point end_;
};

}  // namespace gradus
