// EarlyStopping asks a training loop to stop when a figure, such as the validation loss, no longer improves, and
// restores the best weights (Prechelt, "Early stopping - but when?", 1998). Names and defaults are those of Keras's
// EarlyStopping.
//
//   training::EarlyStopping stopping(*net, training::EarlyStoppingOptions().patience(5));
//   for (int epoch = 0; epoch < most; ++epoch) {
//     train();
//     if (stopping.step(validation_loss())) break;
//   }
//   stopping.restore_best();
//
// Interrupt: Ctrl-C asks a training run to save and stop, and does not kill it.
//
//   training::Interrupt interrupt;
//   for (auto& batch : *loader) {
//     step(batch);
//     if (interrupt.requested()) return checkpoint.save(path);
//   }
#pragma once

#include <gradus/core/options.h>
#include <gradus/layers/module/module.h>

namespace gradus::training {

/// Says whether smaller (min) or greater (max) figures are better.
enum class Mode : uint8_t { min, max };
namespace detail {
/// Returns the worst possible figure: infinity for Mode::min, -infinity for Mode::max.
double worst_figure(Mode mode);
/// True if `figure` is better than `best` by more than `min_delta`. NaN is never better.
bool is_better(Mode mode, double figure, double best, double min_delta = 0);
}  // namespace detail

class EarlyStoppingOptions {
  /// Training should stop after this number of epochs without improvement.
  GRADUS_ARG(int64_t, patience) = 10;
  /// A figure is an improvement if it is better than the best figure by more than this.
  GRADUS_ARG(double, min_delta) = 0;
  GRADUS_ARG(Mode, mode) = Mode::min;
};

/// Observes one figure, and keeps the weights of its best epoch. It can be added to a Checkpoint; its state then
/// includes these weights.
class EarlyStopping {
 public:
  /// `model` must outlive this object. A patience below 1 or a negative min_delta is a ValueError.
  explicit EarlyStopping(nn::Module& model, const EarlyStoppingOptions& options = {});

  /// Call this after each epoch with its figure. Returns true if training should stop. NaN is never an improvement.
  bool step(double figure);
  /// True if the last epoch's figure is the best so far.
  bool improved() const { return epochs_ > 0 && best_epoch_ == epochs_ - 1; }
  /// The best figure so far, and its epoch, counted from 0. Before the first epoch they are infinity (-infinity with
  /// Mode::max) and -1.
  double best() const { return best_; }
  int64_t best_epoch() const { return best_epoch_; }
  int64_t epochs() const { return epochs_; }
  /// Copies the weights of the best epoch into the model. Does nothing before the first step().
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

/// While an Interrupt exists, the first SIGINT or SIGTERM of the process only sets requested(), so that the run can
/// finish its step, save a checkpoint and end. The next signal has its usual effect. A signal that the process ignored
/// before, for example under nohup, remains ignored. Only one Interrupt may exist at a time (otherwise a ValueError);
/// create and destroy it on the same thread.
class Interrupt : NoCopy {
 public:
  Interrupt();
  ~Interrupt();

  /// True after a signal has arrived.
  bool requested() const { return signal() != 0; }
  /// SIGINT or SIGTERM, or 0 if none has arrived.
  int signal() const;
  /// The exit code of a program that stops because of the signal: 128 + signal, as in shells.
  int exit_code() const { return 128 + signal(); }
};

}  // namespace gradus::training
