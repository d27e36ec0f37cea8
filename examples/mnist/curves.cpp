#include <gradus/examples/mnist/curves.h>

using namespace gradus;

Curves::Curves(const Options& options, int64_t steps_done) {
  if (options.tensorboard.empty()) return;
  training::SummaryWriterOptions writer_options;
  if (steps_done > 0) writer_options.purge_step = steps_done + 1;
  writer_ = std::make_unique<training::SummaryWriter>(options.tensorboard, writer_options);
  if (steps_done == 0) writer_->add_text("command", "    " + options.command, 0);
}

void Curves::show(int64_t step, double loss, double lr) {
  if (!writer_) return;
  writer_->add_scalar("step/mean loss of the epoch so far", loss, step);
  writer_->add_scalar("step/learning rate", lr, step);
}

void Curves::show(int64_t step, const EpochResult& result, const Classifier& model) {
  if (!writer_) return;
  writer_->add_scalar("loss/train", result.train_loss, step);
  writer_->add_scalar("loss/test", result.test.loss, step);
  writer_->add_scalar("error/train", 1 - result.train_accuracy, step);
  writer_->add_scalar("error/test", 1 - result.test.accuracy, step);
  writer_->add_scalar("speed/images per second", result.images_per_second, step);
  for (const auto& parameter : model.named_parameters()) writer_->add_histogram(parameter.key(), *parameter, step);
  if (!result.test.mistakes.empty()) {
    const int64_t count = static_cast<int64_t>(result.test.mistakes.size());
    const Tensor row = zeros({28, 28 * count});
    for (int64_t i = 0; i < count; ++i)
      row.narrow(1, 28 * i, 28).copy_(result.test.mistakes[static_cast<size_t>(i)][0] * 0.3081 + 0.1307);
    writer_->add_image("mistakes", row, step);
  }
  writer_->flush();
}
