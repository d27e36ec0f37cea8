// The operands of a product of half types, as rows of floats: used where sums are kept in float and rounded once.
#pragma once

#include <gradus/backends/openmp/gemm/gemm.h>

namespace gradus::openmp_detail {

template <class H>
struct HalfRows {
  const HalfKernels<H>& kernels;
  const GemmArgs<H>& args;

  HalfRows(const KernelTable& table, const GemmArgs<H>& args) : kernels(kernels_of<H>(table)), args(args) {}

  bool has_start() const { return args.accumulate || args.row_bias || args.column_bias; }

  // Computes the terms that are added to the product, for a part of C; `bias` has room for its columns.
  void start(int64_t row, int64_t rows, int64_t column, int64_t columns, float* bias, float* sums,
             int64_t stride) const {
    if (args.column_bias) widen(args.column_bias + column, 1, columns, bias);
    else std::fill_n(bias, columns, 0.0f);
    for (int64_t i = row; i < row + rows; ++i, sums += stride) {
      const float row_bias = args.row_bias ? static_cast<float>(args.row_bias[i]) : 0.0f;
      if (args.accumulate)
        widen(args.c.data + i * args.c.row_stride + column * args.c.column_stride, args.c.column_stride, columns, sums);
      else std::fill_n(sums, columns, 0.0f);
      for (int64_t j = 0; j < columns; ++j) sums[j] += row_bias + bias[j];
    }
  }

  void finish(int64_t row, int64_t rows, int64_t column, int64_t columns, const float* sums, int64_t stride) const {
    const int64_t step = args.c.column_stride;
    for (int64_t i = row; i < row + rows; ++i, sums += stride) {
      H* to = args.c.data + i * args.c.row_stride + column * step;
      if (step == 1) kernels.narrow(sums, to, columns);
      else
        for (int64_t j = 0; j < columns; ++j) to[j * step] = static_cast<H>(sums[j]);
    }
  }

  // Converts `count` elements with stride `step`.
  void widen(const H* from, int64_t step, int64_t count, float* to) const {
    if (step == 1) return kernels.widen(from, to, count);
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i * step]);
  }
};

}  // namespace gradus::openmp_detail
