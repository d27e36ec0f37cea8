// Padding, and layers that resize images.
#pragma once

#include <optional>
#include <vector>

#include <gradus/autograd/ops/pad.h>
#include <gradus/autograd/ops/resample.h>
#include <gradus/core/options.h>
#include <gradus/layers/module/init.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

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
  PadOptions(PadSides<kSides> padding) : padding_(padding) {}                // NOLINT(google-explicit-constructor)
  PadOptions(int64_t padding) : padding_(padding) {}                         // NOLINT(google-explicit-constructor)
  PadOptions(std::initializer_list<int64_t> padding) : padding_(padding) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(PadSides<kSides>, padding);
};
using ReflectionPad1dOptions = PadOptions<2>;
using ReflectionPad2dOptions = PadOptions<4>;
using ReplicationPad1dOptions = PadOptions<2>;
using ReplicationPad2dOptions = PadOptions<4>;
using ZeroPad2dOptions = PadOptions<4>;

template <int kSides>
struct ConstantPadOptions {
  ConstantPadOptions(PadSides<kSides> padding, double value) : padding_(padding), value_(value) {}
  GRADUS_ARG(PadSides<kSides>, padding);
  GRADUS_ARG(double, value);
};
using ConstantPad1dOptions = ConstantPadOptions<2>;
using ConstantPad2dOptions = ConstantPadOptions<4>;

namespace detail {
/// Pads the last dimensions of x. LibTorch has one layer for each mode and number of dimensions; kName is its name.
template <class Derived, class Options, PadMode kMode>
struct PadLayer : PlainLayer<Derived, Options> {
  using PlainLayer<Derived, Options>::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
}  // namespace detail

/// Adds `value` at both ends of x (…, L).
struct ConstantPad1dImpl : detail::PadLayer<ConstantPad1dImpl, ConstantPad1dOptions, PadMode::constant> {
  static constexpr const char* kName = "ConstantPad1d";
  using PadLayer::PadLayer;
  ConstantPad1dImpl(PadSides<2> padding, double value) : PadLayer(ConstantPad1dOptions(padding, value)) {}
};
GRADUS_MODULE(ConstantPad1d);

/// Surrounds x (…, H, W) with `value`.
struct ConstantPad2dImpl : detail::PadLayer<ConstantPad2dImpl, ConstantPad2dOptions, PadMode::constant> {
  static constexpr const char* kName = "ConstantPad2d";
  using PadLayer::PadLayer;
  ConstantPad2dImpl(PadSides<4> padding, double value) : PadLayer(ConstantPad2dOptions(padding, value)) {}
};
GRADUS_MODULE(ConstantPad2d);

/// Surrounds x (…, H, W) with zeros.
struct ZeroPad2dImpl : detail::PadLayer<ZeroPad2dImpl, ZeroPad2dOptions, PadMode::constant> {
  static constexpr const char* kName = "ZeroPad2d";
  using PadLayer::PadLayer;
  ZeroPad2dImpl(std::initializer_list<int64_t> padding) : PadLayer(ZeroPad2dOptions(padding)) {}
};
GRADUS_MODULE(ZeroPad2d);

/// Extends x (…, L) by mirroring it at its ends.
struct ReflectionPad1dImpl : detail::PadLayer<ReflectionPad1dImpl, ReflectionPad1dOptions, PadMode::reflect> {
  static constexpr const char* kName = "ReflectionPad1d";
  using PadLayer::PadLayer;
  ReflectionPad1dImpl(std::initializer_list<int64_t> padding) : PadLayer(ReflectionPad1dOptions(padding)) {}
};
GRADUS_MODULE(ReflectionPad1d);

/// Extends x (…, H, W) by mirroring it at its edges.
struct ReflectionPad2dImpl : detail::PadLayer<ReflectionPad2dImpl, ReflectionPad2dOptions, PadMode::reflect> {
  static constexpr const char* kName = "ReflectionPad2d";
  using PadLayer::PadLayer;
  ReflectionPad2dImpl(std::initializer_list<int64_t> padding) : PadLayer(ReflectionPad2dOptions(padding)) {}
};
GRADUS_MODULE(ReflectionPad2d);

/// Extends x (…, L) by repeating its end elements.
struct ReplicationPad1dImpl : detail::PadLayer<ReplicationPad1dImpl, ReplicationPad1dOptions, PadMode::replicate> {
  static constexpr const char* kName = "ReplicationPad1d";
  using PadLayer::PadLayer;
  ReplicationPad1dImpl(std::initializer_list<int64_t> padding) : PadLayer(ReplicationPad1dOptions(padding)) {}
};
GRADUS_MODULE(ReplicationPad1d);

/// Extends x (…, H, W) by repeating its edge pixels.
struct ReplicationPad2dImpl : detail::PadLayer<ReplicationPad2dImpl, ReplicationPad2dOptions, PadMode::replicate> {
  static constexpr const char* kName = "ReplicationPad2d";
  using PadLayer::PadLayer;
  ReplicationPad2dImpl(std::initializer_list<int64_t> padding) : PadLayer(ReplicationPad2dOptions(padding)) {}
};
GRADUS_MODULE(ReplicationPad2d);

/// Interpolation mode: kNearest, kLinear, kBilinear, kBicubic or kArea.
struct UpsampleMode {
  UpsampleMode(InterpolateMode mode_) : mode(mode_) {}  // NOLINT(google-explicit-constructor)
  /// In LibTorch, kLinear is one constant for both enumerations.
  UpsampleMode(init::Nonlinearity linear) : mode(InterpolateMode::linear) {  // NOLINT(google-explicit-constructor)
    GRADUS_CHECK(linear == init::Nonlinearity::linear, ValueError, "a nonlinearity is not a mode of interpolation");
  }
  InterpolateMode mode;
};

struct UpsampleOptions {
  /// Sizes of the result, or scale factors, one for each dimension of the image.
  GRADUS_ARG(std::optional<std::vector<int64_t>>, size);
  GRADUS_ARG(std::optional<std::vector<double>>, scale_factor);
  GRADUS_ARG(UpsampleMode, mode) = kNearest;
  GRADUS_ARG(std::optional<bool>, align_corners) = absent<bool>();
};

/// Resizes x (N, C, L) or (N, C, H, W) (interpolate in autograd/ops/resample.h).
struct UpsampleImpl : detail::PlainLayer<UpsampleImpl, UpsampleOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Upsample);

