// Rows: runs along the innermost axis of a nest that are moved whole.
#pragma once

#include <array>

#include <gradus/backends/openmp/simd/loops.h>

namespace gradus::openmp_detail {

/// A nest with elements without one of its axes.
template <int N>
StridedLoop<N> without_axis(StridedLoop<N> nest, int axis) {
  nest.numel /= nest.shape[axis];
  for (--nest.ndim; axis < nest.ndim; ++axis) {
    nest.shape[axis] = nest.shape[axis + 1];
    for (int k = 0; k < N; ++k) nest.strides[k][axis] = nest.strides[k][axis + 1];
  }
  return nest;
}

/// The axes of `shape` in (or not in) `axes` as a nest over N operands.
template <int N>
StridedLoop<N> nest_of(const Shape& shape, uint32_t axes, bool inner, const std::array<Strides, N>& strides) {
  Shape part;
  std::array<Strides, N> part_strides;
  for (int i = 0; i < shape.size(); ++i) {
    if (((axes >> i) & 1u) != (inner ? 1u : 0u)) continue;
    part.push_back(shape[i]);
    for (size_t k = 0; k < N; ++k) part_strides[k].push_back(strides[k][i]);
  }
  const Strides* pointers[N];
  for (size_t k = 0; k < N; ++k) pointers[k] = &part_strides[k];
  return StridedLoop<N>(part, pointers);
}

/// The rows along an axis: a shape with one element there, and the step to a row's next element.
inline Shape rows_of(Shape shape, int axis) {
  if (shape.size() > 0) shape[axis] = 1;
  return shape;
}
inline int64_t step_along(const StridedLayout& view, int axis) { return view.ndim() ? view.strides[axis] : 0; }

/// Copies `rows` rows of `length` neighbours each, row i from from(i) to to(i). Rows to come are fetched ahead: where
/// they are, the hardware cannot know.
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
