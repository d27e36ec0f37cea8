// Images laid out so that a convolution reads them with plain vector loads, without an im2col: every channel becomes a
// plane with the padding written out, in which the rows follow each other at a fixed pitch. Output pixel (p, q) is
// position p * pitch + q, and what tap (r, s) reads for all output pixels is the plane shifted by one offset. Positions
// between the end of an output row and the next row are computed in vain; to keep them few, the padding at the end of a
// row is the padding at the start of the next.
//
// A stride is undone by splitting: with stride 2, even and odd rows (columns) form planes of their own, called phases,
// in which consecutive output pixels are consecutive again.
#pragma once

#include <algorithm>
#include <cstring>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/scratch.h>
#include <gradus/core/backend.h>

namespace gradus::openmp {

/// A batch of images under one-letter sizes.
template <class T>
struct Images {
  T* data;
  int64_t N, C, H, W;
  int64_t n_stride, c_stride, h_stride, w_stride;

  template <class AnyView>
  explicit Images(const AnyView& view)
      : data(view.template as<std::remove_const_t<T>>()), N(view.shape[0]), C(view.shape[1]), H(view.shape[2]),
        W(view.shape[3]), n_stride(view.strides[0]), c_stride(view.strides[1]), h_stride(view.strides[2]),
        w_stride(view.strides[3]) {}
};

/// Row h of an image is row (h + shift[0]) / split[0] - first_row of phase (h + shift[0]) % split[0]; columns alike.
struct PlaneLayout {
  int64_t channels = 0, split[2] = {1, 1}, shift[2] = {0, 0};
  int64_t rows = 0, pitch = 0;

  int64_t plane() const { return rows * pitch; }
  int64_t channel_stride() const { return split[0] * split[1] * plane(); }
  int64_t offset(int64_t channel, int64_t row_phase, int64_t column_phase, int64_t row, int64_t column) const {
    return channel * channel_stride() + (row_phase * split[1] + column_phase) * plane() + row * pitch + column;
  }

  /// The least pitch for images of width `W` when outputs of width `columns` read up to `reach` columns further.
  void set_pitch(int64_t W, int64_t columns, int64_t reach) {
    const int64_t read = columns + reach, held = (W - 1 + shift[1]) / split[1] + 1;
    const int64_t shared = split[1] == 1 ? std::max<int64_t>(shift[1], 0) : 0;  // zeros that the next row starts with
    pitch = std::max({std::min(read, std::max(read - shared, held)), columns, int64_t{1}});
  }
};

/// Writes rows first_row … first_row + layout.rows of image n to `planes`, channels first_channel and following. Where
/// `mask` is given (laid out in memory like the images), only elements with mask > 0 count.
template <class T>
void fill_planes(const Kernels<T>& kernels, const PlaneLayout& layout, const Images<const T>& x, int64_t n,
                 int64_t first_row, const T* mask, T* planes) {
  const bool channels_last = x.c_stride == 1 && x.w_stride != 1 && !mask;
  const int64_t together = channels_last ? layout.channels : 1;  // channels copied in one go
  for (int64_t c = 0; c < layout.channels; c += together)
    for (int64_t a = 0; a < layout.split[0]; ++a)
      for (int64_t i = 0; i < layout.rows; ++i) {
        const int64_t h = (first_row + i) * layout.split[0] + a - layout.shift[0];
        for (int64_t b = 0; b < layout.split[1]; ++b) {
          // Columns [begin, end) hold the image, the others are padding.
          const int64_t offset = b - layout.shift[1], step = layout.split[1];  // w = j * step + offset
          int64_t begin = offset < 0 ? std::min(divide_up(-offset, step), layout.pitch) : 0;
          int64_t end = offset < x.W ? std::min(divide_up(x.W - offset, step), layout.pitch) : 0;
          if (h < 0 || h >= x.H || end < begin) begin = end = 0;
          T* to = planes + layout.offset(c, a, b, i, 0);
          for (int64_t k = 0; k < together; ++k) {
            T* row = to + k * layout.channel_stride();
            for (int64_t j = 0; j < begin; ++j) row[j] = T(0);
            for (int64_t j = end; j < layout.pitch; ++j) row[j] = T(0);
          }
          if (begin == end) continue;
          const int64_t at = n * x.n_stride + c * x.c_stride + h * x.h_stride + (begin * step + offset) * x.w_stride;
          const int64_t w_step = step * x.w_stride, count = end - begin;
          if (channels_last) {
            kernels.transpose(x.data + at, w_step, count, together, to + begin, layout.channel_stride());
          } else if (mask) {
            for (int64_t j = 0; j < count; ++j)
              to[begin + j] = mask[at + j * w_step] > 0 ? x.data[at + j * w_step] : T(0);
          } else if (w_step == 1) {
            std::memcpy(to + begin, x.data + at, static_cast<size_t>(count) * sizeof(T));
          } else {
            for (int64_t j = 0; j < count; ++j) to[begin + j] = x.data[at + j * w_step];
          }
        }
      }
}

}  // namespace gradus::openmp
