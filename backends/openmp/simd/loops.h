// For element-wise operators: a parallel loop over runs of elements, and conversion of blocks of elements to the type
// of the computation. There are three such types: float (also for half types), double, and int64 (also for narrower
// integers, because wrapping once at the end gives the same result as wrapping at every step).
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/core/array/strided_loop.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {

/// kGrain: number of elements of a chunk of parallel work. kBlock: number of elements that are converted together.
inline constexpr int64_t kGrain = 16384, kBlock = 512;

/// Calls f.template operator()<C>() with the type that computations on `dtype` use.
template <class F>
decltype(auto) visit_compute(DType dtype, F&& f) {
  if (dtype == DType::f64) return f.template operator()<double>();
  if (is_floating(dtype)) return f.template operator()<float>();
  return f.template operator()<int64_t>();
}

/// visit_compute() for floating-point types; throws a DTypeError for other types.
template <class F>
decltype(auto) visit_wide(DType dtype, F&& f) {
  GRADUS_CHECK(is_floating(dtype), DTypeError, "needs a floating-point type, got ", dtype);
  if (dtype == DType::f64) return f.template operator()<double>();
  return f.template operator()<float>();
}

/// The type in which values of type C are summed.
template <class C>
using accumulator_t = std::conditional_t<std::is_floating_point_v<C>, double, int64_t>;

/// Calls f.template operator()<T>() with the C++ type T of `dtype` if T is C or computations on T use C. Otherwise does
/// nothing.
template <class C, class F>
void visit_stored(DType dtype, F&& f) {
  visit(dtype, [&]<class T> {
    using Computed = std::conditional_t<is_floating(dtype_of<T>), compute_t<T>, int64_t>;
    if constexpr (std::is_same_v<Computed, C> || std::is_same_v<T, C>) f.template operator()<T>();
  });
}

template <class T>
inline constexpr bool is_half = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

/// Converts contiguous elements; half types in vectors.
template <class T, class C>
void convert_block(const T* from, C* to, int64_t count) {
  if constexpr (is_half<T> && std::is_same_v<C, float>) kernels_of<T>(kernel_table()).widen(from, to, count);
  else if constexpr (is_half<C> && std::is_same_v<T, float>) kernels_of<C>(kernel_table()).narrow(from, to, count);
  else
    for (int64_t i = 0; i < count; ++i) to[i] = scalar::convert<C>(from[i]);
}

/// Elements offset, offset + step, … of x: in place if possible, else converted into `buffer`.
template <class C>
const C* load_block(const View& x, int64_t offset, int64_t step, int64_t count, C* buffer) {
  if (step == 1 && x.dtype == dtype_of<C>) return x.as<C>() + offset;
  visit_stored<C>(x.dtype, [&]<class T> {
    const T* from = x.as<T>() + offset;
    if (step == 0) std::fill_n(buffer, count, static_cast<C>(*from));
    else if (step == 1) convert_block(from, buffer, count);
    else
      for (int64_t i = 0; i < count; ++i) buffer[i] = static_cast<C>(from[i * step]);
  });
  return buffer;
}

/// Writes a block to y and converts it to y's type; the inverse of load_block().
template <class C>
void store_block(const C* buffer, const MutableView& y, int64_t offset, int64_t step, int64_t count) {
  visit_stored<C>(y.dtype, [&]<class T> {
    T* to = y.as<T>() + offset;
    if (step == 1) {
      if constexpr (std::is_same_v<T, C>) std::memcpy(to, buffer, static_cast<size_t>(count) * sizeof(T));
      else convert_block(buffer, to, count);
      return;
    }
    for (int64_t i = 0; i < count; ++i) to[i * step] = static_cast<T>(buffer[i]);
  });
}

/// Calls f(i) for i < count on several threads, in chunks of `grain` consecutive i.
template <class F>
void parallel_each(int64_t count, int64_t grain, F&& f) {
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

/// Returns true if the elements are contiguous in row-major order.
inline bool is_row_major(const StridedLayout& x) {
  return StridedLoop<1>(x.shape, {&x.strides}, /*logical_order=*/true).all_contiguous();
}

/// Calls run(offsets, count) for elements [begin, end) of the nest, in runs that end where the innermost axis ends. The
/// elements of operand k start at offsets[k] with stride loop.strides[k][loop.ndim - 1].
template <int N, class F>
void for_each_run(const StridedLoop<N>& loop, int64_t begin, int64_t end, F&& run) {
  if (begin >= end) return;
  const int inner = loop.ndim - 1;
  int64_t place[kMaxDims] = {}, offsets[N] = {};  // indices and offsets of the next element
  int64_t rest = begin;
  for (int axis = inner; axis >= 0; rest /= loop.shape[axis--]) {
    place[axis] = rest % loop.shape[axis];
    for (int k = 0; k < N; ++k) offsets[k] += place[axis] * loop.strides[k][axis];
  }
  while (true) {
    const int64_t count = inner < 0 ? 1 : std::min(loop.shape[inner] - place[inner], end - begin);
    run(offsets, count);
    if ((begin += count) >= end) return;
    // Move to the start of the next innermost line, like an odometer.
    for (int k = 0; k < N; ++k) offsets[k] -= place[inner] * loop.strides[k][inner];
    place[inner] = 0;
    for (int axis = inner - 1; axis >= 0; --axis) {
      for (int k = 0; k < N; ++k) offsets[k] += loop.strides[k][axis];
      if (++place[axis] < loop.shape[axis]) break;
      for (int k = 0; k < N; ++k) offsets[k] -= place[axis] * loop.strides[k][axis];
      place[axis] = 0;
    }
  }
}

/// for_each_run() for the whole nest, on several threads.
template <int N, class F>
void parallel_runs(const StridedLoop<N>& loop, F&& run, int64_t grain = kGrain) {
  parallel_for(loop.numel, grain, [&](int64_t begin, int64_t end) { for_each_run(loop, begin, end, run); });
}

/// The operands' offsets of element `index`.
template <int N>
std::array<int64_t, N> offsets_of(const StridedLoop<N>& loop, int64_t index) {
  std::array<int64_t, N> offsets{};
  for_each_run(loop, index, index + 1, [&](const int64_t* at, int64_t) { std::copy_n(at, N, offsets.begin()); });
  return offsets;
}

/// The stride of operand k within a run.
template <int N>
int64_t step_of(const StridedLoop<N>& loop, int k) {
  return loop.ndim > 0 ? loop.strides[k][loop.ndim - 1] : 1;
}

}  // namespace gradus::openmp_detail
