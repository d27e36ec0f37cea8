// Convolutions and transposed convolutions.
#pragma once

#include <gradus/autograd/ops/conv.h>
#include <gradus/autograd/ops/pad.h>
#include <gradus/core/options.h>
#include <gradus/layers/module/module.h>

namespace gradus {

/// LibTorch's name for zero padding in the options of convolutions. The other modes are kReflect, kReplicate and
/// kCircular.
inline constexpr PadMode kZeros = PadMode::constant;

namespace nn {

/// Padding of a convolution: numbers of pixels, or kSame or kValid.
template <class Size>
struct ConvPadding {
  template <std::convertible_to<Size> T>
  ConvPadding(const T& size_) : size(size_) {}  // NOLINT(google-explicit-constructor)
  ConvPadding(int64_t h, int64_t w) requires std::is_same_v<Size, Pair> : size(h, w) {}
  ConvPadding(AutoPadding name_) : size(0), name(name_) {}  // NOLINT(google-explicit-constructor)
  Size size;
  std::optional<AutoPadding> name = absent<AutoPadding>();
};

/// Options of convolutions over D dimensions.
template <size_t D>
struct ConvOptions {
  using Size = std::conditional_t<D == 1, int64_t, Pair>;  ///< for images a number, or {height, width}
  ConvOptions(int64_t in_channels, int64_t out_channels, Size kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  GRADUS_ARG(int64_t, in_channels);
  GRADUS_ARG(int64_t, out_channels);
  GRADUS_ARG(Size, kernel_size);
  GRADUS_ARG(Size, stride) = 1;
  GRADUS_ARG(ConvPadding<Size>, padding) = 0;
  GRADUS_ARG(Size, dilation) = 1;
  GRADUS_ARG(int64_t, groups) = 1;
  GRADUS_ARG(bool, bias) = true;
  /// Content of the padding: kZeros, kReflect, kReplicate or kCircular.
  GRADUS_ARG(PadMode, padding_mode) = kZeros;
};
using Conv1dOptions = ConvOptions<1>;
using Conv2dOptions = ConvOptions<2>;
using ConvReLU2dOptions = Conv2dOptions;

/// Options of transposed convolutions over D dimensions.
template <size_t D>
struct ConvTransposeOptions {
  using Size = std::conditional_t<D == 1, int64_t, Pair>;
  ConvTransposeOptions(int64_t in_channels, int64_t out_channels, Size kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  GRADUS_ARG(int64_t, in_channels);
  GRADUS_ARG(int64_t, out_channels);
  GRADUS_ARG(Size, kernel_size);
  GRADUS_ARG(Size, stride) = 1;
  GRADUS_ARG(Size, padding) = 0;
  /// Added to one side of the result. With stride > 1 several output sizes are possible, and this selects one.
  GRADUS_ARG(Size, output_padding) = 0;
  GRADUS_ARG(int64_t, groups) = 1;
  GRADUS_ARG(bool, bias) = true;
  GRADUS_ARG(Size, dilation) = 1;
};
using ConvTranspose1dOptions = ConvTransposeOptions<1>;
using ConvTranspose2dOptions = ConvTransposeOptions<2>;

namespace detail {

/// Base of all convolutions: parameters `weight` and `bias` (out), initialised as in PyTorch.
template <class Options>
struct ConvBase : Module {
  explicit ConvBase(const Options& options_) : options(options_) { register_parameters(); }
  void reset_parameters();

  Options options;
  Tensor weight, bias;

