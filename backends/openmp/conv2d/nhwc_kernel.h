// Register tiles of convolutions over pixels (conv2d_nhwc.cpp), for images whose channels are innermost.
//   product   y[pixel, k] = sum over the depth of x[pixel, depth] w[depth, k]: up to kPixelRows pixels by two vectors
//             of filters stay in registers; each step of the depth (taps and channels) loads two vectors of weights and
//             multiplies them with one broadcast element of each pixel.
//   gradient  dw[c, k] = sum over pixels of x[pixel, c] dy[pixel, k]: rows are channels and the depth is pixels.
// With `depthwise`, lane k multiplies channel k of x instead of a broadcast element.
// Only weights are packed; pixels are read in place. conv2d_nhwc.cpp and conv2d_nhwc_weight.cpp distribute the pixels
// among threads.
#pragma once

#include <gradus/backends/openmp/simd/gemm_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

// A tile has fewer rows than one of a packed product, because each row needs a pointer in one of the few general
// registers.
constexpr int kPixelRows = kRegisters == 32 ? 8 : kTileRows;

/// Prefetches the share of one tile if `ahead` is not null.
inline void fetch(FetchAhead* ahead) {
  if (!ahead) return;
  for (FetchAhead::Place& place : ahead->places) {
    for (int64_t i = 0; i < place.bytes; i += 64) __builtin_prefetch(place.at + i, 0, 2);
    place.at += place.bytes;
  }
}

template <class T, int MR, int NV, bool depthwise>
void product_tile(const T* const* from, T* const* to, const NhwcProductArgs<T>& args) {
  const SomeLanes<T> last{args.columns - (NV - 1) * kLanes<T>};  // only the last vector may be partial
  const auto read = [&](const T* at, int v) {
    return v < NV - 1 ? load(at + v * kLanes<T>) : last.get(at + v * kLanes<T>);
  };
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m)  // prefetched for the stores after the sums
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) __builtin_prefetch(to[m] + v * kLanes<T>, 1);
  Vector<T> sum[MR][NV];
#pragma GCC unroll 2
  for (int v = 0; v < NV; ++v) {
    const Vector<T> start = args.bias ? read(args.bias, v) : Vector<T>{};
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) sum[m][v] = args.accumulate ? read(to[m], v) : start;
  }
  for (int64_t i = 0; i < args.run_count; ++i) {
    const DepthRun run = args.runs[i];
    const T* w = args.weights + run.row * kTileColumns<T>;
    const T* x[MR];
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) x[m] = from[m] + run.from;
    for (int64_t k = 0; k < run.length; ++k, w += kTileColumns<T>) {
      Vector<T> wv[NV];
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) wv[v] = load(w + v * kLanes<T>);
#pragma GCC unroll 16
      for (int m = 0; m < MR; ++m) {
        const Vector<T> xm = depthwise ? Vector<T>{} : broadcast(x[m][k]);
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) sum[m][v] = multiply_add(depthwise ? read(x[m] + k, v) : xm, wv[v], sum[m][v]);
      }
    }
  }
  const Vector<T> least = broadcast(args.relu ? T(0) : -T(__builtin_inf()));
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      const Vector<T> y = at_least(least, sum[m][v]);
      v < NV - 1 ? store(to[m] + v * kLanes<T>, y) : last.put(to[m] + v * kLanes<T>, y);
    }
}

