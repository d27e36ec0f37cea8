// Dropout and its variants: options, functions of nn::functional, and layers. In training they drop random elements or
// channels and rescale the others so that the mean is preserved. In evaluation they return x.
#pragma once

#include <gradus/autograd/ops/nn/dropout.h>
#include <gradus/layers/layer.h>

namespace gradus::nn {

struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("p", p_)("inplace", inplace_); }
  GRADUS_ARG(double, p);
  GRADUS_ARG(bool, inplace) = false;
};
using Dropout2dOptions = DropoutOptions;
using AlphaDropoutOptions = DropoutOptions;
using FeatureAlphaDropoutOptions = DropoutOptions;

namespace functional {

template <bool kTraining>
struct DropoutFuncOptionsOf {
  GRADUS_ARG(double, p) = 0.5;
  GRADUS_ARG(bool, training) = kTraining;
  GRADUS_ARG(bool, inplace) = false;
};
using DropoutFuncOptions = DropoutFuncOptionsOf<true>;
using Dropout2dFuncOptions = DropoutFuncOptions;
using AlphaDropoutFuncOptions = DropoutFuncOptionsOf<false>;
using FeatureAlphaDropoutFuncOptions = AlphaDropoutFuncOptions;

inline Tensor dropout(const Tensor& x, const DropoutFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::dropout_(x, options.p(), options.training(), where)
                           : gradus::dropout(x, options.p(), options.training(), where);
}
inline Tensor dropout2d(const Tensor& x, const Dropout2dFuncOptions& options = {}, Loc where = Loc::current()) {
  const Tensor y = gradus::dropout2d(x, options.p(), options.training(), where);
  return options.inplace() && options.training() ? x.copy_(y, false, where) : y;
}
inline Tensor alpha_dropout(const Tensor& x, const AlphaDropoutFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::alpha_dropout_(x, options.p(), options.training(), where)
                           : gradus::alpha_dropout(x, options.p(), options.training(), where);
}
inline Tensor feature_alpha_dropout(const Tensor& x, const FeatureAlphaDropoutFuncOptions& options = {},
                                    Loc where = Loc::current()) {
  return options.inplace() ? gradus::feature_alpha_dropout_(x, options.p(), options.training(), where)
                           : gradus::feature_alpha_dropout(x, options.p(), options.training(), where);
}

}  // namespace functional

namespace detail {

/// Base of all dropout layers. forward() calls kFunction with the options and the mode (training or evaluation) of the
/// layer. A p outside of [0, 1] is a ValueError.
template <class Derived, class FuncOptions, Tensor (*kFunction)(const Tensor&, const FuncOptions&, Loc)>
struct DropoutLayer : Layer<Derived, DropoutOptions> {
  explicit DropoutLayer(const DropoutOptions& options_ = {}) : Layer<Derived, DropoutOptions>(options_) {
    GRADUS_CHECK(options_.p() >= 0 && options_.p() <= 1, ValueError, "dropout probability must be in [0, 1], got ",
                 options_.p());
  }
  Tensor forward(const Tensor& x) {
    const auto frame = this->enter();
    const DropoutOptions& own = this->options;
    return kFunction(x, FuncOptions().p(own.p()).training(this->is_training()).inplace(own.inplace()), Loc{});
  }
};

}  // namespace detail

/// Zeroes each element with probability p and scales the others by 1 / (1 - p).
GRADUS_LAYER(Dropout, DropoutLayer, functional::DropoutFuncOptions, functional::dropout);

/// Drops whole channels of x (N, C, H, W) or (C, H, W).
GRADUS_LAYER(Dropout2d, DropoutLayer, functional::Dropout2dFuncOptions, functional::dropout2d);

/// Drops elements of x so that a mean of 0 and a variance of 1 are preserved, for nets with SELU.
GRADUS_LAYER(AlphaDropout, DropoutLayer, functional::AlphaDropoutFuncOptions, functional::alpha_dropout);

/// Like AlphaDropout, but drops whole channels of x (N, C, …).
GRADUS_LAYER(FeatureAlphaDropout, DropoutLayer, functional::FeatureAlphaDropoutFuncOptions,
             functional::feature_alpha_dropout);

}  // namespace gradus::nn
