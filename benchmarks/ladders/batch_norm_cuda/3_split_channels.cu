// Rung 3, split channels: several blocks share a channel. Each block computes the mean and the sum of squared
// deviations of its images in one pass: each thread by Welford's method (1962), then merged by the formula of Chan,
// Golub and LeVeque. A second kernel merges the parts of each channel in order, and normalises. x is read twice, by the
// whole GPU.
// Grid: x = channels, y = splits of the images, in both kernels.  Block: 256 threads.
#include <algorithm>

#include <gradus/benchmarks/ladders/batch_norm_cuda/rungs.h>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::ladders::batch_norm {
namespace {

using namespace cuda_detail;
constexpr int kThreads = 256;

struct Moments {
  float count = 0, mean = 0, squares = 0;  // squares: sum of squared deviations

  __device__ void add(float x) {
    const float deviation = x - mean;
    count += 1, mean += deviation / count, squares += deviation * (x - mean);
  }
  __device__ Moments shfl_xor(int step) const {
    return {cuda_detail::shfl_xor(count, step), cuda_detail::shfl_xor(mean, step),
            cuda_detail::shfl_xor(squares, step)};
  }
};

struct Merge {
  __device__ Moments operator()(const Moments& a, const Moments& b) const {
    const float count = a.count + b.count, share = count > 0 ? b.count / count : 0, delta = b.mean - a.mean;
    return {count, a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share};
  }
};

/// Calls f(index) for this block's part of the channel's numbers: those of `images` images, starting with the first
/// image of the split.
template <class F>
__device__ void for_each(const Problem& problem, int images, F&& f) {
  const int c = static_cast<int>(blockIdx.x), first = static_cast<int>(blockIdx.y) * images;
  for (int n = first; n < min(first + images, problem.N); ++n)
#pragma unroll 4
    for (int i = threadIdx.x; i < problem.pixels; i += kThreads) f((int64_t{n} * problem.C + c) * problem.pixels + i);
}

__global__ void __launch_bounds__(kThreads) moments_kernel(Problem problem, int images) {
  alignas(Moments) __shared__ char shared[32 * sizeof(Moments)];
  Moments moments;
  for_each(problem, images, [&](int64_t at) { moments.add(problem.x[at]); });
  moments = block_reduce(moments, reinterpret_cast<Moments*>(shared), Merge());
  float* const to = problem.workspace + 2 * (blockIdx.x * gridDim.y + blockIdx.y);
  if (threadIdx.x == 0) to[0] = moments.mean, to[1] = moments.squares;
}

__global__ void __launch_bounds__(kThreads) normalize_kernel(Problem problem, int images) {
  const int c = static_cast<int>(blockIdx.x), splits = static_cast<int>(gridDim.y);
  Moments moments;
  for (int split = 0; split < splits; ++split) {
    const float* const part = problem.workspace + 2 * (c * splits + split);
    const float count = static_cast<float>(min(images, problem.N - split * images)) * problem.pixels;
    moments = Merge()(moments, {count, part[0], part[1]});
  }
  const float mean = moments.mean, bias = problem.bias[c];
  const float scale = problem.weight[c] / sqrtf(moments.squares / moments.count + problem.eps);
  for_each(problem, images, [&](int64_t at) { problem.y[at] = (problem.x[at] - mean) * scale + bias; });
}

}  // namespace

void split_channels(const Problem& problem, Device device) {
  const Launch launch(device);
  const int wanted = std::clamp(8 * launch.multiprocessors() / problem.C, 1, kMostSplits);
  const int images = static_cast<int>(ceil_div(problem.N, wanted));
  const dim3 grid(problem.C, ceil_div(problem.N, images));
  launch(moments_kernel, grid, kThreads, problem, images);
  launch(normalize_kernel, grid, kThreads, problem, images);
}

}  // namespace gradus::ladders::batch_norm
