// Winograd's minimal filtering (Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015): m x m
// results of a 3x3 kernel g on n x n pixels d, n = m + 2, with n² multiplications in place of 9 m²,
//   Y = Aᵀ ((G g Gᵀ) * (Bᵀ d B)) A,   * element by element,
// where a convolution adds up the products of all channels before it transforms them back. The one-dimensional
// transforms below are the matrices of the paper, applied along columns and then along rows, to a vector of channels at
// a time.
#pragma once

#include <gradus/backends/openmp/conv2d/winograd.h>
#include <gradus/backends/openmp/simd/gemm_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

using Floats = Vector<float>;

template <int M>
struct WinogradTransform;

// F(2x2, 3x3): the polynomials' points are 0, 1, -1 and infinity.
template <>
struct WinogradTransform<2> {
  static void input(const Floats (&d)[4], Floats (&t)[4]) {
    t[0] = d[0] - d[2];
    t[1] = d[1] + d[2];
    t[2] = d[2] - d[1];
    t[3] = d[1] - d[3];
  }
  static void output(const Floats (&t)[4], Floats (&y)[2]) {
    y[0] = t[0] + t[1] + t[2];
    y[1] = t[1] - t[2] - t[3];
  }
  static void weights(const Floats (&g)[3], Floats (&t)[4]) {
    const Floats half = broadcast(0.5f), outer = half * (g[0] + g[2]), inner = half * g[1];
    t[0] = g[0];
    t[1] = outer + inner;
    t[2] = outer - inner;
    t[3] = g[2];
  }
};

// F(4x4, 3x3): 0, 1, -1, 2, -2 and infinity.
template <>
struct WinogradTransform<4> {
  static void input(const Floats (&d)[6], Floats (&t)[6]) {
    const Floats two = broadcast(2.0f), four = broadcast(4.0f), minus_four = broadcast(-4.0f);
    const Floats even = multiply_add(minus_four, d[2], d[4]), odd = multiply_add(minus_four, d[1], d[3]);
    const Floats near = d[4] - d[2], far = two * (d[3] - d[1]);
    t[0] = multiply_add(four, d[0] - d[2], near);
    t[1] = even + odd;
    t[2] = even - odd;
    t[3] = near + far;
    t[4] = near - far;
    t[5] = multiply_add(four, d[1] - d[3], d[5] - d[3]);
  }
  static void output(const Floats (&t)[6], Floats (&y)[4]) {
    const Floats two = broadcast(2.0f), four = broadcast(4.0f), eight = broadcast(8.0f);
    const Floats sum = t[1] + t[2], difference = t[1] - t[2], far_sum = t[3] + t[4], far_difference = t[3] - t[4];
    y[0] = t[0] + sum + far_sum;
    y[1] = multiply_add(two, far_difference, difference);
    y[2] = multiply_add(four, far_sum, sum);
    y[3] = multiply_add(eight, far_difference, difference) + t[5];
  }
  static void weights(const Floats (&g)[3], Floats (&t)[6]) {
    const Floats sixth = broadcast(1.0f / 6), outer = sixth * (g[0] + g[2]), inner = sixth * g[1];
    const Floats far_outer = multiply_add(sixth, g[2], broadcast(1.0f / 24) * g[0]),
                 far_inner = broadcast(0.5f) * inner;
    t[0] = broadcast(0.25f) * g[0];
    t[1] = -(outer + inner);
    t[2] = inner - outer;
    t[3] = far_outer + far_inner;
    t[4] = far_outer - far_inner;
    t[5] = g[2];
  }
};

