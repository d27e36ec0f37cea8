// Padding and resizing of images: options, functions of nn::functional, and layers.
#pragma once

#include <optional>
#include <vector>

#include <gradus/autograd/ops/nn/image.h>
#include <gradus/layers/layer.h>
#include <gradus/layers/module/init.h>

namespace gradus::nn {

// ---- Options of layers. Functions use the same structs, under names that end in FuncOptions. ----

/// Number of elements added on each side: one number for all sides, {left, right}, or, for images, {left, right, top,
/// bottom}.
template <int kSides>
struct PadSides {
  PadSides(int64_t all) : sizes(Dims::filled(kSides, all)) {}                  // NOLINT(google-explicit-constructor)
  PadSides(std::initializer_list<int64_t> sizes_) : PadSides(Dims(sizes_)) {}  // NOLINT(google-explicit-constructor)
  PadSides(const Dims& sizes_) : sizes(sizes_) {                               // NOLINT(google-explicit-constructor)
    GRADUS_CHECK(sizes_.size() == kSides, ValueError, "this padding needs ", kSides, " numbers, got ", sizes_);
  }
  Dims sizes;
};

template <int kSides>
struct PadOptions {
  using Sides = PadSides<kSides>;
  PadOptions(Sides padding) : padding_(padding) {}                           // NOLINT(google-explicit-constructor)
  PadOptions(int64_t padding) : padding_(padding) {}                         // NOLINT(google-explicit-constructor)
  PadOptions(std::initializer_list<int64_t> padding) : padding_(padding) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("padding", padding_.sizes); }
  /// The value with which ZeroPad2d pads.
  double value() const { return 0; }
  GRADUS_ARG(Sides, padding);
};
using ReflectionPad1dOptions = PadOptions<2>;
using ReflectionPad2dOptions = PadOptions<4>;
using ReplicationPad1dOptions = PadOptions<2>;
using ReplicationPad2dOptions = PadOptions<4>;
using ZeroPad2dOptions = PadOptions<4>;

template <int kSides>
struct ConstantPadOptions {
  using Sides = PadSides<kSides>;
  ConstantPadOptions(Sides padding, double value) : padding_(padding), value_(value) {}
  void print(detail::LayerPrinter& printer) const { printer("padding", padding_.sizes)("value", value_); }
  GRADUS_ARG(Sides, padding);
  GRADUS_ARG(double, value);
};
using ConstantPad1dOptions = ConstantPadOptions<2>;
using ConstantPad2dOptions = ConstantPadOptions<4>;

/// Interpolation mode: kNearest, kLinear, kBilinear, kBicubic or kArea.
struct UpsampleMode {
  UpsampleMode(InterpolateMode mode_) : mode(mode_) {}  // NOLINT(google-explicit-constructor)
  /// Accepts kLinear, which LibTorch uses both for this mode and for a nonlinearity.
  UpsampleMode(init::Nonlinearity linear) : mode(InterpolateMode::linear) {  // NOLINT(google-explicit-constructor)
    GRADUS_CHECK(linear == init::Nonlinearity::linear, ValueError, "a nonlinearity is not a mode of interpolation");
  }
  InterpolateMode mode;
};

struct UpsampleOptions {
  void print(detail::LayerPrinter& printer) const {
    constexpr const char* kModes[] = {"kNearest", "kLinear", "kBilinear", "kBicubic", "kArea", "kNearestExact"};
    if (scale_factor_) printer("scale_factor", scale_factor_);
    else printer("size", size_);
    printer("mode", kModes[static_cast<int>(mode_.mode)]);
  }
  /// Sizes of the result, or scale factors, one for each dimension of the image.
  GRADUS_ARG(std::optional<std::vector<int64_t>>, size);
  GRADUS_ARG(std::optional<std::vector<double>>, scale_factor);
  GRADUS_ARG(UpsampleMode, mode) = kNearest;
  GRADUS_ARG(std::optional<bool>, align_corners) = absent<bool>();
  /// If true, interpolation uses the quotient of the sizes of result and input as its scale, not scale_factor.
  GRADUS_ARG(std::optional<bool>, recompute_scale_factor) = absent<bool>();
};

struct PixelShuffleOptions {
  PixelShuffleOptions(int64_t upscale_factor)
      : upscale_factor_(upscale_factor) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("upscale_factor", upscale_factor_); }
  GRADUS_ARG(int64_t, upscale_factor);
};

struct PixelUnshuffleOptions {
  PixelUnshuffleOptions(int64_t downscale_factor)
      : downscale_factor_(downscale_factor) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("downscale_factor", downscale_factor_); }
  GRADUS_ARG(int64_t, downscale_factor);
};

struct UnfoldOptions {
  UnfoldOptions(Pair kernel_size) : kernel_size_(kernel_size) {}            // NOLINT(google-explicit-constructor)
  UnfoldOptions(int64_t kernel_size) : UnfoldOptions(Pair(kernel_size)) {}  // NOLINT(google-explicit-constructor)
  template <std::same_as<IntArrayRef> Sizes>
  UnfoldOptions(const Sizes& sizes) : UnfoldOptions(Pair(sizes)) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const {
    printer("kernel_size", kernel_size_)("dilation", dilation_)("padding", padding_)("stride", stride_);
  }
  GRADUS_ARG(Pair, kernel_size);
  GRADUS_ARG(Pair, dilation) = 1;
  GRADUS_ARG(Pair, padding) = 0;
  GRADUS_ARG(Pair, stride) = 1;
};

