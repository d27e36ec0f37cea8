// Rung 4, implicit GEMM: computes the convolution as the matrix product of filters (K, 9 C) and pixels (N P Q, 9 C).
// The second factor is never stored: its row (n,p,q) has at depth (r,s,c) the element x[n, p + r - 1, q + s - 1, c].
// Tiles of 64 filters x 128 pixels are possible for any image size. A step has a depth of 16 channels of one (r,s).
// Grid: x = tiles of pixels, y = tiles of filters.  Block: 128 threads; a warp has 32 x 64 results, a thread 8 x 8 of
// them (MmaTile on the FMA units), so it makes 64 multiply-adds with 16 numbers from shared memory.
// Pipeline: none; all threads load a step, and then multiply it.
#include <gradus/benchmarks/ladders/conv2d_cuda/implicit_gemm.cuh>

namespace gradus::ladders {
namespace {

using T = float;

__global__ void __launch_bounds__(Tile::kThreads) implicit_gemm_kernel(Fprop<T> conv) {
  __shared__ Tile::Shared tile;
  cuda_detail::MmaTile<cuda_detail::MathMode::fma, T> mma;
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

void implicit_gemm(const Fprop<T>& conv, Device device) {
  const cuda_detail::Launch launch(device);
  launch(implicit_gemm_kernel, grid_of(conv.size), Tile::kThreads, conv);
}

}  // namespace gradus::ladders
