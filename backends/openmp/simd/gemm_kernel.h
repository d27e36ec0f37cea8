// The register tile of matrix products and convolutions, and the packing of its operands.
//   C[m, n] = sum over k of A[m, k] B[k, n]:  a tile of MR rows by NV vectors of C stays in registers while k runs;
//   each step loads NV vectors of B's row k and multiplies them with MR broadcast elements of A.
// A is packed in panels of nearly equal height, at most kTileRows rows; a panel of height h is stored as depth x h.
// gemm/gemm.cpp and conv2d/conv2d_nhwc.cpp distribute the tiles among threads.
#pragma once

#include <cstddef>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/move_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

// The registers must hold NV vectors of B, one broadcast element of A, and MR * NV accumulators.
constexpr int kTileVectors = 2;
constexpr int kTileRows = kRegisters == 32 ? 14 : kVectorBytes == 32 ? 6 : 5;
template <class T>
constexpr int kTileColumns = kTileVectors* kLanes<T>;

/// Panel i of `count` covers rows [panel_begin(i), panel_begin(i + 1)).
inline int64_t panel_count(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }
inline int64_t panel_begin(int64_t rows, int64_t count, int64_t i) { return rows * i / count; }

/// Memory that the next tile needs. A tile prefetches it into the second-level cache, one cache line per step of the
/// depth.
struct FetchLines {
  const char* at;
  int64_t step;  ///< bytes; 0 if there is nothing to prefetch
};

/// How a tile combines a broadcast element of A, a vector of B and the sums.
template <class T>
struct MultiplyAdd {
  static Vector<T> apply(Vector<T> a, Vector<T> b, Vector<T> sum) { return multiply_add(a, b, sum); }
};

// Computes the first MR rows and NV vectors of a block. `args` points to them, has no null biases, and has the strides
// of A even if A is packed. Biases are the initial values of the sums, so they need no separate pass. The rows of C are
// far apart, which defeats the hardware prefetcher, so they are prefetched before the sums are computed.
template <class T, class Step, int MR, int NV, bool kRows>
[[gnu::noinline]] void tile(const BlockArgs<T>& args, FetchLines ahead) {
  const SomeLanes<T> last{args.columns - (NV - 1) * kLanes<T>};  // only the last vector may be partial
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
    for (int byte = 0; byte < NV * kVectorBytes; byte += 64)
      __builtin_prefetch(args.c + m * args.c_row_stride + byte / sizeof(T), 1);
  Vector<T> sum[MR][NV];
#pragma GCC unroll 2
  for (int v = 0; v < NV; ++v) {
    const T* from = args.column_bias + v * kLanes<T>;
    const Vector<T> bias = v < NV - 1 ? load(from) : last.get(from);
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) sum[m][v] = bias + broadcast(args.row_bias[m]);
  }
  const T *a = args.a, *row = args.b;
  const int64_t stride = kRows ? args.a_row_stride : 1;
  for (int64_t k = 0; k < args.depth; ++k, a += args.a_step, row += args.b_row_stride) {
    __builtin_prefetch(ahead.at + k * ahead.step, 0, 2);
    Vector<T> b[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) b[v] = load(row + v * kLanes<T>);
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
      const Vector<T> am = broadcast(a[m * stride]);
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) sum[m][v] = Step::apply(am, b[v], sum[m][v]);
    }
  }
  if (args.accumulate) {
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) {
        const T* from = args.c + m * args.c_row_stride + v * kLanes<T>;
        sum[m][v] += v < NV - 1 ? load(from) : last.get(from);
      }
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      T* to = args.c + m * args.c_row_stride + v * kLanes<T>;
      v < NV - 1 ? store(to, sum[m][v]) : last.put(to, sum[m][v]);
    }
}

