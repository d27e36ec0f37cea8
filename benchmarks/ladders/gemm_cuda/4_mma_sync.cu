// Rung 4, tensor cores: rung 3 with other multiply instructions. A warp's instruction mma.m16n8k16 makes 2,048
// multiply-adds of bfloat16 with float32 sums; ldmatrix reads its operands from shared memory, 16 x 16 elements at a
// time.
// Grid: x = tiles of 128 columns, y = tiles of 64 rows.  Block: 128 threads; a warp has 32 x 64 results.
// Pipeline: none; all threads load a step, and then multiply it.
#include <gradus/benchmarks/ladders/gemm_cuda/tile.cuh>

namespace gradus::ladders::gemm {
namespace {

using T = BFloat16;

__global__ void __launch_bounds__(Tile::kThreads) mma_sync_kernel(Problem<T> problem) {
  __shared__ Tile::Shared tile;
  cuda_detail::MmaTile<cuda_detail::MathMode::half, T> mma;
  for (int k = 0; k < problem.K; k += kDepth<T>) {
    __syncthreads();
    load_tile(problem, k, tile, CopyVec16());
    __syncthreads();
    mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
  }
  store_tile(problem, mma);
}

}  // namespace

void mma_sync(const Problem<T>& problem, Device device) {
  cuda_detail::Launch{device}(mma_sync_kernel, grid_of(problem), Tile::kThreads, problem);
}

}  // namespace gradus::ladders::gemm
