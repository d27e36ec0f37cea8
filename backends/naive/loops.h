// Shared by the naive kernels: the loops over elements and the type of accumulators. Under a SkipChunksGuard the loops
// do nothing, as parallel_for does.
#pragma once

#include <gradus/core/backend.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::naive_detail {

/// double for floating types, int64 for integers and booleans.
template <class T>
using accumulate_t = std::conditional_t<is_floating(dtype_of<T>), double, int64_t>;

/// The offsets of the elements in logical row-major order, one after another, for N operands with their own strides.
template <int N>
struct Odometer {
  const Shape& shape;
  const Strides* const (&strides)[N];
  int64_t at[N] = {}, index[kMaxDims] = {};

  /// Moves to the next element; returns false after the last. Not inlined, because it is most of a kernel's code and
  /// compile time, and element-wise kernels are instantiated for each operator and dtype.
  [[gnu::noinline]] bool next() {
    for (int axis = shape.size() - 1; axis >= 0; --axis) {  // the last axis varies fastest
      for (int k = 0; k < N; ++k) at[k] += (*strides[k])[axis];
      if (++index[axis] < shape[axis]) return true;
      for (int k = 0; k < N; ++k) at[k] -= (*strides[k])[axis] * shape[axis];
      index[axis] = 0;
    }
    return false;
  }
};

/// Calls f(at) for every index of `shape` in logical row-major order; at[k] is the offset of that element, in elements,
/// for operand k's strides. A shape with a zero has no index, and the shape () of a scalar has one.
template <int N, class F>
void for_each(const Shape& shape, const Strides* const (&strides)[N], F&& f) {
  if (numel_of(shape) == 0 || detail::skips_chunks) return;
  Odometer<N> odometer{shape, strides};
  do f(static_cast<const int64_t*>(odometer.at));
  while (odometer.next());
}

/// Calls f(i) for 0 <= i < count.
template <class F>
void loop(int64_t count, F&& f) {
  if (detail::skips_chunks) return;
  for (int64_t i = 0; i < count; ++i) f(i);
}

/// Calls f(i, j, k, l) for every index of a four-dimensional shape in row-major order.
template <class F>
void loop_4d(const Shape& shape, F&& f) {
  loop(shape[0], [&](int64_t i) {
    for (int64_t j = 0; j < shape[1]; ++j)
      for (int64_t k = 0; k < shape[2]; ++k)
        for (int64_t l = 0; l < shape[3]; ++l) f(i, j, k, l);
  });
}

/// An element of a four-dimensional view.
template <class T, class AnyView>
auto& at(const AnyView& view, int64_t i, int64_t j, int64_t k, int64_t l) {
  const Strides& s = view.strides;
  return view.template as<T>()[i * s[0] + j * s[1] + k * s[2] + l * s[3]];
}

/// `shape` with size 1 at `axis`, for the outer loop of kernels that loop over `axis` themselves.
inline Shape without_axis(const Shape& shape, int axis) {
  Shape outer = shape;
  if (outer.size() > 0) outer[axis] = 1;
  return outer;
}

}  // namespace gradus::naive_detail
