// Rung 2, a block per channel: neighbouring threads read neighbouring pixels, and the block adds up their sums. One
// kernel makes the three passes, and reads x three times.
// Grid: x = channels.  Block: 1024 threads; a thread takes every 1024th number of the channel. If there are fewer
// channels than multiprocessors, most of the GPU is idle.
#include <gradus/benchmarks/ladders/batch_norm_cuda/rungs.h>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::ladders::batch_norm {
namespace {

using namespace cuda_detail;
constexpr int kThreads = 1024;

__global__ void __launch_bounds__(kThreads) block_channel_kernel(Problem problem) {
  __shared__ float shared[32];
  const float* const x = problem.x;
  const int c = static_cast<int>(blockIdx.x), count = problem.N * problem.pixels;
  const auto at = [&](int i) {
    return (int64_t{i / problem.pixels} * problem.C + c) * problem.pixels + i % problem.pixels;
  };
  float sum = 0, squares = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) sum += x[at(i)];
  const float mean = block_reduce(sum, shared, Add()) / count;
  for (int i = threadIdx.x; i < count; i += kThreads) squares += (x[at(i)] - mean) * (x[at(i)] - mean);
  const float scale = problem.weight[c] / sqrtf(block_reduce(squares, shared, Add()) / count + problem.eps);
  for (int i = threadIdx.x; i < count; i += kThreads) problem.y[at(i)] = (x[at(i)] - mean) * scale + problem.bias[c];
}

}  // namespace

void block_channel(const Problem& problem, Device device) {
  Launch{device}(block_channel_kernel, problem.C, kThreads, problem);
}

}  // namespace gradus::ladders::batch_norm
