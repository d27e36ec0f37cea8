// Rung 2, a warp per row: neighbouring lanes read neighbouring numbers, and shuffles add up the sums of the lanes.
// Reads x three times; if rows are short, the second and third time from the caches.
// Grid: x = blocks of 8 rows.  Block: 8 warps; a lane normalises every 32nd number of its warp's row.
#include <gradus/benchmarks/ladders/layer_norm_cuda/rungs.h>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::ladders::layer_norm {
namespace {

using namespace cuda_detail;
constexpr int kWarps = 8;

__global__ void warp_row_kernel(Problem problem) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= problem.rows) return;
  const int columns = problem.columns, lane = threadIdx.x % 32;
  const float* const x = problem.x + row * columns;
  float sum = 0, squares = 0;
  for (int j = lane; j < columns; j += 32) sum += x[j];
  const float mean = warp_reduce(sum, Add()) / columns;
  for (int j = lane; j < columns; j += 32) squares += (x[j] - mean) * (x[j] - mean);
  const float scale = 1 / sqrtf(warp_reduce(squares, Add()) / columns + problem.eps);
  for (int j = lane; j < columns; j += 32)
    problem.y[row * columns + j] = (x[j] - mean) * scale * problem.weight[j] + problem.bias[j];
}

}  // namespace

void warp_row(const Problem& problem, Device device) {
  Launch{device}(warp_row_kernel, ceil_div(problem.rows, kWarps), 32 * kWarps, problem);
}

}  // namespace gradus::ladders::layer_norm
