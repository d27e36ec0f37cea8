#include <gradus/examples/common/step_clock.h>

#include <utility>

using namespace gradus;

StepClock::StepClock(Device device) : device_(settled(device)) {}

void StepClock::mark(Mark mark) {
  if (mark == kBegin) {
    while (!steps_.empty() && steps_.front()[kOptimizer]->query()) add_first();
    steps_.push_back(new_step());
  }
  steps_.back()[mark]->record(runtime(device_.type()).current_stream(device_.index()));
}

StepClock::Seconds StepClock::take() {
  if (!steps_.empty()) steps_.back()[kOptimizer]->synchronize();
  while (!steps_.empty()) add_first();
  return std::exchange(sums_, {});
}

StepClock::Step StepClock::new_step() {
  Step step;
  if (!settled_.empty()) {
    step = std::move(settled_.front());
    settled_.pop_front();
  } else {
    for (auto& event : step) event = runtime(device_.type()).new_event(/*timing=*/true);
  }
  return step;
}

void StepClock::add_first() {
  const Step& step = steps_.front();
  const auto seconds = [&](Mark end) { return step[end]->elapsed_ms(*step[end - 1]) / 1000; };
  sums_.forward += seconds(kForward);
  sums_.backward += seconds(kBackward);
  sums_.optimizer += seconds(kOptimizer);
  settled_.push_back(std::move(steps_.front()));
  steps_.pop_front();
}
