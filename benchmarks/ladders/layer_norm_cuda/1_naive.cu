// Rung 1, naive: each thread normalises a row, in three loops for mean, variance and result.
// Grid: x = blocks of 64 rows.  Block: 64 threads for neighbouring rows, which read numbers a row apart.
#include <gradus/benchmarks/ladders/layer_norm_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders::layer_norm {
namespace {

__global__ void naive_kernel(Problem problem) {
  const int64_t row = cuda_detail::thread_index();
  if (row >= problem.rows) return;
  const int columns = problem.columns;
  const float* const x = problem.x + row * columns;
  float sum = 0, squares = 0;
  for (int j = 0; j < columns; ++j) sum += x[j];
  const float mean = sum / columns;
  for (int j = 0; j < columns; ++j) squares += (x[j] - mean) * (x[j] - mean);
  const float scale = 1 / sqrtf(squares / columns + problem.eps);
  for (int j = 0; j < columns; ++j)
    problem.y[row * columns + j] = (x[j] - mean) * scale * problem.weight[j] + problem.bias[j];
}

}  // namespace

void naive(const Problem& problem, Device device) {
  cuda_detail::Launch{device}(naive_kernel, ceil_div(problem.rows, 64), 64, problem);
}

}  // namespace gradus::ladders::layer_norm
