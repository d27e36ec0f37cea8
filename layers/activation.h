// Layers without parameters that work element by element or along one dimension.
#pragma once

#include <gradus/core/options.h>
#include <gradus/layers/module.h>

namespace gradus::nn {

struct ReLUOptions {
  ReLUOptions(bool inplace = false) : inplace_(inplace) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(bool, inplace);
};

/// max(x, 0); with inplace the input is overwritten.
struct ReLUImpl : Cloneable<ReLUImpl> {
  explicit ReLUImpl(const ReLUOptions& options = {}) : options(options) {}
  void reset() override {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  ReLUOptions options;
};
GRADUS_MODULE(ReLU);

/// 1 / (1 + exp(-x))
struct SigmoidImpl : Cloneable<SigmoidImpl> {
  void reset() override {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Sigmoid);

struct TanhImpl : Cloneable<TanhImpl> {
  void reset() override {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Tanh);

struct SoftmaxOptions {
  SoftmaxOptions(int64_t dim) : dim_(dim) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, dim);
};
using LogSoftmaxOptions = SoftmaxOptions;

/// exp(x) / sum(exp(x)) along options.dim().
struct SoftmaxImpl : Cloneable<SoftmaxImpl> {
  explicit SoftmaxImpl(const SoftmaxOptions& options) : options(options) {}
  void reset() override {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  SoftmaxOptions options;
};
GRADUS_MODULE(Softmax);

/// log(softmax(x)) along options.dim(), computed without overflow.
struct LogSoftmaxImpl : Cloneable<LogSoftmaxImpl> {
  explicit LogSoftmaxImpl(const LogSoftmaxOptions& options) : options(options) {}
  void reset() override {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  LogSoftmaxOptions options;
};
GRADUS_MODULE(LogSoftmax);

struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(double, p);
};

/// In training mode zeroes each element with probability p and scales the others by 1 / (1 - p).
struct DropoutImpl : Cloneable<DropoutImpl> {
  /// p outside [0, 1] is a ValueError.
  explicit DropoutImpl(const DropoutOptions& options = {});
  void reset() override {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  DropoutOptions options;
};
GRADUS_MODULE(Dropout);

}  // namespace gradus::nn
