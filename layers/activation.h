// Activation layers. All but PReLU have no parameters, and they apply to each element or along one dimension. Formulas
// and references are in autograd/ops/activation.h. With `inplace` the input is overwritten.
#pragma once

#include <string>

#include <gradus/core/options.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

struct ReLUOptions {
  ReLUOptions(bool inplace = false) : inplace_(inplace) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(bool, inplace);
};
/// max(x, 0).
struct ReLUImpl : detail::PlainLayer<ReLUImpl, ReLUOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(ReLU);

struct ReLU6Options {
  ReLU6Options(bool inplace = false) : inplace_(inplace) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(bool, inplace);
};
/// min(max(x, 0), 6).
struct ReLU6Impl : detail::PlainLayer<ReLU6Impl, ReLU6Options> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(ReLU6);

struct LeakyReLUOptions {
  LeakyReLUOptions(double negative_slope = 0.01)
      : negative_slope_(negative_slope) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(double, negative_slope);
  GRADUS_ARG(bool, inplace) = false;
};
/// x for x > 0, else negative_slope x.
struct LeakyReLUImpl : detail::PlainLayer<LeakyReLUImpl, LeakyReLUOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(LeakyReLU);

struct RReLUOptions {
  RReLUOptions(double lower = 1.0 / 8) : lower_(lower) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(double, lower);
  GRADUS_ARG(double, upper) = 1.0 / 3;
  GRADUS_ARG(bool, inplace) = false;
};
/// x for x > 0, else r x. In training r is drawn from [lower, upper) for each element, otherwise it is the mean of the
/// bounds.
struct RReLUImpl : detail::PlainLayer<RReLUImpl, RReLUOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(RReLU);

struct ELUOptions {
  ELUOptions(double alpha = 1) : alpha_(alpha) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(double, alpha);
  GRADUS_ARG(bool, inplace) = false;
};
/// x for x > 0, else alpha (exp(x) - 1).
struct ELUImpl : detail::PlainLayer<ELUImpl, ELUOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(ELU);

struct SELUOptions {
  SELUOptions(bool inplace = false) : inplace_(inplace) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(bool, inplace);
};
/// ELU scaled so that activations keep mean 0 and variance 1 (Klambauer et al. 2017).
struct SELUImpl : detail::PlainLayer<SELUImpl, SELUOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(SELU);

struct CELUOptions {
  CELUOptions(double alpha = 1) : alpha_(alpha) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(double, alpha);
  GRADUS_ARG(bool, inplace) = false;
};
/// x for x > 0, else alpha (exp(x / alpha) - 1).
struct CELUImpl : detail::PlainLayer<CELUImpl, CELUOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(CELU);

struct GELUOptions {
  GELUOptions(std::string approximate = "none")
      : approximate_(std::move(approximate)) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(std::string, approximate);
};
/// x Phi(x), where Phi is the cumulative distribution function of the standard normal distribution; approximate: "none"
/// or "tanh".
struct GELUImpl : detail::PlainLayer<GELUImpl, GELUOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(GELU);

/// x sigmoid(x).
struct SiLUImpl : detail::PlainLayer<SiLUImpl> {
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(SiLU);

/// x tanh(softplus(x)).
struct MishImpl : detail::PlainLayer<MishImpl> {
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Mish);

struct SoftplusOptions {
  SoftplusOptions(double beta = 1) : beta_(beta) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(double, beta);
  GRADUS_ARG(double, threshold) = 20;
};
/// log(1 + exp(beta x)) / beta, and x itself where beta x > threshold.
struct SoftplusImpl : detail::PlainLayer<SoftplusImpl, SoftplusOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Softplus);

/// x / (1 + |x|).
struct SoftsignImpl : detail::PlainLayer<SoftsignImpl> {
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Softsign);

struct SoftshrinkOptions {
  SoftshrinkOptions(double lambda = 0.5) : lambda_(lambda) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(double, lambda);
};
/// x moved towards 0 by lambda, and 0 within [-lambda, lambda].
struct SoftshrinkImpl : detail::PlainLayer<SoftshrinkImpl, SoftshrinkOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Softshrink);

