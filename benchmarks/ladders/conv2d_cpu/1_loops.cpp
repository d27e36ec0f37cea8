// Rung 1, seven loops: over images, filters, rows and columns of the result, channels and taps. NCHW. All passes
// combine the same three numbers in a step: y[j] += x[i] w[l], dx[i] += g[j] w[l] and dw[l] += g[j] x[i]. A pass sums
// over the loops whose index its result does not have.
// Slow because a step makes only one multiply-add, which waits for the previous one or for memory.
#include <algorithm>

#include <gradus/benchmarks/ladders/conv2d_cpu/rungs.h>

namespace gradus::ladders::loops {
namespace {

/// Calls f(j, i, l) for every x[i] and w[l] whose product is a part of y[j].
template <class F>
void for_each_product(const ConvSize& size, F f) {
  const auto [N, H, W, C, K] = size;
  for (int64_t n = 0; n < N; ++n)
    for (int64_t k = 0; k < K; ++k)
      for (int64_t p = 0; p < H; ++p)
        for (int64_t q = 0; q < W; ++q)
          for (int64_t c = 0; c < C; ++c)
            for (int64_t r = 0; r < 3; ++r)
              for (int64_t s = 0; s < 3; ++s) {
                const int64_t h = p + r - 1, w = q + s - 1;
                if (h < 0 || h >= H || w < 0 || w >= W) continue;  // the padding is 0
                f(((n * K + k) * H + p) * W + q, ((n * C + c) * H + h) * W + w, ((k * C + c) * 3 + r) * 3 + s);
              }
}

}  // namespace

void fprop(const Fprop& conv) {
  const auto [N, H, W, C, K] = conv.size;
  for (int64_t j = 0; j < N * K * H * W; ++j) conv.y[j] = conv.bias[j / (H * W) % K];
  for_each_product(conv.size, [&](int64_t j, int64_t i, int64_t l) { conv.y[j] += conv.x[i] * conv.w[l]; });
  for (int64_t j = 0; j < N * K * H * W; ++j) conv.y[j] = std::max(0.0f, conv.y[j]);
}

void dgrad(const Dgrad& conv) {
  const auto [N, H, W, C, K] = conv.size;
  std::fill_n(conv.dx, N * C * H * W, 0.0f);
  for_each_product(conv.size, [&](int64_t j, int64_t i, int64_t l) {
    if (conv.y[j] > 0) conv.dx[i] += conv.dy[j] * conv.w[l];
  });
}

void wgrad(const Wgrad& conv) {
  const auto [N, H, W, C, K] = conv.size;
  std::fill_n(conv.dw, K * C * 9, 0.0f);
  std::fill_n(conv.dbias, K, 0.0f);
  for_each_product(conv.size, [&](int64_t j, int64_t i, int64_t l) {
    if (conv.y[j] > 0) conv.dw[l] += conv.dy[j] * conv.x[i];
  });
  for (int64_t j = 0; j < N * K * H * W; ++j)
    if (conv.y[j] > 0) conv.dbias[j / (H * W) % K] += conv.dy[j];
}

}  // namespace gradus::ladders::loops
