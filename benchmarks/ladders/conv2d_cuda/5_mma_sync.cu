// Rung 5, tensor cores: rung 4 with other multiply instructions. A warp's instruction mma.m16n8k16 makes 2,048
// multiply-adds of bfloat16 with float32 sums; ldmatrix reads its operands from shared memory, 16 x 16 elements at a
// time.
// Tiles of 64 filters x 128 pixels; a step has a depth of 32 channels of one (r,s).
// Grid: x = tiles of pixels, y = tiles of filters.  Block: 128 threads; a warp has 32 x 64 results, a thread 64.
// Pipeline: none, so now the loads take longer than the products.
#include <gradus/benchmarks/ladders/conv2d_cuda/implicit_gemm.cuh>

namespace gradus::ladders {
namespace {

using T = BFloat16;

__global__ void __launch_bounds__(Tile::kThreads) mma_sync_kernel(Fprop<T> conv) {
  __shared__ Tile::Shared tile;
  cuda_detail::MmaTile<cuda_detail::MathMode::half, T> mma;
  for (int rs = 0; rs < 9; ++rs)
    for (int c = 0; c < conv.size.C; c += kDepth<T>) {
      __syncthreads();
      load_tile(conv, rs, c, tile, CopyVec16());
      __syncthreads();
      mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
    }
  store_epilogue(conv, mma);
}

}  // namespace

void mma_sync(const Fprop<T>& conv, Device device) {
  const cuda_detail::Launch launch(device);
  launch(mma_sync_kernel, grid_of(conv.size), Tile::kThreads, conv);
}

}  // namespace gradus::ladders
