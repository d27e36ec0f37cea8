// Gradient of images, rung 1, naive: each thread computes one dx[n,h,w,c] from the pixels of dy, at most nine, to which
// x[n,h,w,c] contributed.
// Grid: x = blocks of 256 results.  Block: 256 threads with neighbouring c.
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders {
namespace {

template <class T>
__global__ void dgrad_naive_kernel(Dgrad<T> conv) {
  const auto [N, H, W, C, K] = conv.size;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= int64_t{N} * H * W * C) return;
  const int c = i % C, w = i / C % W, h = i / C / W % H, n = i / C / W / H;
  float sum = 0;
  for (int r = 0; r < 3; ++r)
    for (int s = 0; s < 3; ++s) {
      const int p = h - r + 1, q = w - s + 1;
      if (p < 0 || p >= H || q < 0 || q >= W) continue;
      const T* const dy = conv.dy + (int64_t{n * H + p} * W + q) * K;
      for (int k = 0; k < K; ++k)
        sum += static_cast<float>(dy[k]) * static_cast<float>(conv.w[((k * 3 + r) * 3 + s) * C + c]);
    }
  conv.dx[i] = static_cast<T>(sum);
}

template <class T>
void run(const Dgrad<T>& conv, Device device) {
  const auto [N, H, W, C, K] = conv.size;
  cuda_detail::Launch{device}(dgrad_naive_kernel<T>, ceil_div(int64_t{N} * H * W * C, 256), 256, conv);
}

}  // namespace

void dgrad_naive(const Dgrad<float>& conv, Device device) { run(conv, device); }
void dgrad_naive(const Dgrad<BFloat16>& conv, Device device) { run(conv, device); }

}  // namespace gradus::ladders
