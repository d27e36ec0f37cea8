// Losses of classification as modules.
#pragma once

#include <gradus/core/backend.h>
#include <gradus/core/options.h>
#include <gradus/layers/module.h>

namespace gradus {

/// LibTorch's names of what a loss does with the values of a batch.
inline constexpr Reduction kNone = Reduction::none, kMean = Reduction::mean, kSum = Reduction::sum;

namespace nn {

struct CrossEntropyLossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(Reduction, reduction) = kMean;
  GRADUS_ARG(int64_t, ignore_index) = -100;
};

/// -log(softmax(x))[target] of logits x (N, C) and int64 classes target (N), reduced over the batch. Targets equal to
/// ignore_index do not count; weight (C), where set, weighs the classes.
struct CrossEntropyLossImpl : Cloneable<CrossEntropyLossImpl> {
  explicit CrossEntropyLossImpl(const CrossEntropyLossOptions& options = {}) : options(options) {}
  void reset() override {}
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;

  CrossEntropyLossOptions options;
};
GRADUS_MODULE(CrossEntropyLoss);

struct NLLLossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(Reduction, reduction) = kMean;
  GRADUS_ARG(int64_t, ignore_index) = -100;
};

/// -x[target] of log-probabilities x (N, C) and int64 classes target (N), reduced over the batch.
struct NLLLossImpl : Cloneable<NLLLossImpl> {
  explicit NLLLossImpl(const NLLLossOptions& options = {}) : options(options) {}
  void reset() override {}
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;

  NLLLossOptions options;
};
GRADUS_MODULE(NLLLoss);

}  // namespace nn
}  // namespace gradus
