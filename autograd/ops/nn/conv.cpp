#include <gradus/autograd/ops/nn/conv.h>

#include <gradus/autograd/engine.h>
#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/nn/image.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/nn/nn.h>

namespace gradus {
namespace {

// Both gradients of a convolution are linear in each argument, and each is a derivative of the other.
struct Conv2dBackwardData final : Node {  // dx: the transposed convolution of dy with w
  Saved dy{this, "dy"}, w{this, "weight"};
  Conv2dGeometry geometry;
  Shape shape, w_shape;
  Array forward(const Array& dY, const Array& W, const Shape& x_shape, const Conv2dGeometry& g) {
    geometry = g, shape = x_shape, w_shape = W.shape();
    if (needs_grad(0)) w = input(1);
    if (needs_grad(1)) dy = input(0);
    return ops::conv2d_backward_data(dY, W, x_shape, ops::output_format(dY, W), g);
  }
  Grads backward(const Tensor& g) override;
};

struct Conv2dBackwardWeight final : Node {  // dw: the correlation of x with dy
  Saved dy{this, "dy"}, x{this, "x"};
  Conv2dGeometry geometry;
  Shape shape;
  Array forward(const Array& dY, const Array& X, const Shape& w_shape, const Conv2dGeometry& g) {
    geometry = g, shape = X.shape();
    if (needs_grad(0)) x = input(1);
    if (needs_grad(1)) dy = input(0);
    return ops::conv2d_backward_weight(dY, X, w_shape, MemoryFormat::contiguous, g);
  }
  Grads backward(const Tensor& g) override;
};

struct Conv2d final : Node {  // y = conv2d(x, w) + bias, or the ReLU of that
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
    ops::Conv2dGradients fused =
        ops::conv2d_backward(dy.array(), x.array(), w.array(), relu ? y.array() : Array(), needs_grad(0), needs_grad(1),
                             needs_grad(2), geometry, detail::is_handed_over(dy));
    auto tensor = [](Array& array) { return array.defined() ? Tensor(std::move(array)) : Tensor(); };
    return {tensor(fused.dx), tensor(fused.dw), tensor(fused.dbias)};
  }

