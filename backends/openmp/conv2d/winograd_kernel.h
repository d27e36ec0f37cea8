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

/// put(i, j, element) for the elements of T(T(d)ᵀ)ᵀ, Out x Out, where d is In x In numbers get(i, j): the
/// one-dimensional T, `transform`, along columns, then along rows.
template <auto transform, int In, int Out, class Get, class Put>
inline __attribute__((always_inline)) void transform_square(Get get, Put put) {
  Floats rows[Out][In];
#pragma GCC unroll 6
  for (int j = 0; j < In; ++j) {
    Floats column[In], t[Out];
#pragma GCC unroll 6
    for (int i = 0; i < In; ++i) column[i] = get(i, j);
    transform(column, t);
#pragma GCC unroll 6
    for (int i = 0; i < Out; ++i) rows[i][j] = t[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < Out; ++i) {
    Floats t[Out];
    transform(rows[i], t);
#pragma GCC unroll 6
    for (int j = 0; j < Out; ++j) put(i, j, t[j]);
  }
}

template <int M>
void winograd_input(const WinogradInputArgs& args) {
  constexpr int N = M + 2;
  for (int64_t t = 0; t < args.tiles; ++t)
    for (int64_t c = 0; c < args.channels; c += kLanes<float>) {
      const int64_t left = t * M - args.padding, rest = args.channels - c;
      const auto pixel = [&](int i, int j) {
        const int64_t column = left + j;
        if (!args.rows[i] || column < 0 || column >= args.columns) return Floats{};
        return load_some(args.rows[i] + column * args.pixel_step + c, rest >= kLanes<float>, rest);
      };
      float* to = args.to + t * args.tile_step + c;
      transform_square<WinogradTransform<M>::input, N, N>(
          pixel, [&](int i, int j, Floats v) { store(to + (i * N + j) * args.position_step, v); });
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
      float* to = args.to + t * M * args.pixel_step + k;
      transform_square<WinogradTransform<M>::output, N, M>(
          [&](int i, int j) { return load(from + (i * N + j) * args.position_step); },
          [&](int i, int j, Floats v) {
            if (i >= args.rows || t * M + j >= args.columns) return;
            const Floats y = v + bias;
            store_some(to + i * args.row_step + j * args.pixel_step, y < least ? least : y, whole,
                       rest);  // a NaN stays
          });
    }
  }
}

template <int M>
void winograd_weights(const WinogradWeightArgs& args) {
  for (int64_t c = 0; c < args.channels; ++c)
    for (int64_t k = 0; k < kTileColumns<float>; k += kLanes<float>) {
      const float* taps = args.taps + c * 9 * kTileColumns<float> + k;
      float* to = args.to + c * kTileColumns<float> + k;
      transform_square<WinogradTransform<M>::weights, 3, M + 2>(
          [&](int i, int j) { return load(taps + (i * 3 + j) * args.tap_step); },
          [&](int i, int j, Floats v) { store(to + (i * (M + 2) + j) * args.position_step, v); });
    }
}

template <int M>
constexpr WinogradKernels winograd_kernels() {
  return {winograd_input<M>, winograd_output<M>, winograd_weights<M>};
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
