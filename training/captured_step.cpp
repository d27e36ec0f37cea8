#include <gradus/training/captured_step.h>

namespace gradus::training {

CapturedStep::CapturedStep(Device device, std::vector<optim::Optimizer*> optimizers, Function step,
                           CapturedStepOptions options)
    : ReplayedStep("CapturedStep", device, std::move(optimizers), std::move(step), options.warm_up(),
                   options.enabled() && device.is_cuda()) {}

TensorList CapturedStep::operator()(const TensorList& batch) {
  const Signature signature = signature_of(batch);
  const bool fits = signature == recording_.signature;
  if (captured_ && fits && !is_valid(recording_)) reset();
  if (captured_ && fits && !has_current_options(recording_)) capture(batch);
  if (!captured_ && wanted_ && fits && eager_steps_ >= warm_up_) capture(batch);
  if (captured_ && fits) return replay(recording_, batch, [&] { graph_.replay(); });
  if (!captured_) {
    eager_steps_ = fits ? eager_steps_ + 1 : 1;
    recording_.signature = signature;
  }
  return run_eagerly(batch);
}

void CapturedStep::capture(const TensorList& batch) {
  reset();
  try {
    record(recording_, batch, [&](const auto& work) { graph_.capture(work); });  // captures without running
  } catch (...) {
    reset();
    throw;
  }
  captured_ = true;
}

void CapturedStep::reset() {
  captured_ = false;
  eager_steps_ = 0;
  recording_.outputs.clear();  // before the graph, whose memory they use
  graph_.reset();
  recording_ = {};
}

}  // namespace gradus::training
