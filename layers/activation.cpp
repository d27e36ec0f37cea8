#include <gradus/layers/activation.h>

#include <gradus/autograd/ops/activation.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/loss.h>
#include <gradus/layers/module/layer_printer.h>

namespace gradus::nn {

Tensor ReLUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? x.relu_() : relu(x);
}
void ReLUImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "ReLU")("inplace", true, options.inplace());
}

Tensor ReLU6Impl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? relu6_(x) : relu6(x);
}
void ReLU6Impl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "ReLU6")("inplace", true, options.inplace());
}

Tensor LeakyReLUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? leaky_relu_(x, options.negative_slope()) : leaky_relu(x, options.negative_slope());
}
void LeakyReLUImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "LeakyReLU")("negative_slope", options.negative_slope())("inplace", true,
                                                                                        options.inplace());
}

Tensor RReLUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? rrelu_(x, options.lower(), options.upper(), is_training())
                           : rrelu(x, options.lower(), options.upper(), is_training());
}
void RReLUImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "RReLU")("lower", options.lower())("upper", options.upper())("inplace", true,
                                                                                            options.inplace());
}

Tensor ELUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? elu_(x, options.alpha()) : elu(x, options.alpha());
}
void ELUImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "ELU")("alpha", options.alpha())("inplace", true, options.inplace());
}

Tensor SELUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? selu_(x) : selu(x);
}
void SELUImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "SELU")("inplace", true, options.inplace());
}

Tensor CELUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? celu_(x, options.alpha()) : celu(x, options.alpha());
}
void CELUImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "CELU")("alpha", options.alpha())("inplace", true, options.inplace());
}

Tensor GELUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return gelu(x, options.approximate());
}
void GELUImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "GELU")("approximate", options.approximate(), options.approximate() != "none");
}

Tensor SiLUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return silu(x);
}
void SiLUImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "SiLU"); }

Tensor MishImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return mish(x);
}
void MishImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "Mish"); }

Tensor SoftplusImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return softplus(x, options.beta(), options.threshold());
}
void SoftplusImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "Softplus")("beta", options.beta())("threshold", options.threshold());
}

Tensor SoftsignImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return softsign(x);
}
void SoftsignImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "Softsign"); }

Tensor SoftshrinkImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return softshrink(x, options.lambda());
}
void SoftshrinkImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "Softshrink").value(options.lambda());
}

Tensor HardshrinkImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return hardshrink(x, options.lambda());
}
void HardshrinkImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "Hardshrink").value(options.lambda());
}

Tensor TanhshrinkImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return tanhshrink(x);
}
void TanhshrinkImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "Tanhshrink"); }

void HardtanhImpl::reset() {
  GRADUS_CHECK(options.max_val() > options.min_val(), ValueError, "Hardtanh from ", options.min_val(), " to ",
               options.max_val(), ": max_val must be greater than min_val");
}
Tensor HardtanhImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? hardtanh_(x, options.min_val(), options.max_val())
                           : hardtanh(x, options.min_val(), options.max_val());
}
void HardtanhImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "Hardtanh")("min_val", options.min_val())("max_val", options.max_val())(
      "inplace", true, options.inplace());
}

Tensor HardsigmoidImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return hardsigmoid(x);
}
void HardsigmoidImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "Hardsigmoid"); }

Tensor HardswishImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return hardswish(x);
}
void HardswishImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "Hardswish"); }

Tensor ThresholdImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? threshold_(x, options.threshold(), options.value())
                           : threshold(x, options.threshold(), options.value());
}
void ThresholdImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "Threshold")("threshold", options.threshold())("value", options.value())(
      "inplace", true, options.inplace());
}

Tensor SigmoidImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return sigmoid(x);
}
void SigmoidImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "Sigmoid"); }

Tensor LogSigmoidImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return log_sigmoid(x);
}
void LogSigmoidImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "LogSigmoid"); }

Tensor TanhImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return tanh(x);
}
void TanhImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "Tanh"); }

Tensor GLUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return glu(x, options.dim());
}
void GLUImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "GLU")("dim", options.dim()); }

Tensor SoftmaxImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return softmax(x, options.dim());
}
void SoftmaxImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "Softmax")("dim", options.dim());
}

Tensor SoftminImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return softmin(x, options.dim());
}
void SoftminImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "Softmin")("dim", options.dim());
}

Tensor LogSoftmaxImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return log_softmax(x, options.dim());
}
void LogSoftmaxImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "LogSoftmax")("dim", options.dim());
}

Tensor Softmax2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  GRADUS_CHECK(x.dim() == 3 || x.dim() == 4, ShapeError, "Softmax2d needs (N, C, H, W) or (C, H, W), got x of shape ",
               x.sizes());
  return softmax(x, -3);
}
void Softmax2dImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "Softmax2d"); }

void PReLUImpl::reset() {
  GRADUS_CHECK(options.num_parameters() > 0, ValueError, "PReLU with ", options.num_parameters(), " parameters");
  weight = register_parameter("weight", full({options.num_parameters()}, options.init(), kFloat));
}
Tensor PReLUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return prelu(x, weight);
}
void PReLUImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "PReLU")("num_parameters", options.num_parameters());
}

}  // namespace gradus::nn
