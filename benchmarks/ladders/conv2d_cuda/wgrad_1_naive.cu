// Gradient of filters, rung 1, naive: each thread computes one dw[k,r,s,c], a sum over all pixels of all images.
// Grid: x = blocks of 128 results.  Block: 128 threads with neighbouring c.
// Slow because there are only 9 C K threads, each with N H W products, while a forward pass has many threads with few
// products.
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::ladders {
namespace {

template <class T>
__global__ void wgrad_naive_kernel(Wgrad<T> conv) {
  const auto [N, H, W, C, K] = conv.size;
  const int i = static_cast<int>(cuda_detail::thread_index());
  if (i >= 9 * C * K) return;
  const int c = i % C, s = i / C % 3, r = i / C / 3 % 3, k = i / C / 9;
  float sum = 0;
  for (int n = 0; n < N; ++n)
    for (int p = max(0, 1 - r); p < min(H, H + 1 - r); ++p) {
      const int64_t row = int64_t{n * H + p} * W, x_row = int64_t{n * H + p + r - 1} * W;
      float row_sum = 0;  // a sum for each row has smaller rounding errors than a single sum
      for (int q = max(0, 1 - s); q < min(W, W + 1 - s); ++q)
        row_sum +=
            static_cast<float>(conv.dy[(row + q) * K + k]) * static_cast<float>(conv.x[(x_row + q + s - 1) * C + c]);
      sum += row_sum;
    }
  conv.dw[i] = static_cast<T>(sum);
}

template <class T>
void run(const Wgrad<T>& conv, Device device) {
  cuda_detail::Launch{device}(wgrad_naive_kernel<T>, ceil_div(9 * conv.size.C * conv.size.K, 128), 128, conv);
}

}  // namespace

void wgrad_naive(const Wgrad<float>& conv, Device device) { run(conv, device); }
void wgrad_naive(const Wgrad<BFloat16>& conv, Device device) { run(conv, device); }

}  // namespace gradus::ladders
