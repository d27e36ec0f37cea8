// What the parts of training steps take.
#pragma once

#include <gradus/core/runtime/runtime.h>

#include <array>
#include <deque>
#include <memory>

/// Marks the ends of forward, backward and the optimizer in the device's work, so that on a GPU nothing waits for them,
/// and adds up the times between. On the CPU the marks are looks at the clock.
class StepClock {
 public:
  enum Mark { kBegin, kForward, kBackward, kOptimizer, kMarks };
  struct Seconds {
    double forward = 0, backward = 0, optimizer = 0;
  };

  explicit StepClock(gradus::Device device);
  /// The part of the step that ends here; kBegin opens the next step.
  void mark(Mark mark);
  /// The sums since the last call. Waits for the device.
  Seconds take();

 private:
  using Step = std::array<std::unique_ptr<gradus::Event>, kMarks>;
  Step new_step();
  void add_first();

  const gradus::Device device_;
  std::deque<Step> steps_;    // in the device's queue, the last one perhaps still open
  std::deque<Step> settled_;  // added up: their events are free
  Seconds sums_;
};
