// Dropout and its variants. In training each zeroes random elements and scales the others; in evaluation all return x.
#pragma once

#include <gradus/core/options.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(double, p);
  GRADUS_ARG(bool, inplace) = false;
};
using Dropout2dOptions = DropoutOptions;
using AlphaDropoutOptions = DropoutOptions;
using FeatureAlphaDropoutOptions = DropoutOptions;

namespace detail {
/// Base of all dropout layers. A p outside of [0, 1] is a ValueError.
template <class Derived>
struct DropoutLayer : PlainLayer<Derived, DropoutOptions> {
  explicit DropoutLayer(const DropoutOptions& options_ = {}) : PlainLayer<Derived, DropoutOptions>(options_) {
    GRADUS_CHECK(options_.p() >= 0 && options_.p() <= 1, ValueError, "dropout probability must be in [0, 1], got ",
                 options_.p());
  }
};
}  // namespace detail

/// Zeroes each element with probability p and scales the others by 1 / (1 - p).
struct DropoutImpl : detail::DropoutLayer<DropoutImpl> {
  using DropoutLayer::DropoutLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Dropout);

/// Drops whole channels of x (N, C, H, W) or (C, H, W).
struct Dropout2dImpl : detail::DropoutLayer<Dropout2dImpl> {
  using DropoutLayer::DropoutLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Dropout2d);

/// Drops elements and preserves mean 0 and variance 1, for nets with SELU.
struct AlphaDropoutImpl : detail::DropoutLayer<AlphaDropoutImpl> {
  using DropoutLayer::DropoutLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(AlphaDropout);

/// AlphaDropout of whole channels of x (N, C, …).
struct FeatureAlphaDropoutImpl : detail::DropoutLayer<FeatureAlphaDropoutImpl> {
  using DropoutLayer::DropoutLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(FeatureAlphaDropout);

}  // namespace gradus::nn
