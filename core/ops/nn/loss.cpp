#include <gradus/core/ops/nn/nn.h>

#include <gradus/core/op_lists.h>

namespace gradus::ops {

using enum BinaryOp;

Array softmax(const Array& x, int axis, bool log) {
  check_floating(x, "input");
  if (x.ndim() == 0) return full({}, log ? 0 : 1, x.dtype(), x.device());
  Array y = Array::empty_like(x);
  if (y.numel() > 0) backend_of(x).softmax(x, axis, log ? SoftmaxKind::log_softmax : SoftmaxKind::softmax, y);
  return y;
}

Array softmax_backward(const Array& dy, const Array& y, int axis, bool log) {
  if (y.ndim() == 0) return full({}, 0, y.dtype(), y.device());
  Array dx = Array::empty_like(y);
  if (dx.numel() > 0) backend_of(y).softmax_backward(dy, y, axis, log, dx);
  return dx;
}

void check_classes(const Array& x, const Array& target) {
  check_same_device({&x, &target});
  check_floating(x, "input");
  check_ndim(x, 2, "input", "(N, C)");
  GRADUS_CHECK(target.dtype() == DType::i64, DTypeError, "target must hold int64 classes, got ", target.dtype(),
               "; convert with .to(kLong)");
  GRADUS_CHECK(target.shape() == Shape({x.shape()[0]}), ShapeError, "input of shape ", x.shape(),
               " needs a target of shape (", x.shape()[0], ",), got ", target.shape());
  GRADUS_CHECK(x.shape()[1] > 0 || x.shape()[0] == 0, ShapeError, "input of shape ", x.shape(), " has no classes");
}

Array pick(const Array& x, const Array& target, int64_t ignore_index) {
  check_classes(x, target);
  Array y = x.new_empty(target.shape());
  if (y.numel() > 0) backend_of(x).pick(x, target, ignore_index, y);
  return y;
}

Array pick_backward(const Array& dy, const Array& target, int64_t ignore_index, const Shape& x_shape) {
  Array dx = dy.new_empty(x_shape);
  if (dx.numel() > 0) backend_of(dy).pick_backward(dy, target, ignore_index, dx);
  return dx;
}

Array count_targets(const Array& target, int64_t ignore_index, DType dtype) {
  return reduce(ReduceOp::sum, cast(binary_scalar(ne, target, ignore_index), dtype), axis_mask({}, 1), false, dtype);
}

CrossEntropyResult cross_entropy(const Array& x, const Array& target, int64_t ignore_index, Reduction reduction) {
  check_classes(x, target);
  CrossEntropyResult result;
  result.log_probabilities = x.new_empty(x.shape());
  result.loss = x.new_empty(reduction == Reduction::none ? target.shape() : Shape());
  result.weight_sum = x.new_empty({});
  if (target.numel() == 0) {  // without rows, the mean is NaN and the sum 0
    fill(result.loss, reduction == Reduction::mean ? __builtin_nan("") : 0.0);
    fill(result.weight_sum, 0);
    return result;
  }
  backend_of(x).cross_entropy({.x = x,
                               .target = target,
                               .ignore_index = ignore_index,
                               .reduction = reduction,
                               .log_probabilities = result.log_probabilities,
                               .loss = result.loss,
                               .weight_sum = result.weight_sum});
  return result;
}

Array cross_entropy_backward(const Array& dloss, const CrossEntropyResult& saved, const Array& target,
                             int64_t ignore_index, Reduction reduction) {
  Array dx = Array::empty_like(saved.log_probabilities);
  if (dx.numel() > 0)
    backend_of(dx).cross_entropy_backward({.dloss = dloss,
                                           .log_probabilities = saved.log_probabilities,
                                           .target = target,
                                           .ignore_index = ignore_index,
                                           .reduction = reduction,
                                           .weight_sum = saved.weight_sum,
                                           .dx = dx});
  return dx;
}

}  // namespace gradus::ops
