#include <gradus/core/ops/pool.h>

#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/layout.h>

namespace gradus::ops {

static void check_pool_size(int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  GRADUS_CHECK(kernel > 0, ValueError, "kernel size must be positive, got ", kernel);
  GRADUS_CHECK(stride > 0, ValueError, "stride must be positive, got ", stride);
  GRADUS_CHECK(dilation > 0, ValueError, "dilation must be positive, got ", dilation);
  GRADUS_CHECK(padding >= 0 && padding <= kernel / 2, ValueError, "padding must be between 0 and half the kernel size ",
               kernel, ", got ", padding);
}

Shape pool2d_shape(const Shape& x, const Pool2dGeometry& g, bool ceil_mode) {
  Shape out = x;
  for (int i = 0; i < 2; ++i) {
    check_pool_size(g.kernel[i], g.stride[i], g.padding[i], g.dilation[i]);
    const int64_t size = x[2 + i];
    for (int64_t number : {g.kernel[i], g.stride[i], g.dilation[i]})
      GRADUS_CHECK(number <= INT32_MAX, ValueError, "kernel size, stride and dilation may be at most ", INT32_MAX,
                   ", got ", number);
    const __int128 reach = static_cast<__int128>(g.dilation[i]) * (g.kernel[i] - 1) + 1;
    const __int128 padded = static_cast<__int128>(size) + 2 * static_cast<__int128>(g.padding[i]);
    const __int128 room = padded - reach;
    GRADUS_CHECK(padded <= INT32_MAX, ShapeError, "pooling takes at most ", INT32_MAX, (i == 0 ? " rows" : " columns"),
                 ", got ", size, " and a padding of ", g.padding[i], ": x ", x);
    GRADUS_CHECK(room >= 0, ShapeError, "window reaches over ", static_cast<int64_t>(reach),
                 (i == 0 ? " rows" : " columns"), " but the padded input has ", static_cast<int64_t>(padded), ": x ",
                 x);
    int64_t windows = static_cast<int64_t>(room / g.stride[i]) + 1;
    if (ceil_mode && room % g.stride[i] != 0 && windows * g.stride[i] < size + g.padding[i]) ++windows;
    out[2 + i] = windows;
  }
  return out;
}

std::tuple<Array, Array> max_pool2d(const Array& x, const Pool2dGeometry& g, bool ceil_mode) {
  check_ndim(x, 4, "input", "(N, C, H, W)");
  check_floating(x, "input");
  const Shape out = pool2d_shape(x.shape(), g, ceil_mode);
  GRADUS_CHECK(x.shape()[2] * x.shape()[3] <= INT32_MAX, ShapeError, "planes of ", x.shape()[2], " x ", x.shape()[3],
               " elements are too large for pooling");
  const MemoryFormat format = output_format(x);
  Array y = Array::empty(out, x.dtype(), x.device(), format);
  Array indices = Array::empty(out, DType::i32, x.device(), format);
  if (y.numel() > 0) backend_of(x).max_pool2d(x, y, indices, g);
  return {y, indices};
}

Array max_pool2d_backward(const Array& dy, const Array& indices, const Shape& x_shape, const Pool2dGeometry& geometry) {
  Array dx = Array::empty(x_shape, dy.dtype(), dy.device(), output_format(indices));
  if (dx.numel() == 0) return dx;
  if (dy.numel() == 0) fill(dx, 0);
  else backend_of(dy).max_pool2d_backward(dy, indices, dx, geometry);
  return dx;
}

Array pick_from_planes(const Array& x, const Array& indices) {
  // One row per window, for Backend::pick: (N C P Q, H W), where every plane is repeated with stride 0.
  const int64_t n = x.shape()[0], c = x.shape()[1], hw = x.shape()[2] * x.shape()[3];
  const int64_t windows = indices.shape()[2] * indices.shape()[3];
  Array y = Array::empty(indices.shape(), x.dtype(), x.device());
  if (y.numel() == 0) return y;
  const Array planes = contiguous(x), target = cast(contiguous(indices), DType::i64);
  for (int64_t plane = 0; plane < n * c; ++plane) {
    const Array row = planes.as_strided({windows, hw}, {0, 1}, planes.offset() + plane * hw);
    const Array at = target.as_strided({windows}, {1}, target.offset() + plane * windows);
    backend_of(x).pick(row, at, -1, y.as_strided({windows}, {1}, y.offset() + plane * windows));
  }
  return y;
}

}  // namespace gradus::ops
