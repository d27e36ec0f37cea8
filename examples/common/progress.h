// What is seen of an epoch while it runs.
#pragma once

#include <chrono>
#include <cstdint>

/// A bar with loss, images/s and time left on a terminal; elsewhere a plain line every few seconds; or nothing.
class Progress {
 public:
  /// `seconds` of the epoch have passed already, in a run that was interrupted.
  Progress(int epoch, int epochs, int64_t images, double seconds, bool quiet);
  /// True when it is time to show something: what show() needs may be costly to ask for.
  bool due() const;
  /// `done` images so far, with this mean loss.
  void show(int64_t done, double loss);
  /// Wipes the bar from the terminal.
  void finish();
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  const int epoch_, epochs_;
  const int64_t images_;
  const bool quiet_, terminal_;
  const Clock::time_point start_;
  Clock::time_point last_ = Clock::now();
};
