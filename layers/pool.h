// Pooling. Sizes are one number for both directions or {height, width}; images are (N, C, H, W) or (C, H, W), sequences
// (N, C, L) or (C, L).
#pragma once

#include <gradus/autograd/ops/pool.h>
#include <gradus/core/options.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

/// Options for D dimensions. The stride defaults to the kernel's size.
template <size_t D>
struct MaxPoolOptions {
  using Size = std::conditional_t<D == 1, int64_t, Pair>;                                ///< one per direction
  MaxPoolOptions(Size kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}  // NOLINT
  MaxPoolOptions(int64_t kernel_size) requires(D > 1)                                    // NOLINT
      : MaxPoolOptions(Size(kernel_size)) {}
  GRADUS_ARG(Size, kernel_size);
  GRADUS_ARG(Size, stride);
  GRADUS_ARG(Size, padding) = 0;
  GRADUS_ARG(Size, dilation) = 1;
  GRADUS_ARG(bool, ceil_mode) = false;
};
using MaxPool1dOptions = MaxPoolOptions<1>;
using MaxPool2dOptions = MaxPoolOptions<2>;

/// Maximum over windows.
struct MaxPool1dImpl : detail::PlainLayer<MaxPool1dImpl, MaxPool1dOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  /// forward() that also returns the int64 index of each maximum in its sequence.
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(MaxPool1d);

/// Maximum over windows.
struct MaxPool2dImpl : detail::PlainLayer<MaxPool2dImpl, MaxPool2dOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  /// forward() that also returns the int64 index h * W + w of each maximum in its plane.
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(MaxPool2d);

struct AvgPool1dOptions {
  AvgPool1dOptions(int64_t kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}  // NOLINT
  GRADUS_ARG(int64_t, kernel_size);
  GRADUS_ARG(int64_t, stride);
  GRADUS_ARG(int64_t, padding) = 0;
  GRADUS_ARG(bool, ceil_mode) = false;
  /// True: padding counts as elements of the window when its sum is divided.
  GRADUS_ARG(bool, count_include_pad) = true;
};

/// Mean over windows.
struct AvgPool1dImpl : detail::PlainLayer<AvgPool1dImpl, AvgPool1dOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(AvgPool1d);

struct AvgPool2dOptions {
  AvgPool2dOptions(Pair kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}  // NOLINT
  AvgPool2dOptions(int64_t kernel_size) : AvgPool2dOptions(Pair(kernel_size)) {}           // NOLINT
  GRADUS_ARG(Pair, kernel_size);
  GRADUS_ARG(Pair, stride);
  GRADUS_ARG(Pair, padding) = 0;
  GRADUS_ARG(bool, ceil_mode) = false;
  GRADUS_ARG(bool, count_include_pad) = true;
  /// If set, the divisor of the sum, in place of the number of elements.
  GRADUS_ARG(std::optional<int64_t>, divisor_override) = absent<int64_t>();
};

/// Mean over windows.
struct AvgPool2dImpl : detail::PlainLayer<AvgPool2dImpl, AvgPool2dOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(AvgPool2d);

template <class Size>
struct AdaptivePoolOptions {
  AdaptivePoolOptions(Size output_size) : output_size_(output_size) {}          // NOLINT
  AdaptivePoolOptions(int64_t output_size) requires(!std::is_integral_v<Size>)  // NOLINT
      : AdaptivePoolOptions(Size(output_size)) {}
  GRADUS_ARG(Size, output_size);
};
using AdaptiveAvgPool1dOptions = AdaptivePoolOptions<int64_t>;
using AdaptiveMaxPool1dOptions = AdaptivePoolOptions<int64_t>;
/// {height, width}. A std::nullopt keeps the size of the input.
using AdaptiveAvgPool2dOptions = AdaptivePoolOptions<OutputSize>;
using AdaptiveMaxPool2dOptions = AdaptivePoolOptions<OutputSize>;

/// Mean over windows that divide the input into output_size parts.
struct AdaptiveAvgPool1dImpl : detail::PlainLayer<AdaptiveAvgPool1dImpl, AdaptiveAvgPool1dOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(AdaptiveAvgPool1d);

struct AdaptiveAvgPool2dImpl : detail::PlainLayer<AdaptiveAvgPool2dImpl, AdaptiveAvgPool2dOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(AdaptiveAvgPool2d);

struct AdaptiveMaxPool1dImpl : detail::PlainLayer<AdaptiveMaxPool1dImpl, AdaptiveMaxPool1dOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  /// forward() that also returns the int64 index of each maximum in its sequence. Processes one window after another,
  /// so it is slow for many windows.
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(AdaptiveMaxPool1d);

struct AdaptiveMaxPool2dImpl : detail::PlainLayer<AdaptiveMaxPool2dImpl, AdaptiveMaxPool2dOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  /// forward() that also returns the int64 index h * W + w of each maximum in its plane. Slow for many windows.
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(AdaptiveMaxPool2d);

}  // namespace gradus::nn
