#include <gradus/core/ops/conv.h>

#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/layout.h>

namespace gradus::ops {
namespace {

void check_geometry(const Conv2dGeometry& g) {
  for (int i = 0; i < 2; ++i) {
    GRADUS_CHECK(g.stride[i] > 0, ValueError, "stride must be positive, got ", g.stride[i]);
    GRADUS_CHECK(g.dilation[i] > 0, ValueError, "dilation must be positive, got ", g.dilation[i]);
    GRADUS_CHECK(g.padding[i] >= 0, ValueError, "padding must not be negative, got ", g.padding[i]);
  }
  GRADUS_CHECK(g.groups > 0, ValueError, "groups must be positive, got ", g.groups);
}

}  // namespace

Shape conv2d_shape(const Array& x, const Array& w, const Array& bias, const Conv2dGeometry& g) {
  check_same_device({&x, &w, &bias});
  check_ndim(x, 4, "input", "(N, C, H, W)");
  check_ndim(w, 4, "weight", "(K, C / groups, R, S)");
  check_floating(x, "input");
  check_same_dtype(x, "input", w, "weight");
  check_geometry(g);
  const Shape &in = x.shape(), &filter = w.shape();
  GRADUS_CHECK(filter[0] % g.groups == 0, ShapeError, "weight has ", filter[0],
               " output channels, which is not a multiple of groups = ", g.groups);
  if (g.groups == 1) {
    GRADUS_CHECK(in[1] == filter[1], ShapeError, "weight expects ", filter[1], " input channels, got x of shape ", in);
  } else {
    GRADUS_CHECK(in[1] == filter[1] * g.groups, ShapeError, "weight expects ", filter[1], " channels in each of ",
                 g.groups, " groups, got x of shape ", in);
  }
  if (bias.defined()) {
    GRADUS_CHECK(bias.shape() == Shape({filter[0]}), ShapeError, "bias must have shape (", filter[0],
                 ",) to go with weight ", filter, ", got ", bias.shape());
    check_same_dtype(x, "input", bias, "bias");
  }
  Shape out = {in[0], filter[0], 0, 0};
  for (int i = 0; i < 2; ++i) {
    GRADUS_CHECK(filter[2 + i] > 0, ShapeError, "kernel sizes must be positive, got weight ", filter);
    // Exact in 128 bits whatever the options are.
    const __int128 padded = static_cast<__int128>(in[2 + i]) + 2 * static_cast<__int128>(g.padding[i]);
    const __int128 reach = static_cast<__int128>(g.dilation[i]) * (filter[2 + i] - 1) + 1;
    GRADUS_CHECK(padded >= reach && padded < (static_cast<__int128>(1) << 62), ShapeError, "kernel reaches over ",
                 static_cast<int64_t>(reach), (i == 0 ? " rows" : " columns"), " but the padded input has ",
                 static_cast<int64_t>(padded), ": x ", in, ", weight ", filter);
    out[2 + i] = static_cast<int64_t>((padded - reach) / g.stride[i]) + 1;
  }
  return out;
}

Array conv2d(const Array& x, const Array& w, const Array& bias, bool relu, const Conv2dGeometry& geometry) {
  const Shape shape = conv2d_shape(x, w, bias, geometry);
  Array y = Array::empty(shape, x.dtype(), x.device(), output_format(x, w));
  if (y.numel() > 0) {
    const View bias_view = bias.defined() ? View(bias) : View();
    backend_of(x).conv2d_bias_relu(x, w, bias.defined() ? &bias_view : nullptr, relu, y, geometry);
  }
  return y;
}

Conv2dGradients conv2d_backward(const Array& dy, const Array& x, const Array& w, const Array& y_if_relu, bool want_dx,
                                bool want_dw, bool want_dbias, const Conv2dGeometry& geometry, bool may_overwrite_dy) {
  Conv2dGradients gradients;
  const Array aligned = contiguous(dy, output_format(x, w));
  if (want_dx) gradients.dx = Array::empty(x.shape(), x.dtype(), x.device(), output_format(x, w));
  if (want_dw) gradients.dw = Array::empty(w.shape(), w.dtype(), w.device(), output_format(w));
  if (want_dbias) gradients.dbias = Array::empty({w.shape()[0]}, w.dtype(), w.device());
  if (dy.numel() == 0 || x.numel() == 0) {
    for (Array* gradient : {&gradients.dx, &gradients.dw, &gradients.dbias})
      if (gradient->defined()) fill(*gradient, 0);
    if (want_dbias && dy.numel() > 0)
      backend_of(dy).reduce(ReduceOp::sum, dy, 0b1101, gradients.dbias.view({1, w.shape()[0], 1, 1}));
    return gradients;
  }
  auto mutable_view = [](const Array& array) { return array.defined() ? MutableView(array) : MutableView(); };
  const MutableView dx = mutable_view(gradients.dx), dw = mutable_view(gradients.dw),
                    db = mutable_view(gradients.dbias);
  const View y = y_if_relu.defined() ? View(y_if_relu) : View();
  const bool has_room = y_if_relu.defined() && (may_overwrite_dy || !(aligned.storage() == dy.storage()));
  const MutableView masked(aligned);
  if (has_room) aligned.bump_version();
  backend_of(x).conv2d_bias_relu_backward(aligned, x, w, y_if_relu.defined() ? &y : nullptr, want_dx ? &dx : nullptr,
                                          want_dw ? &dw : nullptr, want_dbias ? &db : nullptr, geometry,
                                          has_room ? &masked : nullptr);
  return gradients;
}

Array conv2d_backward_data(const Array& dy, const Array& w, const Shape& x_shape, MemoryFormat format,
                           const Conv2dGeometry& geometry) {
  Array dx = Array::empty(x_shape, dy.dtype(), dy.device(), format);
  if (dx.numel() == 0) return dx;
  if (dy.numel() == 0 || w.numel() == 0) fill(dx, 0);
  else backend_of(dy).conv2d_backward_data(dy, w, dx, geometry);
  return dx;
}

Array conv2d_backward_weight(const Array& dy, const Array& x, const Shape& w_shape, MemoryFormat format,
                             const Conv2dGeometry& geometry) {
  Array dw = Array::empty(w_shape, dy.dtype(), dy.device(), format);
  if (dw.numel() == 0) return dw;
  if (dy.numel() == 0 || x.numel() == 0) fill(dw, 0);
  else backend_of(dy).conv2d_backward_weight(dy, x, dw, geometry);
  return dw;
}

}  // namespace gradus::ops
