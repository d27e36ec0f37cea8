// How a reduction by device code of several families is spread over threads (the operator reduce: reduce_kernel.cuh). A
// block makes `outputs` results with `lanes` threads each: every thread folds
// a fixed part of the elements, then a tree in shared memory folds the threads. A long reduction is cut into splits,
// whose partial results a second launch folds. The order depends on shapes and device alone.
#pragma once

#include <bit>

#include <gradus/backends/cuda/device/divisor.h>
#include <gradus/core/strided_loop.h>

namespace gradus::cuda_detail {

struct ReducePlan {
  uint32_t outputs = 1, lanes = kThreads;  // per block; outputs * lanes = kThreads
  bool outputs_adjacent = false;           // neighbouring threads make neighbouring outputs, else fold neighbours
  uint32_t splits = 1, per_split = 0;      // elements of the reduction in a split

  ReducePlan() = default;
  /// For outputs `outer` of the elements `inner`: threads of a block follow the direction in which view 0 is
  /// contiguous.
  template <int M, int N>
  ReducePlan(const StridedLoop<M>& outer, const StridedLoop<N>& inner, int multiprocessors) {
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
    per_split = static_cast<uint32_t>(ceil_div(inner.numel, splits));
  }

  uint32_t blocks(int64_t results) const { return static_cast<uint32_t>(ceil_div(results, outputs)); }

#ifdef __CUDACC__
  // Of this thread, in a grid of blocks(results) x splits.
  __device__ uint32_t lane() const { return outputs_adjacent ? threadIdx.x / outputs : threadIdx.x % lanes; }
  __device__ uint32_t output() const {
    return blockIdx.x * outputs + (outputs_adjacent ? threadIdx.x % outputs : threadIdx.x / lanes);
  }
#endif
};

/// Rows of up to so many elements are a warp's; longer ones have a block of more threads.
inline constexpr int64_t kWarpRow = 1024;
inline uint32_t row_threads(int64_t size) { return size <= kWarpRow ? 32 : size <= 4096 ? 256 : 1024; }

}  // namespace gradus::cuda_detail
