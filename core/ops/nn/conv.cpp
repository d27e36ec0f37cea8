#include <gradus/core/ops/nn/nn.h>

#include <algorithm>

namespace gradus::ops {

using Wide = __int128;  // holds the sum or product of any two sizes

void check_padding(int64_t padding) {
  constexpr int64_t most = int64_t{1} << 40;
  GRADUS_CHECK(padding >= 0, ValueError, "padding must not be negative, got ", padding);
  GRADUS_CHECK(padding <= most, ValueError, "padding may be at most ", most, ", got ", padding);
}

namespace {

// The filter's extent along an axis, in pixels.
Wide reach_of(const Conv2dGeometry& g, const Shape& w, int i) { return Wide(g.dilation[i]) * (w[2 + i] - 1) + 1; }

// Returns a geometry with the same result and smaller numbers: a stride beyond the padded image is reduced, because
// only one window fits, and the dilation of a kernel of size 1, which has no effect, becomes 1.
Conv2dGeometry bounded(Conv2dGeometry g, const Shape& x, const Shape& w) {
  for (int i = 0; i < 2; ++i) {
    const Wide room = x[2 + i] + 2 * Wide(g.padding[i]) - reach_of(g, w, i);
    g.stride[i] = static_cast<int64_t>(std::min<Wide>(g.stride[i], std::max<Wide>(room, 0) + 1));
    if (w[2 + i] == 1) g.dilation[i] = 1;
  }
  return g;
}

// Throws a ShapeError if almost all pixels are in gaps between windows or between the taps of the kernel, because
// backends spend time on these pixels too. `g` is a result of bounded().
void check_gaps(const Conv2dGeometry& g, const Shape& x, const Shape& w, const Shape& y) {
  double covered = 1;  // the part of the pixels that windows cover
  for (int i = 0; i < 2; ++i) {
    const Wide reach = reach_of(g, w, i), most = 4 * (Wide(x[2 + i]) + y[2 + i] + 16);
    GRADUS_CHECK(reach <= most, ShapeError, "kernel reaches over ", static_cast<int64_t>(reach),
                 (i == 0 ? " rows" : " columns"), ", far beyond the image: x ", x, ", weight ", w, ", result ", y);
    covered *= std::min(1.0, static_cast<double>(reach) / static_cast<double>(g.stride[i]));
  }
  GRADUS_CHECK(covered >= 1e-3, ShapeError, "windows cover less than one pixel in 1000: x ", x, ", weight ", w,
               ", result ", y, "; take a slice of x with these strides first");
}

// Checks x (N, C, H, W), w (K, C / groups, R, S), bias (K) or undefined, and returns the result's shape (N, K, P, Q).
Shape conv2d_shape(const Array& x, const Array& w, const Array& bias, const Conv2dGeometry& g) {
  check_same_device({&x, &w, &bias});
  check_ndim(x, 4, "input", "(N, C, H, W)");
  check_ndim(w, 4, "weight", "(K, C / groups, R, S)");
  check_floating(x, "input");
  check_same_dtype(x, "input", w, "weight");
  GRADUS_CHECK(g.groups > 0, ValueError, "groups must be positive, got ", g.groups);
  for (int i = 0; i < 2; ++i) {
    GRADUS_CHECK(g.stride[i] > 0, ValueError, "stride must be positive, got ", g.stride[i]);
    GRADUS_CHECK(g.dilation[i] > 0, ValueError, "dilation must be positive, got ", g.dilation[i]);
    check_padding(g.padding[i]);
  }
  const Shape &in = x.shape(), &filter = w.shape();
  GRADUS_CHECK(filter[0] % g.groups == 0, ShapeError, "weight has ", filter[0],
               " output channels, which is not a multiple of groups = ", g.groups);
  const bool fits = in[1] == filter[1] * g.groups;
  GRADUS_CHECK(fits || g.groups > 1, ShapeError, "weight expects ", filter[1], " input channels, got x of shape ", in);
  GRADUS_CHECK(fits, ShapeError, "weight expects ", filter[1], " channels in each of ", g.groups,
               " groups, got x of shape ", in);
  if (bias.defined()) {
    GRADUS_CHECK(bias.shape() == Shape({filter[0]}), ShapeError, "bias must have shape (", filter[0],
                 ",) to go with weight ", filter, ", got ", bias.shape());
    check_same_dtype(x, "input", bias, "bias");
  }
  Shape out = {in[0], filter[0], 0, 0};
  for (int i = 0; i < 2; ++i) {
    GRADUS_CHECK(filter[2 + i] > 0, ShapeError, "kernel sizes must be positive, got weight ", filter);
    // With 128 bits these sums are exact for any geometry.
    const Wide padded = Wide(in[2 + i]) + 2 * Wide(g.padding[i]);
    const Wide reach = reach_of(g, filter, i);
    GRADUS_CHECK(padded >= reach && padded <= INT64_MAX, ShapeError, "kernel reaches over ",
                 static_cast<int64_t>(std::min<Wide>(reach, INT64_MAX)), (i == 0 ? " rows" : " columns"),
                 " but the padded input has ", static_cast<int64_t>(padded), ": x ", in, ", weight ", filter);
    out[2 + i] = static_cast<int64_t>((padded - reach) / g.stride[i]) + 1;
  }
  check_gaps(bounded(g, in, filter), in, filter, out);
  return out;
}

}  // namespace

Array conv2d(const Array& x, const Array& w, const Array& bias, bool relu, const Conv2dGeometry& given) {
  const Shape shape = conv2d_shape(x, w, bias, given);
  const Conv2dGeometry geometry = bounded(given, x.shape(), w.shape());
  Array y = x.new_empty(shape, output_format(x, w));
  if (y.numel() > 0)
    backend_of(x).conv2d_bias_relu({.x = x, .w = w, .bias = bias, .relu = relu, .geometry = geometry, .y = y});
  return y;
}

Conv2dGradients conv2d_backward(const Array& dy, const Array& x, const Array& w, const Array& y_if_relu, bool want_dx,
                                bool want_dw, bool want_dbias, const Conv2dGeometry& given, bool may_overwrite_dy) {
  const Conv2dGeometry geometry = bounded(given, x.shape(), w.shape());
  Conv2dGradients gradients;
  const Array aligned = contiguous(dy, output_format(x, w));
  if (want_dx) gradients.dx = x.new_empty(x.shape(), output_format(x, w));
  if (want_dw) gradients.dw = w.new_empty(w.shape(), output_format(w));
  if (want_dbias) gradients.dbias = w.new_empty({w.shape()[0]});
  if (dy.numel() == 0 || x.numel() == 0) {
    for (Array* gradient : {&gradients.dx, &gradients.dw, &gradients.dbias})
      if (gradient->defined()) fill(*gradient, 0);
    if (want_dbias && dy.numel() > 0)
      backend_of(dy).reduce(ReduceOp::sum, dy, 0b1101, gradients.dbias.view({1, w.shape()[0], 1, 1}));
    return gradients;
  }
  const bool masks_in_place = y_if_relu.defined() && (may_overwrite_dy || !(aligned.storage() == dy.storage()));
  if (masks_in_place) aligned.bump_version();
  backend_of(x).conv2d_bias_relu_backward({.dy = aligned,
                                           .x = x,
                                           .w = w,
                                           .y = y_if_relu,
                                           .geometry = geometry,
                                           .dx = gradients.dx,
                                           .dw = gradients.dw,
                                           .dbias = gradients.dbias,
                                           .masked = masks_in_place ? aligned : Array()});
  return gradients;
}

Array conv2d_backward_data(const Array& dy, const Array& w, const Shape& x_shape, MemoryFormat format,
                           const Conv2dGeometry& given) {
  const Conv2dGeometry geometry = bounded(given, x_shape, w.shape());
  // The forward pass of a transposed convolution calls this function, and nothing has checked the gaps before.
  check_gaps(geometry, x_shape, w.shape(), dy.shape());
  Array dx = dy.new_empty(x_shape, format);
  if (dx.numel() == 0) return dx;
  if (dy.numel() == 0) fill(dx, 0);
  else backend_of(dy).conv2d_backward_data(dy, w, dx, geometry);
  return dx;
}

Array conv2d_backward_weight(const Array& dy, const Array& x, const Shape& w_shape, MemoryFormat format,
                             const Conv2dGeometry& given) {
  const Conv2dGeometry geometry = bounded(given, x.shape(), w_shape);
  Array dw = dy.new_empty(w_shape, format);
  if (dw.numel() == 0) return dw;
  if (dy.numel() == 0 || x.numel() == 0) fill(dw, 0);
  else backend_of(dy).conv2d_backward_weight(dy, x, dw, geometry);
  return dw;
}

}  // namespace gradus::ops
