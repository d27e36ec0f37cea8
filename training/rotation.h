// Rotation keeps the last checkpoints of a run and the best one in a folder.
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
  /// Number of checkpoints kept, not counting the best one.
  GRADUS_ARG(int64_t, keep_last) = 3;
  GRADUS_ARG(Mode, mode) = Mode::min;
};

/// Files <directory>/step-<number>.safetensors, and best.safetensors, which is a checkpoint, too. The best figure so
/// far is stored in the checkpoint as the value "best figure", so that a resumed run knows it.
class Rotation {
 public:
  /// `checkpoint` must outlive this object. A keep_last below 1 is a ValueError.
  Rotation(Checkpoint& checkpoint, std::string directory, const RotationOptions& options = {});
  Rotation(const Rotation&) = delete;
  Rotation& operator=(const Rotation&) = delete;

  /// Saves a checkpoint, also as the best one if `figure` is better than all before (NaN never is), and removes the
  /// oldest ones beyond keep_last. A negative step is a ValueError.
  void save(int64_t step, std::optional<double> figure = {});
  /// Loads the checkpoint with the highest step. Returns false if there is none.
  bool load_latest();
  /// Loads the best checkpoint. Returns false if there is none.
  bool load_best();

  /// Paths of the checkpoints by step, oldest first.
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
