#include <gradus/core/ops/resample.h>

#include <algorithm>
#include <cmath>

#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/layout.h>

namespace gradus::ops {

OwnedStencil OwnedStencil::transposed() const {
  OwnedStencil result(size_out());
  std::vector<int64_t> next(static_cast<size_t>(size_in) +
                            1);  // first counts, then begins, then ends of the entries of each element
  for (int64_t from : source) ++next[static_cast<size_t>(from) + 1];
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  result.begin = next;
  result.source.resize(source.size()), result.weight.resize(source.size());
  for (int64_t p = 0; p < size_out(); ++p)
    for (auto k = static_cast<size_t>(begin[static_cast<size_t>(p)]);
         k < static_cast<size_t>(begin[static_cast<size_t>(p) + 1]); ++k) {
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
  OwnedStencil stencil(size);
  for (int64_t i = 0; i < size; ++i) stencil.add(i, 1), stencil.end_position();
  return stencil;
}

Array resample2d(const Array& x, const OwnedStencil& rows, const OwnedStencil& columns) {
  check_ndim(x, 4, "input", "(N, C, H, W)");
  check_floating(x, "input");
  Array y = Array::empty({x.shape()[0], x.shape()[1], rows.size_out(), columns.size_out()}, x.dtype(), x.device(),
                         output_format(x));
  if (y.numel() == 0) return y;
  if (x.numel() == 0) fill(y, 0);
  else backend_of(x).resample2d(x, rows.view(), columns.view(), y);
  return y;
}

OwnedStencil average_stencil(int64_t size_in, int64_t size_out, int64_t kernel, int64_t stride, int64_t padding,
                             bool count_include_pad, double divisor) {
  OwnedStencil stencil(size_in);
  for (int64_t p = 0; p < size_out; ++p) {
    const int64_t start = p * stride - padding, stop = std::min(start + kernel, size_in + padding);
    const int64_t first = std::max<int64_t>(start, 0), last = std::min(stop, size_in);
    const int64_t count = count_include_pad ? stop - start : last - first;
    for (int64_t i = first; i < last; ++i) stencil.add(i, 1 / (divisor != 0 ? divisor : static_cast<double>(count)));
    stencil.end_position();
  }
  return stencil;
}

OwnedStencil adaptive_average_stencil(int64_t size_in, int64_t size_out) {
  OwnedStencil stencil(size_in);
  for (int64_t p = 0; p < size_out; ++p) {
    const int64_t first = adaptive_begin(p, size_in, size_out), last = adaptive_end(p, size_in, size_out);
    for (int64_t i = first; i < last; ++i) stencil.add(i, 1 / static_cast<double>(last - first));
    stencil.end_position();
  }
  return stencil;
}

OwnedStencil nearest_stencil(int64_t size_in, int64_t size_out, double scale, bool exact) {
  // In float, as in PyTorch, because the last bit can decide which pixel is nearest.
  const float step = static_cast<float>(1 / scale);
  OwnedStencil stencil(size_in);
  for (int64_t p = 0; p < size_out; ++p) {
    const float at = (static_cast<float>(p) + (exact ? 0.5f : 0.0f)) * step;
    stencil.add(std::min(static_cast<int64_t>(std::floor(at)), size_in - 1), 1);
    stencil.end_position();
  }
  return stencil;
}

// Position of output p in the input, in pixels.
static double position_of(int64_t p, int64_t size_in, int64_t size_out, double scale, bool align_corners) {
  const double at = static_cast<double>(p);
  if (!align_corners) return (at + 0.5) / scale - 0.5;
  return size_out > 1 ? at * static_cast<double>(size_in - 1) / static_cast<double>(size_out - 1) : 0;
}

OwnedStencil linear_stencil(int64_t size_in, int64_t size_out, double scale, bool align_corners) {
  OwnedStencil stencil(size_in);
  for (int64_t p = 0; p < size_out; ++p) {
    const double at = std::max(0.0, position_of(p, size_in, size_out, scale, align_corners));
    const int64_t first = std::min(static_cast<int64_t>(at), size_in - 1);
    const double part = std::min(at - static_cast<double>(first), 1.0);
    if (part == 0 || first + 1 >= size_in) {
      stencil.add(first, 1);
    } else {
      stencil.add(first, 1 - part);
      stencil.add(first + 1, part);
    }
    stencil.end_position();
  }
  return stencil;
}

OwnedStencil cubic_stencil(int64_t size_in, int64_t size_out, double scale, bool align_corners) {
  constexpr double a = -0.75;  // parameter of Keys' kernel (1981), as in PyTorch and OpenCV
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  OwnedStencil stencil(size_in);
  for (int64_t p = 0; p < size_out; ++p) {
    const double at = position_of(p, size_in, size_out, scale, align_corners), whole = std::floor(at), t = at - whole;
    const double weights[] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
    for (int64_t k = 0; k < 4; ++k)
      stencil.add(std::clamp<int64_t>(static_cast<int64_t>(whole) - 1 + k, 0, size_in - 1), weights[k]);
    stencil.end_position();
  }
  return stencil;
}

}  // namespace gradus::ops
