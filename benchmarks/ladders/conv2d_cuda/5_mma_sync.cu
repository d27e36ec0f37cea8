// Rung 5, tensor cores: rung 4 with another multiplier. An instruction mma.m16n8k16 of a warp does 2,048 multiply-adds
// of bfloat16, added in float32; its operands come from shared memory by ldmatrix, 16 x 16 elements at a time.
// Tiles of 64 filters x 128 pixels; depth in steps of 32 channels of one (r,s).
// Grid: x = tiles of pixels, y = tiles of filters.  Block: 128 threads; a warp has 32 x 64 results, a thread 64.
// Pipeline: none; now the loads take longer than the products.
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::ladders {
namespace {

using namespace cuda_detail;
using T = BFloat16;
using Tile = BlockTile<2, 2>;
constexpr int kDepth = kRowDepth<T>, kVecSize = kVec16Size<T>;  // of a step, of 16 bytes

/// Rows of depth (r,s), first_channel and on, of the block's filters and pixels.
__device__ void load_tile(const Fprop<T>& conv, int first_k, int first_pixel, int rs, int first_channel,
                          Tile::Shared& tile) {
  const auto [N, H, W, C, K] = conv.size;
  for (int i = threadIdx.x; i < Tile::kRows * kRowVecs; i += Tile::kThreads) {
    const int k = first_k + i / kRowVecs, c = first_channel + i % kRowVecs * kVecSize;
    tile.left[i / kRowVecs][i % kRowVecs] =
        k < K ? reinterpret_cast<const Vec16&>(conv.w[(k * 9 + rs) * C + c]) : Vec16{};
  }
  for (int i = threadIdx.x; i < Tile::kColumns * kRowVecs; i += Tile::kThreads) {
    const int pixel = first_pixel + i / kRowVecs, c = first_channel + i % kRowVecs * kVecSize;
    const int h = pixel / W % H + rs / 3 - 1, w = pixel % W + rs % 3 - 1, n = pixel / W / H;
    const bool inside = n < N && h >= 0 && h < H && w >= 0 && w < W;
    tile.right[i / kRowVecs][i % kRowVecs] =
        inside ? reinterpret_cast<const Vec16&>(conv.x[(int64_t{n * H + h} * W + w) * C + c]) : Vec16{};
  }
}

__global__ void __launch_bounds__(Tile::kThreads) mma_sync_kernel(Fprop<T> conv) {
  __shared__ Tile::Shared tile;
  const auto [N, H, W, C, K] = conv.size;
  const int first_pixel = static_cast<int>(blockIdx.x) * Tile::kColumns;
  const int first_k = static_cast<int>(blockIdx.y) * Tile::kRows;
  MmaTile<MathMode::half, T> mma;
  for (int rs = 0; rs < 9; ++rs)
    for (int c = 0; c < C; c += kDepth) {
      __syncthreads();
      load_tile(conv, first_k, first_pixel, rs, c, tile);
      __syncthreads();
      mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
    }
  mma.for_each([&](int row, int column, float sum) {
    const int k = first_k + Tile::first_row() + row, pixel = first_pixel + Tile::first_column() + column;
    if (k < K && pixel < N * H * W) conv.y[int64_t{pixel} * K + k] = T(fmaxf(sum + conv.bias[k], 0.0f));
  });
}

}  // namespace

void mma_sync(const Fprop<T>& conv, Device device) {
  const auto [N, H, W, C, K] = conv.size;
  const Launch launch(device);
  launch(mma_sync_kernel, dim3(ceil_div(N * H * W, Tile::kColumns), ceil_div(K, Tile::kRows)), Tile::kThreads, conv);
}

}  // namespace gradus::ladders
