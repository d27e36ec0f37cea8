#include <gradus/autograd/ops/reduce.h>

#include <cmath>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

// Base of the nodes that save x for backward. Most also save their result.
struct Reduction : ComposedNode {
  Saved x{this, "x"}, y{this, "y"};
  uint32_t mask = 0;
  Array keep(uint32_t axes, Array Y, bool keeps_result = true) {
    mask = axes;
    if (needs_grad(0)) x = input(0);
    if (needs_grad(0) && keeps_result) y = own(Y);
    return Y;
  }
};

struct Sum final : Node {  // the sum or the mean
  Shape shape;
  uint32_t mask = 0;
  ReduceOp op = ReduceOp::sum;
  const char* name() const override { return op == ReduceOp::sum ? "Sum" : "Mean"; }
  Array forward(const Array& x, ReduceOp kind, uint32_t axes, bool keepdim, DType dtype) {
    op = kind, shape = x.shape(), mask = axes;
    return ops::reduce(op, x, axes, keepdim, dtype);
  }
  Grads backward(const Tensor& dy) override {
    const Tensor dx = restore_axes(dy, shape, mask);
    if (op == ReduceOp::sum) return {dx.expand(shape)};
    const double count = static_cast<double>(numel_of(shape)) / static_cast<double>(std::max<int64_t>(dy.numel(), 1));
    return {(dx / count).expand(shape)};
  }
};

struct ExtremeOver final : Reduction {  // max(), min(), amax, amin: equal extremes share the gradient
  Array forward(const Array& X, ReduceOp op, uint32_t axes, bool keepdim) {
    return keep(axes, ops::reduce(op, X, axes, keepdim, X.dtype()));
  }
  Grads backward(const Tensor& dy) override {
    const Tensor X = x().detach(), hit = (X == restore_axes(y().detach(), X.sizes(), mask)).to(dy.dtype());
    const Tensor count = mask ? hit.sum(axes_of(mask), true) : hit;
    return {hit * (restore_axes(dy, X.sizes(), mask) / count)};
  }
};

struct ExtremeAlong final : Node {  // max(dim) and min(dim): the gradient goes to the element at the index
  Saved indices{this, "indices"};
  Shape shape;
  int axis = 0;
  std::tuple<Array, Array> forward(const Array& x, ArgReduceOp op, int along, bool keepdim) {
    shape = x.shape(), axis = along;
    auto result = ops::arg_reduce(op, x, along, keepdim);
    indices = std::get<1>(result);
    return result;
  }
  Grads backward(const Tensor& dy) override {
    if (shape.empty()) return {dy};
    Shape column = Dims::filled(shape.size(), 1);
    column[axis] = shape[axis];
    const Tensor position = arange(shape[axis], dy.options().dtype(kLong)).view(column);
    const Tensor hit = restore_axes(indices(), shape, 1u << axis) == position;
    return {where(hit, restore_axes(dy, shape, 1u << axis), 0.0)};
  }
};

Tensor run_extreme(const char* name, ReduceOp op, const Tensor& x, IntArrayRef dim, bool keepdim, Loc where) {
  OpScope scope(name, where);
  return apply<ExtremeOver>(scope, x, op, axis_mask(dim, ndim_of(x)), keepdim);
}

// all or any
Tensor run_logical(const char* name, ReduceOp op, const Tensor& x, std::optional<int64_t> dim, bool keepdim,
                   Loc where) {
  OpScope scope(name, where);
  const uint32_t mask = axis_mask(dim ? Dims{*dim} : Dims(), ndim_of(x));
  return Tensor(ops::reduce(op, x.array(), mask, keepdim, DType::boolean));
}

// The type of sums and products: `dtype` if it is given.
DType total_type(const OpScope& op, const Tensor& x, std::optional<DType> dtype) {
  return dtype.value_or(ops::sum_type(op.type_of(x)));
}

Tensor run_arg(const char* name, ArgReduceOp op, const Tensor& x, std::optional<int64_t> dim, bool keepdim, Loc where) {
  OpScope scope(name, where);
  GRADUS_CHECK(x.numel() > 0 || dim, ShapeError, "maximum or minimum of no elements: shape ", x.sizes());
  if (dim) return Tensor(std::get<1>(ops::arg_reduce(op, x.array(), axis_of(x, *dim), keepdim)));
  const Array index = std::get<1>(ops::arg_reduce(op, ops::reshape(x.array(), {-1}), 0, false));
  return Tensor(keepdim ? index.view(Dims::filled(ndim_of(x), 1)) : index);
}

}  // namespace

