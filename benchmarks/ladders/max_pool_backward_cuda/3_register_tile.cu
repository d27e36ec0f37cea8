// Rung 3, a tile in registers: each thread computes 2 x 2 pixels, starting at (2p, 2q). The same windows, (p,q) to
// (p+1, q+1), cover these four pixels. So each thread makes four loads of index and gradient for four results, where
// rung 2 makes nine, and all threads make equally many.
// Grid: x = blocks of 256 tiles.  Block: 256 threads with neighbouring q.
#include <gradus/benchmarks/ladders/max_pool_backward_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders::max_pool_backward {
namespace {

__global__ void register_tile_kernel(Problem problem) {
  const auto [planes, H, W, P, Q, dy, indices, dx] = problem;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= int64_t{planes} * P * Q) return;
  const int q = i % Q, p = i / Q % P;
  const int64_t plane = i / Q / P;
  float sums[2][2] = {};
#pragma unroll
  for (int window = 0; window < 4; ++window) {
    const int down = window / 2, right = window % 2;
    if (p + down >= P || q + right >= Q) continue;
    const int64_t at = i + down * Q + right;
    const int index = indices[at], h = index / W - 2 * p, w = index % W - 2 * q;
    const float gradient = dy[at];
#pragma unroll
    for (int pixel = 0; pixel < 4; ++pixel)
      if (h == pixel / 2 && w == pixel % 2) sums[pixel / 2][pixel % 2] += gradient;
  }
#pragma unroll
  for (int pixel = 0; pixel < 4; ++pixel) {
    const int h = 2 * p + pixel / 2, w = 2 * q + pixel % 2;
    if (h < H && w < W) dx[(plane * H + h) * W + w] = sums[pixel / 2][pixel % 2];
  }
}

}  // namespace

void register_tile(const Problem& problem, Device device) {
  const int64_t tiles = int64_t{problem.planes} * problem.P * problem.Q;
  cuda_detail::Launch{device}(register_tile_kernel, ceil_div(tiles, 256), 256, problem);
}

}  // namespace gradus::ladders::max_pool_backward
