// conv2d wgrad, few channels (C < 8, C R S <= 64), K a multiple of 8, no groups, half types on tensor cores; dy NHWC.
// dw[k,t] = sum over pixels (n,p,q) of dy[(n,p,q), k] x[(n,p,q), t], t = (c,r,s);  dbias is one more column t, of ones.
// Grid: x = split-K blocks that share the tiles, y = groups of 32 or 64 filters.  Block: 128 threads; a warp multiplies
// 16 pixels of the depth at a time, and a thread keeps 4 sums of each block of 16 filters x 8 taps.
// Pipeline: rows of x by cp.async, one tile ahead (few_channel_mma.cuh). dy and the mask are loaded from global memory
// straight into fragments, each element once and one step ahead: a lane loads neighbouring filters of four pixels, and
// combines pairs of pixels in registers.
// Deterministic: the sums of warps are added in order, and those of blocks by split_k.cu.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <gradus/backends/cuda/conv2d/few_channel_mma.cuh>

namespace gradus::cuda_detail {
namespace {

/// Sets all bits of each of two elements that is greater than zero, and clears the bits of the others.
template <class T>
__device__ uint32_t positive(uint32_t words) {
  using Two = std::conditional_t<std::is_same_v<T, Half>, __half2, __nv_bfloat162>;
  return __hgt2_mask(reinterpret_cast<const Two&>(words), Two{});
}

/// The tile of a block: filters x columns.
template <int kRows_, int kColumns_>
struct TileOf {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
};

template <int kRows, int kColumns>
inline constexpr int kBlocks = few_channel_wgrad_blocks(16 * kRows, 8 * kColumns);

/// The sums of a warp in shared memory. A row has one element of padding, so that rows begin in different banks.
template <int kRows, int kColumns>
using Sums = float[16 * kRows][8 * kColumns + 1];

// partial: (blocks, filters, columns).
template <class T, int kRows, int kColumns, bool kMasked>
__global__ void __launch_bounds__(kFewChannelThreads, kBlocks<kRows, kColumns>)
    few_channel_mma_wgrad_kernel(FewChannelArgs args, const T* __restrict__ dy, const T* __restrict__ mask,
                                 const T* __restrict__ x, float* __restrict__ partial) {
  constexpr int kPixels = 4, kFilters = 16 * kRows;  // pixels of a lane in a step; filters of a block
  using Filters = Vec<uint32_t, kRows>;              // 2 kRows neighbouring filters of a pixel
  extern __shared__ Vec16 memory[];
  char* const buffers = reinterpret_cast<char*>(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, part = lane % 4;
  const uint32_t filters = args.g.rows, columns = args.g.columns, first_filter = blockIdx.y * kFilters,
                 filter = first_filter + group * 2 * kRows;
  const bool exists = filter < filters;

  // A lane's column in a block of eight is its group. The taps are followed by the column of ones, then by zeros.
  uint32_t taps[kColumns], inside[kColumns], instead[kColumns];
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const uint32_t column = 8 * j + group;
    taps[j] = args.tap_at(column);
    inside[j] = column < args.g.depth ? ~uint32_t{0} : 0;
    instead[j] = column >= args.g.depth && column < columns ? pair(T(1.0f), T(1.0f)) : 0;
  }

  Filters next[kPixels], next_mask[kPixels];
  const auto fetch = [&](const FewChannelArgs::Tile& tile, uint32_t first) {
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {  // neighbouring lanes load neighbouring pixels
      const uint32_t pixel = first + 4 * i + part;
      const bool counts = exists && pixel < tile.count;
      const uint32_t at = counts ? (tile.first + pixel) * filters + filter : 0;
      next[i] = counts ? *reinterpret_cast<const Filters*>(dy + at) : Filters{};
      if constexpr (kMasked) next_mask[i] = *reinterpret_cast<const Filters*>(mask + at);
    }
  };

  float sums[kRows][kColumns][4] = {};
  FewChannelArgs::Tile tile = args.tile_at(blockIdx.x);
  fetch(tile, warp * kFewChannelStep);
  clear_buffers(args, memory);
  args.copy_lines(tile, x, buffers);
  uint32_t buffer = 0;
  for (uint32_t index = blockIdx.x; index < args.tile_count; index += gridDim.x, buffer = args.size - buffer) {
    finish_copies();
    FewChannelArgs::Tile following{0, 0, 0, 0};
    if (index + gridDim.x < args.tile_count) {
      following = args.tile_at(index + gridDim.x);
      args.copy_lines(following, x, buffers + args.size - buffer);
    }
    uint32_t first = warp * kFewChannelStep;
    if (first >= tile.count) fetch(following, first);
    while (first < tile.count) {
      uint32_t a[kRows][4];
#pragma unroll
      for (int i = 0; i < kPixels; i += 2)
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          uint32_t one = next[i].value[row], other = next[i + 1].value[row];
          if constexpr (kMasked)
            one &= positive<T>(next_mask[i].value[row]), other &= positive<T>(next_mask[i + 1].value[row]);
          a[row][i] = __byte_perm(one, other, 0x5410), a[row][i + 1] = __byte_perm(one, other, 0x7632);
        }
      const char* pixels[kPixels];
#pragma unroll
      for (int i = 0; i < kPixels; ++i) pixels[i] = buffers + buffer + args.pixel_at(first + 4 * i + part, tile);
      first += kFewChannelWarps * kFewChannelStep;
      if (first < tile.count) fetch(tile, first);
      else fetch(following, warp * kFewChannelStep);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        uint32_t b[2];
#pragma unroll
        for (int i = 0; i < 2; ++i)
          b[i] = (pair(element<T>(pixels[2 * i], taps[j]), element<T>(pixels[2 * i + 1], taps[j])) & inside[j]) |
                 instead[j];
#pragma unroll
        for (int row = 0; row < kRows; ++row) mma_m16n8<T>(sums[row][j], a[row], b[0], b[1]);
      }
    }
    tile = following;
  }

