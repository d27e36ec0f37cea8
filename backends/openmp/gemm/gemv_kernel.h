// Products with a single row or a few rows. Every element of B is used only once or a few times, so B is read in place.
//   row_dots      C[m, n] = sum over k of A[m, k] B[k, n], both contiguous along k: a tile of sums, each a whole
//                 vector, stays in registers while k runs; the lanes are added at the end
//   combine_rows  C[m, n] += sum over k of A[m, k] B[k, n], B contiguous along n: each pass over C adds several of
//                 B's rows
// B's elements are of the same floating type, or of a half type (half_kernel.h).
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/half_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

/// Rows of A that share each load of B in row_dots.
constexpr int kDotRows = kRegisters == 32 ? 4 : 2;

template <class T, class B, int MR, int NJ>
void row_dots_tile(const GemmArgs<T, B>& args, int64_t row, int64_t column) {
  const T* a = args.a.data + row * args.a.row_stride;
  const auto* b = args.b.data + column * args.b.column_stride;
  Vector<T> sum[MR][NJ];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NJ; ++j) sum[m][j] = Vector<T>{};
  const auto step = [&](int64_t k, bool whole) __attribute__((always_inline)) {
    const int64_t left = args.depth - k;
    Vector<T> av[MR];
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) av[m] = load_some(a + m * args.a.row_stride + k, whole, left);
#pragma GCC unroll 8
    for (int j = 0; j < NJ; ++j) {
      const Vector<T> bv = load_some(b + j * args.b.column_stride + k, whole, left);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) sum[m][j] = multiply_add(av[m], bv, sum[m][j]);
    }
  };
  int64_t k = 0;
  for (; k + kLanes<T> <= args.depth; k += kLanes<T>) step(k, true);
  if (k < args.depth) step(k, false);
  for (int m = 0; m < MR; ++m) {
    T sums[NJ];
    lane_sums<T, NJ>(sum[m], sums);
    T* c = args.c.data + (row + m) * args.c.row_stride + column * args.c.column_stride;
    for (int j = 0; j < NJ; ++j) {
      T value = sums[j];
      if (args.accumulate) value += c[j * args.c.column_stride];
      if (args.row_bias) value += args.row_bias[row + m];
      if (args.column_bias) value += args.column_bias[column + j];
      c[j * args.c.column_stride] = value;
    }
  }
}

// Computes MR rows of C. Each row has four sums in registers; a single row has eight.
template <class T, class B, int MR>
void row_dots_panel(const GemmArgs<T, B>& args, int64_t row) {
  constexpr int kColumns = MR == 1 ? 8 : 4;
  int64_t column = 0;
  for (; column + kColumns <= args.columns; column += kColumns) row_dots_tile<T, B, MR, kColumns>(args, row, column);
  for (; column < args.columns; ++column) row_dots_tile<T, B, MR, 1>(args, row, column);
}

template <class T, class B = T>
void row_dots(const GemmArgs<T, B>& args) {
  int64_t row = 0;
  for (; row + kDotRows <= args.rows; row += kDotRows) row_dots_panel<T, B, kDotRows>(args, row);
  if (row < args.rows)
    with_constant<kDotRows - 1>(args.rows - row, [&]<int MR> { row_dots_panel<T, B, MR>(args, row); });
}

// Adds the sum of `count` rows of B to rows [row, row + MR) of C. This rounds the large sums in C less often than
// adding each row of B.
template <class T, class B, int MR, int count>
inline void combine_some(const GemmArgs<T, B>& args, int64_t row, int64_t first) {
  const auto* b = args.b.data + first * args.b.row_stride;
  T* y = args.c.data + row * args.c.row_stride;
  Vector<T> a[MR][count];
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k)
      a[m][k] = broadcast(args.a.data[(row + m) * args.a.row_stride + (first + k) * args.a.column_stride]);
  const auto step = [&](int64_t n, bool whole) __attribute__((always_inline)) {
    const int64_t left = args.columns - n;
    Vector<T> sum[MR];
#pragma GCC unroll 4
    for (int m = 0; m < MR; ++m) sum[m] = Vector<T>{};
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k) {
      const Vector<T> bv = load_some(b + k * args.b.row_stride + n, whole, left);
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) sum[m] = multiply_add(a[m][k], bv, sum[m]);
    }
#pragma GCC unroll 4
    for (int m = 0; m < MR; ++m) {
      T* to = y + m * args.c.row_stride + n;
      store_some(to, load_some(to, whole, left) + sum[m], whole, left);
    }
  };
  int64_t n = 0;
  for (; n + kLanes<T> <= args.columns; n += kLanes<T>) step(n, true);
  if (n < args.columns) step(n, false);
}

// The elements of A stay in registers during a pass over C.
template <class T, class B, int MR>
void combine_panel(const GemmArgs<T, B>& args, int64_t row) {
  constexpr int kTogether = MR == 1 ? 8 : (kRegisters == 32 ? 16 : 8) / MR;
  int64_t k = 0;
  for (; k + kTogether <= args.depth; k += kTogether) combine_some<T, B, MR, kTogether>(args, row, k);
  for (; k < args.depth; ++k) combine_some<T, B, MR, 1>(args, row, k);
}

template <class T, class B = T>
void combine_rows(const GemmArgs<T, B>& args) {
  int64_t row = 0;
  for (; row + 4 <= args.rows; row += 4) combine_panel<T, B, 4>(args, row);
  if (row + 2 <= args.rows) combine_panel<T, B, 2>(args, row), row += 2;
  if (row < args.rows) combine_panel<T, B, 1>(args, row);
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
