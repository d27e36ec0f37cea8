// Rung 1, naive: each thread sums a row.
// Grid: x = blocks of 256 rows.  Block: 256 threads for neighbouring rows, which read numbers a row apart.
#include <gradus/benchmarks/ladders/reduce_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders::reduce {
namespace {

__global__ void naive_kernel(Problem problem) {
  const int64_t row = cuda_detail::thread_index();
  if (row >= problem.rows) return;
  float sum = 0;
  for (int j = 0; j < problem.columns; ++j) sum += problem.x[row * problem.columns + j];
  problem.y[row] = sum;
}

}  // namespace

void naive(const Problem& problem, Device device) {
  cuda_detail::Launch{device}(naive_kernel, ceil_div(problem.rows, 256), 256, problem);
}

}  // namespace gradus::ladders::reduce
