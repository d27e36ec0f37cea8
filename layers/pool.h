// MaxPool2d.
#pragma once

#include <gradus/autograd/ops/conv.h>
#include <gradus/core/options.h>
#include <gradus/layers/module.h>

namespace gradus::nn {

/// Pairs are one number for both directions or {height, width}. The stride is the kernel's size unless set.
struct MaxPool2dOptions {
  MaxPool2dOptions(Pair kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}  // NOLINT
  MaxPool2dOptions(int64_t kernel_size) : MaxPool2dOptions(Pair(kernel_size)) {}           // NOLINT
  GRADUS_ARG(Pair, kernel_size);
  GRADUS_ARG(Pair, stride);
  GRADUS_ARG(Pair, padding) = 0;
  GRADUS_ARG(Pair, dilation) = 1;
  GRADUS_ARG(bool, ceil_mode) = false;
};

/// Maximum over windows of x (N, C, H, W) or (C, H, W).
struct MaxPool2dImpl : Cloneable<MaxPool2dImpl> {
  explicit MaxPool2dImpl(const MaxPool2dOptions& options) : options(options) {}
  void reset() override {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  MaxPool2dOptions options;
};
GRADUS_MODULE(MaxPool2d);

}  // namespace gradus::nn
