// C = A B for any strides and all floating types; half types are summed in float and rounded once.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/core/dtype.h>
#include <gradus/core/shape.h>

namespace gradus::openmp {

/// Element (i, j) is data[i * row_stride + j * column_stride].
template <class T>
struct Matrix {
  T* data = nullptr;
  int64_t row_stride = 0, column_stride = 0;
  Matrix transposed() const { return {data, column_stride, row_stride}; }
};

/// c (rows, columns) = a (rows, depth) b (depth, columns) + the terms that are given, then relu if asked.
template <class T>
struct GemmArgs {
  int64_t rows, columns, depth;
  Matrix<const T> a, b;
  Matrix<T> c;
  bool accumulate = false;         ///< c is a term
  Matrix<const T> residual = {};   ///< (rows, columns), another; not with accumulate
  const T* row_bias = nullptr;     ///< one element for each row of c
  const T* column_bias = nullptr;  ///< one for each column
  bool relu = false;
};

/// How the operands of a batch of such products follow each other: shape.size() strides each.
struct GemmBatch {
  Dims shape = {}, a = {}, b = {}, c = {}, residual = {};
};

void gemm(const KernelTable& table, const GemmArgs<float>& args, const GemmBatch& batch = {});
void gemm(const KernelTable& table, const GemmArgs<double>& args, const GemmBatch& batch = {});

void gemm(const KernelTable& table, const GemmArgs<Half>& args, const GemmBatch& batch = {});
void gemm(const KernelTable& table, const GemmArgs<BFloat16>& args, const GemmBatch& batch = {});

/// By Kernels::block whatever the shape, one product; c has unit column stride, so has a residual.
template <class T>
void tile_gemm(const Kernels<T>& kernels, const GemmArgs<T>& args);
/// For products that are worth cutting into blocks for caches and threads; as tile_gemm, of a depth above 0.
template <class T>
void blocked_gemm(const Kernels<T>& kernels, const GemmArgs<T>& args);

}  // namespace gradus::openmp