template <class T, class Step = MultiplyAdd<T>>
void block(const BlockArgs<T>& args) {
  static constexpr T zeros[kTileRows > kTileColumns<T> ? kTileRows : kTileColumns<T>] = {};
  constexpr int64_t kLineBytes = 64, tile_bytes = kTileColumns<T> * sizeof(T);
  const int64_t panels = panel_count(args.rows);
  const bool packed = args.a_step == 0, by_rows = args.a_row_stride != 1;
  BlockArgs<T> part = args;
  for (int64_t column = 0, t = 0; column < args.columns; column += kTileColumns<T>, ++t) {
    part.columns = args.columns - column;
    part.b = args.b + t * args.b_tile_step;
    part.column_bias = args.column_bias ? args.column_bias + column : zeros;
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t row = panel_begin(args.rows, panels, i), height = panel_begin(args.rows, panels, i + 1) - row;
      const int64_t fetched = i * args.depth * kLineBytes;  // bytes of the next tile of B that earlier panels prefetch
      const bool fetch = args.b_packed && part.columns > kTileColumns<T> && fetched < args.depth * tile_bytes;
      if (packed) part.a = args.a + row * args.depth, part.a_step = height;
      else part.a = args.a + row * args.a_row_stride;
      part.c = args.c + row * args.c_row_stride + column;
      part.row_bias = args.row_bias ? args.row_bias + row : zeros;
      const FetchLines ahead = {reinterpret_cast<const char*>(part.b + args.b_tile_step) + (fetch ? fetched : 0),
                                fetch ? kLineBytes : 0};
      with_constant<kTileRows>(height, [&]<int MR> {
        if (part.columns > kLanes<T>)
          by_rows ? tile<T, Step, MR, 2, true>(part, ahead) : tile<T, Step, MR, 2, false>(part, ahead);
        else by_rows ? tile<T, Step, MR, 1, true>(part, ahead) : tile<T, Step, MR, 1, false>(part, ahead);
      });
    }
  }
}

template <class T>
void pack_a(const T* a, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t depth, T* packed) {
  const int64_t panels = panel_count(rows);
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t row = panel_begin(rows, panels, i), height = panel_begin(rows, panels, i + 1) - row;
    const T* from = a + row * row_stride;
    T* to = packed + row * depth;
    if (column_stride == 1) {
      transpose<T>({from, row_stride, height, depth, to, height});
      continue;
    }
    if (row_stride == 1) {
      copy_rows<T>(
          {.rows = depth, .count = height, .from = from, .from_stride = column_stride, .to = to, .to_stride = height});
      continue;
    }
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t m = 0; m < height; ++m) to[k * height + m] = from[m * row_stride + k * column_stride];
  }
}

template <class T>
void pack_b(const T* b, int64_t row_stride, int64_t column_stride, int64_t depth, int64_t columns, T* packed) {
  constexpr int64_t kWidth = kTileColumns<T>;
  const int64_t whole = columns / kWidth, rest = columns % kWidth;
  T* last = packed + whole * depth * kWidth;
  if (rest) __builtin_memset(last, 0, static_cast<size_t>(depth * kWidth) * sizeof(T));
  if (column_stride == 1) {  // by rows, so that memory is read in order
    for (int64_t k = 0; k < depth; ++k) {
      const T* from = b + k * row_stride;
      T* to = packed + k * kWidth;
      for (int64_t t = 0; t < whole; ++t, from += kWidth, to += depth * kWidth)
#pragma GCC unroll 2
        for (int v = 0; v < kTileVectors; ++v) store(to + v * kLanes<T>, load(from + v * kLanes<T>));
      for (int64_t n = 0; n < rest; ++n) to[n] = from[n];
    }
    return;
  }
  for (int64_t column = 0; column < columns; column += kWidth, packed += depth * kWidth) {
    const T* from = b + column * column_stride;
    const int64_t width = columns - column < kWidth ? columns - column : kWidth;
    if (row_stride == 1) {
      transpose<T>({from, column_stride, width, depth, packed, kWidth});
    } else {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t n = 0; n < width; ++n) packed[k * kWidth + n] = from[k * row_stride + n * column_stride];
    }
  }
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