// Columns that neighbouring tiles share are transformed once, and wait in the first-level cache.
template <int M>
void winograd_input(const WinogradInputArgs& args) {
  constexpr int N = M + 2, kTiles = 8;
  Floats columns[kTiles * M + 2][N];
  for (int64_t first = 0; first < args.tiles; first += kTiles) {
    const int64_t tiles = args.tiles - first < kTiles ? args.tiles - first : kTiles, left = first * M - args.padding;
    for (int64_t c = 0; c < args.channels; c += kLanes<float>) {
      const int64_t rest = args.channels - c;
      for (int64_t i = 0; i < tiles * M + 2; ++i) {
        const int64_t column = left + i;
        const bool inside = column >= 0 && column < args.columns;
        Floats d[N];
#pragma GCC unroll 6
        for (int h = 0; h < N; ++h)
          d[h] = inside && args.rows[h]
                     ? load_some(args.rows[h] + column * args.pixel_step + c, rest >= kLanes<float>, rest)
                     : Floats{};
        WinogradTransform<M>::input(d, columns[i]);
      }
      for (int64_t t = 0; t < tiles; ++t) {
        float* to = args.to + (first + t) * args.tile_step + c;
#pragma GCC unroll 6
        for (int h = 0; h < N; ++h) {
          Floats d[N], row[N];
#pragma GCC unroll 6
          for (int w = 0; w < N; ++w) d[w] = columns[t * M + w][h];
          WinogradTransform<M>::input(d, row);
#pragma GCC unroll 6
          for (int w = 0; w < N; ++w) store(to + (h * N + w) * args.position_step, row[w]);
        }
      }
    }
  }
}

template <int M>
void winograd_output(const WinogradOutputArgs& args) {
  constexpr int N = M + 2;
  const Floats least = broadcast(args.relu ? 0.0f : -__builtin_inff());
  for (int64_t k = 0; k < args.channels; k += kLanes<float>) {
    const int64_t rest = args.channels - k;
    const bool whole = rest >= kLanes<float>;
    const Floats bias = args.bias ? load_some(args.bias + k, whole, rest) : Floats{};
    for (int64_t t = 0; t < args.tiles; ++t) {
      const float* from = args.from + t * args.tile_step + k;
      Floats rows[M][N];
#pragma GCC unroll 6
      for (int w = 0; w < N; ++w) {
        Floats column[N], y[M];
#pragma GCC unroll 6
        for (int h = 0; h < N; ++h) column[h] = load(from + (h * N + w) * args.position_step);
        WinogradTransform<M>::output(column, y);
#pragma GCC unroll 4
        for (int p = 0; p < M; ++p) rows[p][w] = y[p];
      }
      float* to = args.to + t * M * args.pixel_step + k;
      const int64_t columns = args.columns - t * M;
#pragma GCC unroll 4
      for (int p = 0; p < M; ++p) {
        if (p >= args.rows) break;
        Floats y[M];
        WinogradTransform<M>::output(rows[p], y);
#pragma GCC unroll 4
        for (int q = 0; q < M; ++q) {
          if (q >= columns) break;
          const Floats value = y[q] + bias;
          store_some(to + p * args.row_step + q * args.pixel_step, value < least ? least : value, whole,
                     rest);  // a NaN stays
        }
      }
    }
  }
}

template <int M>
void winograd_weights(const WinogradWeightArgs& args) {
  constexpr int N = M + 2;
  for (int64_t c = 0; c < args.channels; ++c)
    for (int64_t k = 0; k < kTileColumns<float>; k += kLanes<float>) {
      const float* taps = args.taps + c * 9 * kTileColumns<float> + k;
      float* to = args.to + c * kTileColumns<float> + k;
      Floats rows[N][3];
#pragma GCC unroll 3
      for (int s = 0; s < 3; ++s) {
        Floats g[3], t[N];
#pragma GCC unroll 3
        for (int r = 0; r < 3; ++r) g[r] = load(taps + (r * 3 + s) * args.tap_step);
        WinogradTransform<M>::weights(g, t);
#pragma GCC unroll 6
        for (int h = 0; h < N; ++h) rows[h][s] = t[h];
      }
#pragma GCC unroll 6
      for (int h = 0; h < N; ++h) {
        Floats t[N];
        WinogradTransform<M>::weights(rows[h], t);
#pragma GCC unroll 6
        for (int w = 0; w < N; ++w) store(to + (h * N + w) * args.position_step, t[w]);
      }
    }
}

template <int M>
constexpr WinogradKernels winograd_kernels() {
  return {M, (M + 2) * (M + 2), winograd_input<M>, winograd_output<M>, winograd_weights<M>};
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
