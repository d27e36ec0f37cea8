// Loops over rows: runs along an axis that are copied or processed as a whole.
#pragma once

#include <array>

#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/scratch.h>

namespace gradus::openmp_detail {

/// Returns a copy of the loop nest, which must not be empty, without one of its axes.
template <int N>
StridedLoop<N> without_axis(StridedLoop<N> nest, int axis) {
  nest.numel /= nest.shape[axis];
  for (--nest.ndim; axis < nest.ndim; ++axis) {
    nest.shape[axis] = nest.shape[axis + 1];
    for (int k = 0; k < N; ++k) nest.strides[k][axis] = nest.strides[k][axis + 1];
  }
  return nest;
}

/// Returns a loop nest for N operands. If `inner` is true, it loops over the axes of `shape` whose bits are set in
/// `axes`, otherwise over the other axes.
template <int N>
StridedLoop<N> nest_of(Shape shape, uint32_t axes, bool inner, const std::array<Strides, N>& strides) {
  for (int i = 0; i < shape.size(); ++i)
    if (((axes >> i) & 1u) != (inner ? 1u : 0u)) shape[i] = 1;
  const Strides* pointers[N];
  for (size_t k = 0; k < N; ++k) pointers[k] = &strides[k];
  return StridedLoop<N>(shape, pointers);
}

/// The step to the next element along an axis.
inline int64_t step_along(const StridedLayout& view, int axis) { return view.ndim() ? view.strides[axis] : 0; }

/// The rows along an axis of N operands with the same shape. If other elements are closer in memory than those of a row
/// of operand 0 (the channels of an image), neighbouring rows are processed together and transposed in the cache.
template <int N>
struct RowsAlong {
  static constexpr int64_t kMostTogether = 256;

  StridedLoop<N> nest;  ///< over the rows
  int64_t size, together = 1, along[N];
  int64_t pitch;  ///< distance between rows in a buffer

  RowsAlong(const Shape& shape, int axis, const Strides* const (&strides)[N])
      : nest(reduced_shape(shape, 1u << axis, true), strides), size(shape.size() ? shape[axis] : 1),
        pitch(size % 256 ? size : size + 16) {  // puts rows in different sets of the first-level cache
    constexpr int64_t kElements = 16384;        // elements of the rows that are processed together
    for (int k = 0; k < N; ++k) along[k] = shape.size() ? (*strides[k])[axis] : 0;
    if (size > 1 && nest.ndim > 0 && nest.shape[nest.ndim - 1] >= 8 && step_of(nest, 0) < along[0])
      together = std::clamp<int64_t>(kElements / size, 16, kMostTogether);
  }

  /// These rows restricted to a part of `count` elements. The caller then passes offsets of the first element of the
  /// part.
  RowsAlong of_size(int64_t count) const {
    RowsAlong part = *this;
    part.size = count;
    part.pitch = count % 256 ? count : count + 16;
    return part;
  }

  /// Buffer size, in elements, for the rows that are processed together.
  int64_t room() const { return together * pitch; }
  /// Calls f(memory, offsets, rows) for groups of neighbouring rows, on several threads. How threads divide the rows
  /// depends only on the shape. `memory` belongs to the thread and has room for `buffers` buffers of room() elements.
  template <class C, class F>
  void each(int64_t buffers, F&& f) const {
    each_with_room<C>(buffers * room(), std::forward<F>(f));
  }
  /// each() with memory for `room` elements.
  template <class C, class F>
  void each_with_room(int64_t room, F&& f) const {
    const int64_t least = ceil_div(kGrain / 4, std::max<int64_t>(size, 1));
    parallel_chunks<C>(nest.numel, round_up(least, together), room, [&](int64_t begin, int64_t end, C* memory) {
      for_each_run(nest, begin, end, [&](const int64_t* at, int64_t count) {
        for (int64_t i = 0; i < count; i += together) {
          int64_t offsets[N];
          for (int k = 0; k < N; ++k) offsets[k] = at[k] + i * step_of(nest, k);
          f(memory, offsets, std::min(together, count - i));
        }
      });
    });
  }

  /// `count` rows of operand k with distance `pitch`: in place if possible, else in `buffer`.
  template <class C>
  const C* load(int k, const View& x, const int64_t* at, int64_t count, C* buffer) const {
    if (count == 1) return load_block(x, at[k], along[k], size, buffer);
    if constexpr (std::is_floating_point_v<C>)
      if (can_transpose<C>(k, x)) {
        kernels_of<C>(kernel_table()).transpose({x.as<C>() + at[k], along[k], size, count, buffer, pitch});
        return buffer;
      }
    for (int64_t i = 0; i < count; ++i) {
      C* to = buffer + i * pitch;
      const C* from = load_block(x, at[k] + i * step_of(nest, k), along[k], size, to);
      if (from != to) std::copy_n(from, size, to);
    }
    return buffer;
  }
  /// Writes rows from a buffer to y; the inverse of load().
  template <class C>
  void store(int k, const C* buffer, const MutableView& y, const int64_t* at, int64_t count) const {
    if (count > 1 && can_transpose<C>(k, y))
      return kernels_of<C>(kernel_table()).transpose({buffer, pitch, count, size, y.as<C>() + at[k], along[k]});
    for (int64_t i = 0; i < count; ++i)
      store_block(buffer + i * pitch, y, at[k] + i * step_of(nest, k), along[k], size);
  }

 private:
  template <class C>
  bool can_transpose(int k, const StridedLayout& x) const {
    return x.dtype == dtype_of<C> && step_of(nest, k) == 1;
  }
};

/// Copies `rows` rows of `length` contiguous elements, row i from from(i) to to(i). Later rows are prefetched, because
/// the hardware cannot predict their addresses.
template <class T, class From, class To>
void copy_rows(int64_t rows, int64_t length, From from, To to) {
  constexpr int64_t kAhead = 4, kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < rows; ++i) {
    if (i + kAhead < rows)
      for (int64_t k = 0; k < length; k += kLine) __builtin_prefetch(from(i + kAhead) + k);
    std::memcpy(to(i), from(i), static_cast<size_t>(length) * sizeof(T));
  }
}

}  // namespace gradus::openmp_detail
