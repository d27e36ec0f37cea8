// The register tile of matrix products and convolutions, and the packing that feeds it.
//   C[m, n] = sum over k of A[m, k] B[k, n]:  a tile of MR rows by NV vectors of C stays in registers while k runs;
//   each step loads NV vectors of B's row k and multiplies them with MR broadcast elements of A.
// A is packed in panels of at most kTileRows rows of nearly equal height, a panel of height h as depth x h.
// Which tiles a thread computes: gemm/gemm_blocked.cpp, conv2d/conv2d_nhwc.cpp.
#pragma once

#include <cstddef>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/move_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

// NV vectors of B, one broadcast of A, and MR * NV accumulators have to fit the registers.
constexpr int kTileVectors = 2;
constexpr int kTileRows = kRegisters == 32 ? 14 : kVectorBytes == 32 ? 6 : 5;
template <class T>
constexpr int kTileColumns = kTileVectors* kLanes<T>;

/// Panel i of `count` covers rows [panel_begin(i), panel_begin(i + 1)).
inline int64_t panel_count(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }
inline int64_t panel_begin(int64_t rows, int64_t count, int64_t i) { return rows * i / count; }

/// What a tile multiplies: A[m, k] is a[m * a_row_stride + k * a_step], B[k, n] is b[k * b_row_stride + n].
template <class T>
struct TileInput {
  int64_t depth;
  const T* a;
  int64_t a_row_stride, a_step;
  const T* b;
  int64_t b_row_stride;
  const char* ahead;   // memory that is wanted next, fetched into the second-level cache: a line for each step
  int64_t ahead_step;  // bytes, or 0: there is none
};

/// Where it goes: C = A B + row_bias + column_bias, added to C if `accumulate`. The biases are
/// never null here.
template <class T>
struct TileOutput {
  T* c;
  int64_t row_stride;
  int64_t columns;
  bool accumulate;
  const T* row_bias;
  const T* column_bias;
};

/// What a tile does with an element of A in all lanes, a vector of B and the sums.
template <class T>
struct MultiplyAdd {
  static Vector<T> apply(Vector<T> a, Vector<T> b, Vector<T> sum) { return multiply_add(a, b, sum); }
};

// The biases are the first terms of the sums, so that they cost no pass over the finished tile. The rows of C are far
// apart, so that hardware does not prefetch them: they are prefetched before the sums are made.
template <class T, class Step, int MR, int NV, bool kRows>
void tile(const TileInput<T>& in, const TileOutput<T>& out) {
  const int64_t rest = out.columns - (NV - 1) * kLanes<T>;  // only the last vector may be partial
  const bool whole = rest >= kLanes<T>;
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
    for (int byte = 0; byte < NV * kVectorBytes; byte += 64)
      __builtin_prefetch(out.c + m * out.row_stride + byte / sizeof(T), 1);
  Vector<T> sum[MR][NV];
#pragma GCC unroll 2
  for (int v = 0; v < NV; ++v) {
    const Vector<T> bias = load_some(out.column_bias + v * kLanes<T>, v < NV - 1 || whole, rest);
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) sum[m][v] = bias + broadcast(out.row_bias[m]);
  }
  const T *a = in.a, *row = in.b;
  const int64_t stride = kRows ? in.a_row_stride : 1;
  for (int64_t k = 0; k < in.depth; ++k, a += in.a_step, row += in.b_row_stride) {
    __builtin_prefetch(in.ahead + k * in.ahead_step, 0, 2);
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
  if (out.accumulate) {
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v)
        sum[m][v] += load_some(out.c + m * out.row_stride + v * kLanes<T>, v < NV - 1 || whole, rest);
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v)
      store_some(out.c + m * out.row_stride + v * kLanes<T>, sum[m][v], v < NV - 1 || whole, rest);
}

template <class T>
using TileFunction = void (*)(const TileInput<T>&, const TileOutput<T>&);

/// The tile kernel of a given height.
template <class T, class Step, int NV, bool kRows, int... i>
inline TileFunction<T> tile_of_height(int64_t rows, Indices<i...>) {
  static constexpr TileFunction<T> heights[] = {tile<T, Step, i + 1, NV, kRows>...};
  return heights[rows - 1];
}
template <class T, class Step>
inline TileFunction<T> tile_for(int64_t rows, int64_t columns, bool by_rows) {
  constexpr IndicesUpTo<kTileRows> heights;
  if (columns > kLanes<T>)
    return by_rows ? tile_of_height<T, Step, 2, true>(rows, heights) : tile_of_height<T, Step, 2, false>(rows, heights);
  return by_rows ? tile_of_height<T, Step, 1, true>(rows, heights) : tile_of_height<T, Step, 1, false>(rows, heights);
}

template <class T, class Step = MultiplyAdd<T>>
void block(const BlockArgs<T>& args) {
  static constexpr T zeros[kTileRows > kTileColumns<T> ? kTileRows : kTileColumns<T>] = {};
  constexpr int64_t kLineBytes = 64, tile_bytes = kTileColumns<T> * sizeof(T);
  const int64_t panels = panel_count(args.rows);
  const bool packed = args.a_step == 0, by_rows = args.a_row_stride != 1;
  for (int64_t column = 0, t = 0; column < args.columns; column += kTileColumns<T>, ++t) {
    const int64_t left = args.columns - column;
    TileInput<T> in{
        args.depth, args.a, args.a_row_stride, args.a_step, args.b + t * args.b_tile_step, args.b_row_stride,
        nullptr,    0};
    TileOutput<T> out{args.c + column,
                      args.c_row_stride,
                      left,
                      args.accumulate,
                      zeros,
                      args.column_bias ? args.column_bias + column : zeros};
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t row = panel_begin(args.rows, panels, i), height = panel_begin(args.rows, panels, i + 1) - row;
      const int64_t fetched = i * args.depth * kLineBytes;  // of the next tile of B
      const bool fetch = args.b_packed && left > kTileColumns<T> && fetched < args.depth * tile_bytes;
      in.ahead = reinterpret_cast<const char*>(in.b + args.b_tile_step) + (fetch ? fetched : 0);
      in.ahead_step = fetch ? kLineBytes : 0;
      if (packed) in.a = args.a + row * args.depth, in.a_step = height;
      else in.a = args.a + row * args.a_row_stride;
      if (args.row_bias) out.row_bias = args.row_bias + row;
      tile_for<T, Step>(height, left, by_rows)(in, out);
      out.c += height * args.c_row_stride;
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

}  // namespace gradus::openmp_detail::GRADUS_ISA
