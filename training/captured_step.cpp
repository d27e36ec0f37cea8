#include <gradus/training/captured_step.h>

namespace gradus::training {

CapturedStep::CapturedStep(Device device, std::vector<optim::Optimizer*> optimizers, Function step,
                           CapturedStepOptions options)
    : ReplayedStep("CapturedStep", device, optimizers, std::move(step)), options_(std::move(options)),
      wanted_(options_.enabled() && device_.is_cuda()) {
  const OpContext context("CapturedStep");
  GRADUS_CHECK(options_.warm_up() >= 1, ValueError, "warm_up must be at least 1, got ", options_.warm_up());
}

TensorList CapturedStep::operator()(const TensorList& batch) {
  const Signature signature = signature_of(batch);
  if (captured_ && signature == signature_ && !hold(conditions_, parts_)) reset();
  if (captured_ && signature == signature_ && options_of_optimizers() != captured_options_) capture(batch);
  if (!captured_ && wanted_ && signature == signature_ && eager_steps_ >= options_.warm_up()) capture(batch);
  if (!captured_ || signature != signature_) {
    if (!captured_) {
      eager_steps_ = signature == signature_ ? eager_steps_ + 1 : 1;
      signature_ = signature;
    }
    return run_eagerly(batch);
  }
  copy_batch(batch, inputs_);
  upload_learning_rates();
  half_copies_.replay([&] { graph_.replay(); });
  return outputs_;
}

void CapturedStep::capture(const TensorList& batch) {
  reset();
  upload_learning_rates();
  inputs_ = make_inputs(batch);
  half_copies_ = amp::detail::RecordedHalfCopies(parameters());
  try {
    StepPartsCollector collector;
    graph_.capture([&] {  // captures without running
      outputs_ = step_(inputs_);
      half_copies_.end_recording();
    });
    parts_ = collector.finish();
  } catch (...) {
    drop_gradients();
    reset();
    throw;
  }
  captured_options_ = options_of_optimizers();
  conditions_ = conditions(parts_);
  signature_ = signature_of(batch);
  captured_ = true;
}

void CapturedStep::reset() {
  captured_ = false;
  eager_steps_ = 0;
  outputs_.clear();
  graph_.reset();
  inputs_.clear();
  half_copies_ = {};
  parts_ = {};
  conditions_ = {};
}

void CapturedStep::give_up() {
  reset();
  wanted_ = false;
}

}  // namespace gradus::training