struct FoldOptions {
  FoldOptions(Pair output_size, Pair kernel_size) : output_size_(output_size), kernel_size_(kernel_size) {}
  void print(detail::LayerPrinter& printer) const {
    printer("output_size", output_size_)("kernel_size", kernel_size_)("dilation", dilation_)("padding", padding_);
    printer("stride", stride_);
  }
  GRADUS_ARG(Pair, output_size);
  GRADUS_ARG(Pair, kernel_size);
  GRADUS_ARG(Pair, dilation) = 1;
  GRADUS_ARG(Pair, padding) = 0;
  GRADUS_ARG(Pair, stride) = 1;
};

// ---- Functions ----

namespace functional {

struct PadFuncOptions {
  PadFuncOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(std::vector<int64_t>, pad);
  GRADUS_ARG(PadMode, mode) = kConstant;
  GRADUS_ARG(double, value) = 0;
};
inline Tensor pad(const Tensor& x, const PadFuncOptions& options, Loc where = Loc::current()) {
  return gradus::pad(x, options.pad(), options.mode(), options.value(), where);
}
using InterpolateFuncOptions = UpsampleOptions;
inline Tensor interpolate(const Tensor& x, const InterpolateFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::interpolate(x, options.size(), options.scale_factor(), options.mode().mode, options.align_corners(),
                             options.recompute_scale_factor(), where);
}
using PixelShuffleFuncOptions = PixelShuffleOptions;
inline Tensor pixel_shuffle(const Tensor& x, const PixelShuffleFuncOptions& options, Loc where = Loc::current()) {
  return gradus::pixel_shuffle(x, options.upscale_factor(), where);
}
using PixelUnshuffleFuncOptions = PixelUnshuffleOptions;
inline Tensor pixel_unshuffle(const Tensor& x, const PixelUnshuffleFuncOptions& options, Loc where = Loc::current()) {
  return gradus::pixel_unshuffle(x, options.downscale_factor(), where);
}
using UnfoldFuncOptions = UnfoldOptions;
inline Tensor unfold(const Tensor& x, const UnfoldFuncOptions& options, Loc where = Loc::current()) {
  return gradus::unfold(x, options.kernel_size(), options.dilation(), options.padding(), options.stride(), where);
}
using FoldFuncOptions = FoldOptions;
inline Tensor fold(const Tensor& x, const FoldFuncOptions& options, Loc where = Loc::current()) {
  return gradus::fold(x, options.output_size(), options.kernel_size(), options.dilation(), options.padding(),
                      options.stride(), where);
}

}  // namespace functional

// ---- Layers ----

namespace detail {

/// Base of the padding layers, which pad the last dimensions of x. As in LibTorch, there is one layer for each mode and
/// number of dimensions.
template <class Derived, class Options, PadMode kMode>
struct PadLayer : Layer<Derived, Options> {
  using Base = Layer<Derived, Options>;
  using Base::Base;
  PadLayer(std::initializer_list<int64_t> padding) requires std::is_constructible_v<Options, decltype(padding)>
      : Base(Options(padding)) {}
  Tensor forward(const Tensor& x) {
    const auto frame = this->enter();
    return pad(x, this->options.padding().sizes, kMode, this->options.value(), Loc{});
  }
};

}  // namespace detail

/// Adds `value` at both ends of x (…, L).
GRADUS_LAYER(ConstantPad1d, PadLayer, ConstantPad1dOptions, PadMode::constant);

/// Surrounds x (…, H, W) with `value`.
GRADUS_LAYER(ConstantPad2d, PadLayer, ConstantPad2dOptions, PadMode::constant);

/// Surrounds x (…, H, W) with zeros.
GRADUS_LAYER(ZeroPad2d, PadLayer, ZeroPad2dOptions, PadMode::constant);

/// Extends x (…, L) by mirroring it at its ends.
GRADUS_LAYER(ReflectionPad1d, PadLayer, ReflectionPad1dOptions, PadMode::reflect);

/// Extends x (…, H, W) by mirroring it at its edges.
GRADUS_LAYER(ReflectionPad2d, PadLayer, ReflectionPad2dOptions, PadMode::reflect);

/// Extends x (…, L) by repeating its end elements.
GRADUS_LAYER(ReplicationPad1d, PadLayer, ReplicationPad1dOptions, PadMode::replicate);

/// Extends x (…, H, W) by repeating its edge pixels.
GRADUS_LAYER(ReplicationPad2d, PadLayer, ReplicationPad2dOptions, PadMode::replicate);

/// Resizes x (N, C, L) or (N, C, H, W) as interpolate() in autograd/ops/nn/image.h does.
GRADUS_LAYER(Upsample, FunctionLayer, functional::interpolate);

/// Rearranges x (…, C r r, H, W) to (…, C, H r, W r), where r is upscale_factor.
GRADUS_LAYER(PixelShuffle, FunctionLayer, functional::pixel_shuffle);

/// The inverse of PixelShuffle: rearranges x (…, C, H r, W r) to (…, C r r, H, W), where r is downscale_factor.
GRADUS_LAYER(PixelUnshuffle, FunctionLayer, functional::pixel_unshuffle);

/// Copies each window of x (N, C, H, W) to a column of the result (N, C R S, windows), where (R, S) is kernel_size.
GRADUS_LAYER(Unfold, FunctionLayer, functional::unfold);

/// The transpose of Unfold: adds each column to its window of the result, so that overlapping windows are summed.
GRADUS_LAYER(Fold, FunctionLayer, functional::fold);

}  // namespace gradus::nn
