// Convolutions and transposed convolutions: options, functions of nn::functional, and layers.
#pragma once

#include <gradus/autograd/ops/nn/conv.h>
#include <gradus/autograd/ops/nn/image.h>
#include <gradus/layers/layer.h>
#include <gradus/layers/module/init.h>

namespace gradus {

/// LibTorch's name for zero padding in the options of convolutions. The other modes are kReflect, kReplicate and
/// kCircular.
inline constexpr PadMode kZeros = PadMode::constant;

namespace nn {

// ---- Options ----

namespace detail {

/// A size in D dimensions: one number for sequences; one number or {height, width} for images.
template <size_t D>
using ConvSize = std::conditional_t<D == 1, int64_t, Pair>;

/// Options that the functions and the layers of convolutions share. Padding is ConvSize<D> or ConvPadding.
template <class Options, size_t D, class Padding>
struct ConvWindowOptions {
  using Size = ConvSize<D>;
  GRADUS_ARG_OF(Options, Size, stride) = 1;
  GRADUS_ARG_OF(Options, Padding, padding) = 0;
  GRADUS_ARG_OF(Options, Size, dilation) = 1;
  GRADUS_ARG_OF(Options, int64_t, groups) = 1;
};

template <class Options, size_t D, class Padding>
struct ConvModuleOptions : ConvWindowOptions<Options, D, Padding> {
  using Size = ConvSize<D>;
  ConvModuleOptions(int64_t in_channels, int64_t out_channels, Size kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  GRADUS_ARG_OF(Options, int64_t, in_channels);
  GRADUS_ARG_OF(Options, int64_t, out_channels);
  GRADUS_ARG_OF(Options, Size, kernel_size);
  GRADUS_ARG_OF(Options, bool, bias) = true;
};

}  // namespace detail

/// Options of convolutions over D dimensions.
template <size_t D>
struct ConvOptions : detail::ConvModuleOptions<ConvOptions<D>, D, ConvPadding> {
  using detail::ConvModuleOptions<ConvOptions<D>, D, ConvPadding>::ConvModuleOptions;
  /// The values that padding adds: kZeros, kReflect, kReplicate or kCircular.
  GRADUS_ARG(PadMode, padding_mode) = kZeros;
};
using Conv1dOptions = ConvOptions<1>;
using Conv2dOptions = ConvOptions<2>;
using ConvReLU2dOptions = Conv2dOptions;

/// Options of transposed convolutions over D dimensions.
template <size_t D>
struct ConvTransposeOptions : detail::ConvModuleOptions<ConvTransposeOptions<D>, D, detail::ConvSize<D>> {
  using detail::ConvModuleOptions<ConvTransposeOptions<D>, D, detail::ConvSize<D>>::ConvModuleOptions;
  /// Added to one side of the result. With stride > 1 several output sizes are possible, and this selects one.
  GRADUS_ARG(detail::ConvSize<D>, output_padding) = 0;
};
using ConvTranspose1dOptions = ConvTransposeOptions<1>;
using ConvTranspose2dOptions = ConvTransposeOptions<2>;

// ---- Functions ----

namespace functional {

template <size_t D>
struct ConvFuncOptions : nn::detail::ConvWindowOptions<ConvFuncOptions<D>, D, ConvPadding> {
  GRADUS_ARG(Tensor, bias) = {};
};
using Conv1dFuncOptions = ConvFuncOptions<1>;
using Conv2dFuncOptions = ConvFuncOptions<2>;
inline Tensor conv1d(const Tensor& x, const Tensor& weight, const Conv1dFuncOptions& options = {},
                     Loc where = Loc::current()) {
  return gradus::conv1d(x, weight, options.bias(), options.stride(), options.padding(), options.dilation(),
                        options.groups(), where);
}
inline Tensor conv2d(const Tensor& x, const Tensor& weight, const Conv2dFuncOptions& options = {},
                     Loc where = Loc::current()) {
  return gradus::conv2d(x, weight, options.bias(), options.stride(), options.padding(), options.dilation(),
                        options.groups(), where);
}

template <size_t D>
struct ConvTransposeFuncOptions
    : nn::detail::ConvWindowOptions<ConvTransposeFuncOptions<D>, D, nn::detail::ConvSize<D>> {
  GRADUS_ARG(Tensor, bias) = {};
  GRADUS_ARG(nn::detail::ConvSize<D>, output_padding) = 0;
};
using ConvTranspose1dFuncOptions = ConvTransposeFuncOptions<1>;
using ConvTranspose2dFuncOptions = ConvTransposeFuncOptions<2>;
inline Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const ConvTranspose1dFuncOptions& options = {},
                               Loc where = Loc::current()) {
  return gradus::conv_transpose1d(x, weight, options.bias(), options.stride(), options.padding(),
                                  options.output_padding(), options.groups(), options.dilation(), where);
}
inline Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const ConvTranspose2dFuncOptions& options = {},
                               Loc where = Loc::current()) {
  return gradus::conv_transpose2d(x, weight, options.bias(), options.stride(), options.padding(),
                                  options.output_padding(), options.groups(), options.dilation(), where);
}

}  // namespace functional

// ---- Layers ----

namespace detail {

/// Pads x on all sides in the mode of the options. With padding "same", the result of the convolution then has x's
/// size.
template <size_t D>
Tensor padded(const Tensor& x, const ConvOptions<D>& options);
/// Returns the output_padding of the options or, if `output_size` is given, the output_padding with which the last
/// sizes of the result are `output_size`.
template <size_t D>
ConvSize<D> output_padding_for(const ConvTransposeOptions<D>& options, const Tensor& x,
                               const std::optional<IntArrayRef>& output_size);

/// Base of all layers of convolutions. Registers the parameters `weight` and `bias` (out) and initialises them as
/// PyTorch does.
template <class Options>
struct ConvBase : Module {
  explicit ConvBase(const Options& options_) : options(options_) { register_tensors(); }
  ConvBase(int64_t in_channels, int64_t out_channels, typename Options::Size kernel_size)
      : ConvBase(Options(in_channels, out_channels, kernel_size)) {}
  void reset_parameters() { init::reset_weight_and_bias(weight, bias); }

