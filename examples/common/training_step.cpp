#include <gradus/examples/common/training_step.h>

using namespace gradus;

Totals::Totals(Device device)
    : loss(zeros({}, dtype(kDouble).device(device))), right(zeros({}, dtype(kLong).device(device))) {}

void Totals::reset() {
  loss.zero_();
  right.zero_();
}

void Totals::add(const Tensor& batch_loss, const Tensor& logits, const Tensor& labels) {
  const NoGradGuard no_grad;
  loss += batch_loss * labels.size(0);
  right += (logits.argmax(1) == labels).sum();
}

TrainingStep::TrainingStep(StepParts parts)
    : parts_(std::move(parts)), step_(
                                    parts_.totals.loss.device(), {&parts_.optimizer},
                                    [this](const TensorList& batch) {
                                      run(batch);
                                      return TensorList();
                                    },
                                    training::CapturedStepOptions().enabled(parts_.graph)) {
  if (!parts_.graph) clock_.emplace(parts_.totals.loss.device());
}

std::optional<StepClock::Seconds> TrainingStep::take_seconds() {
  if (!clock_) return std::nullopt;
  return clock_->take();
}

void TrainingStep::mark(StepClock::Mark mark) {
  if (clock_) clock_->mark(mark);
}

void TrainingStep::run(const TensorList& batch) {
  const auto [images, labels] = parts_.batches.examples(batch);
  mark(StepClock::kBegin);  // making the batch is no part of it
  parts_.optimizer.zero_grad();
  Tensor logits, loss;
  {
    const amp::Autocast autocast(images.device().type, parts_.half, parts_.half.has_value());
    logits = parts_.model.forward(images);
    loss = parts_.loss(logits, labels);
  }
  mark(StepClock::kForward);
  parts_.scaler.scale(loss).backward();
  mark(StepClock::kBackward);
  parts_.scaler.step(parts_.optimizer);
  parts_.scaler.update();
  mark(StepClock::kOptimizer);
  parts_.totals.add(loss, logits, labels);
}
