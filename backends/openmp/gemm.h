// C = A B for any strides, float and double.
#pragma once

#include <gradus/backends/openmp/kernels.h>

namespace gradus::openmp {

/// Element (i, j) is data[i * row_stride + j * column_stride].
template <class T>
struct Matrix {
  T* data;
  int64_t row_stride, column_stride;
  Matrix transposed() const { return {data, column_stride, row_stride}; }
};

/// c (rows, columns) = a (rows, depth) b (depth, columns) [+ c] [+ bias], then relu if asked.
template <class T>
struct GemmArgs {
  int64_t rows, columns, depth;
  Matrix<const T> a, b;
  Matrix<T> c;
  bool accumulate = false;
  const T* row_bias = nullptr;     ///< one element for each row of c
  const T* column_bias = nullptr;  ///< one for each column
  bool relu = false;
};

void gemm(const KernelTable& table, const GemmArgs<float>& args);
void gemm(const KernelTable& table, const GemmArgs<double>& args);

}  // namespace gradus::openmp
