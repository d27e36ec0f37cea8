// A layout of images that a convolution can read with plain vector loads, without im2col. Every channel becomes a plane
// that includes the padding, with a fixed row pitch. Output pixel (p, q) is at position p * pitch + q, and the inputs
// of tap (r, s) for all output pixels are the plane shifted by one offset. The positions between the end of an output
// row and the next row are computed and discarded.
//
// A stride is handled by splitting: with stride 2, even and odd rows (columns) form separate planes, called phases, in
// which the inputs of consecutive output pixels are consecutive again.
#pragma once

#include <algorithm>

#include <gradus/backends/openmp/conv2d/images.h>
#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/windows.h>

namespace gradus::openmp_detail {

/// Row h of an image is row (h + shift[0]) / split[0] - first_row of phase (h + shift[0]) % split[0]; columns alike.
struct PlaneLayout {
  int64_t channels = 0, split[2] = {1, 1}, shift[2] = {0, 0};
  int64_t rows = 0, pitch = 0;

  int64_t plane() const { return rows * pitch; }
  int64_t channel_stride() const { return split[0] * split[1] * plane(); }
  int64_t offset(int64_t channel, int64_t row_phase, int64_t column_phase, int64_t row, int64_t column) const {
    return channel * channel_stride() + (row_phase * split[1] + column_phase) * plane() + row * pitch + column;
  }

  /// In every phase, all rows that contain image data are in [first_inside(), last_inside()], counted like first_row.
  int64_t first_inside() const { return shift[0] / split[0]; }
  int64_t last_inside(int64_t H) const { return (H - 1 + shift[0]) / split[0]; }
};

/// Writes rows first_row … first_row + layout.rows of image n to `planes`. If `mask` is given (same layout as the
/// images), elements with mask <= 0 are replaced by 0.
template <class T>
void fill_planes(const Kernels<T>& kernels, const PlaneLayout& layout, const Images<const T>& x, int64_t n,
                 int64_t first_row, const T* mask, T* planes) {
  const int64_t pitch = layout.pitch, *step = layout.split;
  // Channels that are contiguous in memory are moved together, unless there are so few that strided loads are cheaper.
  const bool together = x.c_stride == 1 && x.w_stride != 1 && layout.channels > 4;
  // Rows (columns) [begin, end) of a phase contain image data, with h = (first_row + i) * step + phase - shift. The
  // others are 0.
  const auto span = [](int64_t offset, int64_t step, int64_t size, int64_t most, int64_t* begin, int64_t* end) {
    *begin = std::min(offset < 0 ? ceil_div(-offset, step) : 0, most);
    *end = std::max(*begin, offset < size ? std::min(ceil_div(size - offset, step), most) : 0);
  };
  if (together) std::fill_n(planes, layout.channels * layout.channel_stride(), T(0));
  for (int64_t a = 0; a < step[0]; ++a)
    for (int64_t b = 0; b < step[1]; ++b) {
      const int64_t h0 = first_row * step[0] + a - layout.shift[0], w0 = b - layout.shift[1];
      int64_t top, bottom, left, right;
      span(h0, step[0], x.H, layout.rows, &top, &bottom);
      span(w0, step[1], x.W, pitch, &left, &right);
      const int64_t h_step = step[0] * x.h_stride, w_step = step[1] * x.w_stride;
      const int64_t first = n * x.n_stride + (h0 + top * step[0]) * x.h_stride + (w0 + left * step[1]) * x.w_stride;
      for (int64_t c = 0; !together && c < layout.channels; ++c) {
        T* plane = planes + layout.offset(c, a, b, 0, 0);
        std::fill(plane, plane + top * pitch, T(0));
        std::fill(plane + bottom * pitch, plane + layout.plane(), T(0));
        const int64_t at = first + c * x.c_stride;
        kernels.copy_rows({.rows = bottom - top,
                           .count = right - left,
                           .from = x.data + at,
                           .from_stride = h_step,
                           .to = plane + top * pitch,
                           .to_stride = pitch,
                           .left = left,
                           .right = pitch - right,
                           .mask = mask ? mask + at : nullptr,
                           .step = w_step});
      }
      for (int64_t i = top; together && i < bottom; ++i) {
        const int64_t at = first + (i - top) * h_step;
        kernels.transpose({x.data + at, w_step, right - left, layout.channels, planes + layout.offset(0, a, b, i, left),
                           layout.channel_stride(), mask ? mask + at : nullptr});
      }
    }
}

}  // namespace gradus::openmp_detail
