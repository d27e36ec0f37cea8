// What the two tap-by-tap kernels of forward and data gradient share (implicit_gemm.cu, implicit_gemm_async.cu): the
// order of the depth, the weights packed for it, the coordinates of a block's outputs, and the epilogues.
//
// Depth: C R S is walked tap by tap, a step being kRowDepth channels of one tap (r, s). Whether an output's window has
// that tap inside the image is then decided once for all channels of a step.
// Split-K: where output tiles are too few to fill the device, the steps are cut into `splits` parts, which leave their
// sums in the workspace; split_k_reduce_kernel adds them in order, so that results do not depend on timing.
#pragma once

#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::cuda_detail {

/// The walk through the depth.
struct Steps {
  uint32_t chunks, count;  // per tap, and of all taps
  uint32_t tap_columns;    // S
  uint32_t packed_rows;    // rows of a group in the packed weights
  uint32_t splits, per_split;
  uint32_t in_h, in_w, in_c, out_c;  // strides in bytes
};

/// The step that is loaded next: a chunk of the channels at tap (r, s).
struct TapIterator {
  uint32_t chunk, r, s;

  __device__ TapIterator(const Steps& steps, uint32_t step) : chunk(step % steps.chunks) {
    const uint32_t tap = step / steps.chunks;
    r = tap / steps.tap_columns, s = tap % steps.tap_columns;
  }
  __device__ void advance(const Steps& steps) {
    if (++chunk < steps.chunks) return;
    chunk = 0;
    if (++s == steps.tap_columns) s = 0, ++r;
  }
};

/// The part of the product that a block computes. Grid: tiles of positions, tiles of rows, groups x splits.
template <class Tile>
struct GatherBlock {
  uint32_t group, split, first_step, end_step, first_row, first_position;

  __device__ explicit GatherBlock(const Steps& steps)
      : group(blockIdx.z / steps.splits), split(blockIdx.z % steps.splits), first_step(split * steps.per_split),
        end_step(min(first_step + steps.per_split, steps.count)), first_row(blockIdx.y * Tile::kRows),
        first_position(blockIdx.x * Tile::kColumns) {}

  /// The packed weights of its first step.
  __device__ const Vec16* weights(const Steps& steps, const Vec16* packed) const {
    return packed +
           ((static_cast<int64_t>(group) * steps.count + first_step) * steps.packed_rows + first_row) * kRowVecs;
  }
};

/// An output position of the tile: where its image begins and which row and column its taps start from, and where its
/// result goes (negative: nowhere). Offsets in bytes.
struct OutCoord {
  uint32_t image;
  int h, w, out;
};

/// Dynamic shared memory of a block.
template <class Tile, int kStages>
struct GatherShared {
  typename Tile::Shared stages[kStages];  // left: weights (BM, BK), right: input (BN, BK)
  OutCoord coords[Tile::kColumns];        // (BN)
  float biases[Tile::kRows];              // (BM)

  template <class T>
  __device__ void prepare(const Gather& gather, const GatherBlock<Tile>& block, const T* bias) {
    for (int i = threadIdx.x; i < Tile::kColumns; i += Tile::kThreads) {
      uint32_t w = block.first_position + i;
      OutCoord coord{0, kOutside, kOutside, -1};
      if (w < gather.positions) {
        uint32_t h = gather.out_width.split(w);
        const uint32_t n = gather.out_height.split(h);
        coord = {static_cast<uint32_t>(n * gather.in.n * sizeof(T)),
                 static_cast<int>(h) * gather.step[0] + gather.origin[0],
                 static_cast<int>(w) * gather.step[1] + gather.origin[1],
                 static_cast<int>((n * gather.out.n + h * gather.out.h + w * gather.out.w) * sizeof(T))};
      }
      coords[i] = coord;
    }
    for (int i = threadIdx.x; i < Tile::kRows; i += Tile::kThreads) {
      const uint32_t row = block.first_row + i;
      biases[i] = bias && row < gather.rows ? static_cast<float>(bias[block.group * gather.rows + row]) : 0;
    }
    __syncthreads();
  }