  auto* const of_warps = reinterpret_cast<Sums<kRows, kColumns>*>(memory);
  __syncthreads();
#pragma unroll
  for (int row = 0; row < kRows; ++row)
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        of_warps[warp][group * 2 * kRows + 2 * row + e / 2][8 * j + 2 * part + e % 2] = sums[row][j][e];
  __syncthreads();
  float* const out = partial + (static_cast<int64_t>(blockIdx.x) * filters + first_filter) * columns;
  const uint32_t count = min(static_cast<uint32_t>(kFilters), filters - first_filter) * columns;
  for (uint32_t i = threadIdx.x; i < count; i += kFewChannelThreads) {
    float sum = 0;
#pragma unroll
    for (int from = 0; from < kFewChannelWarps; ++from) sum += of_warps[from][i / columns][i % columns];
    out[i] = sum;
  }
}

}  // namespace

void few_channel_mma_wgrad(const ConvCall& call, const Launch& launch) {
  visit_half(call.problem.dtype, [&]<class T>() {
    visit_tiles<TileOf<32, 72>, TileOf<64, 32>, TileOf<32, 32>, TileOf<64, 16>, TileOf<32, 16>>(
        call.plan.tile, [&]<class Tile>() {
          constexpr int kRows = Tile::kRows / 16, kColumns = Tile::kColumns / 8;
          launch.with({call.plan.shared_bytes},
                      call.mask ? few_channel_mma_wgrad_kernel<T, kRows, kColumns, true>
                                : few_channel_mma_wgrad_kernel<T, kRows, kColumns, false>,
                      dim3(call.phase.split_k, ceil_div(call.gemm.rows, Tile::kRows)), kFewChannelThreads,
                      FewChannelArgs{call.plan.few_channel, call.gemm}, call.out, call.mask, call.in, call.partial());
        });
  });
}

}  // namespace gradus::cuda_detail
