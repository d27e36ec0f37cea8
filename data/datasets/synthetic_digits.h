// SyntheticDigits: images of digits that the library draws, for training on machines without the files of MNIST.
#pragma once

#include <gradus/data/datasets/image_dataset.h>

namespace gradus::data::datasets {

/// Images of 28x28 pixels, as in MNIST. Each is drawn with pen strokes that vary at random in shape, position,
/// thickness and ink, and has random noise. Sample i depends only on (seed, mode, i) and is the same on every machine,
/// because only + - * / and square roots are used. Training and test samples come from different parts of the stream of
/// random numbers.
class SyntheticDigits : public ImageDataset {
 public:
  /// Draws `count` digits.
  explicit SyntheticDigits(size_t count, uint64_t seed = 0, Mode mode = Mode::kTrain);
};

}  // namespace gradus::data::datasets
