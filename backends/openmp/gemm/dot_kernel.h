// Many dot products at once, for weight gradients: out[m, j] += sum over i of a[m, i] b[offsets[j] + i]. A tile of MR
// by NJ partial sums, each a whole vector, stays in registers while i runs; the lanes are added at the end.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/simd.h>

namespace gradus::openmp::GRADUS_ISA {

constexpr int kDotRows = kRegisters == 32 ? 6 : 3;
constexpr int kDotColumns = kRegisters == 32 ? 4 : 3;

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
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    T sums[NJ];
    lane_sums<T, NJ>(sum[m], sums);
    for (int j = 0; j < NJ; ++j) args.out[(row + m) * args.out_row_stride + column + j] += sums[j];
  }
}

template <class T>
void dot(const DotArgs<T>& args) {
  const int64_t panels = (args.rows + kDotRows - 1) / kDotRows;
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t row = args.rows * i / panels, height = args.rows * (i + 1) / panels - row;
    with_constant<kDotRows>(height, [&]<int MR> {
      int64_t column = 0;
      for (; column + kDotColumns <= args.columns; column += kDotColumns)
        dot_tile<T, MR, kDotColumns>(args, row, column);
      for (; column < args.columns; ++column) dot_tile<T, MR, 1>(args, row, column);
    });
  }
}

}  // namespace gradus::openmp::GRADUS_ISA
