#include <gradus/autograd/ops/reduce.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/reduce.h>
#include <gradus/core/ops/shape.h>

namespace gradus {
namespace {

// y, reduced over the axes of `mask`, with those axes back as size 1.
Tensor restore_axes(const Tensor& y, const Shape& x_shape, uint32_t mask) {
  return y.reshape(reduced_shape(x_shape, mask, true));
}

struct Sum final : Node {
  Shape shape;
  uint32_t mask = 0;
  Array forward(const Array& x, uint32_t axes, bool keepdim, DType dtype) {
    shape = x.shape(), mask = axes;
    return ops::reduce(ReduceOp::sum, x, axes, keepdim, dtype);
  }
  Grads backward(const Tensor& dy) override { return {restore_axes(dy, shape, mask).expand(shape)}; }
};

struct Mean final : Node {
  Shape shape;
  uint32_t mask = 0;
  Array forward(const Array& x, uint32_t axes, bool keepdim, DType dtype) {
    shape = x.shape(), mask = axes;
    return ops::reduce(ReduceOp::mean, x, axes, keepdim, dtype);
  }
  Grads backward(const Tensor& dy) override {
    const double count = static_cast<double>(numel_of(shape)) / static_cast<double>(std::max<int64_t>(dy.numel(), 1));
    return {(restore_axes(dy, shape, mask) / count).expand(shape)};
  }
};

struct ExtremeOfAll final : Node {  // max() and min(): equal extremes share the gradient
  Saved x{this, "x"}, y{this, "y"};
  Array forward(const Array& X, ReduceOp op) {
    if (needs_grad(0)) x = input(0);
    Array Y = ops::reduce(op, X, axis_mask({}, X.ndim()), false, X.dtype());
    if (needs_grad(0)) y = own(Y);
    return Y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor hit = (x().detach() == y().detach()).to(dy.dtype());
    return {hit * (dy / hit.sum())};
  }
};

struct ExtremeAlong final : Node {  // max(dim) and min(dim): the gradient goes to the index
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
    const Tensor position = arange(shape[axis], TensorOptions(kLong).device(dy.device())).view(column);
    const Tensor hit = restore_axes(indices(), shape, 1u << axis) == position;
    return {where(hit, restore_axes(dy, shape, 1u << axis), 0.0)};
  }
};

struct NotDifferentiable final : Node {  // argmax, all, any: integers and booleans
  Array forward(const Array& x, ReduceOp op) {
    return ops::reduce(op, x, axis_mask({}, x.ndim()), false, DType::boolean);
  }
  Array forward(const Array& x, ArgReduceOp op, std::optional<int64_t> dim, bool keepdim) {
    if (dim) return std::get<1>(ops::arg_reduce(op, x, normalize_axis(*dim, x.ndim()), keepdim));
    const Array index = std::get<1>(ops::arg_reduce(op, ops::reshape(x, {-1}), 0, false));
    return keepdim ? index.view(Dims::filled(x.ndim(), 1)) : index;
  }
};

int ndim_of(const Tensor& x) { return static_cast<int>(x.dim()); }

Tensor run_arg(const char* name, ArgReduceOp op, const Tensor& x, std::optional<int64_t> dim, bool keepdim, Loc where) {
  OpScope scope(name, where);
  GRADUS_CHECK(x.numel() > 0 || dim, ShapeError, "maximum or minimum of no elements: shape ", x.sizes());
  return apply<NotDifferentiable>(scope, x, op, dim, keepdim);
}

}  // namespace

Tensor sum(const Tensor& x, std::optional<DType> dtype, Loc where) {
  return sum(x, IntArrayRef(), false, dtype, where);
}
Tensor sum(const Tensor& x, IntArrayRef dim, bool keepdim, std::optional<DType> dtype, Loc where) {
  OpScope op("sum", where);
  return apply<Sum>(op, x, axis_mask(dim, ndim_of(x)), keepdim, dtype.value_or(ops::sum_type(x.dtype())));
}

Tensor mean(const Tensor& x, std::optional<DType> dtype, Loc where) {
  return mean(x, IntArrayRef(), false, dtype, where);
}
Tensor mean(const Tensor& x, IntArrayRef dim, bool keepdim, std::optional<DType> dtype, Loc where) {
  OpScope op("mean", where);
  return apply<Mean>(op, x, axis_mask(dim, ndim_of(x)), keepdim, dtype.value_or(x.dtype()));
}

Tensor max(const Tensor& x, Loc where) {
  OpScope op("max", where);
  return apply<ExtremeOfAll>(op, x, ReduceOp::max);
}
Tensor min(const Tensor& x, Loc where) {
  OpScope op("min", where);
  return apply<ExtremeOfAll>(op, x, ReduceOp::min);
}
std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim, Loc where) {
  OpScope op("max", where);
  return apply<ExtremeAlong>(op, x, ArgReduceOp::argmax, normalize_axis(dim, ndim_of(x)), keepdim);
}
std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim, Loc where) {
  OpScope op("min", where);
  return apply<ExtremeAlong>(op, x, ArgReduceOp::argmin, normalize_axis(dim, ndim_of(x)), keepdim);
}
Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim, Loc where) {
  return run_arg("argmax", ArgReduceOp::argmax, x, dim, keepdim, where);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim, Loc where) {
  return run_arg("argmin", ArgReduceOp::argmin, x, dim, keepdim, where);
}
Tensor all(const Tensor& x, Loc where) {
  OpScope op("all", where);
  return apply<NotDifferentiable>(op, x, ReduceOp::all);
}
Tensor any(const Tensor& x, Loc where) {
  OpScope op("any", where);
  return apply<NotDifferentiable>(op, x, ReduceOp::any);
}

}  // namespace gradus
