// Rung 1, naive: each thread computes one y[n,p,q,k] by the formula.
// Grid: x = blocks of 256 results.  Block: 256 threads with neighbouring k.
// Slow because each multiply-add loads two numbers, and neighbouring threads read filters that are 9 C elements apart.
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders {
namespace {

template <class T>
__global__ void naive_kernel(Fprop<T> conv) {
  const auto [N, H, W, C, K] = conv.size;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= int64_t{N} * H * W * K) return;
  const int k = i % K, q = i / K % W, p = i / K / W % H, n = i / K / W / H;
  float sum = static_cast<float>(conv.bias[k]);
  for (int r = 0; r < 3; ++r)
    for (int s = 0; s < 3; ++s) {
      const int h = p + r - 1, w = q + s - 1;
      if (h < 0 || h >= H || w < 0 || w >= W) continue;
      const T* const x = conv.x + (int64_t{n * H + h} * W + w) * C;
      const T* const filter = conv.w + ((k * 3 + r) * 3 + s) * C;
      for (int c = 0; c < C; ++c) sum += static_cast<float>(x[c]) * static_cast<float>(filter[c]);
    }
  conv.y[i] = static_cast<T>(fmaxf(sum, 0.0f));
}

template <class T>
void run(const Fprop<T>& conv, Device device) {
  const auto [N, H, W, C, K] = conv.size;
  const cuda_detail::Launch launch(device);
  launch(naive_kernel<T>, ceil_div(int64_t{N} * H * W * K, 256), 256, conv);
}

}  // namespace

void naive(const Fprop<float>& conv, Device device) { run(conv, device); }
void naive(const Fprop<BFloat16>& conv, Device device) { run(conv, device); }

}  // namespace gradus::ladders