struct PixelShuffleOptions {
  PixelShuffleOptions(int64_t upscale_factor)
      : upscale_factor_(upscale_factor) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, upscale_factor);
};

/// (…, C r r, H, W) to (…, C, H r, W r).
struct PixelShuffleImpl : detail::PlainLayer<PixelShuffleImpl, PixelShuffleOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(PixelShuffle);

struct PixelUnshuffleOptions {
  PixelUnshuffleOptions(int64_t downscale_factor)
      : downscale_factor_(downscale_factor) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, downscale_factor);
};

/// (…, C, H r, W r) to (…, C r r, H, W).
struct PixelUnshuffleImpl : detail::PlainLayer<PixelUnshuffleImpl, PixelUnshuffleOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(PixelUnshuffle);

struct UnfoldOptions {
  UnfoldOptions(Pair kernel_size) : kernel_size_(kernel_size) {}            // NOLINT(google-explicit-constructor)
  UnfoldOptions(int64_t kernel_size) : UnfoldOptions(Pair(kernel_size)) {}  // NOLINT(google-explicit-constructor)
  template <std::same_as<IntArrayRef> Sizes>
  UnfoldOptions(const Sizes& sizes) : UnfoldOptions(Pair(sizes)) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(Pair, kernel_size);
  GRADUS_ARG(Pair, dilation) = 1;
  GRADUS_ARG(Pair, padding) = 0;
  GRADUS_ARG(Pair, stride) = 1;
};

/// The windows of x (N, C, H, W) as columns (N, C R S, windows).
struct UnfoldImpl : detail::PlainLayer<UnfoldImpl, UnfoldOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Unfold);

struct FoldOptions {
  FoldOptions(Pair output_size, Pair kernel_size) : output_size_(output_size), kernel_size_(kernel_size) {}
  GRADUS_ARG(Pair, output_size);
  GRADUS_ARG(Pair, kernel_size);
  GRADUS_ARG(Pair, dilation) = 1;
  GRADUS_ARG(Pair, padding) = 0;
  GRADUS_ARG(Pair, stride) = 1;
};

/// The transpose of Unfold: sums columns where windows overlap.
struct FoldImpl : detail::PlainLayer<FoldImpl, FoldOptions> {
  using PlainLayer::PlainLayer;
  FoldImpl(Pair output_size, Pair kernel_size) : PlainLayer(FoldOptions(output_size, kernel_size)) {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Fold);

}  // namespace gradus::nn
