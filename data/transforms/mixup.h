// Transforms of stacked batches that blend samples.
#pragma once

#include <gradus/data/transforms/transforms.h>

namespace gradus::data::transforms {

/// Blends every sample with its neighbour in the batch (Zhang et al.: "mixup: Beyond empirical risk minimization",
/// 2018; torchvision.transforms.v2.MixUp). Used after Stack:
///   x' = λ x + (1 - λ) roll(x, 1),  y' = λ onehot(y) + (1 - λ) roll(onehot(y), 1),  λ ~ Beta(alpha, alpha)
/// Input: data (N, …) float32, target (N) int64 in [0, num_classes) (else an IndexError). The result's target is (N,
/// num_classes) float32, probabilities for cross_entropy. λ is drawn once per batch, from the generator of its first
/// sample.
class MixUp : public BatchTransform<Example<>, Example<>> {
 public:
  explicit MixUp(int64_t num_classes, double alpha = 1.0);
  Example<> apply_batch(Example<> batch) override;
  std::string describe() const;

 private:
  int64_t classes_;
  double alpha_;
};

}  // namespace gradus::data::transforms