Tensor Tensor::sum(IntArrayRef dim, bool keepdim, std::optional<DType> dtype, Loc where) const {
  OpScope op("sum", where);
  return apply<Sum>(op, *this, ReduceOp::sum, axis_mask(dim, ndim_of(*this)), keepdim, total_type(op, *this, dtype));
}

Tensor Tensor::mean(IntArrayRef dim, bool keepdim, std::optional<DType> dtype, Loc where) const {
  OpScope op("mean", where);
  return apply<Sum>(op, *this, ReduceOp::mean, axis_mask(dim, ndim_of(*this)), keepdim,
                    dtype.value_or(op.type_of(*this)));
}

Tensor max(const Tensor& x, Loc where) { return run_extreme("max", ReduceOp::max, x, {}, false, where); }
Tensor min(const Tensor& x, Loc where) { return run_extreme("min", ReduceOp::min, x, {}, false, where); }
Tensor amax(const Tensor& x, IntArrayRef dim, bool keepdim, Loc where) {
  return run_extreme("amax", ReduceOp::max, x, dim, keepdim, where);
}
Tensor amin(const Tensor& x, IntArrayRef dim, bool keepdim, Loc where) {
  return run_extreme("amin", ReduceOp::min, x, dim, keepdim, where);
}
TensorPair Tensor::max(int64_t dim, bool keepdim, Loc where) const {
  OpScope op("max", where);
  return apply<ExtremeAlong>(op, *this, ArgReduceOp::argmax, axis_of(*this, dim), keepdim);
}
TensorPair Tensor::min(int64_t dim, bool keepdim, Loc where) const {
  OpScope op("min", where);
  return apply<ExtremeAlong>(op, *this, ArgReduceOp::argmin, axis_of(*this, dim), keepdim);
}
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim, Loc where) const {
  return run_arg("argmax", ArgReduceOp::argmax, *this, dim, keepdim, where);
}
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim, Loc where) const {
  return run_arg("argmin", ArgReduceOp::argmin, *this, dim, keepdim, where);
}
Tensor Tensor::all(std::optional<int64_t> dim, bool keepdim, Loc where) const {
  return run_logical("all", ReduceOp::all, *this, dim, keepdim, where);
}
Tensor Tensor::any(std::optional<int64_t> dim, bool keepdim, Loc where) const {
  return run_logical("any", ReduceOp::any, *this, dim, keepdim, where);
}

Tensor count_nonzero(const Tensor& x, IntArrayRef dim, Loc where) {
  OpScope op("count_nonzero", where);
  return sum(x != 0, dim);
}

// ---- Variances, norms and logsumexp ----

