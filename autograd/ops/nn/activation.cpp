#include <gradus/autograd/ops/nn/activation.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/nn/loss.h>
#include <gradus/core/op_lists.h>

namespace gradus {
namespace {

// With these constants SELU maps inputs of mean 0 and variance 1 to outputs of mean 0 and variance 1 (Klambauer et al.
// 2017, equation 14).
constexpr double kSeluAlpha = 1.6732632423543772848170429916717, kSeluScale = 1.0507009873554804934193349852946;

void check_bounds(double min_val, double max_val) {
  GRADUS_CHECK(min_val <= max_val, ValueError, "min_val must not be larger than max_val, got ", min_val, " and ",
               max_val);
}

void check_alpha(double alpha) { GRADUS_CHECK(alpha != 0, ValueError, "alpha must not be 0: x is divided by it"); }

// The factors by which rrelu multiplies x in training: random for x <= 0, else 1.
Tensor random_slopes(const Tensor& x, double lower, double upper) {
  const NoGradGuard no_grad;
  return where(x > 0, 1.0, empty_like(x).uniform_(lower, upper));
}

}  // namespace

Tensor leaky_relu(const Tensor& x, double negative_slope, Loc where) {
  return unary("leaky_relu", UnaryOp::leaky_relu, x, where, {negative_slope});
}
Tensor elu(const Tensor& x, double alpha, double scale, double input_scale, Loc where) {
  OpScope op("elu", where);
  const auto plain = [&](const Tensor& x) { return unary("elu", UnaryOp::elu, x, where, {alpha, input_scale}); };
  const auto scaled = [&](const Tensor& x) { return plain(x) * scale; };
  return scale == 1 ? plain(x) : composed(op, scaled, x);
}
Tensor selu(const Tensor& x, Loc where) {
  OpScope op("selu", where);
  return elu(x, kSeluAlpha, kSeluScale);
}
Tensor celu(const Tensor& x, double alpha, Loc where) {
  const OpContext context("celu", where);
  check_alpha(alpha);
  return unary("celu", UnaryOp::elu, x, where, {alpha, 1 / alpha});
}
Tensor gelu(const Tensor& x, std::string_view approximate, Loc where) {
  const OpContext context("gelu", where);
  GRADUS_CHECK(approximate == "none" || approximate == "tanh", ValueError,
               "approximate must be 'none' or 'tanh', got '", approximate, "'");
  return unary("gelu", approximate == "tanh" ? UnaryOp::gelu_tanh : UnaryOp::gelu, x, where);
}
Tensor softplus(const Tensor& x, double beta, double threshold, Loc where) {
  const OpContext context("softplus", where);
  GRADUS_CHECK(beta != 0, ValueError, "beta must not be 0: the result is divided by it");
  return unary("softplus", UnaryOp::softplus, x, where, {beta, threshold});
}
Tensor softsign(const Tensor& x, Loc where) {
  return composed(
      {"softsign", where}, [](const Tensor& x) { return x / (1 + abs(x)); }, x);
}
Tensor hardtanh(const Tensor& x, double min_val, double max_val, Loc where) {
  const OpContext context("hardtanh", where);
  check_bounds(min_val, max_val);
  return unary("hardtanh", UnaryOp::hardtanh, x, where, {min_val, max_val});
}
Tensor relu6(const Tensor& x, Loc where) { return unary("relu6", UnaryOp::hardtanh, x, where, {0, 6}); }
Tensor hardsigmoid(const Tensor& x, Loc where) {
  return composed(
      {"hardsigmoid", where}, [](const Tensor& x) { return relu6(x + 3) / 6; }, x);
}
Tensor softshrink(const Tensor& x, double lambda, Loc at) {
  OpScope op("softshrink", at);
  GRADUS_CHECK(lambda >= 0, ValueError, "lambda must not be negative, got ", lambda);
  // `where` keeps the gradient of x - clamp(x) out of the interval where the result is 0. Without it, an infinite dy
  // would give inf - inf there.
  const auto shrunk = [lambda](const Tensor& x) {
    return where((x >= -lambda).logical_and(x <= lambda), 0.0, x - clamp(x, -lambda, lambda));
  };
  return composed(op, shrunk, x);
}
Tensor hardshrink(const Tensor& x, double lambda, Loc at) {
  OpScope op("hardshrink", at);
  return where((x >= -lambda).logical_and(x <= lambda), 0.0, x);
}
Tensor tanhshrink(const Tensor& x, Loc where) {
  return composed(
      {"tanhshrink", where}, [](const Tensor& x) { return x - tanh(x); }, x);
}
Tensor threshold(const Tensor& x, double threshold, double value, Loc at) {
  OpScope op("threshold", at);
  return where(x <= threshold, value, x);
}

Tensor prelu(const Tensor& x, const Tensor& weight, Loc at) {
  OpScope op("prelu", at);
  const int64_t channels = x.dim() > 1 ? x.size(1) : 1;
  GRADUS_CHECK(weight.dim() <= 1 && (weight.numel() == 1 || weight.numel() == channels), ShapeError,
               "weight must have one element or one for each of the ", channels, " channels of x of shape ", x.sizes(),
               ", got shape ", weight.sizes());
  Shape shape = Dims::filled(ndim_of(x), 1);
  if (x.dim() > 1) shape[1] = weight.numel();
  return where(x > 0, x, weight.reshape(shape) * x);
}

Tensor rrelu(const Tensor& x, double lower, double upper, bool training, Loc where) {
  OpScope op("rrelu", where);
  GRADUS_CHECK(lower <= upper, ValueError, "lower must not be larger than upper, got ", lower, " and ", upper);
  if (!training) return leaky_relu(x, (lower + upper) / 2);
  return composed(
      op, [&](const Tensor& x) { return x * random_slopes(x, lower, upper); }, x);
}

Tensor glu(const Tensor& x, int64_t dim, Loc where) {
  OpScope op("glu", where);
  GRADUS_CHECK(x.dim() > 0, ShapeError, "glu needs a dimension to halve, got a scalar");
  const int64_t size = x.size(dim);
  GRADUS_CHECK(size % 2 == 0, ShapeError, "dimension ", dim, " of shape ", x.sizes(),
               " cannot be halved: its size is odd");
  const auto gated = [&](const Tensor& x) {
    return x.narrow(dim, 0, size / 2) * sigmoid(x.narrow(dim, size / 2, size / 2));
  };
  return composed(op, gated, x);
}

Tensor softmin(const Tensor& x, int64_t dim, Loc where) {
  OpScope op("softmin", where);
  return softmax(-x, dim);
}

// ---- In place ----

const Tensor& leaky_relu_(const Tensor& x, double negative_slope, Loc where) {
  return unary_("leaky_relu_", UnaryOp::leaky_relu, x, where, {negative_slope});
}
const Tensor& elu_(const Tensor& x, double alpha, double scale, double input_scale, Loc where) {
  OpScope op("elu_", where);
  if (scale != 1 && is_half(x.dtype())) return x.copy_(elu(x, alpha, scale, input_scale));
  unary_("elu_", UnaryOp::elu, x, where, {alpha, input_scale});
  return scale == 1 ? x : x.mul_(scale);
}
const Tensor& selu_(const Tensor& x, Loc where) {
  OpScope op("selu_", where);
  return elu_(x, kSeluAlpha, kSeluScale);
}
const Tensor& celu_(const Tensor& x, double alpha, Loc where) {
  const OpContext context("celu_", where);
  check_alpha(alpha);
  return unary_("celu_", UnaryOp::elu, x, where, {alpha, 1 / alpha});
}
const Tensor& silu_(const Tensor& x, Loc where) { return unary_("silu_", UnaryOp::silu, x, where); }
const Tensor& mish_(const Tensor& x, Loc where) { return unary_("mish_", UnaryOp::mish, x, where); }
const Tensor& hardtanh_(const Tensor& x, double min_val, double max_val, Loc where) {
  const OpContext context("hardtanh_", where);
  check_bounds(min_val, max_val);
  return unary_("hardtanh_", UnaryOp::hardtanh, x, where, {min_val, max_val});
}
const Tensor& relu6_(const Tensor& x, Loc where) { return unary_("relu6_", UnaryOp::hardtanh, x, where, {0, 6}); }
const Tensor& hardsigmoid_(const Tensor& x, Loc where) {
  OpScope op("hardsigmoid_", where);
  return is_half(x.dtype()) ? x.copy_(hardsigmoid(x)) : relu6_(x.add_(3)).div_(6);
}
const Tensor& hardswish_(const Tensor& x, Loc where) { return unary_("hardswish_", UnaryOp::hardswish, x, where); }
const Tensor& threshold_(const Tensor& x, double threshold, double value, Loc where) {
  OpScope op("threshold_", where);
  return x.copy_(gradus::threshold(x, threshold, value));
}
const Tensor& rrelu_(const Tensor& x, double lower, double upper, bool training, Loc where) {
  OpScope op("rrelu_", where);
  GRADUS_CHECK(lower <= upper, ValueError, "lower must not be larger than upper, got ", lower, " and ", upper);
  if (training && is_half(x.dtype())) return x.copy_(rrelu(x, lower, upper, true));
  return training ? x.mul_(random_slopes(x, lower, upper)) : leaky_relu_(x, (lower + upper) / 2);
}

}  // namespace gradus
