#include <gradus/autograd/ops/conv.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/unary.h>
#include <gradus/core/ops/conv.h>
#include <gradus/core/ops/layout.h>

namespace gradus {
namespace {

Tensor conv2d_plain(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu, const Conv2dGeometry& geometry);
Tensor conv2d_backward_data(const Tensor& dy, const Tensor& w, const Shape& shape, const Conv2dGeometry& geometry);
Tensor conv2d_backward_weight(const Tensor& dy, const Tensor& x, const Shape& shape, const Conv2dGeometry& geometry);

// The two gradients of convolution are linear in each argument, and each other's derivatives.
struct Conv2dBackwardData final : Node {  // dx = dy * w, transposed
  Saved dy{this, "dy"}, w{this, "weight"};
  Conv2dGeometry geometry;
  Shape shape, w_shape;
  Array forward(const Array& dY, const Array& W, const Shape& x_shape, const Conv2dGeometry& g) {
    geometry = g, shape = x_shape, w_shape = W.shape();
    if (needs_grad(0)) w = input(1);
    if (needs_grad(1)) dy = input(0);
    return ops::conv2d_backward_data(dY, W, x_shape, ops::output_format(dY, W), g);
  }
  Grads backward(const Tensor& g) override {
    return {needs_grad(0) ? conv2d_plain(g, w(), {}, false, geometry) : Tensor(),
            needs_grad(1) ? conv2d_backward_weight(dy(), g, w_shape, geometry) : Tensor()};
  }
};

struct Conv2dBackwardWeight final : Node {  // dw = dy * x
  Saved dy{this, "dy"}, x{this, "x"};
  Conv2dGeometry geometry;
  Shape shape;
  Array forward(const Array& dY, const Array& X, const Shape& w_shape, const Conv2dGeometry& g) {
    geometry = g, shape = X.shape();
    if (needs_grad(0)) x = input(1);
    if (needs_grad(1)) dy = input(0);
    return ops::conv2d_backward_weight(dY, X, w_shape, MemoryFormat::contiguous, g);
  }
  Grads backward(const Tensor& g) override {
    return {needs_grad(0) ? conv2d_plain(x(), g, {}, false, geometry) : Tensor(),
            needs_grad(1) ? conv2d_backward_data(dy(), g, shape, geometry) : Tensor()};
  }
};

struct Conv2d final : Node {  // y = x * w + bias, then relu if asked
  Saved x{this, "x"}, w{this, "weight"}, y{this, "y"};
  Conv2dGeometry geometry;
  bool relu = false;
  const char* name() const override { return relu ? "Conv2dReLU" : "Conv2d"; }

  Array forward(const Array& X, const Array& W, const Array& bias, bool with_relu, const Conv2dGeometry& g) {
    geometry = g, relu = with_relu;
    x = input(0);
    w = input(1);
    Array Y = ops::conv2d(X, W, bias, relu, g);
    if (relu) y = own(Y);
    return Y;
  }

  Grads backward(const Tensor& dy) override {
    if (GradMode::is_enabled()) return differentiable_backward(dy);
    ops::Conv2dGradients fused = ops::conv2d_backward(dy.array(), x.array(), w.array(), relu ? y.array() : Array(),
                                                      needs_grad(0), needs_grad(1), needs_grad(2), geometry);
    auto tensor = [](Array& array) { return array.defined() ? Tensor(std::move(array)) : Tensor(); };
    return {tensor(fused.dx), tensor(fused.dw), tensor(fused.dbias)};
  }

 private:
  Grads differentiable_backward(const Tensor& dy) {
    const Tensor dz = relu ? unary_backward(UnaryOp::relu, dy, y()) : dy;
    return {needs_grad(0) ? conv2d_backward_data(dz, w(), x().sizes(), geometry) : Tensor(),
            needs_grad(1) ? conv2d_backward_weight(dz, x(), w().sizes(), geometry) : Tensor(),
            needs_grad(2) ? dz.sum({0, 2, 3}) : Tensor()};
  }
};

Tensor conv2d_plain(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu, const Conv2dGeometry& geometry) {
  OpScope op(relu ? "conv2d_relu" : "conv2d", Loc{});
  return apply<Conv2d>(op, x, w, bias, relu, geometry);
}

Tensor conv2d_backward_data(const Tensor& dy, const Tensor& w, const Shape& shape, const Conv2dGeometry& geometry) {
  OpScope op("conv2d_backward_data", Loc{});
  return apply<Conv2dBackwardData>(op, dy, w, shape, geometry);
}

Tensor conv2d_backward_weight(const Tensor& dy, const Tensor& x, const Shape& shape, const Conv2dGeometry& geometry) {
  OpScope op("conv2d_backward_weight", Loc{});
  return apply<Conv2dBackwardWeight>(op, dy, x, shape, geometry);
}

Conv2dGeometry geometry_of(Pair stride, Pair padding, Pair dilation, int64_t groups) {
  return {{stride.h, stride.w}, {padding.h, padding.w}, {dilation.h, dilation.w}, groups};
}

// (C, H, W) counts as a batch of one.
Tensor run_conv2d(OpScope& op, const Tensor& x, const Tensor& w, const Tensor& bias, bool relu,
                  const Conv2dGeometry& geometry) {
  const bool single = x.dim() == 3;
  Tensor y = apply<Conv2d>(op, single ? x.unsqueeze(0) : x, w, bias, relu, geometry);
  return single ? y.squeeze(0) : y;
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, Pair stride, Pair padding, Pair dilation,
              int64_t groups, Loc where) {
  OpScope op("conv2d", where);
  return run_conv2d(op, x, w, bias, false, geometry_of(stride, padding, dilation, groups));
}

Tensor conv2d_relu(const Tensor& x, const Tensor& w, const Tensor& bias, Pair stride, Pair padding, Pair dilation,
                   int64_t groups, Loc where) {
  OpScope op("conv2d_relu", where);
  return run_conv2d(op, x, w, bias, true, geometry_of(stride, padding, dilation, groups));
}

}  // namespace gradus
