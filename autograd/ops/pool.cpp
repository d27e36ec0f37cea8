#include <gradus/autograd/ops/pool.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/pool.h>

namespace gradus {
namespace {

struct MaxPool2dBackward final : Node {  // dx[indices] += dy, linear in dy
  Saved indices{this, "indices"};
  Array forward(const Array& dy, const Array& at, const Shape& x_shape, const Pool2dGeometry& geometry) {
    indices = at;
    return ops::max_pool2d_backward(dy, at, x_shape, geometry);
  }
  Grads backward(const Tensor& g) override {
    OpScope op("pick_from_planes", Loc{});
    return {apply<PickFromPlanes>(op, g, indices.array())};
  }
  struct PickFromPlanes final : Node {  // y = x[indices] plane by plane; the third derivative is not needed by anything
    Array forward(const Array& x, const Array& at) { return ops::pick_from_planes(x, at); }
  };
};

struct MaxPool2d final : Node {  // y = maximum of each window
  Saved indices{this, "indices"};
  Pool2dGeometry geometry;
  Shape shape;
  std::tuple<Array, Array> forward(const Array& x, const Pool2dGeometry& g, bool ceil_mode) {
    geometry = g, shape = x.shape();
    auto result = ops::max_pool2d(x, g, ceil_mode);
    indices = std::get<1>(result);
    return result;
  }
  Grads backward(const Tensor& dy) override {
    OpScope op("max_pool2d_backward", Loc{});
    return {apply<MaxPool2dBackward>(op, dy, indices.array(), shape, geometry)};
  }
};

std::tuple<Tensor, Tensor> run_max_pool2d(OpScope& op, const Tensor& x, Pair kernel, std::optional<Pair> stride,
                                          Pair padding, Pair dilation, bool ceil_mode) {
  const Pair step = stride.value_or(kernel);
  const Pool2dGeometry geometry = {
      {kernel.h, kernel.w}, {step.h, step.w}, {padding.h, padding.w}, {dilation.h, dilation.w}};
  const bool single = x.dim() == 3;
  auto [y, indices] = apply<MaxPool2d>(op, single ? x.unsqueeze(0) : x, geometry, ceil_mode);
  if (single) return {y.squeeze(0), indices.squeeze(0)};
  return {y, indices};
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Pair kernel_size, std::optional<Pair> stride, Pair padding, Pair dilation,
                  bool ceil_mode, Loc where) {
  OpScope op("max_pool2d", where);
  return std::get<0>(run_max_pool2d(op, x, kernel_size, stride, padding, dilation, ceil_mode));
}

std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Pair kernel_size, std::optional<Pair> stride,
                                                   Pair padding, Pair dilation, bool ceil_mode, Loc where) {
  OpScope op("max_pool2d_with_indices", where);
  auto [y, indices] = run_max_pool2d(op, x, kernel_size, stride, padding, dilation, ceil_mode);
  return {y, indices.to(kLong)};
}

}  // namespace gradus
