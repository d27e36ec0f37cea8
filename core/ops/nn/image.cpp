#include <gradus/core/ops/nn/nn.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gradus::ops {

using Wide = __int128;  // holds the sum or product of any two sizes

Shape pool2d_shape(const Shape& x, const Pool2dGeometry& g, bool ceil_mode) {
  Shape out = x;
  for (int i = 0; i < 2; ++i) {
    GRADUS_CHECK(g.kernel[i] > 0, ValueError, "kernel size must be positive, got ", g.kernel[i]);
    GRADUS_CHECK(g.stride[i] > 0, ValueError, "stride must be positive, got ", g.stride[i]);
    GRADUS_CHECK(g.dilation[i] > 0, ValueError, "dilation must be positive, got ", g.dilation[i]);
    GRADUS_CHECK(g.padding[i] >= 0 && g.padding[i] <= g.kernel[i] / 2, ValueError,
                 "padding must be between 0 and half the kernel size ", g.kernel[i], ", got ", g.padding[i]);
    const int64_t size = x[2 + i];
    for (int64_t number : {g.kernel[i], g.stride[i], g.dilation[i]})
      GRADUS_CHECK(number <= INT32_MAX, ValueError, "kernel size, stride and dilation may be at most ", INT32_MAX,
                   ", got ", number);
    const Wide reach = Wide(g.dilation[i]) * (g.kernel[i] - 1) + 1;
    const Wide padded = Wide(size) + 2 * Wide(g.padding[i]);
    const Wide room = padded - reach;
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
  Array y = x.new_empty(out, format);
  Array indices = x.new_empty(out, DType::i32, format);
  if (y.numel() > 0) backend_of(x).max_pool2d(x, y, indices, g);
  return {y, indices};
}

Array max_pool2d_backward(const Array& dy, const Array& indices, const Shape& x_shape, const Pool2dGeometry& geometry) {
  Array dx = dy.new_empty(x_shape, output_format(indices));
  if (dx.numel() == 0) return dx;
  if (dy.numel() == 0) fill(dx, 0);
  else backend_of(dy).max_pool2d_backward(dy, indices, dx, geometry);
  return dx;
}

Array pick_from_planes(const Array& x, const Array& indices) {
  // Backend::pick takes one element from each row of a matrix. Here each row belongs to a window and is the whole plane
  // (H W elements), repeated with stride 0.
  const int64_t n = x.shape()[0], c = x.shape()[1], hw = x.shape()[2] * x.shape()[3];
  const int64_t windows = indices.shape()[2] * indices.shape()[3];
  const Array y = x.new_empty(indices.shape());
  const Array planes = contiguous(x), target = cast(contiguous(indices), DType::i64);
  for (int64_t plane = 0; plane < n * c; ++plane) {
    const Array row = planes.as_strided({windows, hw}, {0, 1}, planes.offset() + plane * hw);
    const Array at = target.as_strided({windows}, {1}, target.offset() + plane * windows);
    backend_of(x).pick(row, at, -1, y.as_strided({windows}, {1}, y.offset() + plane * windows));
  }
  return y;
}

OwnedStencil OwnedStencil::transposed() const {
  OwnedStencil result(size_out());
  // next[i] has three meanings, one after the other: the number of entries of element i - 1, the position of the first
  // entry of element i, and the position at which the next entry of element i is stored.
  std::vector<int64_t> next(static_cast<size_t>(size_in) + 1);
  for (int64_t from : source) ++next[static_cast<size_t>(from) + 1];
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  result.begin = next;
  result.source.resize(source.size()), result.weight.resize(source.size());
  for (int64_t p = 0; p < size_out(); ++p)
    for (size_t k = view().first(p); k < view().first(p + 1); ++k) {
      const auto to = static_cast<size_t>(next[static_cast<size_t>(source[k])]++);
      result.source[to] = p, result.weight[to] = weight[k];
    }
  return result;
}

OwnedStencil OwnedStencil::selection(int64_t size_in, const std::vector<int64_t>& sources) {
  OwnedStencil stencil(size_in);
  for (int64_t from : sources) stencil.add(from, 1), stencil.end_position();
  return stencil;
}

OwnedStencil OwnedStencil::identity(int64_t size) {
  std::vector<int64_t> sources(static_cast<size_t>(size));
  std::iota(sources.begin(), sources.end(), 0);
  return selection(size, sources);
}

Array resample2d(const Array& x, const OwnedStencil& rows, const OwnedStencil& columns) {
  check_ndim(x, 4, "input", "(N, C, H, W)");
  check_floating(x, "input");
  Array y = x.new_empty({x.shape()[0], x.shape()[1], rows.size_out(), columns.size_out()}, output_format(x));
  if (y.numel() == 0) return y;
  if (x.numel() == 0) fill(y, 0);
  else backend_of(x).resample2d(x, rows.view(), columns.view(), y);
  return y;
}

// Calls add_entries(stencil, p) for each output position p.
template <class F>
static OwnedStencil stencil_of(int64_t size_in, int64_t size_out, const F& add_entries) {
  OwnedStencil stencil(size_in);
  for (int64_t p = 0; p < size_out; ++p) add_entries(stencil, p), stencil.end_position();
  return stencil;
}

OwnedStencil average_stencil(int64_t size_in, int64_t size_out, int64_t kernel, int64_t stride, int64_t padding,
                             bool count_include_pad, double divisor) {
  return stencil_of(size_in, size_out, [&](OwnedStencil& stencil, int64_t p) {
    const int64_t start = p * stride - padding, stop = std::min(start + kernel, size_in + padding);
    const int64_t first = std::max<int64_t>(start, 0), last = std::min(stop, size_in);
    const int64_t count = count_include_pad ? stop - start : last - first;
    for (int64_t i = first; i < last; ++i) stencil.add(i, 1 / (divisor != 0 ? divisor : static_cast<double>(count)));
  });
}

OwnedStencil adaptive_average_stencil(int64_t size_in, int64_t size_out) {
  return stencil_of(size_in, size_out, [&](OwnedStencil& stencil, int64_t p) {
    const int64_t first = adaptive_begin(p, size_in, size_out), last = adaptive_end(p, size_in, size_out);
    for (int64_t i = first; i < last; ++i) stencil.add(i, 1 / static_cast<double>(last - first));
  });
}

OwnedStencil nearest_stencil(int64_t size_in, int64_t size_out, double scale, bool exact) {
  // In float, as in PyTorch, because the last bit can decide which pixel is nearest.
  const float step = static_cast<float>(1 / scale);
  return stencil_of(size_in, size_out, [&](OwnedStencil& stencil, int64_t p) {
    const float at = (static_cast<float>(p) + (exact ? 0.5f : 0.0f)) * step;
    stencil.add(std::min(static_cast<int64_t>(at), size_in - 1), 1);
  });
}

// Position of the centre of output pixel p in the input, in pixels.
static double position_of(int64_t p, int64_t size_in, int64_t size_out, double scale, bool align_corners) {
  const double at = static_cast<double>(p);
  if (!align_corners) return (at + 0.5) / scale - 0.5;
  return size_out > 1 ? at * static_cast<double>(size_in - 1) / static_cast<double>(size_out - 1) : 0;
}

OwnedStencil linear_stencil(int64_t size_in, int64_t size_out, double scale, bool align_corners) {
  return stencil_of(size_in, size_out, [&](OwnedStencil& stencil, int64_t p) {
    const double at = std::max(0.0, position_of(p, size_in, size_out, scale, align_corners));
    const int64_t first = std::min(static_cast<int64_t>(at), size_in - 1);
    double part = std::min(at - static_cast<double>(first), 1.0);
    if (first + 1 >= size_in) part = 0;
    stencil.add(first, 1 - part);
    if (part > 0) stencil.add(first + 1, part);
  });
}

OwnedStencil cubic_stencil(int64_t size_in, int64_t size_out, double scale, bool align_corners) {
  constexpr double a = -0.75;  // parameter of Keys' kernel (1981), as in PyTorch and OpenCV
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return stencil_of(size_in, size_out, [&](OwnedStencil& stencil, int64_t p) {
    const double at = position_of(p, size_in, size_out, scale, align_corners), whole = std::floor(at), t = at - whole;
    const double weights[] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
    for (int64_t k = 0; k < 4; ++k)
      stencil.add(std::clamp<int64_t>(static_cast<int64_t>(whole) - 1 + k, 0, size_in - 1), weights[k]);
  });
}

Array rgb_to_grayscale(const Array& x) {
  check_floating(x, "input");
  GRADUS_CHECK(x.ndim() >= 3 && x.size(-3) == 3, ShapeError, "input must have shape (…, 3, H, W), got ", x.shape());
  Shape shape = x.shape();
  shape[x.ndim() - 3] = 1;
  Array y = x.new_empty(shape);
  if (y.numel() > 0) backend_of(x).rgb_to_grayscale(x, y);
  return y;
}

}  // namespace gradus::ops
