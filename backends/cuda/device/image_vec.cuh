// Vectors of adjacent elements of an image, which a thread loads and stores at once: channels of a channels-last pixel,
// or columns of a row.
#pragma once

#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus::cuda_detail {

enum class Along { columns, channels };

/// The axis along which elements of the image are adjacent in memory.
inline Along neighbours_of(const View& image) {
  return image.shape[1] > 1 && image.strides[1] == 1 ? Along::channels : Along::columns;
}

/// Returns true if `vec` neighbours at a time can be loaded and stored as a Vec.
inline bool can_vectorize(const View& view, Along along, int vec) {
  return vec == 1 || has_vectors_along(view, along == Along::channels ? 1 : 3, vec);
}

/// The indices of a vector's first element.
struct Place {
  uint32_t n, c;
  int row, column;
};

/// All vectors of an image, numbered in memory order.
struct ImageVectors {
  Divisor channels, rows, columns;
  uint32_t count;

  ImageVectors(const Shape& image, Along along, int vec)
      : channels(image[1] / (along == Along::channels ? vec : 1)), rows(image[2]),
        columns(image[3] / (along == Along::columns ? vec : 1)),
        count(static_cast<uint32_t>(image[0] * image[1] * image[2] * image[3] / vec)) {}

  template <Along kAlong, int kVec>
  __device__ Place place(uint32_t e) const {
    uint32_t n, c, row, column;
    if constexpr (kAlong == Along::channels) {
      c = e, column = channels.split(c), row = columns.split(column), n = rows.split(row);
      c *= kVec;
    } else {
      column = e, row = columns.split(column), c = rows.split(row), n = channels.split(c);
      column *= kVec;
    }
    return {n, c, static_cast<int>(row), static_cast<int>(column)};
  }
};

/// An image as a kernel argument.
template <class T>
struct Image {
  T* data;
  Strides4 strides;

  explicit Image(const auto& view) : data(view.template as<std::remove_const_t<T>>()), strides(view.strides) {}
  __device__ T* plane(const Place& at) const { return data + at.n * strides.n + at.c * strides.c; }
  __device__ T* element(const Place& at) const { return plane(at) + at.row * strides.h + at.column * strides.w; }
};

/// Calls run<vec>() with the largest power of two up to kVec for which fits(vec) is true; 1 always fits.
template <int kVec, class Fits, class Run>
void run_largest(const Fits& fits, const Run& run) {
  if constexpr (kVec > 1) {
    if (!fits(kVec)) return run_largest<kVec / 2>(fits, run);
  }
  run.template operator()<kVec>();
}

}  // namespace gradus::cuda_detail
