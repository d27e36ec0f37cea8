#include <gradus/examples/common/training_step.h>

#include <utility>

#include <gradus/inspect/oversights.h>

using namespace gradus;

Totals::Totals(Device device)
    : loss(zeros({}, dtype(kDouble).device(device))), right(zeros({}, dtype(kLong).device(device))) {}

void Totals::reset() {
  loss.zero_();
  right.zero_();
  images = 0;
}

void Totals::add(const Tensor& batch_loss, const Tensor& logits, const Tensor& labels) {
  if (labels.size(0) == 0) return;  // the mean loss of no images is NaN
  const NoGradGuard no_grad;
  loss += batch_loss * labels.size(0);
  right += (logits.argmax(1) == labels).sum();
}

void Totals::gather(const Ranks& ranks) {
  const std::vector<double> sums =
      ranks.sum({loss.item<double>(), static_cast<double>(right.item<int64_t>()), static_cast<double>(images)});
  reset();
  if (!ranks.is_first()) return;
  loss.fill_(sums[0]);
  right.fill_(static_cast<int64_t>(sums[1]));
  images = static_cast<int64_t>(sums[2]);
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

void TrainingStep::operator()(const TensorList& batch, int64_t images_of_all, double weight) {
  weight_ = weight;
  // A step with a smaller batch is eager on all ranks, also on a rank whose part has the usual size, because all ranks
  // must capture the same steps with the same weight.
  if (images_of_all == parts_.batch_size) step_(batch);
  else run(batch);
  parts_.totals.images += batch[0].size(0);
}

std::optional<StepClock::Seconds> TrainingStep::take_seconds() {
  if (!clock_) return std::nullopt;
  return clock_->take();
}

void TrainingStep::mark(StepClock::Mark mark) {
  // Sets no marks while --explain captures a step: a captured step must not read the clock.
  if (clock_ && !runtime(parts_.totals.loss.device().type()).capturing()) clock_->mark(mark);
}

void TrainingStep::run(const TensorList& batch) {
  const auto [images, labels] = parts_.batches.examples(batch);
  mark(StepClock::kBegin);  // the time for making the batch does not count
  parts_.optimizer.zero_grad();
  Tensor logits, loss;
  {
    const amp::Autocast autocast(images.device().type(), parts_.half, parts_.half.has_value());
    logits = parts_.model.forward(images);
    loss = parts_.loss(logits, labels);
  }
  mark(StepClock::kForward);
  parts_.scaler.scale(weight_ == 1 ? loss : loss * weight_).backward();
  mark(StepClock::kBackward);
  if (!std::exchange(checked_, true)) training::warn_of_oversights(*parts_.model.ptr(), loss, &parts_.optimizer);
  parts_.scaler.step(parts_.optimizer);
  parts_.scaler.update();
  mark(StepClock::kOptimizer);
  parts_.totals.add(loss, logits, labels);
}
