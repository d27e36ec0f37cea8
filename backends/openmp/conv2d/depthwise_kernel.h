// Depthwise convolution of channels-last images: lanes are channels, so an output pixel is a sum of pixels, each times
// a vector of weights.
//   depthwise       out[i][c] = bias[c] + sum over taps t of w[t][c] x[i step + offset[t]][c]
//   depthwise_sums  dw[t][c] += sum over i of g[i][c] x[i step + offset[t]][c]
// Every multiply-add reads one vector of x, which is as fast as a core can do both.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/simd.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// `P` pixels, of one vector of channels.
template <class T, int P, class Some>
inline __attribute__((always_inline)) void channel_tile(const DepthwiseArgs<T>& args, int64_t pixel, int64_t channel,
                                                        Some lanes) {
  const int64_t step = args.x_step;
  const T* x = args.x + pixel * step + channel;
  const Vector<T> bias = args.bias ? lanes.get(args.bias + channel) : Vector<T>{};
  Vector<T> sum[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) sum[p] = bias;
  for (int64_t t = 0; t < args.taps; ++t) {
    const Vector<T> w = lanes.get(args.weights + args.weight_offsets[t] + channel);
    const T* from = x + args.offsets[t];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p, from += step) sum[p] = multiply_add(w, lanes.get(from), sum[p]);
  }
  const Vector<T> least = broadcast(args.relu ? T(0) : -T(__builtin_inf()));
  T* out = args.out + pixel * args.out_step + channel;
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p, out += args.out_step) lanes.put(out, sum[p] < least ? least : sum[p]);  // NaN stays
}

template <class T, int P>
void channel_tiles(const DepthwiseArgs<T>& args, int64_t pixel) {
  for_lanes<T>(args.channels, [&](int64_t c, auto lanes) { channel_tile<T, P>(args, pixel, c, lanes); });
}

template <class T>
void depthwise(const DepthwiseArgs<T>& args) {
  int64_t pixel = 0;
  for (; pixel + 8 <= args.pixels; pixel += 8) channel_tiles<T, 8>(args, pixel);
  if (pixel + 4 <= args.pixels) channel_tiles<T, 4>(args, pixel), pixel += 4;
  if (pixel + 2 <= args.pixels) channel_tiles<T, 2>(args, pixel), pixel += 2;
  if (pixel < args.pixels) channel_tiles<T, 1>(args, pixel);
}

/// `Taps` sums of one vector of channels.
template <class T, int Taps, class Some>
inline __attribute__((always_inline)) void sum_channels(const DepthwiseSumsArgs<T>& args, int64_t tap, int64_t channel,
                                                        Some lanes) {
  Vector<T> sum[Taps];
  const T* x[Taps];
#pragma GCC unroll 9
  for (int t = 0; t < Taps; ++t) {
    sum[t] = lanes.get(args.sums + args.sum_offsets[tap + t] + channel);
    x[t] = args.x + args.offsets[tap + t] + channel;
  }
  const T* g = args.g + channel;
  int64_t at = 0;
  for (int64_t i = 0; i < args.pixels; ++i, g += args.g_step, at += args.x_step) {
    const Vector<T> gradient = lanes.get(g);
#pragma GCC unroll 9
    for (int t = 0; t < Taps; ++t) sum[t] = multiply_add(gradient, lanes.get(x[t] + at), sum[t]);
  }
#pragma GCC unroll 9
  for (int t = 0; t < Taps; ++t) lanes.put(args.sums + args.sum_offsets[tap + t] + channel, sum[t]);
}

template <class T, int Taps>
void sum_taps(const DepthwiseSumsArgs<T>& args, int64_t tap) {
  for_lanes<T>(args.channels, [&](int64_t c, auto lanes) { sum_channels<T, Taps>(args, tap, c, lanes); });
}

template <class T>
void depthwise_sums(const DepthwiseSumsArgs<T>& args) {
  int64_t t = 0;
  for (; t + 9 <= args.taps; t += 9) sum_taps<T, 9>(args, t);
  for (; t + 3 <= args.taps; t += 3) sum_taps<T, 3>(args, t);
  for (; t < args.taps; ++t) sum_taps<T, 1>(args, t);
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
