// C = A B for any strides and all floating types; half types are summed in float and rounded once.
#pragma once

#include <algorithm>
#include <utility>

#include <gradus/backends/openmp/gemm/select.h>
#include <gradus/core/array/dtype.h>
#include <gradus/core/array/shape.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {

/// The strides between the products of a batch, for each operand; each list has as many entries as `shape`.
struct GemmBatch {
  Dims shape = {}, a = {}, b = {}, c = {};
};

/// Selects the plan for a product or a batch of products.
template <class T>
GemmPlan plan_of(const KernelTable& table, const GemmArgs<T>& args, const GemmBatch& batch = {}) {
  const auto strides = [](const auto& m) { return GemmProblem::Strides{m.row_stride, m.column_stride}; };
  return select_gemm(table, num_threads(),
                     {.dtype = dtype_of<T>,
                      .rows = args.rows,
                      .columns = args.columns,
                      .depth = args.depth,
                      .a = strides(args.a),
                      .b = strides(args.b),
                      .c = strides(args.c),
                      .starts = args.accumulate || args.row_bias || args.column_bias,
                      .products = numel_of(batch.shape)});
}

/// Runs the plan. c must be contiguous along rows or along columns.
template <class T>
void gemm(const KernelTable& table, const GemmPlan& plan, GemmArgs<T> args, GemmBatch batch = {});

/// A single product of half types.
template <class H>
void half_gemm(const KernelTable& table, const GemmPlan& plan, const GemmArgs<H>& args);

/// The product restricted to columns [begin, end).
template <class T, class B>
GemmArgs<T, B> columns_of(GemmArgs<T, B> args, int64_t begin, int64_t end) {
  args.columns = end - begin;
  args.b.data += begin * args.b.column_stride, args.c.data += begin * args.c.column_stride;
  if (args.column_bias) args.column_bias += begin;
  return args;
}

/// A single product by `combine_rows` or `row_dots`, which read B in place; threads share its columns. The kernels are
/// those for B's type, which may be a half type.
template <class AnyKernels, class T, class B>
void few_rows_gemm(const AnyKernels& kernels, const GemmPlan& plan, const GemmArgs<T, B>& args) {
  parallel_for(args.columns, plan.grain, [&](int64_t begin, int64_t end) {
    const GemmArgs<T, B> part = columns_of(args, begin, end);
    if (plan.algorithm == GemmAlgorithm::row_dots) return kernels.row_dots(part);
    for (int64_t m = 0; m < part.rows; ++m) {
      T* y = part.c.data + m * part.c.row_stride;
      if (!part.accumulate) std::fill_n(y, part.columns, T(0));
      for (int64_t i = 0; part.row_bias && i < part.columns; ++i) y[i] += part.row_bias[m];
      for (int64_t i = 0; part.column_bias && i < part.columns; ++i) y[i] += part.column_bias[i];
    }
    kernels.combine_rows(part);
  });
}

/// The transposed product: C^T = B^T A^T.
template <class T>
GemmArgs<T> transposed(GemmArgs<T> args) {
  std::swap(args.rows, args.columns);
  std::swap(args.a, args.b);
  std::swap(args.row_bias, args.column_bias);
  args.a = args.a.transposed(), args.b = args.b.transposed(), args.c = args.c.transposed();
  return args;
}

}  // namespace gradus::openmp_detail
