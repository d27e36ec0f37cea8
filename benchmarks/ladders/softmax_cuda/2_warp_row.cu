// Rung 2, a warp per row: neighbouring lanes read neighbouring numbers. Shuffles combine the maxima and sums of the
// lanes, which needs no shared memory.
// Grid: x = blocks of 8 rows.  Block: 8 warps; a lane computes every 32nd number of its warp's row.
#include <gradus/benchmarks/ladders/softmax_cuda/rungs.h>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::ladders::softmax {
namespace {

using namespace cuda_detail;
constexpr int kWarps = 8;

__global__ void warp_row_kernel(Problem problem) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= problem.rows) return;
  const int lane = threadIdx.x % 32;
  const float* const x = problem.x + row * problem.columns;
  float max = -INFINITY, sum = 0;
  for (int j = lane; j < problem.columns; j += 32) max = fmaxf(max, x[j]);
  max = warp_reduce(max, LargerNumber());
  for (int j = lane; j < problem.columns; j += 32) sum += expf(x[j] - max);
  sum = warp_reduce(sum, Add());
  for (int j = lane; j < problem.columns; j += 32) problem.y[row * problem.columns + j] = expf(x[j] - max) / sum;
}

}  // namespace

void warp_row(const Problem& problem, Device device) {
  Launch{device}(warp_row_kernel, ceil_div(problem.rows, kWarps), 32 * kWarps, problem);
}

}  // namespace gradus::ladders::softmax