struct HardshrinkOptions {
  HardshrinkOptions(double lambda = 0.5) : lambda_(lambda) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(double, lambda);
};
/// x outside [-lambda, lambda], else 0.
struct HardshrinkImpl : detail::PlainLayer<HardshrinkImpl, HardshrinkOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Hardshrink);

/// x - tanh(x).
struct TanhshrinkImpl : detail::PlainLayer<TanhshrinkImpl> {
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Tanhshrink);

struct HardtanhOptions {
  HardtanhOptions(double min_val = -1) : min_val_(min_val) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(double, min_val);
  GRADUS_ARG(double, max_val) = 1;
  GRADUS_ARG(bool, inplace) = false;
};
/// x clamped to [min_val, max_val]. An empty range is a ValueError.
struct HardtanhImpl : detail::PlainLayer<HardtanhImpl, HardtanhOptions> {
  explicit HardtanhImpl(const HardtanhOptions& options_ = {}) : PlainLayer(options_) { HardtanhImpl::reset(); }
  void reset() override;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Hardtanh);

/// relu6(x + 3) / 6.
struct HardsigmoidImpl : detail::PlainLayer<HardsigmoidImpl> {
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Hardsigmoid);

/// x relu6(x + 3) / 6.
struct HardswishImpl : detail::PlainLayer<HardswishImpl> {
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Hardswish);

struct ThresholdOptions {
  ThresholdOptions(double threshold, double value) : threshold_(threshold), value_(value) {}
  GRADUS_ARG(double, threshold);
  GRADUS_ARG(double, value);
  GRADUS_ARG(bool, inplace) = false;
};
/// x where x > threshold, else value.
struct ThresholdImpl : detail::PlainLayer<ThresholdImpl, ThresholdOptions> {
  using PlainLayer::PlainLayer;
  ThresholdImpl(double threshold, double value) : PlainLayer(ThresholdOptions(threshold, value)) {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Threshold);

/// 1 / (1 + exp(-x)).
struct SigmoidImpl : detail::PlainLayer<SigmoidImpl> {
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Sigmoid);

/// log(sigmoid(x)), computed without overflow.
struct LogSigmoidImpl : detail::PlainLayer<LogSigmoidImpl> {
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(LogSigmoid);

struct TanhImpl : detail::PlainLayer<TanhImpl> {
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Tanh);

struct GLUOptions {
  GLUOptions(int64_t dim = -1) : dim_(dim) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, dim);
};
/// a sigmoid(b), where a and b are the halves of x along dim.
struct GLUImpl : detail::PlainLayer<GLUImpl, GLUOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(GLU);

struct SoftmaxOptions {
  SoftmaxOptions(int64_t dim) : dim_(dim) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, dim);
};
using LogSoftmaxOptions = SoftmaxOptions;
using SoftminOptions = SoftmaxOptions;

/// exp(x) / sum(exp(x)) along dim.
struct SoftmaxImpl : detail::PlainLayer<SoftmaxImpl, SoftmaxOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Softmax);

/// softmax(-x) along dim.
struct SoftminImpl : detail::PlainLayer<SoftminImpl, SoftminOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Softmin);

/// log(softmax(x)) along dim, computed without overflow.
struct LogSoftmaxImpl : detail::PlainLayer<LogSoftmaxImpl, LogSoftmaxOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(LogSoftmax);

/// Softmax over the channels of images (N, C, H, W) or (C, H, W).
struct Softmax2dImpl : detail::PlainLayer<Softmax2dImpl> {
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Softmax2d);

struct PReLUOptions {
  PReLUOptions(int64_t num_parameters = 1) : num_parameters_(num_parameters) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, num_parameters);
  GRADUS_ARG(double, init) = 0.25;
};
/// x for x > 0, else weight x. Parameter `weight` (num_parameters): one number, or one for each channel (dimension 1 of
/// x).
struct PReLUImpl : Cloneable<PReLUImpl> {
  explicit PReLUImpl(const PReLUOptions& options_ = {}) : options(options_) { PReLUImpl::reset(); }
  void reset() override;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  PReLUOptions options;
  Tensor weight;
};
GRADUS_MODULE(PReLU);

}  // namespace gradus::nn
