// Rung 3, a tile in registers: each thread computes 8 x 8 results (MmaTile on the FMA units), so it makes 64
// multiply-adds with 16 numbers from shared memory. Rung 2 makes one with two numbers.
// Grid: x = tiles of 128 columns, y = tiles of 64 rows.  Block: 128 threads; a warp has 32 x 64 results.
// Pipeline: none; all threads load a step, and then multiply it.
#include <gradus/benchmarks/ladders/gemm_cuda/tile.cuh>

namespace gradus::ladders::gemm {
namespace {

using T = float;

__global__ void __launch_bounds__(Tile::kThreads) register_tile_kernel(Problem<T> problem) {
  __shared__ Tile::Shared tile;
  cuda_detail::MmaTile<cuda_detail::MathMode::fma, T> mma;
  for (int k = 0; k < problem.K; k += kDepth<T>) {
    __syncthreads();
    load_tile(problem, k, tile, CopyVec16());
    __syncthreads();
    mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
  }
  store_tile(problem, mma);
}

}  // namespace

void register_tile(const Problem<T>& problem, Device device) {
  cuda_detail::Launch{device}(register_tile_kernel, grid_of(problem), Tile::kThreads, problem);
}

}  // namespace gradus::ladders::gemm
