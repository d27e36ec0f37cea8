// Progress shows how far an epoch is while it runs.
#pragma once

#include <chrono>
#include <cstdint>

/// On a terminal, shows a bar with loss, images/s and the remaining time. Elsewhere, prints a line every few seconds.
/// If `quiet`, shows nothing.
class Progress {
 public:
  /// `seconds` is the duration of the epoch before the run was interrupted and resumed.
  Progress(int epoch, int epochs, int64_t images, double seconds, bool quiet);
  /// True if it is time to call show(). Ask this first, because computing the loss for show() may be slow.
  bool due() const;
  /// Shows that `done` images of the epoch are done, with this mean loss.
  void show(int64_t done, double loss);
  /// Removes the bar from the terminal.
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
