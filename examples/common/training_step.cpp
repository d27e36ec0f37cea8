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

TrainingStep::TrainingStep(const nn::AnyModule& model, const Loss& loss, optim::Optimizer& optimizer, Totals& totals,
                           int64_t batch_size, bool graph)
    : model_(model), loss_(loss), optimizer_(optimizer), totals_(totals), device_(totals.loss.device()),
      batch_size_(batch_size), graph_wanted_(graph) {}

void TrainingStep::operator()(const Tensor& images, const Tensor& labels) {
  constexpr int kWarmUpSteps = 3;  // kernels are loaded, the optimizer's state is made
  if (graph_wanted_ && images.size(0) == batch_size_ && eager_steps_ >= kWarmUpSteps) {
    run_captured(images, labels);
  } else {
    run(images.to(device_), labels.to(device_));
    ++eager_steps_;
  }
}

void TrainingStep::run(const Tensor& images, const Tensor& labels) {
  optimizer_.zero_grad();
  const Tensor logits = model_.forward(images);
  const Tensor loss = loss_(logits, labels);
  loss.backward();
  optimizer_.step();
  totals_.add(loss, logits, labels);
}

void TrainingStep::run_captured(const Tensor& images, const Tensor& labels) {
  if (!images_.defined()) {
    images_ = images.to(device_);
    labels_ = labels.to(device_);
    graph_.capture([&] { run(images_, labels_); });  // runs nothing yet
  }
  images_.copy_(images);
  labels_.copy_(labels);
  graph_.replay();
}
