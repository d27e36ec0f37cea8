// Rung 1, naive: each thread computes a row, in three loops for maximum, sum and quotient.
// Grid: x = blocks of 256 rows.  Block: 256 threads for neighbouring rows.
// Slow because neighbouring threads read numbers a row apart, so that each load of a warp touches 32 sectors of 32
// bytes.
#include <gradus/benchmarks/ladders/softmax_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders::softmax {
namespace {

__global__ void naive_kernel(Problem problem) {
  const int64_t row = cuda_detail::thread_index();
  if (row >= problem.rows) return;
  const float* const x = problem.x + row * problem.columns;
  float max = -INFINITY, sum = 0;
  for (int j = 0; j < problem.columns; ++j) max = fmaxf(max, x[j]);
  for (int j = 0; j < problem.columns; ++j) sum += expf(x[j] - max);
  for (int j = 0; j < problem.columns; ++j) problem.y[row * problem.columns + j] = expf(x[j] - max) / sum;
}

}  // namespace

void naive(const Problem& problem, Device device) {
  cuda_detail::Launch{device}(naive_kernel, ceil_div(problem.rows, 256), 256, problem);
}

}  // namespace gradus::ladders::softmax
