// Default bodies of the fused convolutions, which call one primitive after another, and of rgb_to_grayscale.
#include <gradus/core/array/strided_loop.h>
#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

Array composites::empty_like(const View& view) {
  const bool dense = StridedLoop<1>(view.shape, {&view.strides}).all_contiguous();
  return dense ? Array::empty_strided(view.shape, view.strides, view.dtype, view.device)
               : Array::empty(view.shape, view.dtype, view.device);
}

void Backend::conv2d_bias_relu(const Conv2dArgs& args) {
  const auto& [x, w, bias, relu, geometry, y] = args;
  if (bias && y.dtype != wide_type(y.dtype)) {  // computes in float32, to round only once, after the bias
    const Arithmetic math(*this);
    const Array sum = Array::empty(y.shape, wide_type(y.dtype), y.device);
    conv2d_bias_relu({math.widen(x), math.widen(w), math.widen(bias), relu, geometry, sum});
    return copy(sum, y);
  }
  conv2d(x, w, y, geometry);
  if (bias) binary(add, y, expanded(along(bias, 1, 4), y.shape), y);
  if (relu) unary(UnaryOp::relu, y, y, {});
}

void Backend::conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) {
  const auto& [dy, x, w, y, geometry, dx, dw, dbias, masked] = args;
  Array scratch;
  const View gradient = y ? masked_by_relu(dy, y, masked, scratch) : dy;  // gradient of the sum before ReLU
  if (dx) conv2d_backward_data(gradient, w, dx, geometry);
  if (dw) conv2d_backward_weight(gradient, x, dw, geometry);
  if (dbias) reduce(ReduceOp::sum, gradient, 0b1101, along(dbias, 1, 4));  // sums over N, P and Q
}

View Backend::masked_by_relu(const View& dy, const View& y, const MutableView& masked, Array& scratch) {
  if (!masked) scratch = empty_like(dy);
  const MutableView to = masked ? masked : MutableView(scratch);
  unary_backward(UnaryOp::relu, dy, y, to, {});
  return to;
}

void Backend::rgb_to_grayscale(const View& x, const MutableView& y) {
  const Arithmetic math(*this);
  const int axis = x.ndim() - 3;
  auto weighted = [&](int channel, double weight) {
    return math(mul, math.widen(narrow(x, axis, channel, 1)), weight);
  };
  copy(math(add, math(add, weighted(0, 0.2989), weighted(1, 0.5870)), weighted(2, 0.1140)), y);
}

}  // namespace gradus
