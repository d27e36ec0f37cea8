// What TensorBoard is shown of a run.
#pragma once

#include <memory>

#include <gradus/examples/mnist/log.h>
#include <gradus/training/tensorboard.h>

class Curves {
 public:
  /// Writes to options.tensorboard, or nowhere where that is empty. Curves of an earlier part of the run end at
  /// `steps_done`.
  Curves(const Options& options, int64_t steps_done);
  bool wanted() const { return writer_ != nullptr; }
  /// A look at the running epoch.
  void show(int64_t step, double loss, double lr);
  /// Losses, errors, weights and some of the digits that were taken for others.
  void show(int64_t step, const EpochResult& result, const Classifier& model);

 private:
  std::unique_ptr<gradus::training::SummaryWriter> writer_;
};
