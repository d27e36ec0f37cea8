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
                                    training::CapturedStepOptions().enabled(parts_.graph)) {}

void TrainingStep::run(const TensorList& batch) {
  const auto [images, labels] = parts_.batches.examples(batch);
  parts_.optimizer.zero_grad();
  Tensor logits, loss;
  {
    const amp::Autocast autocast(images.device().type, parts_.half, parts_.half.has_value());
    logits = parts_.model.forward(images);
    loss = parts_.loss(logits, labels);
  }
  parts_.scaler.scale(loss).backward();
  parts_.scaler.step(parts_.optimizer);
  parts_.scaler.update();
  parts_.totals.add(loss, logits, labels);
}
