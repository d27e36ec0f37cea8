#include <gradus/autograd/ops/reduce.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/axes.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/reduce.h>
#include <gradus/core/ops/shape.h>

namespace gradus {
namespace {

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

struct ExtremeOver final : Node {  // max(), min(), amax, amin: equal extremes share the gradient
  Saved x{this, "x"}, y{this, "y"};
  uint32_t mask = 0;
  Array forward(const Array& X, ReduceOp op, uint32_t axes, bool keepdim) {
    mask = axes;
    if (needs_grad(0)) x = input(0);
    Array Y = ops::reduce(op, X, axes, keepdim, X.dtype());
    if (needs_grad(0)) y = own(Y);
    return Y;
  }
  bool backward_in_float32() const override { return true; }
  Grads backward(const Tensor& dy) override {
    const Tensor X = x().detach(), hit = (X == restore_axes(y().detach(), X.sizes(), mask)).to(dy.dtype());
    const Tensor count = mask ? hit.sum(axes_of(mask), true) : hit;
    return {hit * (restore_axes(dy, X.sizes(), mask) / count)};
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

struct NotDifferentiableReduction final : Node {  // argmax, all, any: integers and booleans
  Array forward(const Array& x, ReduceOp op, uint32_t axes, bool keepdim) {
    return ops::reduce(op, x, axes, keepdim, DType::boolean);
  }
  Array forward(const Array& x, ArgReduceOp op, std::optional<int64_t> dim, bool keepdim) {
    if (dim) return std::get<1>(ops::arg_reduce(op, x, normalize_axis(*dim, x.ndim()), keepdim));
    const Array index = std::get<1>(ops::arg_reduce(op, ops::reshape(x, {-1}), 0, false));
    return keepdim ? index.view(Dims::filled(x.ndim(), 1)) : index;
  }
};

int ndim_of(const Tensor& x) { return static_cast<int>(x.dim()); }

template <class N>
Tensor reduce(const char* name, ReduceOp op, const Tensor& x, IntArrayRef dim, bool keepdim, Loc where) {
  OpScope scope(name, where);
  return apply<N>(scope, x, op, axis_mask(dim, ndim_of(x)), keepdim);
}

Tensor run_arg(const char* name, ArgReduceOp op, const Tensor& x, std::optional<int64_t> dim, bool keepdim, Loc where) {
  OpScope scope(name, where);
  GRADUS_CHECK(x.numel() > 0 || dim, ShapeError, "maximum or minimum of no elements: shape ", x.sizes());
  return apply<NotDifferentiableReduction>(scope, x, op, dim, keepdim);
}

}  // namespace

Tensor sum(const Tensor& x, std::optional<DType> dtype, Loc where) {
  return sum(x, IntArrayRef(), false, dtype, where);
}
Tensor sum(const Tensor& x, IntArrayRef dim, bool keepdim, std::optional<DType> dtype, Loc where) {
  OpScope op("sum", where);
  return apply<Sum>(op, x, axis_mask(dim, ndim_of(x)), keepdim, dtype.value_or(ops::sum_type(op.type_of(x))));
}

Tensor mean(const Tensor& x, std::optional<DType> dtype, Loc where) {
  return mean(x, IntArrayRef(), false, dtype, where);
}
Tensor mean(const Tensor& x, IntArrayRef dim, bool keepdim, std::optional<DType> dtype, Loc where) {
  OpScope op("mean", where);
  return apply<Mean>(op, x, axis_mask(dim, ndim_of(x)), keepdim, dtype.value_or(op.type_of(x)));
}

Tensor max(const Tensor& x, Loc where) { return reduce<ExtremeOver>("max", ReduceOp::max, x, {}, false, where); }
Tensor min(const Tensor& x, Loc where) { return reduce<ExtremeOver>("min", ReduceOp::min, x, {}, false, where); }
Tensor amax(const Tensor& x, IntArrayRef dim, bool keepdim, Loc where) {
  return reduce<ExtremeOver>("amax", ReduceOp::max, x, dim, keepdim, where);
}
Tensor amin(const Tensor& x, IntArrayRef dim, bool keepdim, Loc where) {
  return reduce<ExtremeOver>("amin", ReduceOp::min, x, dim, keepdim, where);
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
  return reduce<NotDifferentiableReduction>("all", ReduceOp::all, x, {}, false, where);
}
Tensor any(const Tensor& x, Loc where) {
  return reduce<NotDifferentiableReduction>("any", ReduceOp::any, x, {}, false, where);
}
Tensor all(const Tensor& x, int64_t dim, bool keepdim, Loc where) {
  return reduce<NotDifferentiableReduction>("all", ReduceOp::all, x, {dim}, keepdim, where);
}
Tensor any(const Tensor& x, int64_t dim, bool keepdim, Loc where) {
  return reduce<NotDifferentiableReduction>("any", ReduceOp::any, x, {dim}, keepdim, where);
}

Tensor count_nonzero(const Tensor& x, IntArrayRef dim, Loc where) {
  OpScope op("count_nonzero", where);
  return sum(x != 0, dim);
}

}  // namespace gradus
