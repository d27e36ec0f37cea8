// Rotation: the last checkpoints of a run and the best one, in a folder.
//
//   training::Rotation rotation(checkpoint, "runs/cifar10");
//   rotation.load_latest();
//   …
//   rotation.save(step, validation_loss);
#pragma once

#include <limits>

#include <gradus/training/checkpoint.h>
#include <gradus/training/early_stopping.h>

namespace gradus::training {

class RotationOptions {
  /// Checkpoints that stay, the best one apart.
  GRADUS_ARG(int64_t, keep_last) = 3;
  GRADUS_ARG(Mode, mode) = Mode::min;
};

/// Files <directory>/step-<number>.safetensors, and best.safetensors, a checkpoint like the others. The best figure so
/// far is a value of the checkpoint, "best figure", so that a resumed run knows it.
class Rotation {
 public:
  /// `checkpoint` must live as long as this. keep_last below 1 is a ValueError.
  Rotation(Checkpoint& checkpoint, std::string directory, const RotationOptions& options = {});
  Rotation(const Rotation&) = delete;
  Rotation& operator=(const Rotation&) = delete;

  /// Saves, also as the best one if `figure` is better than all before (NaN never is), and removes the oldest beyond
  /// keep_last. A negative step is a ValueError.
  void save(int64_t step, std::optional<double> figure = {});
  /// Goes on from the checkpoint of the highest step; false where there is none.
  bool load_latest();
  /// The same for the best one.
  bool load_best();

  /// Paths of the checkpoints by step, the oldest first.
  std::vector<std::string> files() const;
  std::string best_path() const { return directory_ + "/best.safetensors"; }
  double best_figure() const { return best_figure_; }

 private:
  Checkpoint& checkpoint_;
  const std::string directory_;
  const RotationOptions options_;
  double best_figure_;
};

}  // namespace gradus::training
