// What the files compiled once per instruction set offer to the rest of the backend: a table of plain functions.
// Nothing in here generates code, so that no function compiled for AVX-512 can end up serving an older processor.
#pragma once

#include <cstdint>

#include <gradus/core/optimizer_rules.h>

namespace gradus::openmp {

/// Elements [begin, end) of the depth.
struct DepthRange {
  int64_t begin, end;
};

/// C = A B for one block: C is rows x columns, A is packed by pack_a or read in place where its columns are contiguous,
/// row k of B starts at b + offsets[k].
/// B is read in tiles of Kernels::tile_columns columns; tile t starts at b + t * b_tile_step, and whole vectors are read,
/// so the rows of B must be readable up to the next multiple of the vector size. Of C only the block is written.
/// A convolution makes several such products, `segments`, each with its own piece of B and C.
template <class T>
struct BlockArgs {
  int64_t rows, columns, depth;
  int64_t segments = 1, b_segment_step = 0, c_segment_step = 0;
  const DepthRange* ranges = nullptr;  ///< per segment and tile: the k that count, for a packed A
  const T* a;
  int64_t a_step = 0;  ///< 0: packed; else A[m, k] is a[k * a_step + m]
  const T* b;
  const int64_t* offsets;
  int64_t b_tile_step;
  T* c;
  int64_t c_row_stride;
  bool accumulate = false;         ///< C += A B
  const T* row_bias = nullptr;     ///< C[m, n] += row_bias[m]
  const T* column_bias = nullptr;  ///< C[m, n] += column_bias[n]
  bool relu = false;               ///< C = max(C, 0), last
};

/// out[m * out_row_stride + j] += sum over i < length and images n of
/// a[n * a_image_stride + m * a_row_stride + i] * b[n * b_image_stride + offsets[j] + i].
/// `length` is a multiple of the vector size.
template <class T>
struct DotArgs {
  int64_t rows, columns, length, images;
  const T* a;
  int64_t a_row_stride, a_image_stride;
  const T* b;
  int64_t b_image_stride;
  const int64_t* offsets;
  T* out;
  int64_t out_row_stride;
};

/// Rows that are copied with `left` and `right` zeros around each: to[0 … left + count + right). Where mask (laid out like
/// `from`) is given, elements with mask <= 0 become zero.
template <class T>
struct RowsArgs {
  int64_t rows, count;
  const T* from;
  int64_t from_stride;
  T* to;
  int64_t to_stride;
  int64_t left = 0, right = 0;
  const T* mask = nullptr;
};

/// `count` elements of a parameter in an optimizer step, with the three states of a rule; unused ones are null.
template <class T>
struct StepArgs {
  int64_t count;
  T* parameter;
  const T* gradient;
  T* states[3];
};
template <class T, class Rule>
struct StepKernel {
  void (*step)(const StepArgs<T>&, const rules::FullStep<Rule, T>&);
};
/// A kernel for each rule, found by its base class.
template <class T>
struct StepKernels {
  template <class... Rule>
  struct List : StepKernel<T, Rule>... {};
};

/// One plane of max pooling without padding: y and indices (rows, columns) of x with rows of `width`.
template <class T>
struct PoolArgs {
  const T* x;
  int64_t width;
  T* y;
  int32_t* indices;
  int64_t rows, columns;
  int64_t kernel[2], stride[2], dilation[2];
};

/// Its gradient for 2 x 2 windows with stride 2 that cover dx's plane but for an odd last row or column, which is not
/// written.
template <class T>
struct PoolBackwardArgs {
  const T* dy;
  const int32_t* indices;
  int64_t rows, columns;
  T* dx;
  int64_t width;
};

template <class T>
using UnaryKernel = void (*)(const T* x, T* y, int64_t count);
template <class T>
using BinaryKernel = void (*)(const T* a, const T* b, T* y, int64_t count);

template <class T>
struct Kernels {
  int vector_size;   ///< elements in a vector
  int tile_rows;     ///< most rows of a register tile
  int tile_columns;  ///< columns of a register tile
  /// A (rows, depth) by strides, into rows * depth elements.
  void (*pack_a)(const T* a, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t depth, T* packed);
  /// B (depth, columns) by strides, into tiles of depth x tile_columns, the last one filled up with zeros.
  void (*pack_b)(const T* b, int64_t row_stride, int64_t column_stride, int64_t depth, int64_t columns, T* packed);
  void (*block)(const BlockArgs<T>&);
  void (*dot)(const DotArgs<T>&);
  /// out[c * out_stride + r] = in[r * in_stride + c]
  void (*transpose)(const T* in, int64_t in_stride, int64_t rows, int64_t columns, T* out, int64_t out_stride);
  void (*copy_rows)(const RowsArgs<T>&);
  rules::All<StepKernels<T>::template List> steps;
  T (*sum)(const T* x, int64_t count);
  /// y[i] = exp(x[i] - shift); returns the sum of y. y may be null or x.
  T (*exp_sum)(const T* x, T shift, T* y, int64_t count);
  /// Sums of x[i] - shift, of its squares, and (in `out`) of g[i] and of g[i] (x[i] - shift).
  T (*sum_about)(const T* x, T shift, int64_t count);
  T (*squares_about)(const T* x, T shift, int64_t count);
  void (*products_about)(const T* g, const T* x, T shift, int64_t count, T (&out)[2]);
  /// y[i] = (x[i] - shift) scale + offset, then times w[i] plus b[i] unless they are null.
  void (*affine)(const T* x, T shift, T scale, T offset, const T* w, const T* b, T* y, int64_t count);
  /// y[i] = g[i] a + (x[i] - shift) b + c
  void (*combine)(const T* g, const T* x, T shift, T a, T b, T c, T* y, int64_t count);
  UnaryKernel<T> neg, abs, square, exp, sqrt, rsqrt, reciprocal, relu, sigmoid, gelu_tanh, mish, silu;
  BinaryKernel<T> add, sub, mul, div, maximum, minimum;
  BinaryKernel<T> relu_backward;  ///< y = b > 0 ? a : 0
  void (*max_pool)(const PoolArgs<T>&);
  void (*max_pool_backward_2x2)(const PoolBackwardArgs<T>&);
};

struct KernelTable {
  const char* packed;  ///< implementation names for observers
  const char* implicit_gemm;
  const char* vectors;
  Kernels<float> f32;
  Kernels<double> f64;
};

const KernelTable& kernels_baseline();
const KernelTable& kernels_avx2();
const KernelTable& kernels_avx512();
/// The table of cpu_isa().
const KernelTable& kernel_table();

template <class T>
const Kernels<T>& kernels_of(const KernelTable& table);
template <>
inline const Kernels<float>& kernels_of<float>(const KernelTable& table) {
  return table.f32;
}
template <>
inline const Kernels<double>& kernels_of<double>(const KernelTable& table) {
  return table.f64;
}

}  // namespace gradus::openmp
