// Rung 2, a warp per row: the 32 lanes read 128 neighbouring bytes, and shuffles add up the sums of the lanes in a
// fixed order.
// Grid: x = blocks of 8 rows.  Block: 8 warps; a lane adds every 32nd number of its warp's row.
#include <gradus/benchmarks/ladders/reduce_cuda/rungs.h>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::ladders::reduce {
namespace {

using namespace cuda_detail;
constexpr int kWarps = 8;

__global__ void warp_row_kernel(Problem problem) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= problem.rows) return;
  float sum = 0;
  for (int j = threadIdx.x % 32; j < problem.columns; j += 32) sum += problem.x[row * problem.columns + j];
  sum = warp_reduce(sum, Add());
  if (threadIdx.x % 32 == 0) problem.y[row] = sum;
}

}  // namespace

void warp_row(const Problem& problem, Device device) {
  Launch{device}(warp_row_kernel, ceil_div(problem.rows, kWarps), 32 * kWarps, problem);
}

}  // namespace gradus::ladders::reduce
