// What the two kernels of the implicit gather share: the walk through the depth, tap by tap, the weights packed for it,
// and the sum of its parts.
#pragma once

#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::cuda_detail {

/// The walk through the depth: a step is kRowDepth channels of one tap.
struct Steps {
  uint32_t chunks, count;  // per tap, and of all taps
  uint32_t tap_columns;    // S
  uint32_t packed_rows;    // rows of a group in the packed weights
  uint32_t splits, per_split;
  uint32_t in_h, in_w, in_c, out_c;  // strides in bytes
};

/// packed[group][step][row][k] = the weight of channel chunk * kRowDepth + k at the step's tap, 0 beyond rows and
/// channels. Neighbouring threads take neighbouring taps, then neighbouring rows or channels, as weights lie in memory.
/// `total` pieces.
template <MathMode kMode, class T>
__global__ void __launch_bounds__(kThreads) pack_kernel(Gather gather, Steps steps, Divisor chunks, Divisor rows,
                                                        uint32_t total, const T* weight, Vec16* packed) {
  for (uint32_t i = thread_index(); i < total; i += thread_count()) {
    uint32_t tap = i, row, chunk;
    uint32_t group = gather.taps.split(tap), piece = group;
    if (gather.weight_row < gather.weight_channel) {
      row = group, piece = rows.split(row), chunk = piece / kRowVecs;
      group = chunks.split(chunk);
    } else {
      chunk = piece / kRowVecs, row = chunks.split(chunk);
      group = rows.split(row);
    }
    piece %= kRowVecs;
    uint32_t s = tap;
    const uint32_t r = gather.tap_width.split(s);
    T values[kVec16Size<T>];
#pragma unroll
    for (int j = 0; j < kVec16Size<T>; ++j) {
      const uint32_t channel = chunk * kRowDepth<T> + piece * kVec16Size<T> + j;
      const bool inside = row < gather.rows && channel < gather.in_channels;  // the last chunk may reach beyond
      values[j] = inside ? weight[group * gather.weight_group + row * gather.weight_row +
                                  channel * gather.weight_channel + r * gather.weight_r + s * gather.weight_s]
                         : T(0.0f);
    }
    const int64_t step = static_cast<int64_t>(group) * steps.count + tap * steps.chunks + chunk;
    packed[(step * steps.packed_rows + row) * kRowVecs + piece] = make_vec16<kMode, T>(values);
  }
}

/// The results from the sums of the splits. `lines` are groups x rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    join_kernel(Gather gather, const float* partial, uint32_t splits, uint32_t lines, Divisor positions, const T* bias,
                bool relu, T* output) {
  const uint32_t total = lines * gather.positions;
  for (uint32_t i = thread_index(); i < total; i += thread_count()) {
    float sum = 0;
    for (uint32_t split = 0; split < splits; ++split) sum += partial[static_cast<int64_t>(split) * total + i];
    uint32_t position = i;
    const uint32_t line = positions.split(position);
    gather.store(output, bias, relu, 0, line, position, sum);
  }
}

/// Packs the weights, calls gemm(steps, grid, packed, partial) and adds the parts, of which there are none (null) where
/// sums are not split. `weight` and `output` are those of `gather`: all, or a phase.
template <MathMode kMode, class T, class F>
void run_packed(const GatherCall& call, const Gather& gather, const T* weight, T* output, uint32_t split_k,
                uint32_t per_split, const Launch& launch, F&& gemm) {
  const auto bytes = [](int64_t stride) { return static_cast<uint32_t>(stride * static_cast<int64_t>(sizeof(T))); };
  const auto tiles = [](uint32_t size, int tile) { return (size + tile - 1) / tile; };
  const uint32_t row_tiles = tiles(gather.rows, call.plan.tile.rows), chunks = tiles(gather.in_channels, kRowDepth<T>);
  const Steps steps{.chunks = chunks,
                    .count = chunks * (gather.depth / gather.in_channels),
                    .tap_columns = gather.tap_width.divisor,
                    .packed_rows = row_tiles * call.plan.tile.rows,
                    .splits = split_k,
                    .per_split = per_split,
                    .in_h = bytes(gather.in.h),
                    .in_w = bytes(gather.in.w),
                    .in_c = bytes(gather.in.c),
                    .out_c = bytes(gather.out.c)};
  const uint32_t pieces = call.groups() * steps.count * steps.packed_rows * kRowVecs;
  auto* const packed = reinterpret_cast<Vec16*>(call.workspace);
  auto* const partial =
      split_k > 1 ? reinterpret_cast<float*>(call.workspace + call.plan.partial_offset) : static_cast<float*>(nullptr);
  if (pieces > 0)
    launch(pack_kernel<kMode, T>, launch.blocks(pieces, kThreads), kThreads, gather, steps, Divisor(chunks),
           Divisor(steps.packed_rows), pieces, weight, packed);
  gemm(steps, dim3(tiles(gather.positions, call.plan.tile.columns), row_tiles, call.groups() * split_k),
       static_cast<const Vec16*>(packed), partial);
  if (!partial) return;
  const uint32_t lines = call.groups() * gather.rows;
  launch(join_kernel<T>, launch.blocks(int64_t{lines} * gather.positions, kThreads), kThreads, gather,
         static_cast<const float*>(partial), split_k, lines, Divisor(gather.positions), call.bias, call.problem.relu,
         output);
}

}  // namespace gradus::cuda_detail
