// Conv2d and ConvReLU2d.
#pragma once

#include <gradus/autograd/ops/conv.h>
#include <gradus/core/options.h>
#include <gradus/layers/module.h>

namespace gradus::nn {

/// kernel_size, stride, padding and dilation are one number for both directions or {height, width}.
struct Conv2dOptions {
  Conv2dOptions(int64_t in_channels, int64_t out_channels, Pair kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  GRADUS_ARG(int64_t, in_channels);
  GRADUS_ARG(int64_t, out_channels);
  GRADUS_ARG(Pair, kernel_size);
  GRADUS_ARG(Pair, stride) = 1;
  GRADUS_ARG(Pair, padding) = 0;
  GRADUS_ARG(Pair, dilation) = 1;
  GRADUS_ARG(int64_t, groups) = 1;
  GRADUS_ARG(bool, bias) = true;
};
using ConvReLU2dOptions = Conv2dOptions;

namespace detail {
/// What both convolutions share: parameters `weight` (out, in / groups, height, width) and `bias` (out).
struct Conv2dBase : Module {
  explicit Conv2dBase(const Conv2dOptions& options) : options(options) {}
  void register_parameters();
  void reset_parameters();
  void print(std::ostream& stream, const char* name) const;

  Conv2dOptions options;
  Tensor weight, bias;
};
}  // namespace detail

/// Cross-correlation: x (N, in, H, W) to (N, out, P, Q), P = (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1.
struct Conv2dImpl : Cloneable<Conv2dImpl, detail::Conv2dBase> {
  Conv2dImpl(int64_t in_channels, int64_t out_channels, Pair kernel_size)
      : Conv2dImpl(Conv2dOptions(in_channels, out_channels, kernel_size)) {}
  explicit Conv2dImpl(const Conv2dOptions& options) : Cloneable(options) { register_parameters(); }
  void reset() override { register_parameters(); }
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override { print(stream, "gradus::nn::Conv2d"); }
};
GRADUS_MODULE(Conv2d);

/// relu(Conv2d(x)) in one kernel forward and one backward, where the backend has them. Parameters as Conv2d.
struct ConvReLU2dImpl : Cloneable<ConvReLU2dImpl, detail::Conv2dBase> {
  ConvReLU2dImpl(int64_t in_channels, int64_t out_channels, Pair kernel_size)
      : ConvReLU2dImpl(ConvReLU2dOptions(in_channels, out_channels, kernel_size)) {}
  explicit ConvReLU2dImpl(const ConvReLU2dOptions& options) : Cloneable(options) { register_parameters(); }
  void reset() override { register_parameters(); }
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override { print(stream, "gradus::nn::ConvReLU2d"); }
};
GRADUS_MODULE(ConvReLU2d);

}  // namespace gradus::nn
