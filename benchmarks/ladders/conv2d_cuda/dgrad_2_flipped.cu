// Gradient of images, rung 2, flipped filters: dx is the convolution of dy with filters whose taps are flipped and
// whose input and output channels are exchanged, flipped[c,r,s,k] = w[k, 2 - r, 2 - s, c]. A small kernel writes these
// filters; then rungs 4 and 6 of the forward pass compute dx. Writing costs little: 9 C K numbers, compared with N H W
// (C + K) numbers of the images.
// Grid: x = blocks of 256 weights.  Block: 256 threads with neighbouring k.
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders {
namespace {

template <class T>
__global__ void flip_kernel(Dgrad<T> conv) {
  const int C = conv.size.C, K = conv.size.K, i = static_cast<int>(cuda_detail::thread_index());
  if (i >= 9 * C * K) return;
  const int k = i % K, rs = i / K % 9, c = i / K / 9;
  conv.flipped[i] = conv.w[(k * 9 + 8 - rs) * C + c];
}

template <class T>
Fprop<T> flip(const Dgrad<T>& conv, Device device) {
  const auto [N, H, W, C, K] = conv.size;
  cuda_detail::Launch{device}(flip_kernel<T>, ceil_div(9 * C * K, 256), 256, conv);
  return {{N, H, W, K, C}, conv.dy, conv.flipped, nullptr, conv.dx};
}

}  // namespace

void dgrad_flipped(const Dgrad<float>& conv, Device device) { implicit_gemm(flip(conv, device), device); }
void dgrad_flipped(const Dgrad<BFloat16>& conv, Device device) { cp_async(flip(conv, device), device); }

}  // namespace gradus::ladders
