#include <gradus/optim/clip_grad.h>

#include <cmath>

#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

namespace gradus::nn::utils {

namespace {

/// Returns the largest |x| if p is infinite, else the sum of |x|^p.
Array reduce_powers(const Array& x, double p) {
  const uint32_t all = (1u << x.ndim()) - 1;
  if (std::isinf(p)) return ops::reduce(ReduceOp::max, ops::unary(UnaryOp::abs, x), all, false, x.dtype());
  if (p == 2) return ops::sum(ops::binary(BinaryOp::mul, x, x), all);
  const Array size = ops::unary(UnaryOp::abs, x);
  return ops::sum(p == 1 ? size : ops::binary_scalar(BinaryOp::pow, size, p), all);
}

TensorList gradients_of(const TensorList& parameters) {
  TensorList gradients;
  for (const Tensor& parameter : parameters) {
    GRADUS_CHECK(parameter.defined(), ValueError, "a parameter is undefined");
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

}  // namespace

Tensor get_total_norm(const TensorList& tensors, double norm_type) {
  GRADUS_CHECK(norm_type > 0, ValueError, "norm_type must be positive or infinity, got ", norm_type);
  DType dtype = DType::f32;
  std::vector<Array> arrays;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    arrays.push_back(tensor.array());
    ops::check_floating(arrays.back(), "a tensor whose norm is computed");
    if (tensor.dtype() == DType::f64) dtype = DType::f64;
  }
  const Device device = arrays.empty() ? Device() : arrays[0].device();
  Array total = ops::zeros({}, dtype, device);
  for (const Array& x : arrays) {
    if (x.numel() == 0) continue;
    const Array part = ops::to_device(reduce_powers(ops::cast(x, dtype), norm_type), device);
    total = ops::binary(std::isinf(norm_type) ? BinaryOp::maximum : BinaryOp::add, total, part);
  }
  if (norm_type == 2) total = ops::unary(UnaryOp::sqrt, total);
  else if (norm_type != 1 && !std::isinf(norm_type)) total = ops::binary_scalar(BinaryOp::pow, total, 1 / norm_type);
  return Tensor(total);
}

void clip_grads_with_norm_(const TensorList& parameters, double max_norm, const Tensor& total_norm) {
  const OpContext context("clip_grads_with_norm_");
  GRADUS_CHECK(max_norm >= 0, ValueError, "max_norm must not be negative, got ", max_norm);
  GRADUS_CHECK(total_norm.defined() && total_norm.numel() == 1, ShapeError, "total_norm must be a single number");
  const Array divisor = ops::binary_scalar(BinaryOp::add, total_norm.array(), 1e-6);
  const Array ratio = ops::binary_scalar(BinaryOp::div, divisor, max_norm, /*scalar_first=*/true);
  const Array factor = ops::unary(UnaryOp::clamp, ratio, {-INFINITY, 1});
  for (const Tensor& gradient : gradients_of(parameters)) {
    const Array& x = gradient.array();
    const Array here = ops::to_device(factor, x.device());
    // If the types differ, the product is computed in the norm's type, so that the factor is not rounded.
    if (x.dtype() == here.dtype()) ops::binary(BinaryOp::mul, x, here, &x);
    else ops::copy_into(x, ops::binary(BinaryOp::mul, ops::cast(x, here.dtype()), here));
  }
}

Tensor clip_grad_norm_on_device_(const TensorList& parameters, double max_norm, double norm_type) {
  const OpContext context("clip_grad_norm_");
  const Tensor norm = get_total_norm(gradients_of(parameters), norm_type);
  clip_grads_with_norm_(parameters, max_norm, norm);
  return norm;
}

double clip_grad_norm_(const TensorList& parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
  const OpContext context("clip_grad_norm_");
  const Tensor norm = get_total_norm(gradients_of(parameters), norm_type);
  const double known = norm.item<double>();
  GRADUS_CHECK(!error_if_nonfinite || std::isfinite(known), ValueError, "the gradients' norm of order ", norm_type,
               " is ", known, ", so they cannot be clipped; without error_if_nonfinite they are scaled nevertheless");
  clip_grads_with_norm_(parameters, max_norm, norm);
  return known;
}

double clip_grad_norm_(const Tensor& parameter, double max_norm, double norm_type, bool error_if_nonfinite) {
  return clip_grad_norm_(TensorList{parameter}, max_norm, norm_type, error_if_nonfinite);
}

void clip_grad_value_(const TensorList& parameters, double clip_value) {
  const OpContext context("clip_grad_value_");
  GRADUS_CHECK(clip_value >= 0, ValueError, "clip_value must not be negative, got ", clip_value);
  for (const Tensor& gradient : gradients_of(parameters))
    ops::unary(UnaryOp::clamp, gradient.array(), {-clip_value, clip_value}, &gradient.array());
}

void clip_grad_value_(const Tensor& parameter, double clip_value) {
  clip_grad_value_(TensorList{parameter}, clip_value);
}

}  // namespace gradus::nn::utils
