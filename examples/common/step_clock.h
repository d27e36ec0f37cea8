// StepClock measures how long the parts of training steps take.
#pragma once

#include <gradus/core/runtime/runtime.h>

#include <array>
#include <deque>
#include <memory>

/// Adds up the durations of forward, backward and optimizer. On a GPU it marks their ends by events in the stream, so
/// that measuring does not wait for the device; on the CPU it reads the clock.
class StepClock {
 public:
  enum Mark { kBegin, kForward, kBackward, kOptimizer, kMarks };
  struct Seconds {
    double forward = 0, backward = 0, optimizer = 0;
  };

  explicit StepClock(gradus::Device device);
  /// Marks the end of a part of the step. kBegin marks the begin of the next step.
  void mark(Mark mark);
  /// Returns the sums since the last call. Waits for the device.
  Seconds take();

 private:
  using Step = std::array<std::unique_ptr<gradus::Event>, kMarks>;
  Step new_step();
  void add_first();

  const gradus::Device device_;
  std::deque<Step> steps_;    // not yet added up; the last step may not have all its marks
  std::deque<Step> settled_;  // already added up; their events can be used again
  Seconds sums_;
};
