// The gather of conv2d.cuh for few rows without a stencil (conv2d_stencil.cu): other kernel sizes, dilations, float64.
// A thread keeps the sums of all rows at its position, so that an input element is loaded once for all of them and
// weights come from shared memory, the same for a whole warp. The eight warps of a block share the taps among them;
// their sums are added in order at the end.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kWarps = 8, kChunk = 256;  // taps and weights in shared memory at a time

// Grid: 32 * kPositions positions each, groups.
template <class T, int kRows, int kPositions>
__global__ void __launch_bounds__(32 * kWarps)
    direct_kernel(Gather gather, const T* input, const T* weight, const T* bias, bool relu, T* output) {
  using C = compute_t<T>;
  struct Operands {
    Tap taps[kChunk];
    alignas(16) C weights[kChunk][kRows];
  };
  __shared__ union Shared {
    Operands operands;
    C sums[kWarps][kRows][32];
    __device__ Shared() {}
  } shared;

  const uint32_t group = blockIdx.y, first_position = blockIdx.x * 32 * kPositions;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  weight += group * gather.weight_group;
  input += group * gather.in_channels * gather.in.c;
  Tap positions[kPositions];
#pragma unroll
  for (int i = 0; i < kPositions; ++i) positions[i] = gather.position_at<false>(first_position + 32 * i + lane);

  C sums[kPositions][kRows] = {};
  for (uint32_t first = 0; first < gather.depth; first += kChunk) {
    const int count = static_cast<int>(min(gather.depth - first, static_cast<uint32_t>(kChunk)));
    __syncthreads();
    for (int e = threadIdx.x; e < count; e += 32 * kWarps) shared.operands.taps[e] = gather.tap_at<false>(first + e);
#pragma unroll 4
    for (int e = threadIdx.x; e < count * kRows; e += 32 * kWarps)
      shared.operands.weights[e / kRows][e % kRows] = gather.weight_at(weight, e % kRows, first + e / kRows);
    __syncthreads();
#pragma unroll 4
    for (int t = warp; t < count; t += kWarps) {
      const Tap tap = shared.operands.taps[t];
      C values[kPositions];
#pragma unroll
      for (int i = 0; i < kPositions; ++i) values[i] = gather.input_at<false>(input, positions[i], tap);
#pragma unroll
      for (int row = 0; row < kRows; ++row)
#pragma unroll
        for (int i = 0; i < kPositions; ++i) sums[i][row] += shared.operands.weights[t][row] * values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kPositions; ++i) {
    __syncthreads();
#pragma unroll
    for (int row = 0; row < kRows; ++row) shared.sums[warp][row][lane] = sums[i][row];
    __syncthreads();
    for (int row = warp; row < kRows; row += kWarps) {
      const uint32_t position = first_position + 32 * i + lane;
      if (row >= gather.rows || position >= gather.positions) continue;
      C sum = 0;
#pragma unroll
      for (int part = 0; part < kWarps; ++part) sum += shared.sums[part][row][lane];
      gather.store(output, bias, relu, group, row, position, sum);
    }
  }
}

}  // namespace

void direct_gather(const GatherCall& call, const Launch& launch) {
  visit_floating(call.problem.dtype, [&]<class T>() {
    const auto run = [&]<class Tile>() {
      const dim3 grid((call.gather.positions + Tile::kColumns - 1) / Tile::kColumns, call.groups());
      launch(direct_kernel<T, Tile::kRows, Tile::kColumns / 32>, grid, 32 * kWarps, call.gather, call.input,
             call.weight, call.bias, call.problem.relu, call.output);
    };
    if constexpr (sizeof(compute_t<T>) == 8) visit_tiles<TileOf<8, 32>, TileOf<16, 32>>(call.plan.tile, run);
    else visit_tiles<TileOf<8, 32>, TileOf<8, 64>, TileOf<16, 32>, TileOf<16, 64>>(call.plan.tile, run);
  });
}

}  // namespace gradus::cuda_detail
