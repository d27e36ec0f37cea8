// Rung 2, a tile in shared memory: a block loads 32 x 32 numbers of x and of w, and uses each number for 32 products.
// Grid: x = tiles of columns, y = of rows.  Block: 32 x 32 threads; a thread computes one y[m,n].
// Pipeline: none.  Each multiply-add still reads two numbers, but from shared memory.
#include <gradus/benchmarks/ladders/gemm_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders::gemm {
namespace {

constexpr int kTile = 32;

__global__ void __launch_bounds__(kTile* kTile) shared_tile_kernel(Problem<float> problem) {
  __shared__ float left[kTile][kTile], right[kTile][kTile + 1];  // 32 rows in 32 different banks
  const auto [M, N, K, x, w, y] = problem;
  const int row = threadIdx.y, column = threadIdx.x;
  const int64_t first_m = blockIdx.y * kTile, first_n = blockIdx.x * kTile;
  float sum = 0;
  for (int first = 0; first < K; first += kTile) {
    const int k = first + column;
    __syncthreads();
    left[row][column] = first_m + row < M && k < K ? x[(first_m + row) * K + k] : 0.0f;
    right[row][column] = first_n + row < N && k < K ? w[(first_n + row) * K + k] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) sum += left[row][i] * right[column][i];
  }
  if (first_m + row < M && first_n + column < N) y[(first_m + row) * N + first_n + column] = sum;
}

}  // namespace

void shared_tile(const Problem<float>& problem, Device device) {
  cuda_detail::Launch{device}(shared_tile_kernel, dim3(ceil_div(problem.N, kTile), ceil_div(problem.M, kTile)),
                              dim3(kTile, kTile), problem);
}

}  // namespace gradus::ladders::gemm