 protected:
  void register_parameters();
  /// Pads x before the convolution, for padding modes other than zeros.
  Tensor padded(const Tensor& x) const;
  void print(std::ostream& stream, const char* name) const;
};

}  // namespace detail

/// Cross-correlation of sequences: x (N, in, L) to (N, out, P) with P = (L + 2 padding - dilation (kernel - 1) - 1) /
/// stride + 1. Parameter `weight` (out, in / groups, kernel).
struct Conv1dImpl : Cloneable<Conv1dImpl, detail::ConvBase<Conv1dOptions>> {
  Conv1dImpl(int64_t in_channels, int64_t out_channels, int64_t kernel_size)
      : Conv1dImpl(Conv1dOptions(in_channels, out_channels, kernel_size)) {}
  explicit Conv1dImpl(const Conv1dOptions& options_) : Cloneable(options_) {}
  void reset() override { register_parameters(); }
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override { print(stream, "Conv1d"); }
};
GRADUS_MODULE(Conv1d);

/// Cross-correlation of images: x (N, in, H, W) to (N, out, P, Q), with P and Q as in Conv1d. Parameter `weight` (out,
/// in / groups, height, width).
struct Conv2dImpl : Cloneable<Conv2dImpl, detail::ConvBase<Conv2dOptions>> {
  Conv2dImpl(int64_t in_channels, int64_t out_channels, Pair kernel_size)
      : Conv2dImpl(Conv2dOptions(in_channels, out_channels, kernel_size)) {}
  explicit Conv2dImpl(const Conv2dOptions& options_) : Cloneable(options_) {}
  void reset() override { register_parameters(); }
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override { print(stream, "Conv2d"); }
};
GRADUS_MODULE(Conv2d);

/// relu(Conv2d(x)), in one kernel forward and one kernel backward if the backend has them. Parameters as in Conv2d.
struct ConvReLU2dImpl : Cloneable<ConvReLU2dImpl, detail::ConvBase<Conv2dOptions>> {
  ConvReLU2dImpl(int64_t in_channels, int64_t out_channels, Pair kernel_size)
      : ConvReLU2dImpl(ConvReLU2dOptions(in_channels, out_channels, kernel_size)) {}
  explicit ConvReLU2dImpl(const ConvReLU2dOptions& options_) : Cloneable(options_) {}
  void reset() override { register_parameters(); }
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override { print(stream, "ConvReLU2d"); }
};
GRADUS_MODULE(ConvReLU2d);

/// The transpose of Conv1d: x (N, in, L) to (N, out, P) with P = (L - 1) stride - 2 padding + dilation (kernel - 1) +
/// output_padding + 1. Parameter `weight` (in, out / groups, kernel). If forward gets an output_size, output_padding is
/// chosen to produce it.
struct ConvTranspose1dImpl : Cloneable<ConvTranspose1dImpl, detail::ConvBase<ConvTranspose1dOptions>> {
  ConvTranspose1dImpl(int64_t in_channels, int64_t out_channels, int64_t kernel_size)
      : ConvTranspose1dImpl(ConvTranspose1dOptions(in_channels, out_channels, kernel_size)) {}
  explicit ConvTranspose1dImpl(const ConvTranspose1dOptions& options_) : Cloneable(options_) {}
  void reset() override { register_parameters(); }
  Tensor forward(const Tensor& x, const std::optional<IntArrayRef>& output_size = std::nullopt);
  void pretty_print(std::ostream& stream) const override { print(stream, "ConvTranspose1d"); }
};
GRADUS_MODULE(ConvTranspose1d);

/// The transpose of Conv2d: x (N, in, H, W) to (N, out, P, Q), with P and Q as in ConvTranspose1d. Parameter `weight`
/// (in, out / groups, height, width).
struct ConvTranspose2dImpl : Cloneable<ConvTranspose2dImpl, detail::ConvBase<ConvTranspose2dOptions>> {
  ConvTranspose2dImpl(int64_t in_channels, int64_t out_channels, Pair kernel_size)
      : ConvTranspose2dImpl(ConvTranspose2dOptions(in_channels, out_channels, kernel_size)) {}
  explicit ConvTranspose2dImpl(const ConvTranspose2dOptions& options_) : Cloneable(options_) {}
  void reset() override { register_parameters(); }
  Tensor forward(const Tensor& x, const std::optional<IntArrayRef>& output_size = std::nullopt);
  void pretty_print(std::ostream& stream) const override { print(stream, "ConvTranspose2d"); }
};
GRADUS_MODULE(ConvTranspose2d);

}  // namespace nn
}  // namespace gradus
