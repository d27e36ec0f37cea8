// How the threads of a grid share a reduction (reduce_kernel.cuh). A block computes `outputs` results, each with
// `lanes` threads: every thread folds a fixed part of the elements, and then the results of the threads are folded in a
// tree. A long reduction is divided into splits, whose partial results a second launch folds. The plan depends only on
// shapes and device.
#pragma once

#include <bit>

#include <gradus/backends/cuda/device/divisor.h>

namespace gradus::cuda_detail {

struct ReducePlan {
  uint32_t outputs = 1, lanes = kThreads;  // outputs of a block, and threads of an output: powers of two
  bool outputs_adjacent = false;           // neighbouring threads have neighbouring outputs, not the same output
  uint32_t splits = 1, per_split = 0;      // number of splits, and vectors of the reduction in each

  /// The number of loads that a thread has in flight, each of a vector of `width` elements.
  GRADUS_HOST_DEVICE static constexpr uint32_t loads_at_once(int width) { return width == 1 ? 8 : 4; }
  /// Plans `count` outputs that each reduce `reduced` vectors of `width` elements. `adjacent` is true if neighbouring
  /// outputs, not neighbouring elements of the reduction, are adjacent in memory.
  ReducePlan(int64_t count, int64_t reduced, bool adjacent, int width, int multiprocessors)
      : outputs_adjacent(adjacent) {
    const int64_t full = 4 * multiprocessors;  // blocks that are resident at once
    // If outputs are adjacent, a warp reads whole lines of 128 bytes, or sectors of 32 bytes if there are too few
    // outputs to fill the device and the reduction is too short for splits. Otherwise a warp computes an output, which
    // needs no barrier, or a block computes it if there are too few outputs.
    const int64_t line = width == 1 ? 32 : 8;
    const bool few = count < line * multiprocessors && reduced < 1024;
    const auto side_by_side = static_cast<uint64_t>(std::min(count, few ? line / 4 : line));
    const uint64_t at_most = adjacent                          ? kThreads / std::bit_ceil(side_by_side)
                             : count >= full * (kThreads / 32) ? 32
                                                               : kThreads;
    const auto enough = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(reduced / 4, 1)));
    lanes = u32(std::min(enough, at_most));
    outputs = kThreads / lanes;
    // With a warp for each short row, the blocks would run in several waves, each of which takes the latency of a load
    // and of a tree. If an output has half as many lanes, which load twice as much, there are half as many blocks.
    while (!adjacent && lanes > line && reduced <= 8 * lanes && 2 * int64_t{blocks(count)} > 3 * full)
      lanes /= 2, outputs *= 2;
    // A split leaves each thread at least two rounds of loads. Fewer than four splits would save no more time than the
    // second launch takes.
    const int64_t wanted = std::min(full / blocks(count), reduced / (2 * loads_at_once(width) * lanes));
    splits = wanted < 4 ? 1 : u32(wanted);
    per_split = u32(ceil_div(reduced, splits));
  }

  uint32_t blocks(int64_t results) const { return u32(ceil_div(results, outputs)); }

#ifdef __CUDACC__
  // The lane and the output of this thread in a grid of blocks(results) x splits.
  __device__ uint32_t lane() const { return outputs_adjacent ? quotient(outputs) : threadIdx.x & (lanes - 1); }
  __device__ uint32_t output() const {
    return blockIdx.x * outputs + (outputs_adjacent ? threadIdx.x & (outputs - 1) : quotient(lanes));
  }
  __device__ static uint32_t quotient(uint32_t power_of_two) { return threadIdx.x >> (31 - __clz(power_of_two)); }
#endif
};

/// A row of up to kWarpRow elements is processed by a block of one warp, a longer row by a block of more threads.
inline constexpr int64_t kWarpRow = 1024;
inline uint32_t row_threads(int64_t size) { return size <= kWarpRow ? 32 : size <= 4096 ? 256 : 1024; }

}  // namespace gradus::cuda_detail
