// EarlyStopping ends training when a figure no longer improves, and restores the best weights. Prechelt, "Early
// stopping - but when?", 1998; names and defaults as in Keras's EarlyStopping.
//
//   training::EarlyStopping stopping(*net, training::EarlyStoppingOptions().patience(5));
//   for (int epoch = 0; epoch < most; ++epoch) {
//     train();
//     if (stopping.step(validation_loss())) break;
//   }
//   stopping.restore_best();
#pragma once

#include <gradus/core/options.h>
#include <gradus/layers/module/module.h>

namespace gradus::training {

/// Whether smaller or greater figures are better.
enum class Mode : uint8_t { min, max };
namespace detail {
/// The figure that any other is better than: infinity or -infinity.
double worst_figure(Mode mode);
/// True if `figure` is better than `best` by more than `min_delta`. False for NaN.
bool is_better(Mode mode, double figure, double best, double min_delta = 0);
}  // namespace detail

class EarlyStoppingOptions {
  /// Number of epochs without improvement after which training should stop.
  GRADUS_ARG(int64_t, patience) = 10;
  /// Minimum difference from the best figure that counts as an improvement.
  GRADUS_ARG(double, min_delta) = 0;
  GRADUS_ARG(Mode, mode) = Mode::min;
};

/// Observes one figure. It can be a part of a checkpoint: its state includes the best weights.
class EarlyStopping {
 public:
  /// Keeps copies of the best parameters and buffers of `model`, which must outlive this object. A patience below 1 or
  /// a negative min_delta is a ValueError.
  explicit EarlyStopping(nn::Module& model, const EarlyStoppingOptions& options = {});

  /// Call it with the figure of each epoch. Returns true when training should stop. NaN is never an improvement.
  bool step(double figure);
  /// True if the last epoch was the best so far.
  bool improved() const { return epochs_ > 0 && best_epoch_ == epochs_ - 1; }
  /// The best figure so far (infinity before the first epoch) and its epoch, counted from 0 (-1 before the first
  /// epoch).
  double best() const { return best_; }
  int64_t best_epoch() const { return best_epoch_; }
  int64_t epochs() const { return epochs_; }
  /// Restores the model's best weights. Before the first figure it does nothing.
  void restore_best() const;

  nn::StateDict state_dict() const;
  void load_state_dict(const nn::StateDict& state);

 private:
  nn::Module& model_;
  const EarlyStoppingOptions options_;
  double best_;
  int64_t epochs_ = 0, best_epoch_ = -1;
  nn::StateDict best_weights_{"Key"};
};

}  // namespace gradus::training
