// Digits drawn by the library, as training data for machines without MNIST.
#pragma once

#include <gradus/data/datasets/image_dataset.h>

namespace gradus::data::datasets {

/// Pen strokes with random affine maps, thickness, ink and noise, in the format of MNIST: 28x28. Sample i depends only
/// on (seed, mode, i) and is the same on every machine, because only + - * / and square roots are used. Training and
/// test samples come from different parts of the random stream.
class SyntheticDigits : public ImageDataset {
 public:
  /// Draws `count` digits.
  explicit SyntheticDigits(size_t count, uint64_t seed = 0, Mode mode = Mode::kTrain);
};

}  // namespace gradus::data::datasets
