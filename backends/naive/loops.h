// What the naive kernels share: one odometer, and the type they accumulate in.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::naive_detail {

/// double for floating types, int64 for integers and booleans.
template <class T>
using accumulate_t = std::conditional_t<is_floating(dtype_of<T>), double, int64_t>;

/// Calls f(at) for every index of `shape` in logical row-major order; at[k] is the offset in elements that the index
/// has under operand k's strides. A shape with a zero has no index, the shape () of a scalar has one.
template <int N, class F>
void for_each(const Shape& shape, const Strides* const (&strides)[N], F&& f) {
  for (int64_t size : shape)
    if (size == 0) return;
  int64_t index[kMaxDims] = {}, at[N] = {};
  while (true) {
    f(static_cast<const int64_t*>(at));
    int axis = shape.size() - 1;  // the odometer: the last axis turns fastest
    for (; axis >= 0; --axis) {
      for (int k = 0; k < N; ++k) at[k] += (*strides[k])[axis];
      if (++index[axis] < shape[axis]) break;
      for (int k = 0; k < N; ++k) at[k] -= (*strides[k])[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

/// `shape` with size 1 at `axis`: the outer loop of kernels that walk `axis` themselves.
inline Shape without_axis(const Shape& shape, int axis) {
  Shape outer = shape;
  if (outer.size() > 0) outer[axis] = 1;
  return outer;
}

}  // namespace gradus::naive_detail
