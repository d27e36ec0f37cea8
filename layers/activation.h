// Activations: options, functions of nn::functional, and layers. The comment of a layer is the formula of its result.
// Only PReLU has a parameter. References for the formulas are in autograd/ops/nn/activation.h. With the option
// `inplace`, the result overwrites x.
#pragma once

#include <optional>
#include <string>

#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/nn/activation.h>
#include <gradus/autograd/ops/nn/loss.h>
#include <gradus/layers/layer.h>

namespace gradus::nn {

// ---- Options of layers. Functions use the same structs, under names that end in FuncOptions. ----

struct ReLUOptions {
  ReLUOptions(bool inplace = false) : inplace_(inplace) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("inplace", true, inplace_); }
  GRADUS_ARG(bool, inplace);
};
using ReLU6Options = ReLUOptions;
using SELUOptions = ReLUOptions;

struct LeakyReLUOptions {
  LeakyReLUOptions(double negative_slope = 0.01)
      : negative_slope_(negative_slope) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const {
    printer("negative_slope", negative_slope_)("inplace", true, inplace_);
  }
  GRADUS_ARG(double, negative_slope);
  GRADUS_ARG(bool, inplace) = false;
};

struct RReLUOptions {
  RReLUOptions(double lower = 1.0 / 8) : lower_(lower) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const {
    printer("lower", lower_)("upper", upper_)("inplace", true, inplace_);
  }
  GRADUS_ARG(double, lower);
  GRADUS_ARG(double, upper) = 1.0 / 3;
  GRADUS_ARG(bool, inplace) = false;
};

struct ELUOptions {
  ELUOptions(double alpha = 1) : alpha_(alpha) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("alpha", alpha_)("inplace", true, inplace_); }
  GRADUS_ARG(double, alpha);
  GRADUS_ARG(bool, inplace) = false;
};
using CELUOptions = ELUOptions;

struct GELUOptions {
  GELUOptions(std::string approximate = "none")
      : approximate_(std::move(approximate)) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("approximate", approximate_, approximate_ != "none"); }
  GRADUS_ARG(std::string, approximate);
};

struct SoftplusOptions {
  SoftplusOptions(double beta = 1) : beta_(beta) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("beta", beta_)("threshold", threshold_); }
  GRADUS_ARG(double, beta);
  GRADUS_ARG(double, threshold) = 20;
};

struct SoftshrinkOptions {
  SoftshrinkOptions(double lambda = 0.5) : lambda_(lambda) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer.value(lambda_); }
  GRADUS_ARG(double, lambda);
};
using HardshrinkOptions = SoftshrinkOptions;

struct HardtanhOptions {
  HardtanhOptions(double min_val = -1) : min_val_(min_val) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const {
    printer("min_val", min_val_)("max_val", max_val_)("inplace", true, inplace_);
  }
  GRADUS_ARG(double, min_val);
  GRADUS_ARG(double, max_val) = 1;
  GRADUS_ARG(bool, inplace) = false;
};

struct ThresholdOptions {
  ThresholdOptions(double threshold, double value) : threshold_(threshold), value_(value) {}
  void print(detail::LayerPrinter& printer) const {
    printer("threshold", threshold_)("value", value_)("inplace", true, inplace_);
  }
  GRADUS_ARG(double, threshold);
  GRADUS_ARG(double, value);
  GRADUS_ARG(bool, inplace) = false;
};

struct GLUOptions {
  GLUOptions(int64_t dim = -1) : dim_(dim) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("dim", dim_); }
  GRADUS_ARG(int64_t, dim);
};

struct SoftmaxOptions {
  SoftmaxOptions(int64_t dim) : dim_(dim) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("dim", dim_); }
  GRADUS_ARG(int64_t, dim);
  /// If set, x is converted to this type first.
  GRADUS_ARG(std::optional<DType>, dtype) = absent<DType>();
};
using LogSoftmaxOptions = SoftmaxOptions;
using SoftminOptions = SoftmaxOptions;

struct PReLUOptions {
  PReLUOptions(int64_t num_parameters = 1) : num_parameters_(num_parameters) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer("num_parameters", num_parameters_); }
  GRADUS_ARG(int64_t, num_parameters);
  GRADUS_ARG(double, init) = 0.25;
};

// ---- Functions ----

