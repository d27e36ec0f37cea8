// Common part of rungs 3 and 4: a block's sum of neighbouring numbers. Each thread loads 16 bytes at a time and has
// four loads in flight.
#pragma once

#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::ladders::reduce {

inline constexpr int kThreads = 256, kWidth = 4;

/// Returns the sum of `count` numbers on every thread. `count` must be a multiple of 4, and the address a multiple of
/// 16.
__device__ inline float vec_sum(const float* x, int count) {
  using namespace cuda_detail;
  __shared__ float shared[32];
  float sums[kWidth] = {};
#pragma unroll 4
  for (int j = threadIdx.x * kWidth; j < count; j += kThreads * kWidth) {
    const Vec<float, kWidth> vec = load<kWidth>(x + j);
    for (int i = 0; i < kWidth; ++i) sums[i] += vec.value[i];
  }
  return block_reduce((sums[0] + sums[1]) + (sums[2] + sums[3]), shared, Add());
}

}  // namespace gradus::ladders::reduce
