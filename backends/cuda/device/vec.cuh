// Vectorised loads and stores of rows and images.
#pragma once

#include <cstring>

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

/// N elements that are neighbours in memory. A thread loads and stores them with one instruction for every 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T value[N];
};
/// Returns true if the view consists of vectors of `vec` neighbours along `axis` that are aligned as a Vec.
inline bool has_vectors_along(const View& view, int axis, int64_t vec) {
  const auto size = static_cast<int64_t>(size_of(view.dtype)), aligned = std::min(vec, 16 / size);
  if (view.ndim() == 0 || view.strides[axis] != 1 || view.shape[axis] % vec != 0) return false;
  for (int i = 0; i < view.ndim(); ++i)
    if (i != axis && view.shape[i] != 1 && view.strides[i] % aligned != 0) return false;
  return reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(aligned * size) == 0;
}

template <int N, class T>
__device__ Vec<T, N> load(const T* from) {
  return *reinterpret_cast<const Vec<T, N>*>(from);
}
/// Stores a vector to device memory with asm statements, because the compiler may split an ordinary store into a store,
/// and thus a memory transaction, for each element.
template <int N, class T>
__device__ void store(T* to, const Vec<T, N>& vec) {
  if constexpr (sizeof(vec) % 8 == 0) {
    uint32_t words[sizeof(vec) / 4];
    memcpy(words, &vec, sizeof(vec));
    const size_t at = __cvta_generic_to_global(to);
    if constexpr (sizeof(vec) == 8)
      asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(words[0]), "r"(words[1]) : "memory");
#pragma unroll
    for (size_t i = 0; i < sizeof(vec) / 16; ++i)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at + 16 * i), "r"(words[4 * i]),
                   "r"(words[4 * i + 1]), "r"(words[4 * i + 2]), "r"(words[4 * i + 3])
                   : "memory");
  } else {
    *reinterpret_cast<Vec<T, N>*>(to) = vec;
  }
}

// ---- Vectors of an image: channels of a channels-last pixel, or columns of a row ----

enum class Along { columns, channels };

/// The axis along which elements of the image are adjacent in memory.
inline Along neighbours_of(const View& image) {
  return image.shape[1] > 1 && image.strides[1] == 1 ? Along::channels : Along::columns;
}

/// Returns true if `vec` neighbouring elements along this axis can be loaded and stored as a Vec.
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
        count(u32(image[0] * image[1] * image[2] * image[3] / vec)) {}

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
