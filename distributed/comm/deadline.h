// Every wait of this module ends: at what it waits for, or at its deadline.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace gradus::dist {

using Milliseconds = std::chrono::milliseconds;

/// How long a wait lasts unless its caller says otherwise.
inline constexpr Milliseconds kDefaultTimeout{60'000};
/// From then on a warning says whom a rank waits for.
inline constexpr Milliseconds kPatience{10'000};

/// A point in time that no wait outlasts.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(Milliseconds timeout) : timeout_(timeout), end_(Clock::now() + timeout) {}

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

}  // namespace gradus::dist
