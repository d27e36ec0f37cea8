// How a reduction is spread over threads (reduce_kernel.cuh). A block makes `outputs` results with `lanes` threads
// each: every thread folds a fixed part of the elements, then a tree in shared memory folds the threads. A long
// reduction is cut into splits, whose partial results a second launch folds. The order depends on shapes and device
// alone.
#pragma once

#include <bit>

#include <gradus/backends/cuda/device/divisor.h>

namespace gradus::cuda_detail {

struct ReducePlan {
  uint32_t outputs = 1, lanes = kThreads;  // per block; outputs * lanes = kThreads, powers of two
  bool outputs_adjacent = false;           // neighbouring threads make neighbouring outputs, else fold neighbours
  uint32_t splits = 1, per_split = 0;      // elements of the reduction in a split

  /// Loads of a thread under way at once.
  GRADUS_HOST_DEVICE static constexpr uint32_t loads_at_once(int width) { return width == 1 ? 8 : 4; }
  /// For `count` outputs of `reduced` vectors of `width` elements each; `adjacent`: the outputs' vectors are neighbours
  /// in memory, not the reduction's.
  ReducePlan(int64_t count, int64_t reduced, bool adjacent, int width, int multiprocessors)
      : outputs_adjacent(adjacent) {
    const int64_t full = 4 * multiprocessors;  // blocks that are resident at once
    // A warp reads whole lines of 128 bytes; sectors of 32 where that fills more of the device and no split would. A
    // row has a warp, which needs no barrier, unless there are too few rows.
    const int64_t line = width == 1 ? 32 : 8;
    const bool few = count < line * multiprocessors && reduced < 1024;
    const auto side_by_side = static_cast<uint64_t>(std::min(count, few ? line / 4 : line));
    const uint64_t at_most = adjacent                          ? kThreads / std::bit_ceil(side_by_side)
                             : count >= full * (kThreads / 32) ? 32
                                                               : kThreads;
    const auto enough = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(reduced / 4, 1)));
    lanes = static_cast<uint32_t>(std::min(enough, at_most));
    outputs = kThreads / lanes;
    // Short rows of a warp each would make blocks take turns on the device, and each turn costs the latency of a load
    // and a tree: half the lanes, which load twice.
    while (!adjacent && lanes > line && reduced <= 8 * lanes && 2 * int64_t{blocks(count)} > 3 * full)
      lanes /= 2, outputs *= 2;
    // Splits leave each thread two rounds of loads; fewer than four would save no more than the second launch takes.
    const int64_t wanted = std::min(full / blocks(count), reduced / (2 * loads_at_once(width) * lanes));
    splits = wanted < 4 ? 1 : static_cast<uint32_t>(wanted);
    per_split = static_cast<uint32_t>(ceil_div(reduced, splits));
  }

  uint32_t blocks(int64_t results) const { return static_cast<uint32_t>(ceil_div(results, outputs)); }

#ifdef __CUDACC__
  // Of this thread, in a grid of blocks(results) x splits.
  __device__ uint32_t lane() const { return outputs_adjacent ? quotient(outputs) : threadIdx.x & (lanes - 1); }
  __device__ uint32_t output() const {
    return blockIdx.x * outputs + (outputs_adjacent ? threadIdx.x & (outputs - 1) : quotient(lanes));
  }
  __device__ static uint32_t quotient(uint32_t power_of_two) { return threadIdx.x >> (31 - __clz(power_of_two)); }
#endif
};

/// Rows of up to so many elements are a warp's; longer ones have a block of more threads.
inline constexpr int64_t kWarpRow = 1024;
inline uint32_t row_threads(int64_t size) { return size <= kWarpRow ? 32 : size <= 4096 ? 256 : 1024; }

}  // namespace gradus::cuda_detail
