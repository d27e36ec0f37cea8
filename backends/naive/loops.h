// Shared by the naive kernels: the loop over elements and the type of accumulators.
#pragma once

#include <gradus/core/backend.h>

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
  if (numel_of(shape) == 0) return;
  Odometer<N> odometer{shape, strides};
  do f(static_cast<const int64_t*>(odometer.at));
  while (odometer.next());
}

/// `shape` with size 1 at `axis`, for the outer loop of kernels that loop over `axis` themselves.
inline Shape without_axis(const Shape& shape, int axis) {
  Shape outer = shape;
  if (outer.size() > 0) outer[axis] = 1;
  return outer;
}

}  // namespace gradus::naive_detail
