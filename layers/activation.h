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
using ReLUImpl = detail::FunctionLayer<class ReLU, functional::relu>;
GRADUS_MODULE(ReLU);

/// y = min(max(x, 0), 6).
using ReLU6Impl = detail::FunctionLayer<class ReLU6, functional::relu6>;
GRADUS_MODULE(ReLU6);

/// y = x for x > 0, else negative_slope x.
using LeakyReLUImpl = detail::FunctionLayer<class LeakyReLU, functional::leaky_relu>;
GRADUS_MODULE(LeakyReLU);

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
using ELUImpl = detail::FunctionLayer<class ELU, functional::elu>;
GRADUS_MODULE(ELU);

/// ELU scaled so that activations keep mean 0 and variance 1 (Klambauer et al. 2017).
using SELUImpl = detail::FunctionLayer<class SELU, functional::selu>;
GRADUS_MODULE(SELU);

/// y = x for x > 0, else alpha (exp(x / alpha) - 1).
using CELUImpl = detail::FunctionLayer<class CELU, functional::celu>;
GRADUS_MODULE(CELU);

/// y = x Phi(x), where Phi is the cumulative distribution function of the standard normal distribution. The option
/// `approximate` is "none" or "tanh".
using GELUImpl = detail::FunctionLayer<class GELU, functional::gelu>;
GRADUS_MODULE(GELU);

/// y = x sigmoid(x).
using SiLUImpl = detail::FunctionLayer<class SiLU, functional::silu>;
GRADUS_MODULE(SiLU);

/// y = x tanh(softplus(x)).
using MishImpl = detail::FunctionLayer<class Mish, functional::mish>;
GRADUS_MODULE(Mish);

/// y = log(1 + exp(beta x)) / beta, but y = x where beta x > threshold.
using SoftplusImpl = detail::FunctionLayer<class Softplus, functional::softplus>;
GRADUS_MODULE(Softplus);

/// y = x / (1 + |x|).
using SoftsignImpl = detail::FunctionLayer<class Softsign, functional::softsign>;
GRADUS_MODULE(Softsign);

/// y = x moved towards 0 by lambda, and y = 0 within [-lambda, lambda].
using SoftshrinkImpl = detail::FunctionLayer<class Softshrink, functional::softshrink>;
GRADUS_MODULE(Softshrink);

/// y = x outside of [-lambda, lambda], else 0.
using HardshrinkImpl = detail::FunctionLayer<class Hardshrink, functional::hardshrink>;
GRADUS_MODULE(Hardshrink);

/// y = x - tanh(x).
using TanhshrinkImpl = detail::FunctionLayer<class Tanhshrink, functional::tanhshrink>;
GRADUS_MODULE(Tanhshrink);

/// y = x clamped to [min_val, max_val]. An empty range is a ValueError.
struct HardtanhImpl : detail::FunctionLayerBase<HardtanhImpl, functional::hardtanh> {
  explicit HardtanhImpl(const HardtanhOptions& options_ = {}) : FunctionLayerBase(options_) { HardtanhImpl::reset(); }
  void reset() override {
    GRADUS_CHECK(options.max_val() > options.min_val(), ValueError, "Hardtanh from ", options.min_val(), " to ",
                 options.max_val(), ": max_val must be greater than min_val");
  }
};
GRADUS_MODULE(Hardtanh);

/// y = relu6(x + 3) / 6.
using HardsigmoidImpl = detail::FunctionLayer<class Hardsigmoid, functional::hardsigmoid>;
GRADUS_MODULE(Hardsigmoid);

/// y = x relu6(x + 3) / 6.
using HardswishImpl = detail::FunctionLayer<class Hardswish, functional::hardswish>;
GRADUS_MODULE(Hardswish);

/// y = x where x > threshold, else value.
struct ThresholdImpl : detail::FunctionLayerBase<ThresholdImpl, functional::threshold> {
  using FunctionLayerBase::FunctionLayerBase;
  ThresholdImpl(double threshold, double value) : FunctionLayerBase(ThresholdOptions(threshold, value)) {}
};
GRADUS_MODULE(Threshold);

/// y = 1 / (1 + exp(-x)).
using SigmoidImpl = detail::FunctionLayer<class Sigmoid, functional::sigmoid>;
GRADUS_MODULE(Sigmoid);

/// y = log(sigmoid(x)), computed without overflow.
using LogSigmoidImpl = detail::FunctionLayer<class LogSigmoid, functional::logsigmoid>;
GRADUS_MODULE(LogSigmoid);

using TanhImpl = detail::FunctionLayer<class Tanh, functional::tanh>;
GRADUS_MODULE(Tanh);

/// y = a sigmoid(b), where a and b are the halves of x along dim.
using GLUImpl = detail::FunctionLayer<class GLU, functional::glu>;
GRADUS_MODULE(GLU);

/// y = exp(x) / sum(exp(x)) along dim.
using SoftmaxImpl = detail::FunctionLayer<class Softmax, functional::softmax>;
GRADUS_MODULE(Softmax);

/// y = softmax(-x) along dim.
using SoftminImpl = detail::FunctionLayer<class Softmin, functional::softmin>;
GRADUS_MODULE(Softmin);

/// y = log(softmax(x)) along dim, computed without overflow.
using LogSoftmaxImpl = detail::FunctionLayer<class LogSoftmax, functional::log_softmax>;
GRADUS_MODULE(LogSoftmax);

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
