// Digits drawn by the library itself: something to learn where MNIST cannot be had.
#pragma once

#include <gradus/data/datasets/image_dataset.h>

namespace gradus::data::datasets {

/// Pen strokes under random affine maps, with random thickness, ink and noise; 28x28, shaped as MNIST is. Sample i is a
/// function of (seed, mode, i) alone and the same on every machine: drawn with + - * / and square roots. Training and
/// test samples come from different parts of the random stream.
class SyntheticDigits : public ImageDataset {
 public:
  /// Draws `count` digits.
  explicit SyntheticDigits(size_t count, uint64_t seed = 0, Mode mode = Mode::kTrain);
};

}  // namespace gradus::data::datasets
