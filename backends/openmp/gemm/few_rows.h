// Products with few rows, which read B where it is: its columns are shared out. The kernels are those of B's type,
// which may be a half type.
#pragma once

#include <algorithm>

#include <gradus/backends/openmp/gemm/gemm.h>

namespace gradus::openmp_detail {

/// B's rows, each times an element of A, are added up in C.
template <class AnyKernels, class T, class B>
void combine_rows(const AnyKernels& kernels, const GemmPlan& plan, const GemmArgs<T, B>& args) {
  parallel_for(args.columns, plan.grain, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    for (int64_t m = 0; m < args.rows; ++m) {
      T* y = args.c.data + m * args.c.row_stride + begin;
      const T row_bias = args.row_bias ? args.row_bias[m] : T(0);
      if (!args.accumulate) std::fill_n(y, count, T(0));
      for (int64_t i = 0; args.row_bias && i < count; ++i) y[i] += row_bias;
      for (int64_t i = 0; args.column_bias && i < count; ++i) y[i] += args.column_bias[begin + i];
    }
    kernels.combine_rows({.rows = args.rows,
                          .columns = count,
                          .depth = args.depth,
                          .a = args.a.data,
                          .a_row_stride = args.a.row_stride,
                          .a_step = args.a.column_stride,
                          .b = args.b.data + begin,
                          .b_row_stride = args.b.row_stride,
                          .y = args.c.data + begin,
                          .y_row_stride = args.c.row_stride});
  });
}

/// Dot products of A's rows and B's columns.
template <class AnyKernels, class T, class B>
void row_dots(const AnyKernels& kernels, const GemmPlan& plan, const GemmArgs<T, B>& args) {
  parallel_for(args.columns, plan.grain, [&](int64_t begin, int64_t end) {
    kernels.row_dots({.rows = args.rows,
                      .columns = end - begin,
                      .depth = args.depth,
                      .a = args.a.data,
                      .a_row_stride = args.a.row_stride,
                      .b = args.b.data + begin * args.b.column_stride,
                      .b_row_stride = args.b.column_stride,
                      .c = args.c.data + begin * args.c.column_stride,
                      .c_row_stride = args.c.row_stride,
                      .c_column_stride = args.c.column_stride,
                      .accumulate = args.accumulate,
                      .row_bias = args.row_bias,
                      .column_bias = args.column_bias ? args.column_bias + begin : nullptr});
  });
}

}  // namespace gradus::openmp_detail
