// Windows that slide over an image, for kernels whose vectors run along channels. The elements of a window that are
// inside the image are determined before the arithmetic begins, so padding takes no time and nothing outside the image
// is read.
#pragma once

#include <algorithm>
#include <vector>

#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/backend.h>

namespace gradus::openmp_detail {

/// has_channels_last() returns true for images (N, C, H, W) whose channels are contiguous, has_dense_planes() for
/// images whose planes have no gaps.
inline bool has_channels_last(const StridedLayout& x) { return x.shape[1] > 1 && x.strides[1] == 1; }
inline bool has_dense_planes(const StridedLayout& x) {
  return (x.shape[3] == 1 || x.strides[3] == 1) && (x.shape[2] == 1 || x.strides[2] == x.shape[3]);
}

/// One axis of a sliding window. For each i < size, position out_begin + i out_step of the result reads, for each tap,
/// position i step + tap.at of the source.
struct WindowAxis {
  struct Tap {
    int64_t index, at;  ///< `index` is a row (or column) of the window
  };
  int64_t size, out_begin, out_step, step, source;
  std::vector<Tap> taps;

  /// The source position of tap t for result i.
  int64_t at(int64_t i, int64_t t) const { return i * step + taps[static_cast<size_t>(t)].at; }
};

/// Positions [begin, end) of an axis for which exactly the taps [first_tap, last_tap) are inside the image.
struct Span {
  int64_t begin, end, first_tap, last_tap;
};

inline std::vector<Span> spans_of(const WindowAxis& axis) {
  std::vector<Span> spans;
  for (int64_t i = 0; i < axis.size; ++i) {
    Span span{i, i + 1, 0, static_cast<int64_t>(axis.taps.size())};
    while (span.first_tap < span.last_tap && axis.at(i, span.first_tap) < 0) ++span.first_tap;
    while (span.first_tap < span.last_tap && axis.at(i, span.last_tap - 1) >= axis.source) --span.last_tap;
    if (!spans.empty() && spans.back().first_tap == span.first_tap && spans.back().last_tap == span.last_tap)
      spans.back().end = span.end;
    else spans.push_back(span);
  }
  return spans;
}

/// The axis of a forward pass: `size` windows that slide over `source` elements.
inline WindowAxis forward_axis(int64_t size, int64_t source, int64_t window, int64_t stride, int64_t padding,
                               int64_t dilation) {
  WindowAxis axis{size, 0, 1, stride, source, {}};
  for (int64_t r = 0; r < window; ++r) axis.taps.push_back({r, r * dilation - padding});
  return axis;
}

/// The axes of a backward pass from `source` windows to `size` elements. There is an axis for each residue of the
/// coordinate modulo the stride, because coordinates with equal residues have the same taps. Taps are in the order of
/// the windows.
inline std::vector<WindowAxis> backward_axes(int64_t size, int64_t source, int64_t window, int64_t stride,
                                             int64_t padding, int64_t dilation) {
  std::vector<WindowAxis> axes;
  for (int64_t residue = 0; residue < std::min(stride, size); ++residue) {
    WindowAxis axis{ceil_div(size - residue, stride), residue, stride, 1, source, {}};
    for (int64_t r = window - 1; r >= 0; --r)
      if (const int64_t distance = residue + padding - r * dilation; distance % stride == 0)
        axis.taps.push_back({r, distance / stride});
    axes.push_back(std::move(axis));
  }
  return axes;
}

}  // namespace gradus::openmp_detail
