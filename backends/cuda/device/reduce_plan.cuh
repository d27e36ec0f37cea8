// What the threads of a ReducePlan fold, and where it goes.
#pragma once

#include <gradus/backends/cuda/device/reduce_plan.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

/// fold over the lanes of an output, whose lane 0 gets the result. `shared` has kThreads values.
template <class A, class F>
__device__ A fold_lanes(const ReducePlan& plan, const A& value, A* shared, F&& fold) {
  const uint32_t thread = threadIdx.x, lane = plan.lane(), step = plan.outputs_adjacent ? plan.outputs : 1;
  shared[thread] = value;
  for (uint32_t width = plan.lanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (lane < width) shared[thread] = fold(shared[thread], shared[thread + width * step]);
  }
  return shared[thread];
}

/// The result's type need not be x's: a sum of booleans is an int64.
__device__ inline void store_as(void* y, DType dtype, int64_t at, auto value) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(y)[at] = scalar::convert<float>(value); break;
    case DType::f64: static_cast<double*>(y)[at] = scalar::convert<double>(value); break;
    case DType::f16: static_cast<Half*>(y)[at] = scalar::convert<Half>(value); break;
    case DType::bf16: static_cast<BFloat16*>(y)[at] = scalar::convert<BFloat16>(value); break;
    case DType::i64: static_cast<int64_t*>(y)[at] = scalar::convert<int64_t>(value); break;
    case DType::i32: static_cast<int32_t*>(y)[at] = scalar::convert<int32_t>(value); break;
    case DType::u8: static_cast<uint8_t*>(y)[at] = scalar::convert<uint8_t>(value); break;
    case DType::boolean: static_cast<bool*>(y)[at] = scalar::convert<bool>(value); break;
  }
}

}  // namespace gradus::cuda_detail
