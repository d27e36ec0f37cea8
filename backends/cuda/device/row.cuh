// Elements of a row that a block shares out, several of a thread under way at once.
#pragma once

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

/// Elements that a thread takes at once, blockDim.x apart.
inline constexpr int kRowBatch = 8;

/// store(i, f(i)) for all i below `size`, by a block. Behind the end f is asked for the last one again: no load waits
/// for a test, nor for a store of its batch.
template <class C, class F, class Store>
__device__ void map_row(int64_t size, F&& f, Store&& store) {
  for (int64_t first = threadIdx.x; first < size; first += kRowBatch * blockDim.x) {
    C results[kRowBatch];
#pragma unroll
    for (int k = 0; k < kRowBatch; ++k) results[k] = f(min(first + k * blockDim.x, size - 1));
#pragma unroll
    for (int k = 0; k < kRowBatch; ++k)
      if (first + k * blockDim.x < size) store(first + k * blockDim.x, results[k]);
  }
}

}  // namespace gradus::cuda_detail
