// Pooling: options, functions of nn::functional, and layers. Sizes are one number for both directions or {height,
// width}; images are (N, C, H, W) or (C, H, W), sequences (N, C, L) or (C, L).
#pragma once

#include <tuple>

#include <gradus/autograd/ops/nn/pool.h>
#include <gradus/layers/layer.h>

namespace gradus::nn {

// ---- Options of layers. Functions use the same structs, under names that end in FuncOptions. ----

namespace detail {

/// Options of pooling over windows in D dimensions. The stride defaults to the kernel's size.
template <class Options, size_t D>
struct PoolOptions {
  using Size = std::conditional_t<D == 1, int64_t, Pair>;                             ///< one number for each direction
  PoolOptions(Size kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}  // NOLINT
  PoolOptions(int64_t kernel_size) requires(D > 1)                                    // NOLINT
      : PoolOptions(Size(kernel_size)) {}
  void print(LayerPrinter& printer) const {
    printer("kernel_size", kernel_size_)("stride", stride_)("padding", padding_);
  }
  GRADUS_ARG_OF(Options, Size, kernel_size);
  GRADUS_ARG_OF(Options, Size, stride);
  GRADUS_ARG_OF(Options, Size, padding) = 0;
  GRADUS_ARG_OF(Options, bool, ceil_mode) = false;
};

}  // namespace detail

template <size_t D>
struct MaxPoolOptions : detail::PoolOptions<MaxPoolOptions<D>, D> {
  using Base = detail::PoolOptions<MaxPoolOptions<D>, D>;
  using Size = typename Base::Size;
  using Base::Base;
  void print(detail::LayerPrinter& printer) const {
    Base::print(printer);
    printer("dilation", dilation_)("ceil_mode", this->ceil_mode());
  }
  GRADUS_ARG(Size, dilation) = 1;
};
using MaxPool1dOptions = MaxPoolOptions<1>;
using MaxPool2dOptions = MaxPoolOptions<2>;

struct AvgPool1dOptions : detail::PoolOptions<AvgPool1dOptions, 1> {
  using PoolOptions::PoolOptions;
  /// If true, the number of elements by which a window's sum is divided includes padding.
  GRADUS_ARG(bool, count_include_pad) = true;
};

struct AvgPool2dOptions : detail::PoolOptions<AvgPool2dOptions, 2> {
  using PoolOptions::PoolOptions;
  GRADUS_ARG(bool, count_include_pad) = true;
  /// If set, a window's sum is divided by this number instead of the number of elements.
  GRADUS_ARG(std::optional<int64_t>, divisor_override) = absent<int64_t>();
};

template <class Size>
struct AdaptivePoolOptions {
  AdaptivePoolOptions(Size output_size) : output_size_(output_size) {}          // NOLINT
  AdaptivePoolOptions(int64_t output_size) requires(!std::is_integral_v<Size>)  // NOLINT
      : AdaptivePoolOptions(Size(output_size)) {}
  void print(detail::LayerPrinter& printer) const { printer("output_size", output_size_); }
  GRADUS_ARG(Size, output_size);
};
using AdaptiveAvgPool1dOptions = AdaptivePoolOptions<int64_t>;
using AdaptiveMaxPool1dOptions = AdaptivePoolOptions<int64_t>;
/// output_size is {height, width}. If one of them is std::nullopt, the input's size is kept in that direction.
using AdaptiveAvgPool2dOptions = AdaptivePoolOptions<OutputSize>;
using AdaptiveMaxPool2dOptions = AdaptivePoolOptions<OutputSize>;

// ---- Functions ----
// Functions whose names end in _with_indices also return the int64 index of each maximum: its position in the sequence,
// or h * W + w in the image.

namespace functional {

using MaxPool1dFuncOptions = MaxPool1dOptions;
inline Tensor max_pool1d(const Tensor& x, const MaxPool1dFuncOptions& options, Loc where = Loc::current()) {
  return gradus::max_pool1d(x, options.kernel_size(), options.stride(), options.padding(), options.dilation(),
                            options.ceil_mode(), where);
}
inline TensorPair max_pool1d_with_indices(const Tensor& x, const MaxPool1dFuncOptions& options,
                                          Loc where = Loc::current()) {
  return gradus::max_pool1d_with_indices(x, options.kernel_size(), options.stride(), options.padding(),
                                         options.dilation(), options.ceil_mode(), where);
}
using MaxPool2dFuncOptions = MaxPool2dOptions;
inline Tensor max_pool2d(const Tensor& x, const MaxPool2dFuncOptions& options, Loc where = Loc::current()) {
  return gradus::max_pool2d(x, options.kernel_size(), options.stride(), options.padding(), options.dilation(),
                            options.ceil_mode(), where);
}
inline TensorPair max_pool2d_with_indices(const Tensor& x, const MaxPool2dFuncOptions& options,
                                          Loc where = Loc::current()) {
  return gradus::max_pool2d_with_indices(x, options.kernel_size(), options.stride(), options.padding(),
                                         options.dilation(), options.ceil_mode(), where);
}
using AvgPool1dFuncOptions = AvgPool1dOptions;
inline Tensor avg_pool1d(const Tensor& x, const AvgPool1dFuncOptions& options, Loc where = Loc::current()) {
  return gradus::avg_pool1d(x, options.kernel_size(), options.stride(), options.padding(), options.ceil_mode(),
                            options.count_include_pad(), where);
}
using AvgPool2dFuncOptions = AvgPool2dOptions;
inline Tensor avg_pool2d(const Tensor& x, const AvgPool2dFuncOptions& options, Loc where = Loc::current()) {
  return gradus::avg_pool2d(x, options.kernel_size(), options.stride(), options.padding(), options.ceil_mode(),
                            options.count_include_pad(), options.divisor_override(), where);
}
using AdaptiveAvgPool1dFuncOptions = AdaptiveAvgPool1dOptions;
inline Tensor adaptive_avg_pool1d(const Tensor& x, const AdaptiveAvgPool1dFuncOptions& options,
                                  Loc where = Loc::current()) {
  return gradus::adaptive_avg_pool1d(x, options.output_size(), where);
}
using AdaptiveAvgPool2dFuncOptions = AdaptiveAvgPool2dOptions;
inline Tensor adaptive_avg_pool2d(const Tensor& x, const AdaptiveAvgPool2dFuncOptions& options,
                                  Loc where = Loc::current()) {
  return gradus::adaptive_avg_pool2d(x, options.output_size(), where);
}
using AdaptiveMaxPool1dFuncOptions = AdaptiveMaxPool1dOptions;
inline Tensor adaptive_max_pool1d(const Tensor& x, const AdaptiveMaxPool1dFuncOptions& options,
                                  Loc where = Loc::current()) {
  return gradus::adaptive_max_pool1d(x, options.output_size(), where);
}
using AdaptiveMaxPool2dFuncOptions = AdaptiveMaxPool2dOptions;
inline Tensor adaptive_max_pool2d(const Tensor& x, const AdaptiveMaxPool2dFuncOptions& options,
                                  Loc where = Loc::current()) {
  return gradus::adaptive_max_pool2d(x, options.output_size(), where);
}
/// Processes one window after another, so it is slow for many windows.
TensorPair adaptive_max_pool2d_with_indices(const Tensor& x, const AdaptiveMaxPool2dOptions& options,
                                            Loc where = Loc::current());
TensorPair adaptive_max_pool1d_with_indices(const Tensor& x, const AdaptiveMaxPool1dOptions& options,
                                            Loc where = Loc::current());

}  // namespace functional

// ---- Layers ----

namespace detail {

/// Base of the max-pooling layers. forward_with_indices() also returns the int64 index of each maximum: its position in
/// the sequence, or h * W + w in the image. In adaptive layers it is slow for many windows.
template <class Derived, auto kFunction, auto kWithIndices>
struct MaxPoolLayer : FunctionLayer<Derived, kFunction> {
  using FunctionLayer<Derived, kFunction>::FunctionLayer;
  TensorPair forward_with_indices(const Tensor& x) {
    const auto frame = this->enter();
    return kWithIndices(x, this->options, Loc{});
  }
};

}  // namespace detail

/// Maximum over windows.
GRADUS_LAYER(MaxPool1d, MaxPoolLayer, functional::max_pool1d, functional::max_pool1d_with_indices);

/// Maximum over windows.
GRADUS_LAYER(MaxPool2d, MaxPoolLayer, functional::max_pool2d, functional::max_pool2d_with_indices);

/// Mean over windows.
GRADUS_LAYER(AvgPool1d, FunctionLayer, functional::avg_pool1d);

/// Mean over windows.
GRADUS_LAYER(AvgPool2d, FunctionLayer, functional::avg_pool2d);

/// Mean over windows that divide the input into output_size parts.
GRADUS_LAYER(AdaptiveAvgPool1d, FunctionLayer, functional::adaptive_avg_pool1d);

GRADUS_LAYER(AdaptiveAvgPool2d, FunctionLayer, functional::adaptive_avg_pool2d);

GRADUS_LAYER(AdaptiveMaxPool1d, MaxPoolLayer, functional::adaptive_max_pool1d,
             functional::adaptive_max_pool1d_with_indices);

GRADUS_LAYER(AdaptiveMaxPool2d, MaxPoolLayer, functional::adaptive_max_pool2d,
             functional::adaptive_max_pool2d_with_indices);

}  // namespace gradus::nn
