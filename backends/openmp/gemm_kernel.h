// The register tile of matrix products and convolutions, and the packing that feeds it.
//   C[m, n] = sum over k of A[m, k] B[k, n]:  a tile of MR rows by NV vectors of C stays in registers while k runs; each
//   step loads NV vectors of B's row k and multiplies them with MR broadcast elements of A.
// A is packed in panels of at most kTileRows rows of nearly equal height, a panel of height h as depth x h. Where B's
// rows start is given by a table: consecutive for a packed B; for a convolution, the places of the taps in the image.
#pragma once

#include <cstddef>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/move_kernel.h>

namespace gradus::openmp::GRADUS_ISA {

// NV vectors of B, one broadcast of A, and MR * NV accumulators have to fit the registers.
constexpr int kTileVectors = 2;
constexpr int kTileRows = kRegisters == 32 ? 14 : kVectorBytes == 32 ? 6 : 5;
template <class T>
constexpr int kTileColumns = kTileVectors* kLanes<T>;

/// Panel i of `count` covers rows [panel_begin(i), panel_begin(i + 1)).
inline int64_t panel_count(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }
inline int64_t panel_begin(int64_t rows, int64_t count, int64_t i) { return rows * i / count; }

/// Where a tile goes and what happens to it on the way.
template <class T>
struct TileOutput {
  T* c;
  int64_t row_stride;
  int64_t columns;
  const T* row_bias;
  const T* column_bias;
  bool accumulate, relu;
};

/// The general end of a tile: `sums` (rows, vectors) are added to what C holds, shifted, clipped and written.
template <class T>
__attribute__((noinline)) void finish_tile(const T* sums, int64_t rows, int64_t vectors, const TileOutput<T>& out) {
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t v = 0; v < vectors; ++v, sums += kLanes<T>) {
      const int64_t at = v * kLanes<T>, left = out.columns - at;
      if (left <= 0) continue;
      const bool whole = left >= kLanes<T>;
      T* to = out.c + m * out.row_stride + at;
      Vector<T> value = load(sums);
      if (out.accumulate) value += whole ? load(to) : load_first(to, left);
      if (out.row_bias) value += broadcast(out.row_bias[m]);
      if (out.column_bias) value += whole ? load(out.column_bias + at) : load_first(out.column_bias + at, left);
      if (out.relu) value = value < Vector<T>{} ? Vector<T>{} : value;
      whole ? store(to, value) : store_first(to, value, left);
    }
}

template <class T, int MR, int NV>
void tile(int64_t depth, const T* a, int64_t a_step, const T* b, const int64_t* offsets, const TileOutput<T>& out) {
  Vector<T> sum[MR][NV];
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) sum[m][v] = Vector<T>{};
  for (int64_t k = 0; k < depth; ++k, a += a_step) {
    const T* row = b + offsets[k];
    Vector<T> bv[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) bv[v] = load(row + v * kLanes<T>);
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
      const Vector<T> am = broadcast(a[m]);
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) sum[m][v] = multiply_add(am, bv[v], sum[m][v]);
    }
  }
  if (out.accumulate || out.column_bias) {
    alignas(kVectorBytes) T sums[MR * NV * kLanes<T>];
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) store(sums + (m * NV + v) * kLanes<T>, sum[m][v]);
    return finish_tile(sums, MR, NV, out);
  }
  static constexpr T no_bias[kTileRows] = {};
  const T* bias = out.row_bias ? out.row_bias : no_bias;
  const Vector<T> least = broadcast(out.relu ? T(0) : -T(__builtin_inf()));
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      const Vector<T> shifted = sum[m][v] + broadcast(bias[m]), value = shifted < least ? least : shifted;
      T* to = out.c + m * out.row_stride + v * kLanes<T>;
      if (v < NV - 1 || out.columns >= NV * kLanes<T>) store(to, value);  // only the last vector may be partial
      else store_first<T>(to, value, out.columns - v * kLanes<T>);
    }
}

template <class T>
using TileFunction = void (*)(int64_t, const T*, int64_t, const T*, const int64_t*, const TileOutput<T>&);

/// The tile kernel of a given height, by recursion over the heights.
template <class T, int NV, int MR = kTileRows>
inline TileFunction<T> tile_of_height(int64_t rows) {
  if constexpr (MR == 1) return tile<T, 1, NV>;
  else return rows == MR ? tile<T, MR, NV> : tile_of_height<T, NV, MR - 1>(rows);
}

template <class T>
void block(const BlockArgs<T>& args) {
  const int64_t panels = panel_count(args.rows);
  const DepthRange whole{0, args.depth};
  const DepthRange* range = args.ranges ? args.ranges : &whole;
  for (int64_t segment = 0; segment < args.segments; ++segment)
    for (int64_t column = 0, t = 0; column < args.columns; column += kTileColumns<T>, ++t) {
      const int64_t left = args.columns - column, depth = range->end - range->begin;
      const T* b = args.b + segment * args.b_segment_step + t * args.b_tile_step;
      const int64_t* offsets = args.offsets + range->begin;
      for (int64_t i = 0; i < panels; ++i) {
        const int64_t row = panel_begin(args.rows, panels, i), height = panel_begin(args.rows, panels, i + 1) - row;
        const TileOutput<T> out{args.c + segment * args.c_segment_step + row * args.c_row_stride + column,
                                args.c_row_stride,
                                left,
                                args.row_bias ? args.row_bias + row : nullptr,
                                args.column_bias ? args.column_bias + column : nullptr,
                                args.accumulate,
                                args.relu};
        const TileFunction<T> kernel =
            left > kLanes<T> ? tile_of_height<T, kTileVectors>(height) : tile_of_height<T, 1>(height);
        if (args.a_step == 0) kernel(depth, args.a + row * args.depth + range->begin * height, height, b, offsets, out);
        else kernel(depth, args.a + row, args.a_step, b, offsets, out);
      }
      if (args.ranges) ++range;
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
      transpose(from, row_stride, height, depth, to, height);
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
  if (column_stride == 1) {  // row by row: memory is read in order
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
      transpose(from, column_stride, width, depth, packed, kWidth);
    } else {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t n = 0; n < width; ++n) packed[k * kWidth + n] = from[k * row_stride + n * column_stride];
    }
  }
}

}  // namespace gradus::openmp::GRADUS_ISA
