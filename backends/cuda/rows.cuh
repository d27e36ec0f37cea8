// Sums and maxima over the threads of a block that work on one row together. A block has whole warps.
#pragma once

#include <gradus/backends/cuda/launch.cuh>

namespace gradus::cuda_detail {

/// fold over the 32 lanes of a warp, in a fixed tree; every lane gets the result.
template <class A, class F>
__device__ A fold_warp(A value, F&& fold) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = fold(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

/// fold over all threads of a block; every thread gets the result. `shared` has room for 32 values.
template <class A, class F>
__device__ A fold_block(A value, A* shared, F&& fold) {
  value = fold_warp(value, fold);
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
struct Larger {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a > b || a != a ? a : b;
  }
};

/// Threads for a block that works on a row of `size` elements.
inline uint32_t row_threads(int64_t size) { return size <= 128 ? 32 : size <= 1024 ? 128 : 512; }

}  // namespace gradus::cuda_detail
