// Helpers of the naive kernels: loops over elements, the type of accumulators, and checks of index arrays. The loops do
// nothing while a SkipChunksGuard (core/parallel/parallel.h) is active.
#pragma once

#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/observer.h>

namespace gradus::naive_detail {

/// The event of a kernel of this backend, for observers (core/runtime/observer.h).
struct NaiveEvent : EventScope {
  NaiveEvent(const char* name, Operands operands, int64_t flops = 0)
      : EventScope(name, "naive", "loops", operands, flops) {}
};

/// double for floating types, int64 for integers and booleans.
template <class T>
using accumulate_t = std::conditional_t<is_floating(dtype_of<T>), double, int64_t>;

/// Runs through the elements of N operands of the same shape in row-major order of their indices. at[k] is the offset
/// of the current element in operand k.
template <int N>
struct Odometer {
  const Shape& shape;
  const Strides* const (&strides)[N];
  int64_t at[N] = {}, index[kMaxDims] = {};

  /// Moves to the next element; returns false after the last. Not inlined: element-wise kernels are instantiated for
  /// each operator and dtype, and copies of this loop would be most of their code and compile time.
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

/// Calls f(at) for every index of `shape` in row-major order. at[k] is the offset, in elements, of the element with
/// that index in operand k, which has the strides `*strides[k]`. A shape with a zero has no index, and the shape () of
/// a scalar has one.
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

/// Element `offset` of a view of any floating type, for kernels whose operands may have different dtypes.
inline double load(const View& x, int64_t offset) {
  double value = 0;
  visit_floating(x.dtype, [&]<class T> { value = static_cast<double>(x.as<T>()[offset]); });
  return value;
}
/// Writes element `offset` of a view of any floating type.
inline void store(const MutableView& y, int64_t offset, double value) {
  visit_floating(y.dtype, [&]<class T> { y.as<T>()[offset] = scalar::convert<T>(value); });
}

/// `shape` with size 1 at the axes outside of the mask `axes` (bit i is axis i). A kernel that combines the elements
/// along some axes has an outer loop over only_axes(shape, ~axes) and an inner loop over only_axes(shape, axes).
inline Shape only_axes(const Shape& shape, uint32_t axes) {
  Shape result = shape;
  for (int i = 0; i < result.size(); ++i)
    if (!(axes >> i & 1u)) result[i] = 1;
  return result;
}
/// `shape` with size 1 at `axis`.
inline Shape without_axis(const Shape& shape, int axis) { return only_axes(shape, ~(1u << axis)); }

/// The shape of `index` with size 1 at axes along which it is broadcast (stride 0), so that a loop over the result
/// visits each stored index once.
Shape distinct_sizes(const View& index);
/// Throws an IndexError unless every index is in [0, size). The message names the first invalid index, its position
/// (without the axes along which the index was broadcast) and the dimension `axis` with its size.
void check_index(const View& index, int axis, int64_t size);
/// Backend::scatter with accumulate = true for a y of a half type: sums in float32, so that each sum is rounded once.
/// Does nothing and returns false if y has another type.
bool scatter_add_in_float32(Backend& backend, const View& x, int axis, const View& index, const MutableView& y);
/// Returns target[row], or -1 if target[row] == ignore_index. Throws an IndexError if target[row] is not in
/// [0, classes).
int64_t class_of(const View& target, int64_t row, int64_t ignore_index, int64_t classes);

}  // namespace gradus::naive_detail
