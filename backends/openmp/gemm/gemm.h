// C = A B for any strides and all floating types; half types are summed in float and rounded once. gemm.cpp chooses an
// algorithm; the algorithms are descriptors (core/kernel_choice.h) in few_rows.cpp, blocked.cpp and blocked_half.cpp.
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/backends/openmp/simd/tuning.h>
#include <gradus/core/array/dtype.h>
#include <gradus/core/array/shape.h>
#include <gradus/core/kernel_choice.h>

namespace gradus::openmp_detail {

/// C (rows, columns) = A (rows, depth) B (depth, columns), `products` times. Element (i, j) of an operand is at i
/// strides.row + j strides.column.
struct GemmProblem {
  struct Strides {
    int64_t row, column;
    bool operator==(const Strides&) const = default;
  };
  const KernelTable* table = nullptr;  ///< the kernels for an instruction set
  int threads = 1;                     ///< affects only `workspace_bytes` of the plan
  DType dtype = DType::f32;
  int64_t rows = 0, columns = 0, depth = 1;  ///< depth > 0
  Strides a = {}, b = {}, c = {};            ///< at least one stride of C is 1 or belongs to an axis of size 1
  bool starts = false;                       ///< C or a bias is added to the product
  int64_t products = 1;

  bool operator==(const GemmProblem&) const = default;
  /// C^T = B^T A^T.
  GemmProblem transposed() const;
  Registers tile() const { return registers(*table, dtype); }
  int64_t element() const { return static_cast<int64_t>(size_of(dtype)); }
  bool is_half() const { return dtype == DType::f16 || dtype == DType::bf16; }
  /// True if elements of a row of C are contiguous.
  bool has_rows() const { return c.column == 1 || columns == 1; }

  // For KernelFamily.
  size_t device_index() const { return static_cast<size_t>(table->isa); }
  size_t kind() const { return dtype == DType::bf16 ? 2 : dtype == DType::f16 ? 1 : 0; }
};

/// How C is divided into blocks: each is `rows` by `columns`, and there are `row_blocks` by `column_blocks`.
struct Cut {
  int64_t rows, columns, row_blocks, column_blocks;
};

struct GemmPlan;
/// Runs a plan; `packed` has a_size + b_size elements.
template <class T>
using GemmRun = void (*)(const KernelTable& table, const GemmPlan& plan, const GemmArgs<T>& args, T* packed);
/// The functions that run a plan, one for each type; null if the algorithm does not support the type.
using GemmLaunch = std::tuple<GemmRun<float>, GemmRun<double>, GemmRun<Half>, GemmRun<BFloat16>>;
using GemmAlgorithm = KernelAlgorithm<GemmProblem, GemmPlan, GemmLaunch>;
using GemmCandidate = KernelFamily<GemmAlgorithm>::Candidate;

/// If the comment of a field begins with `small`, `blocked` or `few rows`, only these algorithms use the field, and for
/// other algorithms it is 0.
struct GemmPlan {
  const GemmAlgorithm* algorithm = nullptr;  ///< null if the result is empty
  const char* implementation = "";           ///< the algorithm and the instruction set, for observers
  bool transposed = false;                   ///< C^T = B^T A^T is computed; the fields below describe that product
  int64_t products_at_once = 1;    ///< products per parallel chunk; if it is all, each product uses all threads
  int64_t grain = 0;               ///< few rows: columns per parallel chunk
  bool a_in_place = false;         ///< small, blocked: A is not packed
  bool b_in_place = false;         ///< blocked: columns of B that fill vectors are not packed
  int64_t columns_in_place = 0;    ///< small: number of columns of B that are not packed
  int64_t a_size = 0, b_size = 0;  ///< small: elements of the packed operands
  int64_t columns_at_once = 0;     ///< blocked: columns of B packed at a time, a multiple of the tile's
  int64_t depth_at_once = 0;       ///< blocked: depth packed at a time, in elements or pairs
  Cut cut = {}, last_cut = {};     ///< blocked: blocks of columns_at_once columns of C, and of the remaining columns
  int64_t workspace_bytes = 0;     ///< scratch memory; an upper bound for blocked_pairs

