// C = A B for any strides and all floating types; half types are summed in float and rounded once.
#pragma once

#include <utility>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/core/dtype.h>
#include <gradus/core/parallel.h>
#include <gradus/core/shape.h>

namespace gradus::openmp {

/// Element (i, j) is data[i * row_stride + j * column_stride].
template <class T>
struct Matrix {
  T* data = nullptr;
  int64_t row_stride = 0, column_stride = 0;
  Matrix transposed() const { return {data, column_stride, row_stride}; }
};

/// c (rows, columns) = a (rows, depth) b (depth, columns) + the terms that are given.
template <class T>
struct GemmArgs {
  int64_t rows, columns, depth;
  Matrix<const T> a, b;
  Matrix<T> c;
  bool accumulate = false;         ///< c is a term
  const T* row_bias = nullptr;     ///< one element for each row of c
  const T* column_bias = nullptr;  ///< one for each column
};

/// How the operands of a batch of such products follow each other: shape.size() strides each.
struct GemmBatch {
  Dims shape = {}, a = {}, b = {}, c = {};
};

void gemm(const KernelTable& table, const GemmArgs<float>& args, const GemmBatch& batch = {});
void gemm(const KernelTable& table, const GemmArgs<double>& args, const GemmBatch& batch = {});

void gemm(const KernelTable& table, const GemmArgs<Half>& args, const GemmBatch& batch = {});
void gemm(const KernelTable& table, const GemmArgs<BFloat16>& args, const GemmBatch& batch = {});

/// One product that is worth cutting into blocks for caches and threads, of a depth above 0. C has unit column stride.
template <class T>
void blocked_gemm(const Kernels<T>& kernels, const GemmArgs<T>& args);

/// How C is cut into blocks: `rows` by `columns` a block, `row_blocks` by `column_blocks` of them.
struct Cut {
  int64_t rows, columns, row_blocks, column_blocks;
};
Cut cut_of(int64_t rows, int64_t columns, int64_t depth, int64_t tile_rows, int64_t tile_columns);

constexpr int64_t kFewRows = 6;                    // of C, for which B is multiplied where it lies
constexpr int64_t kDepthBlock = 384;               // rows of a packed tile of B: about the first-level cache
constexpr int64_t kLeastPacked = 8192;             // elements that are worth a chunk of packing
constexpr int64_t kLeastChunk = int64_t{1} << 16;  // multiplications that are worth a chunk of parallel work

/// C^T = B^T A^T
template <class T>
GemmArgs<T> transposed(GemmArgs<T> args) {
  std::swap(args.rows, args.columns);
  std::swap(args.a, args.b);
  std::swap(args.row_bias, args.column_bias);
  args.a = args.a.transposed(), args.b = args.b.transposed(), args.c = args.c.transposed();
  return args;
}

int64_t product_count(const GemmBatch& batch);

/// Product `index` of a batch.
template <class T>
GemmArgs<T> product_of(GemmArgs<T> args, const GemmBatch& batch, int64_t index) {
  for (int axis = batch.shape.size() - 1; axis >= 0; --axis) {
    const int64_t at = index % batch.shape[axis];
    index /= batch.shape[axis];
    args.a.data += at * batch.a[axis];
    args.b.data += at * batch.b[axis];
    args.c.data += at * batch.c[axis];
  }
  return args;
}

/// Calls some(begin, end) for parts of a batch: threads share small or many products, which are of `work`
/// multiplications each; few large ones are made one after another, each by all threads.
void share_products(int64_t products, int64_t work, RangeFunction some);

/// An empty sum is a product of zeros; empty operands have no address to count from.
template <class T>
void without_empty_depth(GemmArgs<T>* args, GemmBatch* batch) {
  if (args->depth > 0) return;
  static constexpr T zero{};
  args->depth = 1;
  args->a = args->b = {&zero, 0, 0};
  batch->a = batch->b = Dims::filled(batch->shape.size(), 0);
}

}  // namespace gradus::openmp
