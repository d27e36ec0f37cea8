// Variances, norms and logsumexp.
#include <cmath>

#include <gradus/autograd/composed.h>
#include <gradus/autograd/ops/axes.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/reduce.h>
#include <gradus/core/unary_ops.h>

namespace gradus {
namespace {

// d(variance) / dx = 2 (x - mean) / (count - correction), times dy
Tensor variance_backward(const Tensor& dy, const Tensor& x, uint32_t mask, double correction) {
  const Tensor mean = mask ? x.mean(axes_of(mask), true) : x;
  const double count = static_cast<double>(numel_of(x.sizes())) / static_cast<double>(std::max<int64_t>(dy.numel(), 1));
  return restore_axes(dy, x.sizes(), mask) * ((x - mean) * (2 / std::max(0.0, count - correction)));
}

struct Var final : Node {
  Saved x{this, "x"};
  uint32_t mask = 0;
  double correction = 1;
  Array forward(const Array& X, uint32_t axes, bool keepdim, double correction) {
    mask = axes, this->correction = correction;
    if (needs_grad(0)) x = input(0);
    return ops::variance(X, axes, keepdim, correction);
  }
  Grads backward(const Tensor& dy) override { return {variance_backward(dy, x(), mask, correction)}; }
};

struct Std final : Node {  // the root of the variance; its gradient at 0 is defined as 0
  Saved x{this, "x"}, y{this, "y"};
  uint32_t mask = 0;
  double correction = 1;
  Array forward(const Array& X, uint32_t axes, bool keepdim, double correction) {
    mask = axes, this->correction = correction;
    if (needs_grad(0)) x = input(0);
    Array Y = ops::deviation(X, axes, keepdim, correction);
    if (needs_grad(0)) y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor Y = y();
    return {variance_backward(where(Y == 0, 0.0, dy / (Y * 2)), x(), mask, correction)};
  }
};

struct Norm final : Node {  // y = (sum |x|^p)^(1/p), p finite
  Saved x{this, "x"}, y{this, "y"};
  uint32_t mask = 0;
  double p = 2;
  Array forward(const Array& X, double p, uint32_t axes, bool keepdim) {
    mask = axes, this->p = p;
    if (needs_grad(0)) x = input(0);
    Array Y = ops::norm(X, p, axes, keepdim);
    if (needs_grad(0)) y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {  // dx = dy sign(x) |x|^(p - 1) y^(1 - p); 0 where y or x is 0
    const Tensor X = x(), Y = y();
    if (p == 0) return {zeros_like(X)};
    if (p == 2) return {X * restore_axes(where(Y == 0, 0.0, dy / Y), X.sizes(), mask)};
    const Tensor scale = restore_axes(where(Y == 0, 0.0, dy * Y.pow(1 - p)), X.sizes(), mask);
    const Tensor power = sign(X) * abs(X).pow(p - 1);
    return {(p < 1 ? where(X == 0, 0.0, power) : power) * scale};
  }
};

struct LogSumExp final : Node {  // dx = dy exp(x - y), the softmax
  Saved x{this, "x"}, y{this, "y"};
  uint32_t mask = 0;
  Array forward(const Array& X, uint32_t axes, bool keepdim) {
    mask = axes;
    if (needs_grad(0)) x = input(0);
    Array Y = ops::logsumexp(X, axes, keepdim);
    if (needs_grad(0)) y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor X = x(), Y = y(), finite = where(Y == -HUGE_VAL, 0.0, Y);  // 0, not NaN, if all elements are -infinity
    return {restore_axes(dy, X.sizes(), mask) * exp(X - restore_axes(finite, X.sizes(), mask))};
  }
};

template <class N>
Tensor deviation(const char* name, const Tensor& x, IntArrayRef dim, std::optional<Scalar> correction, bool keepdim,
                 Loc where) {
  OpScope op(name, where);
  const uint32_t mask = axis_mask(dim, static_cast<int>(x.dim()));
  const double by = correction.value_or(1).to_double();
  return composed(
      op, [&](const Tensor& x) { return apply<N>(op, x, mask, keepdim, by); }, x);
}

}  // namespace

Tensor var(const Tensor& x, IntArrayRef dim, std::optional<Scalar> correction, bool keepdim, Loc where) {
  return deviation<Var>("var", x, dim, correction, keepdim, where);
}
Tensor std(const Tensor& x, IntArrayRef dim, std::optional<Scalar> correction, bool keepdim, Loc where) {
  return deviation<Std>("std", x, dim, correction, keepdim, where);
}
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, IntArrayRef dim, std::optional<Scalar> correction, bool keepdim,
                                    Loc where) {
  OpScope op("var_mean", where);
  return composed(
      op,
      [&](const Tensor& x) {
        return std::tuple{var(x, dim, correction, keepdim), mean(x, dim, keepdim)};
      },
      x);
}
std::tuple<Tensor, Tensor> std_mean(const Tensor& x, IntArrayRef dim, std::optional<Scalar> correction, bool keepdim,
                                    Loc where) {
  OpScope op("std_mean", where);
  const auto both = [&](const Tensor& x) {
    return std::tuple{gradus::std(x, dim, correction, keepdim), mean(x, dim, keepdim)};
  };
  return composed(op, both, x);
}

Tensor norm(const Tensor& x, std::optional<Scalar> p, IntArrayRef dim, bool keepdim, std::optional<DType> dtype,
            Loc where) {
  OpScope op("norm", where);
  if (dtype) return norm(x.to(*dtype), p, dim, keepdim, {}, where);
  const double order = p.value_or(2).to_double();
  GRADUS_CHECK(!std::isnan(order), ValueError, "p must be a number, got NaN");
  GRADUS_CHECK(is_floating(x.dtype()), DTypeError, "the tensor must be of a floating type, got ", x.dtype(),
               "; convert with .to(kFloat)");
  if (std::isinf(order)) return order > 0 ? amax(abs(x), dim, keepdim) : amin(abs(x), dim, keepdim);
  if (order == 1) return sum(abs(x), dim, keepdim);
  const uint32_t mask = axis_mask(dim, static_cast<int>(x.dim()));
  return composed(
      op, [&](const Tensor& x) { return apply<Norm>(op, x, order, mask, keepdim); }, x);
}

Tensor logsumexp(const Tensor& x, IntArrayRef dim, bool keepdim, Loc where) {
  OpScope op("logsumexp", where);
  const uint32_t mask = axis_mask(dim, static_cast<int>(x.dim()));
  return composed(
      op, [&](const Tensor& x) { return apply<LogSumExp>(op, x, mask, keepdim); }, x);
}

}  // namespace gradus
