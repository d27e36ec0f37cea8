// EarlyStopping: ends a training that gets no better, with the weights that were the best. Prechelt, "Early stopping -
// but when?", 1998; names and defaults after Keras's EarlyStopping.
//
//   training::EarlyStopping stopping(*net, training::EarlyStoppingOptions().patience(5));
//   for (int epoch = 0; epoch < most; ++epoch) {
//     train();
//     if (stopping.step(validation_loss())) break;
//   }
//   stopping.restore_best();
#pragma once

#include <gradus/core/options.h>
#include <gradus/layers/module.h>

namespace gradus::training {

/// Whether smaller or greater figures are better.
enum class Mode : uint8_t { min, max };

class EarlyStoppingOptions {
  /// Epochs without improvement after which it is time to stop.
  GRADUS_ARG(int64_t, patience) = 10;
  /// How much better than the best so far counts as better.
  GRADUS_ARG(double, min_delta) = 0;
  GRADUS_ARG(Mode, mode) = Mode::min;
};

/// Watches one figure. It is a part of a checkpoint: its state holds the best weights too.
class EarlyStopping {
 public:
  /// Keeps copies of the best parameters and buffers of `model`, which must live as long as this. A patience below 1 or
  /// a negative min_delta is a ValueError.
  explicit EarlyStopping(nn::Module& model, const EarlyStoppingOptions& options = {});

  /// Takes the figure of an epoch; true when it is time to stop. NaN is never better.
  bool step(double figure);
  /// True if the last epoch was the best so far.
  bool improved() const { return epochs_ > 0 && best_epoch_ == epochs_ - 1; }
  /// The best figure so far (an infinity before the first) and its epoch, counted from 0 (-1 before).
  double best() const { return best_; }
  int64_t best_epoch() const { return best_epoch_; }
  int64_t epochs() const { return epochs_; }
  /// Gives the model its best weights back. Before the first figure it does nothing.
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
