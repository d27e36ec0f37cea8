// Sums of exponentials in one pass, for softmax and cross-entropy.
#pragma once

#include <gradus/backends/cuda/device/row.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::cuda_detail {

/// A fast exp(x) for the terms of a sum whose largest term is 1; accurate to 2^-22 for x near 0.
__device__ inline float rough_exponential(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));  // log2(e)
  return power;
}
__device__ inline double rough_exponential(double x) { return ::exp(x); }
/// exp(x), as accurate as a result of type T needs.
template <class T>
__device__ compute_t<T> exponential(compute_t<T> x) {
  if constexpr (sizeof(T) == 2) return rough_exponential(x);
  else return ::exp(x);
}

/// m = max(x) and sum(exp(x - m)) of numbers that are added a few at a time, in one pass (Milakov and Gimelshein 2018).
/// If all numbers are -inf, the sum is 0.
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
