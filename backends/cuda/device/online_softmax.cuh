// Sums of exponentials in one pass, which softmax and cross-entropy need.
#pragma once

#include <gradus/backends/cuda/device/row.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::cuda_detail {

/// exp(x) for a sum to which 1 belongs, good to 2^-22 where x is about 0.
__device__ inline float rough_exponential(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));  // log2(e)
  return power;
}
__device__ inline double rough_exponential(double x) { return ::exp(x); }
/// exp(x) for a result of type T.
template <class T>
__device__ compute_t<T> exponential(compute_t<T> x) {
  if constexpr (sizeof(T) == 2) return rough_exponential(x);
  else return ::exp(x);
}

/// m = max(x) and sum(exp(x - m)) of numbers that come a few at a time, in one pass (Milakov and Gimelshein 2018).
/// Where all are -inf the sum stays 0.
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
  /// Of all threads of a block, in each of them. `shared` has room for 32 values.
  __device__ void fold_over_block(C* shared) {
    const C top = block_reduce(max, shared, LargerNumber());
    sum = block_reduce(sum * rough_exponential(max - base_of(top)), shared, Add());
    max = top;
  }

 private:
  // Without it -inf - -inf would be NaN.
  __device__ static C base_of(C top) { return top == -C(INFINITY) ? C(0) : top; }
};

/// That of a row, whose element i is at(i), by a block.
template <class C, class At>
__device__ RunningSum<C> running_sum_of_row(int64_t size, C* shared, At&& at) {
  constexpr int kAtOnce = 4;
  RunningSum<C> result;
  for (int64_t first = threadIdx.x; first < size; first += kAtOnce * blockDim.x) {
    C x[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t i = first + k * static_cast<int64_t>(blockDim.x);
      x[k] = i < size ? at(i) : -C(INFINITY);
    }
    result.add(x);
  }
  result.fold_over_block(shared);
  return result;
}

/// By vectors where there are any.
template <class C, class T, class... Others>
__device__ RunningSum<C> running_sum_of_row(const VectorizedRows<T, Others...>& rows, const Row<T>& row, C* shared) {
  if (rows.head == rows.size)
    return running_sum_of_row<C>(rows.size, shared, [&](int64_t i) { return static_cast<C>(row.data[i * row.step]); });
  RunningSum<C> result;
  rows.walk([&]<int kWidth>(int64_t i) {
    const auto vec = row.template load<kWidth>(i);
    C x[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) x[k] = static_cast<C>(vec.value[k]);
    result.add(x);
  });
  result.fold_over_block(shared);
  return result;
}

}  // namespace gradus::cuda_detail
