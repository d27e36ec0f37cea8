// Selects the algorithm of C = A B, its blocks and its scratch memory; no other file decides these. The function
// depends only on its arguments, and gemm() follows the plan. The choices do not depend on the number of threads (only
// `workspace_bytes` does), so results do not either. tests/backends/gemm_decisions.txt lists choices.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/array/dtype.h>

namespace gradus::openmp_detail {

/// In the order of KernelTable::gemm, which has the names for observers.
enum class GemmAlgorithm : uint8_t {
  combine_rows,   ///< few rows of C: adds rows of B times elements of A (gemv_kernel.h)
  row_dots,       ///< dot products of rows of A and columns of B, in place (gemv_kernel.h)
  small,          ///< on one thread; contiguous operands are read in place
  blocked,        ///< packed, for caches and threads (gemm.cpp, gemm_half.cpp)
  blocked_pairs,  ///< the same with pairs of bfloat16
};

/// C (rows, columns) = A (rows, depth) B (depth, columns), `products` times. Element (i, j) of an operand is at i
/// strides.row + j strides.column.
struct GemmProblem {
  struct Strides {
    int64_t row, column;
    Strides transposed() const { return {column, row}; }
  };
  DType dtype;
  int64_t rows, columns, depth;  ///< depth > 0
  Strides a, b, c;
  bool starts = false;  ///< something is added to the product: C or a bias
  int64_t products = 1;
};

/// How C is divided into blocks: each is `rows` by `columns`, and there are `row_blocks` by `column_blocks`.
struct Cut {
  int64_t rows, columns, row_blocks, column_blocks;
};

struct GemmPlan {
  GemmAlgorithm algorithm = GemmAlgorithm::small;
  bool transposed = false;         ///< C^T = B^T A^T is computed; the fields below describe that product
  int64_t products_at_once = 1;    ///< products per parallel chunk; if all, they run one by one on all threads
  int64_t grain = 0;               ///< combine_rows, row_dots: columns per parallel chunk
  bool a_in_place = false;         ///< small, blocked: A is not packed
  bool b_in_place = false;         ///< blocked: columns of B that fill vectors are not packed
  int64_t columns_in_place = 0;    ///< small: number of such columns
  int64_t a_size = 0, b_size = 0;  ///< small: elements of the packed operands
  int64_t columns_at_once = 0;     ///< blocked: columns of B packed at a time, a multiple of the tile's
  int64_t depth_at_once = 0;       ///< blocked: depth packed at a time, in elements or pairs
  Cut cut = {}, last_cut = {};     ///< blocked: for columns_at_once columns of C, and for the remaining ones
  int64_t workspace_bytes = 0;     ///< scratch memory; an upper bound for blocked_pairs
  const char* reason = "";         ///< why the algorithm was chosen
};

/// Maximum depth of `small`.
constexpr int64_t kSmallDepth = 512;
/// Half types pack this many tiles of B at a time, so that B's rows are read in longer runs.
constexpr int64_t kTilesTogether = 4;

/// Distance between rows of a block's sums for half types. The padding puts rows in different sets of the first-level
/// cache.
constexpr int64_t half_sums_stride(const Cut& cut) { return slot_size(cut.columns) + 16; }
/// Scratch elements per thread for A's steps as floats. If `starts`, the same memory first holds a row of column
/// biases.
constexpr int64_t half_floats_size(const Cut& cut, int64_t steps, bool starts) {
  return slot_size(std::max(cut.rows * steps, starts ? cut.columns : 0));
}
/// Minimum elements of a packing chunk.
constexpr int64_t kLeastPacked = 8192;

GemmPlan select_gemm(const KernelTable& table, int threads, GemmProblem problem);

}  // namespace gradus::openmp_detail