  Options options;
  Tensor weight, bias;

 protected:
  void register_tensors();
  void print(std::ostream& stream, const std::string& name) const;
};

/// A layer that calls the operator kConvolve: conv1d, conv2d or conv2d_relu.
template <class Derived, size_t D, auto kConvolve>
struct ConvLayer : LayerOf<Derived, ConvBase<ConvOptions<D>>> {
  using LayerOf<Derived, ConvBase<ConvOptions<D>>>::LayerOf;
  Tensor forward(const Tensor& x) {
    const auto frame = this->enter();
    const ConvOptions<D>& own = this->options;
    const auto convolve = [&](const Tensor& input, const ConvPadding& padding) {
      return kConvolve(input, this->weight, this->bias, own.stride(), padding, own.dilation(), own.groups(), Loc{});
    };
    return own.padding_mode() == kZeros ? convolve(x, own.padding()) : convolve(padded(x, own), 0);
  }
};

/// A layer that calls the operator kConvolve: conv_transpose1d or conv_transpose2d.
template <class Derived, size_t D, auto kConvolve>
struct ConvTransposeLayer : LayerOf<Derived, ConvBase<ConvTransposeOptions<D>>> {
  using LayerOf<Derived, ConvBase<ConvTransposeOptions<D>>>::LayerOf;
  Tensor forward(const Tensor& x, const std::optional<IntArrayRef>& output_size = std::nullopt) {
    const auto frame = this->enter();
    const ConvTransposeOptions<D>& own = this->options;
    return kConvolve(x, this->weight, this->bias, own.stride(), own.padding(), output_padding_for(own, x, output_size),
                     own.groups(), own.dilation(), Loc{});
  }
};

}  // namespace detail

/// Cross-correlation of sequences: x (N, in, L) to (N, out, P) with P = (L + 2 padding - dilation (kernel - 1) - 1) /
/// stride + 1. Parameter `weight` (out, in / groups, kernel).
GRADUS_LAYER(Conv1d, ConvLayer, 1, conv1d);

/// Cross-correlation of images: x (N, in, H, W) to (N, out, P, Q), with P and Q as in Conv1d. Parameter `weight` (out,
/// in / groups, height, width).
GRADUS_LAYER(Conv2d, ConvLayer, 2, conv2d);

/// relu(Conv2d(x)), in one kernel forward and one kernel backward if the backend has them. Parameters as in Conv2d.
GRADUS_LAYER(ConvReLU2d, ConvLayer, 2, conv2d_relu);

/// The transpose of Conv1d: x (N, in, L) to (N, out, P) with P = (L - 1) stride - 2 padding + dilation (kernel - 1) +
/// output_padding + 1. Parameter `weight` (in, out / groups, kernel). If forward gets an output_size, output_padding is
/// chosen to produce it.
GRADUS_LAYER(ConvTranspose1d, ConvTransposeLayer, 1, conv_transpose1d);

/// The transpose of Conv2d: x (N, in, H, W) to (N, out, P, Q), with P and Q as in ConvTranspose1d. Parameter `weight`
/// (in, out / groups, height, width).
GRADUS_LAYER(ConvTranspose2d, ConvTransposeLayer, 2, conv_transpose2d);

}  // namespace nn
}  // namespace gradus