namespace functional {

using ReLUFuncOptions = ReLUOptions;
inline Tensor relu(const Tensor& x, const ReLUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? x.relu_(where) : gradus::relu(x, where);
}
using ReLU6FuncOptions = ReLU6Options;
inline Tensor relu6(const Tensor& x, const ReLU6FuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::relu6_(x, where) : gradus::relu6(x, where);
}
using LeakyReLUFuncOptions = LeakyReLUOptions;
inline Tensor leaky_relu(const Tensor& x, const LeakyReLUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::leaky_relu_(x, options.negative_slope(), where)
                           : gradus::leaky_relu(x, options.negative_slope(), where);
}
struct RReLUFuncOptions {
  GRADUS_ARG(double, lower) = 1.0 / 8;
  GRADUS_ARG(double, upper) = 1.0 / 3;
  GRADUS_ARG(bool, training) = false;
  GRADUS_ARG(bool, inplace) = false;
};
inline Tensor rrelu(const Tensor& x, const RReLUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::rrelu_(x, options.lower(), options.upper(), options.training(), where)
                           : gradus::rrelu(x, options.lower(), options.upper(), options.training(), where);
}
using ELUFuncOptions = ELUOptions;
inline Tensor elu(const Tensor& x, const ELUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::elu_(x, options.alpha(), 1, 1, where)
                           : gradus::elu(x, options.alpha(), 1, 1, where);
}
using SELUFuncOptions = SELUOptions;
inline Tensor selu(const Tensor& x, const SELUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::selu_(x, where) : gradus::selu(x, where);
}
using CELUFuncOptions = CELUOptions;
inline Tensor celu(const Tensor& x, const CELUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::celu_(x, options.alpha(), where) : gradus::celu(x, options.alpha(), where);
}
using GELUFuncOptions = GELUOptions;
inline Tensor gelu(const Tensor& x, const GELUFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::gelu(x, options.approximate(), where);
}
using SoftplusFuncOptions = SoftplusOptions;
inline Tensor softplus(const Tensor& x, const SoftplusFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::softplus(x, options.beta(), options.threshold(), where);
}
using SoftshrinkFuncOptions = SoftshrinkOptions;
inline Tensor softshrink(const Tensor& x, const SoftshrinkFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::softshrink(x, options.lambda(), where);
}
using HardshrinkFuncOptions = HardshrinkOptions;
inline Tensor hardshrink(const Tensor& x, const HardshrinkFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::hardshrink(x, options.lambda(), where);
}
using HardtanhFuncOptions = HardtanhOptions;
inline Tensor hardtanh(const Tensor& x, const HardtanhFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::hardtanh_(x, options.min_val(), options.max_val(), where)
                           : gradus::hardtanh(x, options.min_val(), options.max_val(), where);
}
using ThresholdFuncOptions = ThresholdOptions;
inline Tensor threshold(const Tensor& x, const ThresholdFuncOptions& options, Loc where = Loc::current()) {
  return options.inplace() ? gradus::threshold_(x, options.threshold(), options.value(), where)
                           : gradus::threshold(x, options.threshold(), options.value(), where);
}
using GLUFuncOptions = GLUOptions;
inline Tensor glu(const Tensor& x, const GLUFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::glu(x, options.dim(), where);
}
using SoftmaxFuncOptions = SoftmaxOptions;
inline Tensor softmax(const Tensor& x, const SoftmaxFuncOptions& options, Loc where = Loc::current()) {
  return gradus::softmax(x, options.dim(), options.dtype(), where);
}
using SoftminFuncOptions = SoftminOptions;
inline Tensor softmin(const Tensor& x, const SoftminFuncOptions& options, Loc where = Loc::current()) {
  return gradus::softmin(options.dtype() ? x.to(*options.dtype()) : x, options.dim(), where);
}
using LogSoftmaxFuncOptions = LogSoftmaxOptions;
inline Tensor log_softmax(const Tensor& x, const LogSoftmaxFuncOptions& options, Loc where = Loc::current()) {
  return gradus::log_softmax(x, options.dim(), options.dtype(), where);
}
inline Tensor logsigmoid(const Tensor& x, Loc where = Loc::current()) { return gradus::log_sigmoid(x, where); }
using gradus::hardsigmoid, gradus::hardswish, gradus::mish, gradus::prelu, gradus::sigmoid;
using gradus::silu, gradus::softsign, gradus::tanh, gradus::tanhshrink;

}  // namespace functional

// ---- Layers ----

/// y = max(x, 0).
GRADUS_LAYER(ReLU, FunctionLayer, functional::relu);

/// y = min(max(x, 0), 6).
GRADUS_LAYER(ReLU6, FunctionLayer, functional::relu6);

/// y = x for x > 0, else negative_slope x.
GRADUS_LAYER(LeakyReLU, FunctionLayer, functional::leaky_relu);

/// y = x for x > 0, else r x. In training, r is drawn uniformly from [lower, upper) for each element. In evaluation, r
/// is the mean of lower and upper.
struct RReLUImpl : detail::Layer<RReLUImpl, RReLUOptions> {
  using Layer::Layer;
  Tensor forward(const Tensor& x) {
    const auto frame = enter();
    return options.inplace() ? rrelu_(x, options.lower(), options.upper(), is_training())
                             : rrelu(x, options.lower(), options.upper(), is_training());
  }
};
GRADUS_MODULE(RReLU);

