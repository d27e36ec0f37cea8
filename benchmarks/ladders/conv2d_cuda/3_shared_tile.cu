// Rung 3, a tile in shared memory: each pixel and weight is loaded once for all threads of a block. A block computes 8
// x 16 pixels of 32 filters, a thread 8 neighbouring pixels of 4 filters, with 32 sums in registers.
// Grid: x = tiles of the images, y = groups of 32 filters.  Block: 128 threads, 8 groups of filters x 16 half rows.
// Pipeline: none; the block loads 8 channels of the tile (10 x 18 pixels) and of the filters, and then multiplies them.
// A thread makes 96 multiply-adds with 10 pixels and 12 weights that it reads from shared memory.
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders {
namespace {

constexpr int kRows = 8, kColumns = 16, kFilters = 32, kChannels = 8, kThreads = 128;
constexpr int kPixels = 8, kOwn = 4;  // each thread has 8 pixels of a row and 4 filters, which are 8 apart

struct Shared {
  float x[kChannels][kRows + 2][kColumns + 3];  // a spare column against bank conflicts
  float w[kChannels][3][3][kFilters + 1];
};

struct Tile {
  int n, p, q, k;  // the first image, row, column and filter of the block
};

__device__ void load_tile(const Fprop<float>& conv, const Tile& tile, int first_channel, Shared& shared) {
  const auto [N, H, W, C, K] = conv.size;
  constexpr int kCount = (kRows + 2) * (kColumns + 2);
  for (int i = threadIdx.x; i < kCount * kChannels; i += kThreads) {
    const int c = i % kChannels, row = i / kChannels / (kColumns + 2), column = i / kChannels % (kColumns + 2);
    const int h = tile.p + row - 1, w = tile.q + column - 1;
    const bool inside = h >= 0 && h < H && w >= 0 && w < W && first_channel + c < C;
    shared.x[c][row][column] = inside ? conv.x[(int64_t{tile.n * H + h} * W + w) * C + first_channel + c] : 0.0f;
  }
  for (int i = threadIdx.x; i < 9 * kFilters * kChannels; i += kThreads) {
    const int c = i % kChannels, rs = i / kChannels % 9, k = i / kChannels / 9;
    const bool exists = tile.k + k < K && first_channel + c < C;
    shared.w[c][rs / 3][rs % 3][k] = exists ? conv.w[((tile.k + k) * 9 + rs) * C + first_channel + c] : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads) shared_tile_kernel(Fprop<float> conv) {
  __shared__ Shared shared;
  const auto [N, H, W, C, K] = conv.size;
  const int across = (W + kColumns - 1) / kColumns, down = (H + kRows - 1) / kRows;
  const int index = static_cast<int>(blockIdx.x);
  const Tile tile{index / across / down, index / across % down * kRows, index % across * kColumns,
                  static_cast<int>(blockIdx.y) * kFilters};
  const int filter = threadIdx.x % 8, row = threadIdx.x / 16, column = threadIdx.x / 8 % 2 * kPixels;

  float sums[kPixels][kOwn] = {};
  for (int first = 0; first < C; first += kChannels) {
    __syncthreads();
    load_tile(conv, tile, first, shared);
    __syncthreads();
    for (int c = 0; c < kChannels; ++c)
#pragma unroll
      for (int r = 0; r < 3; ++r) {
        float x[kPixels + 2];
#pragma unroll
        for (int i = 0; i < kPixels + 2; ++i) x[i] = shared.x[c][row + r][column + i];
#pragma unroll
        for (int s = 0; s < 3; ++s)
#pragma unroll
          for (int j = 0; j < kOwn; ++j) {
            const float w = shared.w[c][r][s][filter + 8 * j];
#pragma unroll
            for (int i = 0; i < kPixels; ++i) sums[i][j] += x[i + s] * w;
          }
      }
  }
  const int p = tile.p + row;
#pragma unroll
  for (int i = 0; i < kPixels; ++i)
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int q = tile.q + column + i, k = tile.k + filter + 8 * j;
      if (p < H && q < W && k < K)
        conv.y[(int64_t{tile.n * H + p} * W + q) * K + k] = fmaxf(sums[i][j] + conv.bias[k], 0.0f);
    }
}

}  // namespace

void shared_tile(const Fprop<float>& conv, Device device) {
  const auto [N, H, W, C, K] = conv.size;
  const cuda_detail::Launch launch(device);
  launch(shared_tile_kernel, dim3(N * ceil_div(H, kRows) * ceil_div(W, kColumns), ceil_div(K, kFilters)), kThreads,
         conv);
}

}  // namespace gradus::ladders
