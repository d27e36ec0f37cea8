// Rung 2, a tile in registers: each thread computes four neighbouring pixels of a filter, y[n,p,q..q+3,k]. It uses a
// loaded weight for four sums, and a loaded pixel for up to three.
// Grid: x = groups of 8 x 4 pixels of a row, y = groups of 32 filters.  Block: 8 warps; a warp has 4 pixels, its lanes
// 32 filters, so that a load of x is one broadcast and a store of y 128 neighbouring bytes. A thread makes 12
// multiply-adds with 3 loaded weights and 6 loaded pixels: 0.75 loads per multiply-add instead of 2.
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders {
namespace {

constexpr int kPixels = 4, kWarps = 8;

__global__ void __launch_bounds__(32 * kWarps) register_tile_kernel(Fprop<float> conv) {
  const auto [N, H, W, C, K] = conv.size;
  const int groups = (W + kPixels - 1) / kPixels;  // of a row
  const int group = static_cast<int>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int q = group % groups * kPixels, p = group / groups % H, n = group / groups / H;
  const int k = static_cast<int>(blockIdx.y) * 32 + threadIdx.x % 32;
  if (n >= N || k >= K) return;
  float sums[kPixels];
  for (float& sum : sums) sum = conv.bias[k];
  for (int r = 0; r < 3; ++r) {
    const int h = p + r - 1;
    if (h < 0 || h >= H) continue;
    const float* const row = conv.x + int64_t{n * H + h} * W * C;
    const float* const filter = conv.w + (k * 3 + r) * 3 * C;
    for (int c = 0; c < C; ++c) {
      float x[kPixels + 2], w[3];
#pragma unroll
      for (int i = 0; i < kPixels + 2; ++i) {
        const int at = q + i - 1;
        x[i] = at >= 0 && at < W ? row[at * C + c] : 0.0f;
      }
#pragma unroll
      for (int s = 0; s < 3; ++s) w[s] = filter[s * C + c];
#pragma unroll
      for (int i = 0; i < kPixels; ++i)
#pragma unroll
        for (int s = 0; s < 3; ++s) sums[i] += x[i + s] * w[s];
    }
  }
#pragma unroll
  for (int i = 0; i < kPixels; ++i)
    if (q + i < W) conv.y[(int64_t{n * H + p} * W + q + i) * K + k] = fmaxf(sums[i], 0.0f);
}

}  // namespace

void register_tile(const Fprop<float>& conv, Device device) {
  const auto [N, H, W, C, K] = conv.size;
  const cuda_detail::Launch launch(device);
  const int64_t groups = int64_t{N} * H * ceil_div(W, kPixels);
  launch(register_tile_kernel, dim3(ceil_div(groups, kWarps), ceil_div(K, 32)), 32 * kWarps, conv);
}

}  // namespace gradus::ladders
