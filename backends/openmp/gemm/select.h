// Which algorithm computes C = A B, how its work is cut, and how much scratch memory that takes: the one
// place that decides. The function depends on its arguments alone; gemm() does what the plan says. The choices do not
// depend on the number of threads (only `workspace_bytes` does), so neither do the results.
// tests/backends/gemm_decisions.txt lists what it chooses.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/array/dtype.h>

namespace gradus::openmp_detail {

/// In the order of KernelTable::gemm, the names that observers see.
enum class GemmAlgorithm : uint8_t {
  combine_rows,   ///< few rows of C: rows of B, each times an element of A, are added up (gemv_kernel.h)
  row_dots,       ///< dot products of rows of A and columns of B where they are (gemv_kernel.h)
  small,          ///< on one thread; what is contiguous is read in place
  blocked,        ///< packed, for caches and threads (gemm.cpp, gemm_half.cpp)
  blocked_pairs,  ///< the same for pairs of bfloat16
};

/// C (rows, columns) = A (rows, depth) B (depth, columns), `products` times: element (i, j) is at i row_stride + j
/// column_stride.
struct GemmProblem {
  struct Strides {
    int64_t row, column;
    Strides transposed() const { return {column, row}; }
  };
  DType dtype;
  int64_t rows, columns, depth;  ///< depth > 0
  Strides a, b, c;
  bool starts = false;  ///< with something that is added to the product: C or a bias
  int64_t products = 1;
};

/// How C is cut into blocks: `rows` by `columns` a block, `row_blocks` by `column_blocks` of them.
struct Cut {
  int64_t rows, columns, row_blocks, column_blocks;
};

struct GemmPlan {
  GemmAlgorithm algorithm = GemmAlgorithm::small;
  bool transposed = false;         ///< C^T = B^T A^T is computed; what follows is said of that product
  int64_t products_at_once = 1;    ///< in a chunk of parallel work; all: one after another, each by all threads
  int64_t grain = 0;               ///< combine_rows, row_dots: columns in a chunk of parallel work
  bool a_in_place = false;         ///< small, blocked: A is not packed
  bool b_in_place = false;         ///< blocked: nor are the columns of B that fill vectors
  int64_t columns_in_place = 0;    ///< small: those columns
  int64_t a_size = 0, b_size = 0;  ///< small: elements of the packed operands
  int64_t columns_at_once = 0;     ///< blocked: columns of B that are packed at a time, a multiple of the tile's
  int64_t depth_at_once = 0;       ///< blocked: elements, or pairs
  Cut cut = {}, last_cut = {};     ///< blocked: of columns_at_once columns of C, and of the rest
  int64_t workspace_bytes = 0;     ///< scratch memory, for blocked_pairs at most
  const char* reason = "";         ///< for the algorithm
};

/// The depth of `small` is at most this.
constexpr int64_t kSmallDepth = 512;
/// Tiles of B that are packed one after another for half types: their rows are read in longer runs.
constexpr int64_t kTilesTogether = 4;

/// Between rows of a block's sums for half types: in different sets of the first-level cache.
constexpr int64_t half_sums_stride(const Cut& cut) { return slot_size(cut.columns) + 16; }
/// Of a thread: steps of A as floats, before them, if sums begin with something, a row of column biases.
constexpr int64_t half_floats_size(const Cut& cut, int64_t steps, bool starts) {
  return slot_size(std::max(cut.rows * steps, starts ? cut.columns : 0));
}
/// Elements that are worth a chunk of packing.
constexpr int64_t kLeastPacked = 8192;

GemmPlan select_gemm(const KernelTable& table, int threads, GemmProblem problem);

}  // namespace gradus::openmp_detail