  const char* reason() const { return algorithm ? algorithm->reason : ""; }
};

/// The strides between the products of a batch, for each operand; each list has as many entries as `shape`.
struct GemmBatch {
  Dims shape = {}, a = {}, b = {}, c = {};
};

/// All algorithms of matrix products.
const KernelFamily<GemmAlgorithm>& gemm_family();
extern const GemmAlgorithm kCombineRows, kRowDots;       // few_rows.cpp
extern const GemmAlgorithm kSmall, kBlocked;             // blocked.cpp
extern const GemmAlgorithm kBlockedHalf, kBlockedPairs;  // blocked_half.cpp

/// Chooses the algorithm and its plan. The choice depends only on the problem and the tuning table.
GemmPlan select(const GemmProblem& problem);
/// All algorithms that can run.
std::vector<GemmCandidate> candidates(const GemmProblem& problem);

template <class T>
GemmProblem problem_of(const KernelTable& table, int threads, const GemmArgs<T>& args, const GemmBatch& batch = {}) {
  const auto strides = [](const auto& m) { return GemmProblem::Strides{m.row_stride, m.column_stride}; };
  return {.table = &table,
          .threads = threads,
          .dtype = dtype_of<T>,
          .rows = args.rows,
          .columns = args.columns,
          .depth = args.depth,
          .a = strides(args.a),
          .b = strides(args.b),
          .c = strides(args.c),
          .starts = args.accumulate || args.row_bias || args.column_bias,
          .products = numel_of(batch.shape)};
}

/// Runs the plan. c must be contiguous along rows or along columns.
template <class T>
void gemm(const KernelTable& table, const GemmPlan& plan, GemmArgs<T> args, GemmBatch batch = {});

/// The product restricted to columns [begin, end).
template <class T, class B>
GemmArgs<T, B> columns_of(GemmArgs<T, B> args, int64_t begin, int64_t end) {
  args.columns = end - begin;
  args.b.data += begin * args.b.column_stride, args.c.data += begin * args.c.column_stride;
  if (args.column_bias) args.column_bias += begin;
  return args;
}

// ---- Blocks, for the files with algorithms --------------------------------------------------------------

/// Minimum multiplications of a parallel chunk.
constexpr int64_t kLeastChunk = int64_t{1} << 16;

/// Half types pack this many tiles of B at a time, so that B's rows are read in longer runs.
constexpr int64_t kTilesTogether = 4;
/// Minimum elements of a packing chunk.
constexpr int64_t kLeastPacked = 8192;
/// Rows of a packed tile of B, about the size of the first-level cache.
constexpr int64_t kDepthBlock = 384;

/// Divides C into blocks for the threads and the second-level cache.
Cut cut_of(int64_t rows, int64_t columns, int64_t depth, const Registers& tile);

/// Divides C if at most `most` columns of B are packed at a time. Returns the maximum of bytes(cut, columns) over the
/// parts.
template <class Bytes>
int64_t cut_columns(GemmPlan& plan, const GemmProblem& p, int64_t depth, int64_t most, Bytes bytes) {
  const Registers tile = p.tile();
  plan.columns_at_once = round_up(ceil_div(p.columns, ceil_div(p.columns, most)), tile.columns);
  const int64_t first = std::min(plan.columns_at_once, p.columns);
  const int64_t last = (p.columns - 1) % plan.columns_at_once + 1;
  plan.cut = cut_of(p.rows, first, depth, tile);
  plan.last_cut = cut_of(p.rows, last, depth, tile);
  return std::max(bytes(plan.cut, first), bytes(plan.last_cut, last));
}

// ---- The work of products, for the files with algorithms ------------------------------------------------

/// Indices of parts that the work of every algorithm has.
namespace gemm_part {
enum : size_t { kMultiplyAdds, kLoops, kCalls, kProducts, kFarBytes };
}

/// How threads share a batch: whole products, or the work of one product after another.
struct Sharing {
  int64_t products_at_once = 1, chunks = 1;
  int threads = 1;  ///< number of threads for each product

