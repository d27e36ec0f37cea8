// Running sums and products, and products. Nothing is divided by elements, which may be 0: the gradient of a running
// product is the product of the elements before an element, times a linear recurrence over the elements after it.
#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/axes.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/ops/reduce.h>

namespace gradus {
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
  Grads backward(const Tensor& dy) override {  // the sum of the gradients of all sums that contain an element
    OpScope op("cumsum_backward", Loc{});
    return {apply<CumSum>(op, dy, axis, !reverse, dy.dtype())};
  }
};

// y[k] = b[k] + a[k] y[k - 1], or y[k + 1] if `reverse`. Its gradient is also a linear recurrence, in the other
// direction:
// db[k] = dy[k] + a[k + 1] db[k + 1],  da[k] = db[k] y[k - 1]
struct LinearRecurrence final : Node {
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
  bool backward_in_float32() const override { return true; }
  Grads backward(const Tensor& dy) override {
    OpScope op("linear_recurrence_backward", Loc{});
    const Tensor db = apply<LinearRecurrence>(op, shifted(a(), axis, !reverse, 0), dy, axis, !reverse);
    return {needs_grad(0) ? db * shifted(y(), axis, reverse, 0) : Tensor(), db};
  }
};

// y[k] = x[0] … x[k], or x[k] … x[n - 1] if `reverse`. dx[k] = y[k - 1] r[k] with r[k] = dy[k] + x[k + 1] r[k + 1].
struct CumProd final : Node {
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
  bool backward_in_float32() const override { return true; }
  Grads backward(const Tensor& dy) override {
    if (dy.numel() == 0) return {dy};
    if (dy.dim() == 0) return {dy};
    OpScope op("cumprod_backward", Loc{});
    const Tensor next = shifted(x().to(dy.dtype()), axis, !reverse, 0);
    return {shifted(y(), axis, reverse, 1) * apply<LinearRecurrence>(op, next, dy, axis, !reverse)};
  }
};

// The product along an axis. dx is dy times the product of the elements before and the product of those after an
// element.
struct Prod final : Node {
  Saved x{this, "x"};
  int axis = 0;
  Array forward(const Array& X, int axis, bool keepdim, DType dtype) {
    this->axis = axis;
    if (needs_grad(0)) x = input(0);
    return ops::reduce(ReduceOp::prod, X, 1u << axis, keepdim, dtype);
  }
  bool backward_in_float32() const override { return true; }
  Grads backward(const Tensor& dy) override {
    const Tensor X = x().to(dy.dtype());
    if (X.numel() == 0) return {zeros_like(X)};
    Shape kept = X.sizes();
    kept[axis] = 1;
    OpScope op("prod_backward", Loc{});
    const Tensor before = shifted(apply<CumProd>(op, X, axis, false, X.dtype()), axis, false, 1);
    const Tensor behind = shifted(apply<CumProd>(op, X, axis, true, X.dtype()), axis, true, 1);
    return {dy.reshape(kept) * (before * behind)};
  }
};

DType total_type(const OpScope& op, const Tensor& x, std::optional<DType> dtype) {
  return dtype.value_or(ops::sum_type(op.type_of(x)));
}

}  // namespace

Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype, Loc where) {
  OpScope op("cumsum", where);
  return apply<CumSum>(op, x, axis_of(x, dim), false, total_type(op, x, dtype));
}

Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype, Loc where) {
  OpScope op("cumprod", where);
  return apply<CumProd>(op, x, axis_of(x, dim), false, total_type(op, x, dtype));
}

Tensor prod(const Tensor& x, std::optional<DType> dtype, Loc where) {
  OpScope op("prod", where);
  return apply<Prod>(op, x.reshape({-1}), 0, false, total_type(op, x, dtype));
}

Tensor prod(const Tensor& x, int64_t dim, bool keepdim, std::optional<DType> dtype, Loc where) {
  OpScope op("prod", where);
  const int axis = axis_of(x, dim);
  if (x.dim() == 0) return prod(x, dtype, where);
  return apply<Prod>(op, x, axis, keepdim, total_type(op, x, dtype));
}

}  // namespace gradus
