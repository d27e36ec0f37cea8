// Reductions over the threads of a warp, and of a block that consists of whole warps. They are deterministic, because
// values are folded in fixed trees.
#pragma once

#include <type_traits>

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

/// Returns the `value` of the lane whose number differs from this lane's number only in the bit `step`.
template <class A>
__device__ A shfl_xor(const A& value, int step) {
  if constexpr (std::is_arithmetic_v<A>) return __shfl_xor_sync(0xffffffffu, value, step);
  else return value.shfl_xor(step);
}

/// Adds each of the 2 kCount `values` over a group of lanes, namely those whose numbers differ only in the bits
/// kStep, kStep / 2, …, kLast, and distributes the sums: afterwards each lane of the group has an equal share of them
/// in the first elements of its `values`, in the order of the lanes. In each step, a lane sends kCount of its 2 kCount
/// remaining values to one other lane, and receives as many.
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

/// Folds the values of each group of kLanes neighbouring lanes in a fixed tree; every lane gets its group's result.
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

/// Folds the values of all threads of a block; every thread gets the result. `shared` has room for 32 values.
template <class A, class F>
__device__ A block_reduce(A value, A* shared, F&& fold) {
  value = warp_reduce(value, fold);
  const uint32_t warps = blockDim.x / 32;
  if (warps == 1) return value;
  __syncthreads();  // other threads may still read `shared` from an earlier call
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

/// The larger of two numbers; NaN only if both are NaN. This is sufficient for softmax: if one number is NaN, the sum
/// of exponentials is NaN anyway.
struct LargerNumber {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return ::fmax(a, b);
  }
};

}  // namespace gradus::cuda_detail
