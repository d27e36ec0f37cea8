// C = A B for any strides and all floating types; half types are summed in float and rounded once.
#pragma once

#include <utility>

#include <gradus/backends/openmp/gemm/select.h>
#include <gradus/core/dtype.h>
#include <gradus/core/parallel.h>
#include <gradus/core/shape.h>

namespace gradus::openmp_detail {

/// Element (i, j) is data[i * row_stride + j * column_stride].
template <class T>
struct Matrix {
  T* data = nullptr;
  int64_t row_stride = 0, column_stride = 0;
  Matrix transposed() const { return {data, column_stride, row_stride}; }
};

/// c (rows, columns) = a (rows, depth) b (depth, columns) + the terms that are given.
template <class T, class B = T>
struct GemmArgs {
  int64_t rows, columns, depth;
  Matrix<const T> a;
  Matrix<const B> b;
  Matrix<T> c;
  bool accumulate = false;         ///< c is a term
  const T* row_bias = nullptr;     ///< one element for each row of c
  const T* column_bias = nullptr;  ///< one for each column
};

/// How the operands of a batch of such products follow each other: shape.size() strides each.
struct GemmBatch {
  Dims shape = {}, a = {}, b = {}, c = {};
};

/// How many products a batch has.
inline int64_t product_count(const GemmBatch& batch) {
  int64_t products = 1;
  for (int64_t size : batch.shape) products *= size;
  return products;
}

/// The plan of such products.
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
                      .products = product_count(batch)});
}

/// Runs the plan. The rows of c, or its columns, are contiguous.
template <class T>
void gemm(const KernelTable& table, const GemmPlan& plan, GemmArgs<T> args, GemmBatch batch = {});

/// One product of algorithm `blocked`, of a depth above 0.
template <class T>
void blocked_gemm(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args);
/// One of algorithm `small`; `packed` has room for the plan's a_size and b_size.
template <class T>
void small_gemm(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args, T* packed);
/// One product of half types.
template <class H>
void half_gemm(const KernelTable& table, const GemmPlan& plan, const GemmArgs<H>& args);

/// C^T = B^T A^T
template <class T>
GemmArgs<T> transposed(GemmArgs<T> args) {
  std::swap(args.rows, args.columns);
  std::swap(args.a, args.b);
  std::swap(args.row_bias, args.column_bias);
  args.a = args.a.transposed(), args.b = args.b.transposed(), args.c = args.c.transposed();
  return args;
}

}  // namespace gradus::openmp_detail