 private:
  Grads differentiable_backward(const Tensor& dy) {
    const Tensor dz = relu ? unary_backward(UnaryOp::relu, dy, y()) : dy;
    return {
        needs_grad(0) ? apply<Conv2dBackwardData>("conv2d_backward_data", dz, w(), x().sizes(), geometry) : Tensor(),
        needs_grad(1) ? apply<Conv2dBackwardWeight>("conv2d_backward_weight", dz, x(), w().sizes(), geometry)
                      : Tensor(),
        needs_grad(2) ? dz.sum({0, 2, 3}) : Tensor()};
  }
};

Grads Conv2dBackwardData::backward(const Tensor& g) {
  return {needs_grad(0) ? apply<Conv2d>("conv2d", g, w(), Tensor(), false, geometry) : Tensor(),
          needs_grad(1) ? apply<Conv2dBackwardWeight>("conv2d_backward_weight", dy(), g, w_shape, geometry) : Tensor()};
}

Grads Conv2dBackwardWeight::backward(const Tensor& g) {
  return {needs_grad(0) ? apply<Conv2d>("conv2d", x(), g, Tensor(), false, geometry) : Tensor(),
          needs_grad(1) ? apply<Conv2dBackwardData>("conv2d_backward_data", dy(), g, shape, geometry) : Tensor()};
}

Conv2dGeometry geometry_of(Pair stride, Pair padding, Pair dilation, int64_t groups) {
  return {{stride.h, stride.w}, {padding.h, padding.w}, {dilation.h, dilation.w}, groups};
}

// Padding by name is passed to the kernel if it is equal on both sides; otherwise the extra zeros are added to x first.
Tensor run_conv2d(OpScope& op, const Tensor& x, const Tensor& w, const Tensor& bias, bool relu, ConvPadding padding,
                  Conv2dGeometry geometry) {
  int64_t more[2] = {0, 0};
  for (int i = 0; i < 2 && padding.is_same() && w.dim() == 4; ++i) {
    GRADUS_CHECK(geometry.stride[i] == 1, ValueError, "padding 'same' needs stride 1, got ", geometry.stride[i]);
    const int64_t total = checked_product(geometry.dilation[i], w.size(2 + i) - 1);
    geometry.padding[i] = total / 2, more[i] = total % 2;
  }
  const Tensor wide = more[0] + more[1] > 0 ? pad(x, {0, more[1], 0, more[0]}) : x;
  return batched(wide, 4, [&](const Tensor& image) { return apply<Conv2d>(op, image, w, bias, relu, geometry); });
}

// Returns the weight of a convolution of sequences as one of images of one row.
Tensor filter(const Tensor& w) {
  GRADUS_CHECK(w.dim() == 3, ShapeError, "weight must be of 3 dimensions, got shape ", w.sizes());
  return w.unsqueeze(-2);
}

Tensor run_conv_transpose2d(OpScope& op, const Tensor& x, const Tensor& w, const Tensor& bias, Pair output_padding,
                            const Conv2dGeometry& g) {
  if (x.dim() == 3) return run_conv_transpose2d(op, x.unsqueeze(0), w, bias, output_padding, g).squeeze(0);
  ops::check_ndim(x.array(), 4, "input", "(N, C, H, W) or (C, H, W)");
  ops::check_ndim(w.array(), 4, "weight", "(C, K / groups, R, S)");
  if (op.type_of(x) != op.type_of(w)) ops::check_same_dtype(x.array(), "input", w.array(), "weight");
  GRADUS_CHECK(x.size(1) == w.size(0), ShapeError, "weight expects ", w.size(0), " input channels, got x of shape ",
               x.sizes());
  GRADUS_CHECK(g.groups > 0 && w.size(0) % g.groups == 0, ShapeError, "weight of shape ", w.sizes(), " has ", w.size(0),
               " input channels, which is not a multiple of groups = ", g.groups);
  Shape shape = {x.size(0), w.size(1) * g.groups, 0, 0};
  int64_t extra[2] = {output_padding.h, output_padding.w};
  for (int i = 0; i < 2; ++i) {
    GRADUS_CHECK(g.stride[i] > 0 && g.dilation[i] > 0, ValueError, "stride and dilation must be positive, got ",
                 g.stride[i], " and ", g.dilation[i]);
    ops::check_padding(g.padding[i]);
    GRADUS_CHECK(extra[i] >= 0 && (extra[i] < g.stride[i] || extra[i] < g.dilation[i]), ValueError,
                 "output_padding must be less than stride or dilation, got ", extra[i], " with stride ", g.stride[i],
                 " and dilation ", g.dilation[i]);
    const __int128 size = static_cast<__int128>(x.size(2 + i) - 1) * g.stride[i] -
                          2 * static_cast<__int128>(g.padding[i]) +
                          static_cast<__int128>(g.dilation[i]) * (w.size(2 + i) - 1) + extra[i] + 1;
    GRADUS_CHECK(size > 0, ShapeError, "padding ", g.padding[i], " leaves an empty result: x ", x.sizes(), ", weight ",
                 w.sizes());
    GRADUS_CHECK(size < (static_cast<__int128>(1) << 40), ShapeError, "stride ", g.stride[i], " and dilation ",
                 g.dilation[i], " make the result too large: x ", x.sizes(), ", weight ", w.sizes());
    shape[2 + i] = static_cast<int64_t>(size);
    // A convolution of a result with output_padding has output_padding / stride (rounded down) more windows along this
    // axis than x has pixels. x is padded with that many zeros.
    extra[i] /= g.stride[i];
  }
  GRADUS_CHECK(!bias.defined() || bias.sizes() == Shape({shape[1]}), ShapeError, "bias must have shape (", shape[1],
               ",) to go with weight ", w.sizes(), " in ", g.groups, " groups, got ", bias.sizes());
  if (bias.defined() && op.type_of(x) != op.type_of(bias))
    ops::check_same_dtype(x.array(), "input", bias.array(), "bias");
  const Tensor wide = extra[0] + extra[1] > 0 ? pad(x, {0, extra[1], 0, extra[0]}) : x;
  const Tensor y = apply<Conv2dBackwardData>(op, wide, w, shape, g);
  return bias.defined() ? y + bias.to(y.dtype()).view({1, shape[1], 1, 1}) : y;
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, Pair stride, ConvPadding padding, Pair dilation,
              int64_t groups, Loc where) {
  OpScope op("conv2d", where);
  return run_conv2d(op, x, w, bias, false, padding, geometry_of(stride, padding, dilation, groups));
}

Tensor conv2d_relu(const Tensor& x, const Tensor& w, const Tensor& bias, Pair stride, ConvPadding padding,
                   Pair dilation, int64_t groups, Loc where) {
  OpScope op("conv2d_relu", where);
  return run_conv2d(op, x, w, bias, true, padding, geometry_of(stride, padding, dilation, groups));
}

Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, int64_t stride, ConvPadding padding,
              int64_t dilation, int64_t groups, Loc where) {
  OpScope op("conv1d", where);
  const int64_t channels = x.dim() > 1 ? x.size(-2) : 0, wanted = w.defined() && w.dim() == 3 ? w.size(1) : channels;
  GRADUS_CHECK(groups != 1 || channels == wanted, ShapeError, "weight expects ", wanted,
               " input channels, got x of shape ",
               x.sizes());  // checked here, so that the message shows the shape of the sequence
  padding.h = 0;
  const Conv2dGeometry geometry = geometry_of({1, stride}, padding, {1, dilation}, groups);
  return run_conv2d(op, as_row(x), filter(w), bias, false, padding, geometry).squeeze(-2);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias, Pair stride, Pair padding,
                        Pair output_padding, int64_t groups, Pair dilation, Loc where) {
  OpScope op("conv_transpose2d", where);
  const Conv2dGeometry geometry = geometry_of(stride, padding, dilation, groups);
  return run_conv_transpose2d(op, x, w, bias, output_padding, geometry);
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias, int64_t stride, int64_t padding,
                        int64_t output_padding, int64_t groups, int64_t dilation, Loc where) {
  OpScope op("conv_transpose1d", where);
  const Conv2dGeometry geometry = geometry_of({1, stride}, {0, padding}, {1, dilation}, groups);
  return run_conv_transpose2d(op, as_row(x), filter(w), bias, {0, output_padding}, geometry).squeeze(-2);
}

}  // namespace gradus
