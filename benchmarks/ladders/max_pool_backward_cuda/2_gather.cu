// Rung 2, one thread per pixel: each thread computes one dx. It checks which of the windows that cover its pixel, at
// most 2 x 2, have their maximum there. Each result has a single thread, so the order of additions is fixed, and dx
// need not be set to 0 first.
// Grid: x = blocks of 256 pixels.  Block: 256 threads with neighbouring w.
#include <gradus/benchmarks/ladders/max_pool_backward_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders::max_pool_backward {
namespace {

__global__ void gather_kernel(Problem problem) {
  const auto [planes, H, W, P, Q, dy, indices, dx] = problem;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= int64_t{planes} * H * W) return;
  const int w = i % W, h = i / W % H;
  const int64_t plane = i / W / H;
  float sum = 0;
  for (int p = h / 2; p <= min((h + 1) / 2, P - 1); ++p)
    for (int q = w / 2; q <= min((w + 1) / 2, Q - 1); ++q) {
      const int64_t window = (plane * P + p) * Q + q;
      if (indices[window] == h * W + w) sum += dy[window];
    }
  dx[i] = sum;
}

}  // namespace

void gather(const Problem& problem, Device device) {
  const int64_t pixels = int64_t{problem.planes} * problem.H * problem.W;
  cuda_detail::Launch{device}(gather_kernel, ceil_div(pixels, 256), 256, problem);
}

}  // namespace gradus::ladders::max_pool_backward
