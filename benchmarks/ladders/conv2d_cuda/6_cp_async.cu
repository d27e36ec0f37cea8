// Rung 6, a pipeline: rung 5 with copies that go from global to shared memory by themselves (cp.async), two steps ahead
// of the products. No register holds what is on its way, and no thread waits for the step that it has asked for.
// Tiles of 64 filters x 128 pixels; depth in steps of 32 channels of one (r,s).
// Grid: x = tiles of pixels, y = tiles of filters.  Block: 128 threads; a warp has 32 x 64 results, a thread 64.
// Pipeline: 3 stages of shared memory; where a pixel is in an image's margin, the copy writes zeros.
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/backends/cuda/device/cp_async.cuh>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::ladders {
namespace {

using namespace cuda_detail;
using T = BFloat16;
using Tile = BlockTile<2, 2>;
constexpr int kStages = 3;
constexpr int kDepth = kRowDepth<T>, kVecSize = kVec16Size<T>;  // of a step, of 16 bytes

/// Rows of depth (r,s), first_channel and on, of the block's filters and pixels.
__device__ void load_tile(const Fprop<T>& conv, int first_k, int first_pixel, int rs, int first_channel,
                          Tile::Shared& tile) {
  const auto [N, H, W, C, K] = conv.size;
  for (int i = threadIdx.x; i < Tile::kRows * kRowVecs; i += Tile::kThreads) {
    const int k = first_k + i / kRowVecs, c = first_channel + i % kRowVecs * kVecSize;
    cuda_detail::cp_async<16>(&tile.left[i / kRowVecs][i % kRowVecs], conv.w + (k * 9 + rs) * C + c, k < K);
  }
  for (int i = threadIdx.x; i < Tile::kColumns * kRowVecs; i += Tile::kThreads) {
    const int pixel = first_pixel + i / kRowVecs, c = first_channel + i % kRowVecs * kVecSize;
    const int h = pixel / W % H + rs / 3 - 1, w = pixel % W + rs % 3 - 1, n = pixel / W / H;
    const bool inside = n < N && h >= 0 && h < H && w >= 0 && w < W;
    const int64_t at = inside ? (int64_t{n * H + h} * W + w) * C + c : 0;
    cuda_detail::cp_async<16>(&tile.right[i / kRowVecs][i % kRowVecs], conv.x + at, inside);
  }
}

__global__ void __launch_bounds__(Tile::kThreads) cp_async_kernel(Fprop<T> conv) {
  extern __shared__ Vec16 memory[];
  auto* const stages = reinterpret_cast<Tile::Shared*>(memory);
  const auto [N, H, W, C, K] = conv.size;
  const int first_pixel = static_cast<int>(blockIdx.x) * Tile::kColumns;
  const int first_k = static_cast<int>(blockIdx.y) * Tile::kRows;
  MmaTile<MathMode::half, T> mma;
  const int chunks = C / kDepth, steps = 9 * chunks;
  const auto start = [&](int step) {
    if (step < steps)
      load_tile(conv, first_k, first_pixel, step / chunks, step % chunks * kDepth, stages[step % kStages]);
    cp_async_commit();
  };
  for (int step = 0; step < kStages - 1; ++step) start(step);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<kStages - 2>();
    __syncthreads();
    start(step + kStages - 1);
    const Tile::Shared& tile = stages[step % kStages];
    mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
  }
  mma.for_each([&](int row, int column, float sum) {
    const int k = first_k + Tile::first_row() + row, pixel = first_pixel + Tile::first_column() + column;
    if (k < K && pixel < N * H * W) conv.y[int64_t{pixel} * K + k] = T(fmaxf(sum + conv.bias[k], 0.0f));
  });
}

}  // namespace

void cp_async(const Fprop<T>& conv, Device device) {
  const auto [N, H, W, C, K] = conv.size;
  const Launch launch(device);
  launch.with_shared(cp_async_kernel, dim3(ceil_div(N * H * W, Tile::kColumns), ceil_div(K, Tile::kRows)),
                     Tile::kThreads, kStages * sizeof(Tile::Shared), conv);
}

}  // namespace gradus::ladders
