// For softmax and cross-entropy: rows that a block reads and writes, in vectors if their alignment allows it, and the
// sum of the exponentials of a row in one pass.
#pragma once

#include <type_traits>

#include <gradus/backends/cuda/device/reduce_plan.h>
#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::cuda_detail {

/// A row whose element i is data[i * step].
template <class T>
struct Row {
  T* data;
  int64_t step;

  template <int kWidth>
  __device__ auto load(int64_t i) const {
    if constexpr (kWidth == 1) return Vec<std::remove_const_t<T>, 1>{data[i * step]};
    else return cuda_detail::load<kWidth>(static_cast<const std::remove_const_t<T>*>(data) + i);
  }
  template <int kWidth>
  __device__ void store(int64_t i, const Vec<T, kWidth>& vec) const {
    if constexpr (kWidth == 1) data[i * step] = vec.value[0];
    else cuda_detail::store(data + i, vec);
  }
  /// Number of elements from the last 16-byte boundary to the row's first element.
  __device__ uint32_t place() const { return reinterpret_cast<uintptr_t>(data) % 16 / sizeof(T); }
};

/// The elements [head, tail) of several rows of equal length that can be accessed in vectors of 16 bytes. The range is
/// empty unless all rows are contiguous and begin at the same distance from a 16-byte boundary.
template <class T, class... Others>
struct VectorizedRows {
  static constexpr int kWidth = 16 / sizeof(T);
  int64_t size, head = size, tail = size;

  __device__ VectorizedRows(int64_t size, const Row<T>& row, const Row<Others>&... others) : size(size) {
    if (row.step != 1 || !(... && (others.step == 1 && others.place() == row.place()))) return;
    head = min(size, static_cast<int64_t>((kWidth - row.place()) % kWidth));
    tail = size - (size - head) % kWidth;
  }
  /// Calls f<kWidth>(i) for each vector, which begins at element i, and f<1>(i) for each element i outside [head,
  /// tail). The threads of the block share the calls.
  template <class F>
  __device__ void for_each_vec(F&& f) const {
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < head; i += blockDim.x) f.template operator()<1>(i);
    for (int64_t i = head + kWidth * threadIdx.x; i < tail; i += kWidth * blockDim.x) f.template operator()<kWidth>(i);
    for (int64_t i = tail + threadIdx.x; i < size; i += blockDim.x) f.template operator()<1>(i);
  }
};

/// A block computes to[i] = f(i, from[i]…) for all elements of a row. f gets its operands in compute_t of the output's
/// type (float for half types).
template <class Rows, class Out, class F, class... In>
__device__ void map_row(const Rows& rows, const Row<Out>& to, F&& f, const Row<In>&... from) {
  rows.for_each_vec([&]<int kWidth>(int64_t i) {
    Vec<Out, kWidth> out;
    [&](const auto&... in) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        out.value[k] = static_cast<Out>(f(i + k, static_cast<compute_t<Out>>(in.value[k])...));
    }(from.template load<kWidth>(i)...);
    to.store(i, out);
  });
}

/// A fast exp(x) for the terms of a sum whose largest term is 1; accurate to 2^-22 for x near 0.
__device__ inline float rough_exponential(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));  // log2(e)
  return power;
}
__device__ inline double rough_exponential(double x) { return ::exp(x); }
/// exp(x) with the accuracy of type T.
template <class T>
__device__ compute_t<T> exponential(compute_t<T> x) {
  if constexpr (sizeof(T) == 2) return rough_exponential(x);
  else return ::exp(x);
}

/// Computes m = max(x) and sum(exp(x - m)) of numbers that are added a few at a time, in one pass (Milakov and
/// Gimelshein 2018). If all numbers are -inf, the sum is 0.
template <class C>
struct RunningSum {
  C max = -C(INFINITY), sum = 0;

  template <int N>
  __device__ void add(const C (&x)[N]) {
    C top = max;
#pragma unroll
    for (int k = 0; k < N; ++k) top = LargerNumber()(x[k], top);
    const C base = base_of(top);
    sum *= rough_exponential(max - base);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += rough_exponential(x[k] - base);
    max = top;
  }
  // Replaces a maximum of -inf by 0, because -inf - -inf is NaN.
  __device__ static C base_of(C top) { return top == -C(INFINITY) ? C(0) : top; }
};

/// The RunningSum of a row, computed by a block; every thread gets it. `shared` has room for 32 values.
template <class C, class T, class Rows>
__device__ RunningSum<C> running_sum_of_row(const Rows& rows, const Row<T>& row, C* shared) {
  RunningSum<C> result;
  rows.for_each_vec([&]<int kWidth>(int64_t i) {
    const auto vec = row.template load<kWidth>(i);
    C x[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) x[k] = static_cast<C>(vec.value[k]);
    result.add(x);
  });
  const C max = block_reduce(result.max, shared, LargerNumber());
  return {max, block_reduce(result.sum * rough_exponential(result.max - result.base_of(max)), shared, Add())};
}

}  // namespace gradus::cuda_detail
