// How a reduction is spread over threads. A block makes `outputs` results with `lanes` threads each: every thread folds
// a fixed part of the elements, then a tree in shared memory folds the threads. A long reduction is cut into splits,
// whose partial results a second launch folds. The order depends on shapes and device alone.
#pragma once

#include <bit>

#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

struct ReducePlan {
  uint32_t outputs = 1, lanes = kThreads;  // per block; outputs * lanes = kThreads
  bool outputs_adjacent = false;           // neighbouring threads make neighbouring outputs, else fold neighbours
  uint32_t splits = 1, per_split = 0;      // elements of the reduction in a split

  ReducePlan() = default;
  /// For outputs `outer` of the elements `inner`: threads of a block follow the direction in which view 0 is
  /// contiguous.
  template <int M, int N>
  ReducePlan(const Nest<M>& outer, const Nest<N>& inner, int multiprocessors) {
    const int64_t inner_step = inner.ndim ? inner.strides[0][inner.ndim - 1] : INT64_MAX;
    const int64_t outer_step = outer.ndim ? outer.strides[0][outer.ndim - 1] : INT64_MAX;
    outputs_adjacent = outer_step < inner_step;
    const auto enough = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(inner.numel / 4, 1)));
    // A warp reads 32 neighbours; 8 where there are too few outputs to fill the device otherwise.
    const int64_t adjacent = !outputs_adjacent                     ? 1
                             : outer.numel >= 32 * multiprocessors ? 32
                                                                   : std::min<int64_t>(outer.numel, 8);
    lanes = static_cast<uint32_t>(std::min(enough, kThreads / std::bit_ceil(static_cast<uint64_t>(adjacent))));
    outputs = kThreads / lanes;
    const int64_t wanted = std::max<int64_t>(2 * multiprocessors / blocks(outer.numel), 1);
    const int64_t at_most = inner.numel / (8 * lanes);
    splits = static_cast<uint32_t>(std::clamp<int64_t>(std::min(wanted, at_most), 1, 1024));
    per_split = static_cast<uint32_t>((inner.numel + splits - 1) / splits);
  }

  uint32_t blocks(int64_t results) const { return static_cast<uint32_t>((results + outputs - 1) / outputs); }

  // Of this thread, in a grid of blocks(results) x splits.
  __device__ uint32_t lane() const { return outputs_adjacent ? threadIdx.x / outputs : threadIdx.x % lanes; }
  __device__ uint32_t output() const {
    return blockIdx.x * outputs + (outputs_adjacent ? threadIdx.x % outputs : threadIdx.x / lanes);
  }
};

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
