// Rung 1, naive: each thread normalises a channel, in three loops for mean, variance and result.
// Grid: x = blocks of 32 channels.  Block: 32 threads for neighbouring channels, which read numbers a plane apart.
// Slow because 64 channels occupy only 64 of the 250,000 threads that the GPU can run.
#include <gradus/benchmarks/ladders/batch_norm_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders::batch_norm {
namespace {

__global__ void naive_kernel(Problem problem) {
  const auto [N, C, pixels, x, weight, bias, y, workspace, eps] = problem;
  const int c = static_cast<int>(cuda_detail::thread_index());
  if (c >= C) return;
  const float count = static_cast<float>(N) * pixels;
  float mean = 0, squares = 0;
  for (int n = 0; n < N; ++n) {  // the mean of the images' means has smaller rounding errors
    float sum = 0;
    for (int i = 0; i < pixels; ++i) sum += x[(int64_t{n} * C + c) * pixels + i];
    mean += sum / count;
  }
  for (int n = 0; n < N; ++n) {
    float sum = 0;
    for (int i = 0; i < pixels; ++i) {
      const float deviation = x[(int64_t{n} * C + c) * pixels + i] - mean;
      sum += deviation * deviation;
    }
    squares += sum / count;
  }
  const float scale = weight[c] / sqrtf(squares + eps);
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < pixels; ++i) {
      const int64_t at = (int64_t{n} * C + c) * pixels + i;
      y[at] = (x[at] - mean) * scale + bias[c];
    }
}

}  // namespace

void naive(const Problem& problem, Device device) {
  cuda_detail::Launch{device}(naive_kernel, ceil_div(problem.C, 32), 32, problem);
}

}  // namespace gradus::ladders::batch_norm