/// y = x for x > 0, else alpha (exp(x) - 1).
GRADUS_LAYER(ELU, FunctionLayer, functional::elu);

/// ELU scaled so that activations keep mean 0 and variance 1 (Klambauer et al. 2017).
GRADUS_LAYER(SELU, FunctionLayer, functional::selu);

/// y = x for x > 0, else alpha (exp(x / alpha) - 1).
GRADUS_LAYER(CELU, FunctionLayer, functional::celu);

/// y = x Phi(x), where Phi is the cumulative distribution function of the standard normal distribution. The option
/// `approximate` is "none" or "tanh".
GRADUS_LAYER(GELU, FunctionLayer, functional::gelu);

/// y = x sigmoid(x).
GRADUS_LAYER(SiLU, FunctionLayer, functional::silu);

/// y = x tanh(softplus(x)).
GRADUS_LAYER(Mish, FunctionLayer, functional::mish);

/// y = log(1 + exp(beta x)) / beta, but y = x where beta x > threshold.
GRADUS_LAYER(Softplus, FunctionLayer, functional::softplus);

/// y = x / (1 + |x|).
GRADUS_LAYER(Softsign, FunctionLayer, functional::softsign);

/// y = x moved towards 0 by lambda, and y = 0 within [-lambda, lambda].
GRADUS_LAYER(Softshrink, FunctionLayer, functional::softshrink);

/// y = x outside of [-lambda, lambda], else 0.
GRADUS_LAYER(Hardshrink, FunctionLayer, functional::hardshrink);

/// y = x - tanh(x).
GRADUS_LAYER(Tanhshrink, FunctionLayer, functional::tanhshrink);

/// y = x clamped to [min_val, max_val]. An empty range is a ValueError.
struct HardtanhImpl : detail::FunctionLayer<HardtanhImpl, functional::hardtanh> {
  explicit HardtanhImpl(const HardtanhOptions& options_ = {}) : FunctionLayer(options_) { HardtanhImpl::reset(); }
  void reset() override {
    GRADUS_CHECK(options.max_val() > options.min_val(), ValueError, "Hardtanh from ", options.min_val(), " to ",
                 options.max_val(), ": max_val must be greater than min_val");
  }
};
GRADUS_MODULE(Hardtanh);

/// y = relu6(x + 3) / 6.
GRADUS_LAYER(Hardsigmoid, FunctionLayer, functional::hardsigmoid);

/// y = x relu6(x + 3) / 6.
GRADUS_LAYER(Hardswish, FunctionLayer, functional::hardswish);

/// y = x where x > threshold, else value.
GRADUS_LAYER(Threshold, FunctionLayer, functional::threshold);

/// y = 1 / (1 + exp(-x)).
GRADUS_LAYER(Sigmoid, FunctionLayer, functional::sigmoid);

/// y = log(sigmoid(x)), computed without overflow.
GRADUS_LAYER(LogSigmoid, FunctionLayer, functional::logsigmoid);

GRADUS_LAYER(Tanh, FunctionLayer, functional::tanh);

/// y = a sigmoid(b), where a and b are the halves of x along dim.
GRADUS_LAYER(GLU, FunctionLayer, functional::glu);

/// y = exp(x) / sum(exp(x)) along dim.
GRADUS_LAYER(Softmax, FunctionLayer, functional::softmax);

/// y = softmax(-x) along dim.
GRADUS_LAYER(Softmin, FunctionLayer, functional::softmin);

/// y = log(softmax(x)) along dim, computed without overflow.
GRADUS_LAYER(LogSoftmax, FunctionLayer, functional::log_softmax);

/// Softmax over the channels of images (N, C, H, W) or (C, H, W).
struct Softmax2dImpl : detail::Layer<Softmax2dImpl> {
  Tensor forward(const Tensor& x) {
    const auto frame = enter();
    GRADUS_CHECK(x.dim() == 3 || x.dim() == 4, ShapeError, "Softmax2d needs (N, C, H, W) or (C, H, W), got x of shape ",
                 x.sizes());
    return softmax(x, -3);
  }
};
GRADUS_MODULE(Softmax2d);

/// y = x for x > 0, else weight x. Parameter `weight` (num_parameters): one number, or one for each channel (dimension
/// 1 of x).
struct PReLUImpl : detail::Layer<PReLUImpl, PReLUOptions> {
  explicit PReLUImpl(const PReLUOptions& options_ = {}) : Layer(options_) { PReLUImpl::reset(); }
  void reset() override {
    GRADUS_CHECK(options.num_parameters() > 0, ValueError, "PReLU with ", options.num_parameters(), " parameters");
    weight = register_parameter("weight", full({options.num_parameters()}, options.init(), kFloat));
  }
  Tensor forward(const Tensor& x) {
    const auto frame = enter();
    return prelu(x, weight);
  }

  Tensor weight;
};
GRADUS_MODULE(PReLU);

}  // namespace gradus::nn
