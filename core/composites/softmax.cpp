// Default bodies of softmax, cross-entropy and their gradients, and of topk.
#include <cmath>

#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

void Backend::softmax(const View& x, int axis, SoftmaxKind kind, const MutableView& y) {
  if (x.numel() == 0) return;
  const Arithmetic math(*this);
  const uint32_t axes = bit(axis, x.ndim());
  const Array wide = math.widen(x), max = math.reduce(ReduceOp::max, wide, axes);
  const Array shifted = math(sub, wide, max), powers = math(UnaryOp::exp, shifted);
  const Array sum = math.reduce(ReduceOp::sum, powers, axes);
  copy(kind == SoftmaxKind::log_softmax ? math(sub, shifted, math(UnaryOp::log, sum)) : math(div, powers, sum), y);
  if (kind == SoftmaxKind::or_zeros) math.where(math(eq, max, -INFINITY), math.scalar(0, y.dtype, y.device), y, y);
}

void Backend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  if (y.numel() == 0) return;
  const Arithmetic math(*this);
  const uint32_t axes = bit(axis, y.ndim());
  const Array gradient = math.widen(dy), output = math.widen(y);
  if (log) {
    const Array sum = math.reduce(ReduceOp::sum, gradient, axes);
    copy(math(sub, gradient, math(mul, math(UnaryOp::exp, output), sum)), dx);
  } else {
    const Array sum = math.reduce(ReduceOp::sum, math(mul, gradient, output), axes);
    copy(math(mul, output, math(sub, gradient, sum)), dx);
  }
}

void Backend::cross_entropy(const CrossEntropyArgs& args) {
  const auto& [x, target, ignore_index, reduction, log_probabilities, loss, weight_sum] = args;
  const Arithmetic math(*this);
  softmax(x, 1, SoftmaxKind::log_softmax, log_probabilities);
  Array picked = Array::empty(target.shape, x.dtype, x.device);  // (N)
  pick(log_probabilities, target, ignore_index, picked);
  const Array losses = math(UnaryOp::neg, math.widen(picked));
  const Array counted = math.cast(math(ne, target, ignore_index), losses.dtype());
  const Array count = math.reduce(ReduceOp::sum, counted, 1);  // (1)
  copy(count, reshaped(weight_sum, {1}, {1}));
  if (reduction == Reduction::none) return copy(losses, loss);
  const Array sum = math.reduce(ReduceOp::sum, losses, 1);  // (1)
  copy(reduction == Reduction::mean ? math(div, sum, count) : sum, reshaped(loss, {1}, {1}));
}

void Backend::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  const auto& [dloss, log_probabilities, target, ignore_index, reduction, weight_sum, dx] = args;
  const Arithmetic math(*this);
  Array scale = math.widen(expanded(dloss, target.shape));  // (N)
  if (reduction == Reduction::mean) scale = math(div, scale, math.widen(weight_sum));
  Array at_target = Array::empty(dx.shape, scale.dtype(), dx.device);  // onehot(target) * scale
  pick_backward(scale, target, ignore_index, at_target);
  const Array probabilities = math(UnaryOp::exp, math.widen(log_probabilities));
  const Array gradient = math(sub, math(mul, probabilities, scale.unsqueeze(1)), at_target);
  const Array counted = math(ne, target, ignore_index).unsqueeze(1);  // (N, 1)
  copy(math.where(counted, gradient, math.scalar(0, gradient.dtype(), dx.device)), dx);
}

void Backend::topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices) {
  if (indices.numel() == 0) return;
  const Array sorted = Array::empty(x.shape, x.dtype, x.device), order = Array::empty(x.shape, DType::i64, x.device);
  sort(x, axis, largest, sorted, order);
  const auto first = [&](const Array& all) { return all.ndim() ? all.slice(axis, 0, indices.shape[axis]) : all; };
  copy(first(sorted), values), copy(first(order), indices);
}

}  // namespace gradus