  explicit Sharing(const GemmProblem& p);
};

/// Returns the work of all products on the busiest thread, given the work of one product. A product has `packed_bytes`
/// besides the operands.
template <class Work>
KernelWork of_batch(const GemmProblem& p, Work&& work_of_one, double packed_bytes = 0) {
  const Sharing sharing(p);
  GemmProblem one = p;
  one.products = 1, one.threads = sharing.threads;
  KernelWork work = work_of_one(one);
  work[gemm_part::kProducts] = 1;
  const double products = number(p.products);
  const double share = share_of(p.threads, p.products, sharing.products_at_once);
  for (double& part : work) part *= products * share;
  const double operands = number(p.rows + p.columns) * number(p.depth) + number(p.rows) * number(p.columns);
  const double all_bytes = products * (operands * number(p.element()) + packed_bytes);
  work[gemm_part::kFarBytes] += far_bytes(all_bytes * (sharing.chunks > 1 ? share : 1));
  if (sharing.chunks > 1 && p.threads > 1) work[gemm_part::kLoops] += 1;
  work[gemm_part::kCalls] = 1;
  return work;
}

/// Indices in kBlockedParts after those of gemm_part, for products by register tiles. kConverted and kPartialHalves
/// count conversions of half types. kBlocked alone counts kBlocks, the blocks of C and of A, and kExchanged, the bytes
/// of the packed B that a thread gets from the cache of another one.
namespace blocked_part {
using namespace gemm_part;
enum : size_t { kCopied = 5, kTransposed, kPackedRows, kCopiedRows, kCBytes, kTiles, kDeepBytes };
enum : size_t { kGathered = kDeepBytes + 1, kConverted, kPartialHalves, kBlocks, kExchanged };
}  // namespace blocked_part
inline constexpr WorkParts kBlockedParts = {{{"multiply_adds", WorkLimit::multiply_adds},
                                             {"loops", WorkLimit::loops},
                                             {"calls", WorkLimit::loops},
                                             {"products"},
                                             {"far_bytes", WorkLimit::bytes},
                                             {"copied_bytes", WorkLimit::bytes},
                                             {"transposed_blocks"},
                                             {"packed_rows"},
                                             {"copied_rows"},
                                             {"c_bytes", WorkLimit::bytes},
                                             {"tiles"},
                                             {"deep_bytes", WorkLimit::bytes},
                                             {"gathered"},
                                             {"converted"},
                                             {"partial_halves"},
                                             {"blocks"},
                                             {"exchanged_bytes", WorkLimit::bytes}}};
/// The work of the register tiles for `rows` rows and all columns of C. The depth has `steps` steps in `depth_blocks`
/// blocks.
KernelWork tiles_work(const GemmProblem& p, int64_t rows, double steps, double depth_blocks);
/// Adds the work of packing `rows` rows of A (`columns` columns of B) with `steps` steps of the depth, `times` times.
/// `along` and `across` are the operand's strides along the depth and across it.
void add_packing_a(KernelWork& work, const GemmProblem& p, int64_t rows, double steps, int64_t along, int64_t across,
                   double times);
void add_packing_b(KernelWork& work, const GemmProblem& p, int64_t columns, double steps, int64_t along, int64_t across,
                   double times);
/// Number of parallel chunks in which `columns` of B are packed, `tiles_together` tiles at a time.
int64_t packing_chunks(const GemmProblem& p, int64_t columns, int64_t depth_at_once, int64_t tiles_together);

}  // namespace gradus::openmp_detail
