// Rung 2, im2col: copies the windows of an image to the columns of a matrix, so that the convolution is a product of
// matrices. NCHW.
//   fprop   y[n] (K, HW) = w (K, 9C) columns (9C, HW),  columns[c r s, p q] = x[n, c, p + r - 1, q + s - 1]
//   dgrad   columns (9C, HW) = w^T (9C, K) g[n] (K, HW), added back to the pixels that they are copies of
//   wgrad   dw (K, 9C) = sum over n of g[n] (K, HW) columns^T (HW, 9C)
// The product is the third rung of gemm_cpu: it adds four rows of a block of the right factor, which fits into the
// second-level cache, to a row of the result at a time, and the compiler vectorises the loop along the row. Faster
// because the inner loop has no conditions and reads memory in order. But each number is written and read nine times,
// and the workspace needs 9 C H W floats for the columns and K H W floats for the masked dy.
#include <algorithm>

#include <gradus/benchmarks/ladders/conv2d_cpu/rungs.h>

namespace gradus::ladders::im2col {
namespace {

struct Matrix {  // element (i, k) is data[i * row + k * column]
  const float* data;
  int64_t row, column;
};

/// Computes C += A B for A (M, depth) and B (depth, N). B and C are row-major.
void multiply(int64_t M, int64_t N, int64_t depth, Matrix a, const float* b, float* c) {
  constexpr int64_t kDepth = 64, kColumns = 512;  // a block of B: 128 KiB
  for (int64_t j0 = 0; j0 < N; j0 += kColumns)
    for (int64_t k0 = 0; k0 < depth; k0 += kDepth)
      for (int64_t i = 0; i < M; ++i) {
        const int64_t j1 = std::min(N, j0 + kColumns), k1 = std::min(depth, k0 + kDepth);
        const auto at = [&](int64_t k) { return a.data[i * a.row + k * a.column]; };
        float* const sums = c + i * N;
        int64_t k = k0;
        for (; k + 4 <= k1; k += 4) {
          const float a0 = at(k), a1 = at(k + 1), a2 = at(k + 2), a3 = at(k + 3), *const bk = b + k * N;
          for (int64_t j = j0; j < j1; ++j)
            sums[j] += a0 * bk[j] + a1 * bk[N + j] + a2 * bk[2 * N + j] + a3 * bk[3 * N + j];
        }
        for (; k < k1; ++k)
          for (int64_t j = j0; j < j1; ++j) sums[j] += at(k) * b[k * N + j];
      }
}

/// Calls f(depth, pixel, index in the image) for every element of the columns. In the padding, the index is -1.
template <class F>
void for_each_element(const ConvSize& size, F f) {
  const auto [N, H, W, C, K] = size;
  for (int64_t c = 0; c < C; ++c)
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t s = 0; s < 3; ++s)
        for (int64_t p = 0; p < H; ++p)
          for (int64_t q = 0; q < W; ++q) {
            const int64_t h = p + r - 1, w = q + s - 1;
            const bool inside = h >= 0 && h < H && w >= 0 && w < W;
            f((c * 3 + r) * 3 + s, p * W + q, inside ? (c * H + h) * W + w : -1);
          }
}

/// Sets masked to dy where y > 0, and to 0 elsewhere.
void apply_mask(int64_t count, const float* dy, const float* y, float* masked) {
  for (int64_t j = 0; j < count; ++j) masked[j] = y[j] > 0 ? dy[j] : 0;
}

}  // namespace

int64_t workspace(const ConvSize& size) { return (9 * size.C + size.K) * size.H * size.W; }

void fprop(const Fprop& conv) {
  const auto [N, H, W, C, K] = conv.size;
  const int64_t pixels = H * W;
  float* const columns = conv.workspace;
  for (int64_t n = 0; n < N; ++n) {
    const float* const x = conv.x + n * C * pixels;
    float* const y = conv.y + n * K * pixels;
    for_each_element(conv.size, [=](int64_t depth, int64_t pixel, int64_t from) {
      columns[depth * pixels + pixel] = from < 0 ? 0 : x[from];
    });
    for (int64_t k = 0; k < K; ++k) std::fill_n(y + k * pixels, pixels, conv.bias[k]);
    multiply(K, pixels, 9 * C, {conv.w, 9 * C, 1}, columns, y);
    for (int64_t j = 0; j < K * pixels; ++j) y[j] = std::max(0.0f, y[j]);
  }
}

void dgrad(const Dgrad& conv) {
  const auto [N, H, W, C, K] = conv.size;
  const int64_t pixels = H * W;
  float *const columns = conv.workspace, *const g = columns + 9 * C * pixels;
  std::fill_n(conv.dx, N * C * pixels, 0.0f);
  for (int64_t n = 0; n < N; ++n) {
    apply_mask(K * pixels, conv.dy + n * K * pixels, conv.y + n * K * pixels, g);
    std::fill_n(columns, 9 * C * pixels, 0.0f);
    multiply(9 * C, pixels, K, {conv.w, 1, 9 * C}, g, columns);
    float* const dx = conv.dx + n * C * pixels;
    for_each_element(conv.size, [=](int64_t depth, int64_t pixel, int64_t to) {
      if (to >= 0) dx[to] += columns[depth * pixels + pixel];
    });
  }
}

void wgrad(const Wgrad& conv) {
  const auto [N, H, W, C, K] = conv.size;
  const int64_t pixels = H * W, depths = 9 * C;
  float *const columns = conv.workspace, *const g = columns + depths * pixels;
  std::fill_n(conv.dw, K * depths, 0.0f);
  std::fill_n(conv.dbias, K, 0.0f);
  for (int64_t n = 0; n < N; ++n) {
    const float* const x = conv.x + n * C * pixels;
    apply_mask(K * pixels, conv.dy + n * K * pixels, conv.y + n * K * pixels, g);
    for_each_element(conv.size, [=](int64_t depth, int64_t pixel, int64_t from) {
      columns[pixel * depths + depth] = from < 0 ? 0 : x[from];
    });
    multiply(K, depths, pixels, {g, pixels, 1}, columns, conv.dw);
    for (int64_t j = 0; j < K * pixels; ++j) conv.dbias[j / pixels] += g[j];
  }
}

}  // namespace gradus::ladders::im2col