template <class T>
void nhwc_product(const NhwcProductArgs<T>& args) {
  const PixelBox& box = args.box;
  const int64_t pixels = box.count[0] * box.count[1] * box.count[2], tiles = (pixels + kPixelRows - 1) / kPixelRows;
  const T* from[kPixelRows];
  T* to[kPixelRows];
  int64_t n = 0, p = 0, q = 0, x = 0, y = 0;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t height = panel_begin(pixels, tiles, tile + 1) - panel_begin(pixels, tiles, tile);
    for (int64_t m = 0; m < height; ++m) {
      from[m] = args.from + x, to[m] = args.to + y;
      x += box.x_step[2], y += box.y_step[2];
      if (++q < box.count[2]) continue;
      q = 0;
      if (++p == box.count[1]) p = 0, ++n;
      x = n * box.x_step[0] + p * box.x_step[1], y = n * box.y_step[0] + p * box.y_step[1];
    }
    fetch(args.ahead);
    with_constant<2>(args.columns > kLanes<T> ? 2 : 1, [&]<int NV> {
      with_constant<kPixelRows>(height, [&]<int MR> {
        if (args.depthwise) product_tile<T, MR, NV, true>(from, to, args);
        else product_tile<T, MR, NV, false>(from, to, args);
      });
    });
  }
}

// `last` reads the last vector of a pixel.
template <class T, int MR, int NV, bool depthwise, class Some>
void gradient_tile(const NhwcGradientArgs<T>& args, Some last) {
  const PixelBox& box = args.box;
  const auto read = [&](const T* at, int v) {
    return v < NV - 1 ? load(at + v * kLanes<T>) : last.get(at + v * kLanes<T>);
  };
  Vector<T> sum[MR][NV];
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) sum[m][v] = load(args.out + m * kTileColumns<T> + v * kLanes<T>);
  for (int64_t n = 0; n < box.count[0]; ++n)
    for (int64_t p = 0; p < box.count[1]; ++p) {
      const T* x = args.x + n * box.x_step[0] + p * box.x_step[1];
      const T* dy = args.dy + n * box.y_step[0] + p * box.y_step[1];
      for (int64_t q = 0; q < box.count[2]; ++q, x += box.x_step[2], dy += box.y_step[2]) {
        Vector<T> g[NV];
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) g[v] = read(dy, v);
#pragma GCC unroll 16
        for (int m = 0; m < MR; ++m) {
          const Vector<T> xm = depthwise ? Vector<T>{} : broadcast(x[m]);
#pragma GCC unroll 2
          for (int v = 0; v < NV; ++v)
            sum[m][v] = multiply_add(depthwise ? read(x + m * args.x_row, v) : xm, g[v], sum[m][v]);
        }
      }
    }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) store(args.out + m * kTileColumns<T> + v * kLanes<T>, sum[m][v]);
}

template <class T>
void nhwc_gradient(const NhwcGradientArgs<T>& args) {
  fetch(args.ahead);
  const int64_t vectors = args.columns > kLanes<T> ? 2 : 1, last = args.columns - (vectors - 1) * kLanes<T>;
  const auto with_lanes = [&](auto some) {
    with_constant<2>(vectors, [&]<int NV> {
      with_constant<kTileRows>(args.rows, [&]<int MR> {
        args.depthwise ? gradient_tile<T, MR, NV, true>(args, some) : gradient_tile<T, MR, NV, false>(args, some);
      });
    });
  };
  if constexpr (kPartialIsFree) with_lanes(SomeLanes<T>{last});
  else last < kLanes<T> ? with_lanes(FirstLanes<T>{last}) : with_lanes(AllLanes<T>());
}

template <class T>
void nhwc_sums(const PixelBox& box, const T* dy, int64_t columns, T* out) {
  for_lanes<T>(columns, [&](int64_t column, auto lanes) {
    Vector<T> sum[4] = {};  // several, so that consecutive additions are independent
    for (int64_t n = 0; n < box.count[0]; ++n)
      for (int64_t p = 0; p < box.count[1]; ++p) {
        const T* at = dy + n * box.y_step[0] + p * box.y_step[1] + column;
        int64_t q = 0;
        for (; lanes.count == kLanes<T> && q + 4 <= box.count[2]; q += 4)
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) sum[i] += lanes.get(at + (q + i) * box.y_step[2]);
        for (; q < box.count[2]; ++q) sum[0] += lanes.get(at + q * box.y_step[2]);
      }
    lanes.put(out + column, lanes.get(out + column) + ((sum[0] + sum[1]) + (sum[2] + sum[3])));
  });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