namespace {

struct Variance final : Reduction {  // the variance, or its root, whose gradient at 0 is defined as 0
  double correction = 1;
  bool root = false;
  const char* name() const override { return root ? "Std" : "Var"; }
  Array forward(const Array& X, bool of_root, uint32_t axes, bool keepdim, double by) {
    root = of_root, correction = by;
    return keep(axes, root ? ops::deviation(X, axes, keepdim, by) : ops::variance(X, axes, keepdim, by), root);
  }
  Grads backward(const Tensor& dy) override {  // d(variance) / dx = 2 (x - mean) / (count - correction)
    const Tensor X = x(), dvariance = root ? where(y() == 0, 0.0, dy / (y() * 2)) : dy;
    const Tensor mean = mask ? X.mean(axes_of(mask), true) : X;
    const double count = static_cast<double>(X.numel()) / static_cast<double>(std::max<int64_t>(dy.numel(), 1));
    return {restore_axes(dvariance, X.sizes(), mask) * ((X - mean) * (2 / std::max(0.0, count - correction)))};
  }
};

struct Norm final : Reduction {  // y = (sum |x|^p)^(1/p), p finite
  double p = 2;
  Array forward(const Array& X, double order, uint32_t axes, bool keepdim) {
    p = order;
    return keep(axes, ops::norm(X, p, axes, keepdim));
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

struct LogSumExp final : Reduction {  // dx = dy exp(x - y), where exp(x - y) is the softmax of x
  Array forward(const Array& X, uint32_t axes, bool keepdim) { return keep(axes, ops::logsumexp(X, axes, keepdim)); }
  Grads backward(const Tensor& dy) override {
    const Tensor X = x(), Y = y(), finite = where(Y == -HUGE_VAL, 0.0, Y);  // 0, not NaN, if all elements are -infinity
    return {restore_axes(dy, X.sizes(), mask) * exp(X - restore_axes(finite, X.sizes(), mask))};
  }
};

Tensor deviation(bool root, const Tensor& x, IntArrayRef dim, std::optional<Scalar> correction, bool keepdim,
                 Loc where) {
  OpScope op(root ? "std" : "var", where);
  const uint32_t mask = axis_mask(dim, ndim_of(x));
  const double by = correction.value_or(1).to_double();
  return composed(
      op, [&](const Tensor& x) { return apply<Variance>(op, x, root, mask, keepdim, by); }, x);
}

// (variance or deviation, mean)
TensorPair deviation_and_mean(bool root, const Tensor& x, IntArrayRef dim, std::optional<Scalar> correction,
                              bool keepdim, Loc where) {
  OpScope op(root ? "std_mean" : "var_mean", where);
  const auto both = [&](const Tensor& x) {
    return std::tuple{deviation(root, x, dim, correction, keepdim, where), mean(x, dim, keepdim)};
  };
  return composed(op, both, x);
}

}  // namespace

Tensor Tensor::var(IntArrayRef dim, std::optional<Scalar> correction, bool keepdim, Loc where) const {
  return deviation(false, *this, dim, correction, keepdim, where);
}
Tensor Tensor::std(IntArrayRef dim, std::optional<Scalar> correction, bool keepdim, Loc where) const {
  return deviation(true, *this, dim, correction, keepdim, where);
}
TensorPair var_mean(const Tensor& x, IntArrayRef dim, std::optional<Scalar> correction, bool keepdim, Loc where) {
  return deviation_and_mean(false, x, dim, correction, keepdim, where);
}
TensorPair std_mean(const Tensor& x, IntArrayRef dim, std::optional<Scalar> correction, bool keepdim, Loc where) {
  return deviation_and_mean(true, x, dim, correction, keepdim, where);
}

Tensor norm(const Tensor& x, std::optional<Scalar> p, IntArrayRef dim, bool keepdim, std::optional<DType> dtype,
            Loc where) {
  OpScope op("norm", where);
  if (dtype) return norm(x.to(*dtype), p, dim, keepdim);
  const double order = p.value_or(2).to_double();
  GRADUS_CHECK(!std::isnan(order), ValueError, "p must be a number, got NaN");
  GRADUS_CHECK(is_floating(x.dtype()), DTypeError, "the tensor must be of a floating type, got ", x.dtype(),
               "; convert with .to(kFloat)");
  if (std::isinf(order)) return order > 0 ? amax(abs(x), dim, keepdim) : amin(abs(x), dim, keepdim);
  if (order == 1) return sum(abs(x), dim, keepdim);
  const uint32_t mask = axis_mask(dim, ndim_of(x));
  return composed(
      op, [&](const Tensor& x) { return apply<Norm>(op, x, order, mask, keepdim); }, x);
}

Tensor logsumexp(const Tensor& x, IntArrayRef dim, bool keepdim, Loc where) {
  OpScope op("logsumexp", where);
  const uint32_t mask = axis_mask(dim, ndim_of(x));
  return composed(
      op, [&](const Tensor& x) { return apply<LogSumExp>(op, x, mask, keepdim); }, x);
}

// ---- Products, and running sums and products ----

namespace {

// y[k] = x[k - 1] with `fill` at the start, or, if `backwards`, y[k] = x[k + 1] with `fill` at the end.
Tensor shifted(const Tensor& x, int axis, bool backwards, double fill) {
  const int64_t size = x.size(axis);
  const Tensor edge = full_like(x.narrow(axis, 0, 1).detach(), fill);
  const Tensor rest = x.narrow(axis, backwards ? 1 : 0, size - 1);
  return backwards ? cat({rest, edge}, axis) : cat({edge, rest}, axis);
}

struct CumSum final : Node {
  int axis = 0;
  bool reverse = false;
  Array forward(const Array& x, int axis, bool reverse, DType dtype) {
    this->axis = axis, this->reverse = reverse;
    return ops::scan(ScanOp::sum, x, axis, reverse, dtype);
  }
  Grads backward(const Tensor& dy) override {  // dx[k] sums the dy of all partial sums that contain x[k]
    return {apply<CumSum>("cumsum_backward", dy, axis, !reverse, dy.dtype())};
  }
};

// y[k] = b[k] + a[k] y[k - 1], or y[k + 1] if `reverse`. Its gradient is also a linear recurrence, in the other
// direction. Without `reverse`:
// db[k] = dy[k] + a[k + 1] db[k + 1],  da[k] = db[k] y[k - 1]
struct LinearRecurrence final : ComposedNode {
  Saved a{this, "a"}, y{this, "y"};
  int axis = 0;
  bool reverse = false;
  Array forward(const Array& A, const Array& B, int axis, bool reverse) {
    this->axis = axis, this->reverse = reverse;
    a = input(0);
    Array Y = ops::linear_recurrence(A, B, axis, reverse);
    if (needs_grad(0)) y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {
    OpScope op("linear_recurrence_backward");
    const Tensor db = apply<LinearRecurrence>(op, shifted(a(), axis, !reverse, 0), dy, axis, !reverse);
    return {needs_grad(0) ? db * shifted(y(), axis, reverse, 0) : Tensor(), db};
  }
};

// y[k] = x[0] … x[k], or x[k] … x[n - 1] if `reverse`.
// Without `reverse`, dx[k] = y[k - 1] r[k] with r[k] = dy[k] + x[k + 1] r[k + 1] and y[-1] = 1; with it, the order of
// the elements is reversed.
struct CumProd final : ComposedNode {
  Saved x{this, "x"}, y{this, "y"};
  int axis = 0;
  bool reverse = false;
  Array forward(const Array& X, int axis, bool reverse, DType dtype) {
    this->axis = axis, this->reverse = reverse;
    if (needs_grad(0)) x = input(0);
    Array Y = ops::scan(ScanOp::prod, X, axis, reverse, dtype);
    if (needs_grad(0)) y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {
    if (dy.numel() == 0 || dy.dim() == 0) return {dy};
    OpScope op("cumprod_backward");
    const Tensor next = shifted(x().to(dy.dtype()), axis, !reverse, 0);
    return {shifted(y(), axis, reverse, 1) * apply<LinearRecurrence>(op, next, dy, axis, !reverse)};
  }
};

// The product along an axis. The gradient of an element is dy times the products of the elements before and after it.
struct Prod final : Reduction {
  int axis = 0;
  Array forward(const Array& X, int axis, bool keepdim, DType dtype) {
    this->axis = axis;
    return keep(1u << axis, ops::reduce(ReduceOp::prod, X, 1u << axis, keepdim, dtype), /*keeps_result=*/false);
  }
  Grads backward(const Tensor& dy) override {
    const Tensor X = x().to(dy.dtype());
    if (X.numel() == 0) return {zeros_like(X)};
    OpScope op("prod_backward");
    const Tensor before = shifted(apply<CumProd>(op, X, axis, false, X.dtype()), axis, false, 1);
    const Tensor behind = shifted(apply<CumProd>(op, X, axis, true, X.dtype()), axis, true, 1);
    return {restore_axes(dy, X.sizes(), mask) * (before * behind)};
  }
};

}  // namespace

Tensor Tensor::cumsum(int64_t dim, std::optional<DType> dtype, Loc where) const {
  OpScope op("cumsum", where);
  return apply<CumSum>(op, *this, axis_of(*this, dim), false, total_type(op, *this, dtype));
}

Tensor Tensor::cumprod(int64_t dim, std::optional<DType> dtype, Loc where) const {
  OpScope op("cumprod", where);
  return apply<CumProd>(op, *this, axis_of(*this, dim), false, total_type(op, *this, dtype));
}

Tensor prod(const Tensor& x, std::optional<DType> dtype, Loc where) {
  OpScope op("prod", where);
  return apply<Prod>(op, x.reshape({-1}), 0, false, total_type(op, x, dtype));
}

Tensor prod(const Tensor& x, int64_t dim, bool keepdim, std::optional<DType> dtype, Loc where) {
  OpScope op("prod", where);
  const int axis = axis_of(x, dim);
  if (x.dim() == 0) return prod(x, dtype);
  return apply<Prod>(op, x, axis, keepdim, total_type(op, x, dtype));
}

}  // namespace gradus
