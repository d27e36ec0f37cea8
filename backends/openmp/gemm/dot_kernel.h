// Many dot products at once, for weight gradients: out[m, j] += sum over i of a[m, i] b[offsets[j] + i]. A tile of MR
// by NJ partial sums, each a whole vector, stays in registers while i runs; the lanes are added at the end.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/simd.h>

namespace gradus::openmp::GRADUS_ISA {

constexpr int kDotRows = kRegisters == 32 ? 6 : 3;
constexpr int kDotColumns = kRegisters == 32 ? 4 : 3;

template <class T>
__attribute__((noinline)) void add_lanes(const T* sums, int64_t rows, int64_t columns, T* out, int64_t stride) {
  for (int64_t m = 0; m < rows; ++m) {
    if (columns == 4 && kLanes<T> >= 4) {  // four vectors become one by adding neighbours
      const Vector<T> low = add_pairs<T>(load(sums), load(sums + kLanes<T>));
      const Vector<T> high = add_pairs<T>(load(sums + 2 * kLanes<T>), load(sums + 3 * kLanes<T>));
      Vector<T> quarters = add_pairs<T>(low, high);
      for (int width = kLanes<T>; width > 4; width /= 2) quarters = add_pairs<T>(quarters, quarters);
      for (int j = 0; j < 4; ++j) out[m * stride + j] += quarters[j];
      sums += 4 * kLanes<T>;
      continue;
    }
    for (int64_t j = 0; j < columns; ++j, sums += kLanes<T>) out[m * stride + j] += sum_of<T>(load(sums));
  }
}

template <class T, int MR, int NJ>
void dot_tile(const DotArgs<T>& args, int64_t row, int64_t column) {
  const T* a = args.a + row * args.a_row_stride;
  const T* b[NJ];
#pragma GCC unroll 4
  for (int j = 0; j < NJ; ++j) b[j] = args.b + args.offsets[column + j];
  Vector<T> sum[MR][NJ];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int j = 0; j < NJ; ++j) sum[m][j] = Vector<T>{};
  for (int64_t n = 0; n < args.images; ++n) {
    for (int64_t i = 0; i < args.length; i += kLanes<T>) {
      Vector<T> bv[NJ];
#pragma GCC unroll 4
      for (int j = 0; j < NJ; ++j) bv[j] = load(b[j] + i);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        const Vector<T> av = load(a + m * args.a_row_stride + i);
#pragma GCC unroll 4
        for (int j = 0; j < NJ; ++j) sum[m][j] = multiply_add(av, bv[j], sum[m][j]);
      }
    }
    a += args.a_image_stride;
#pragma GCC unroll 4
    for (int j = 0; j < NJ; ++j) b[j] += args.b_image_stride;
  }
  alignas(kVectorBytes) T sums[MR * NJ * kLanes<T>];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int j = 0; j < NJ; ++j) store(sums + (m * NJ + j) * kLanes<T>, sum[m][j]);
  add_lanes(sums, MR, NJ, args.out + row * args.out_row_stride + column, args.out_row_stride);
}

template <class T>
using DotFunction = void (*)(const DotArgs<T>&, int64_t, int64_t);

template <class T, int NJ, int MR = kDotRows>
inline DotFunction<T> dot_of_height(int64_t rows) {
  if constexpr (MR == 1) return dot_tile<T, 1, NJ>;
  else return rows == MR ? dot_tile<T, MR, NJ> : dot_of_height<T, NJ, MR - 1>(rows);
}

template <class T>
void dot(const DotArgs<T>& args) {
  const int64_t panels = (args.rows + kDotRows - 1) / kDotRows;
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t row = args.rows * i / panels, height = args.rows * (i + 1) / panels - row;
    int64_t column = 0;
    for (; column + kDotColumns <= args.columns; column += kDotColumns)
      dot_of_height<T, kDotColumns>(height)(args, row, column);
    for (; column < args.columns; ++column) dot_of_height<T, 1>(height)(args, row, column);
  }
}

}  // namespace gradus::openmp::GRADUS_ISA