  /// A split's sums go to partial (splits, groups, rows, positions); without splits (null) y = relu(sum + bias).
  template <class Mma, class T>
  __device__ void store_epilogue(const Gather& gather, const Steps& steps, const GatherBlock<Tile>& block,
                                 const Mma& mma, bool relu, T* output, float* partial) const {
    const uint32_t row_base = block.first_row + Tile::first_row();
    const OutCoord* const warp_coords = coords + Tile::first_column();
    if (partial) {
      const int64_t line = static_cast<int64_t>(block.split * (gridDim.z / steps.splits) + block.group) * gather.rows;
      float* const to = partial + (line + row_base) * gather.positions + block.first_position + Tile::first_column();
      mma.for_each([&](int row, int column, float sum) {
        if (row_base + row < gather.rows && warp_coords[column].out >= 0) to[row * gather.positions + column] = sum;
      });
      return;
    }
    const auto channel = static_cast<int64_t>(block.group * gather.rows + row_base);
    char* const to = reinterpret_cast<char*>(output) + channel * steps.out_c;
    mma.for_each([&](int row, int column, float sum) {
      const int at = warp_coords[column].out;
      if (row_base + row >= gather.rows || at < 0) return;
      sum += biases[Tile::first_row() + row];
      if (relu && sum < 0.0f) sum = 0.0f;
      *reinterpret_cast<T*>(to + (at + row * steps.out_c)) = static_cast<T>(sum);
    });
  }
};

/// packed[group][step][row][k] = the weight of channel chunk * kRowDepth + k at the step's tap, 0 beyond rows and
/// channels. Neighbouring threads take neighbouring taps, then neighbouring rows or channels, as weights are in memory.
/// `total` vectors.
template <MathMode kMode, class T>
__global__ void __launch_bounds__(kThreads)
    pack_weights_kernel(Gather gather, Steps steps, Divisor chunks, Divisor rows, uint32_t total, const T* weight,
                        Vec16* packed) {
  for (uint32_t i = thread_index(); i < total; i += thread_count()) {
    uint32_t tap = i, row, chunk;
    uint32_t group = gather.taps.split(tap), vec = group;
    if (gather.weight_row < gather.weight_channel) {
      row = group, vec = rows.split(row), chunk = vec / kRowVecs;
      group = chunks.split(chunk);
    } else {
      chunk = vec / kRowVecs, row = chunks.split(chunk);
      group = rows.split(row);
    }
    vec %= kRowVecs;
    uint32_t s = tap;
    const uint32_t r = gather.tap_width.split(s);
    T values[kVec16Size<T>];
#pragma unroll
    for (int j = 0; j < kVec16Size<T>; ++j) {
      const uint32_t channel = chunk * kRowDepth<T> + vec * kVec16Size<T> + j;
      const bool inside = row < gather.rows && channel < gather.in_channels;  // the last chunk may reach beyond
      values[j] = inside ? weight[group * gather.weight_group + row * gather.weight_row +
                                  channel * gather.weight_channel + r * gather.weight_r + s * gather.weight_s]
                         : T(0.0f);
    }
    const int64_t step = static_cast<int64_t>(group) * steps.count + tap * steps.chunks + chunk;
    packed[(step * steps.packed_rows + row) * kRowVecs + vec] = make_vec16<kMode, T>(values);
  }
}

/// The results from the sums of the splits. `lines` are groups x rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    split_k_reduce_kernel(Gather gather, const float* partial, uint32_t splits, uint32_t lines, Divisor positions,
                          const T* bias, bool relu, T* output) {
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
  const auto bytes = [](int64_t stride) { return u32(stride * static_cast<int64_t>(sizeof(T))); };
  const uint32_t row_tiles = u32(ceil_div(gather.rows, call.plan.tile.rows));
  const uint32_t chunks = u32(ceil_div(gather.in_channels, kRowDepth<T>));
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
  const uint32_t vecs = call.groups() * steps.count * steps.packed_rows * kRowVecs;
  auto* const packed = reinterpret_cast<Vec16*>(call.workspace);
  auto* const partial = split_k > 1 ? reinterpret_cast<float*>(call.workspace + call.plan.partial_offset) : nullptr;
  if (vecs > 0)
    launch(pack_weights_kernel<kMode, T>, launch.blocks(vecs, kThreads), kThreads, gather, steps, Divisor(chunks),
           Divisor(steps.packed_rows), vecs, weight, packed);
  gemm(steps, dim3(u32(ceil_div(gather.positions, call.plan.tile.columns)), row_tiles, call.groups() * split_k),
       static_cast<const Vec16*>(packed), partial);
  if (!partial) return;
  const uint32_t lines = call.groups() * gather.rows;
  launch(split_k_reduce_kernel<T>, launch.blocks(int64_t{lines} * gather.positions, kThreads), kThreads, gather,
         static_cast<const float*>(partial), split_k, lines, Divisor(gather.positions), call.bias, call.problem.relu,
         output);
}

}  // namespace gradus::cuda_detail
