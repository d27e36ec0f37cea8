// Rung 1, naive: each thread adds the gradients of a plane to the pixels to which the indices point. Two threads cannot
// share a plane, because both might add to the same pixel.
// Grid: x = blocks of 64 planes.  Block: 64 threads for neighbouring planes.
#include <gradus/benchmarks/ladders/max_pool_backward_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders::max_pool_backward {
namespace {

__global__ void naive_kernel(Problem problem) {
  const int64_t plane = cuda_detail::thread_index();
  if (plane >= problem.planes) return;
  const int pixels = problem.H * problem.W, windows = problem.P * problem.Q;
  float* const dx = problem.dx + plane * pixels;
  for (int i = 0; i < pixels; ++i) dx[i] = 0;
  for (int i = 0; i < windows; ++i) dx[problem.indices[plane * windows + i]] += problem.dy[plane * windows + i];
}

}  // namespace

void naive(const Problem& problem, Device device) {
  cuda_detail::Launch{device}(naive_kernel, ceil_div(problem.planes, 64), 64, problem);
}

}  // namespace gradus::ladders::max_pool_backward
