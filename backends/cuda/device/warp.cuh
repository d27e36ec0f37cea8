// Reductions over the threads of a warp and of a block, which has whole warps. Fixed trees: the same bits run after
// run.
#pragma once

#include <type_traits>

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

/// What the lane whose number differs from this one's by the bit `step` has.
template <class A>
__device__ A shfl_xor(const A& value, int step) {
  if constexpr (std::is_arithmetic_v<A>) return __shfl_xor_sync(0xffffffffu, value, step);
  else return value.shfl_xor(step);
}

/// Adds values over the lanes that differ in the bits from kStep down to kLast; lanes end with equal shares of the
/// sums, in their order, in front. Each step exchanges half of what is left with a partner, kCount values.
template <int kStep, int kLast, int kCount, int N, class C>
__device__ void warp_reduce_scatter(C (&values)[N], int lane) {
  if constexpr (kStep >= kLast) {
    const bool upper = lane & kStep;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const C sent = upper ? values[i] : values[i + kCount], kept = upper ? values[i + kCount] : values[i];
      values[i] = kept + shfl_xor(sent, kStep);
    }
    warp_reduce_scatter<kStep / 2, kLast, kCount / 2>(values, lane);
  }
}

/// fold over groups of kLanes neighbouring lanes of a warp, in a fixed tree; every lane gets the result.
template <int kLanes, class A, class F>
__device__ A group_reduce(A value, F&& fold) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value = fold(value, shfl_xor(value, step));
  return value;
}
template <class A, class F>
__device__ A warp_reduce(A value, F&& fold) {
  return group_reduce<32>(value, fold);
}

/// fold over all threads of a block; every thread gets the result. `shared` has room for 32 values.
template <class A, class F>
__device__ A block_reduce(A value, A* shared, F&& fold) {
  value = warp_reduce(value, fold);
  const uint32_t warps = blockDim.x / 32;
  if (warps == 1) return value;
  __syncthreads();  // an earlier result may still be read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (uint32_t warp = 1; warp < warps; ++warp) value = fold(value, shared[warp]);
  return value;
}

struct Add {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};

/// The larger number; NaN only of two. A sum of exponentials finds NaN by itself.
struct LargerNumber {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return ::fmax(a, b);
  }
};

}  // namespace gradus::cuda_detail
