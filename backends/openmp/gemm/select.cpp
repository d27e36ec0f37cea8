// Selects the algorithm of a matrix product (choose(), or cut_half() for half types) and the sizes of its blocks (the
// functions below them).
#include <gradus/backends/openmp/gemm/select.h>

#include <algorithm>
#include <utility>

#include <gradus/backends/openmp/simd/scratch.h>

namespace gradus::openmp_detail {
namespace {

constexpr int64_t kFewRows = 6;                      // maximum rows of C with which B is read in place
constexpr int64_t kLongRow = 2048;                   // elements
constexpr int64_t kSmallProduct = int64_t{1} << 19;  // multiplications; larger products use several threads
constexpr int64_t kLeastChunk = int64_t{1} << 16;    // minimum multiplications of a parallel chunk
constexpr int64_t kManyProducts = 16;                // from this number on threads share whole products of any size

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

bool is_small(const GemmProblem& p) { return p.depth <= kSmallDepth && p.rows * p.columns * p.depth <= kSmallProduct; }

// True if each element of B is read so few times, and sums are so long, that vectors of partial sums are faster than
// packing. With tens of rows, packing and fetching packed operands from other cores' caches costs as much as
// multiplying.
bool dots_pay(const GemmProblem& p) {
  constexpr int64_t kLongSum = 256, kSomeRows = 32, kRowsOfDots = 128, kProductOfDots = int64_t{1} << 25;
  if (p.rows <= kFewRows) return true;
  if (p.depth < kLongSum) return false;
  return p.rows <= kSomeRows || (p.rows <= kRowsOfDots && p.rows * p.columns * p.depth <= kProductOfDots);
}

// The reason for the algorithm, for reports.
const char* reason_for(GemmAlgorithm algorithm, bool half) {
  switch (algorithm) {
    case GemmAlgorithm::combine_rows: return "few rows, and B's rows are contiguous";
    case GemmAlgorithm::row_dots: return "few rows, and both operands are contiguous along the sum";
    case GemmAlgorithm::small: return "a small product: one thread, little packing";
    case GemmAlgorithm::blocked:
    case GemmAlgorithm::blocked_pairs: break;
  }
  return half ? "half types" : "a large product";
}

void transpose(GemmPlan& plan, GemmProblem& p) {
  plan.transposed = !plan.transposed;
  std::swap(p.rows, p.columns), std::swap(p.a, p.b);
  p.a = p.a.transposed(), p.b = p.b.transposed(), p.c = p.c.transposed();
}

// For f32 and f64. C's rows are contiguous if either its rows or its columns were.
void choose(GemmPlan& plan, GemmProblem& p) {
  using enum GemmAlgorithm;
  constexpr int64_t kNarrow = 32, kDeep = 4096;  // too few columns for packing a deep product to pay off
  const bool a_along_depth = p.a.column == 1, b_along_depth = p.b.row == 1;
  // The strides of a single column or row are irrelevant.
  const bool b_along_rows = p.b.column == 1 && !(b_along_depth && p.depth > p.columns);
  if (b_along_rows && (p.rows == 1 || (p.rows <= kFewRows && !is_small(p)))) {
    plan.algorithm = combine_rows;
  } else if (a_along_depth && b_along_depth && dots_pay(p)) {
    plan.algorithm = row_dots;
  } else if (a_along_depth && b_along_depth && p.columns <= (p.depth >= kDeep ? kNarrow : kFewRows)) {
    plan.algorithm = row_dots;
    transpose(plan, p);
  } else {
    plan.algorithm = is_small(p) ? small : blocked;
  }
}

// Divides C into blocks for the threads and the second-level cache.
Cut cut_of(int64_t rows, int64_t columns, int64_t depth, const Registers& tile) {
  constexpr int64_t kRowPanels = 20;                 // maximum register tiles in a block of C, along rows
  constexpr int64_t kRowPanelsWanted = 5;            // with fewer, loading B's tiles is not amortised
  constexpr int64_t kColumnTilesWanted = 8;          // with fewer, packing A is not amortised
  constexpr int64_t kBlocksWanted = 8;               // blocks of C for the threads to share
  constexpr int64_t kLeastBlock = int64_t{1} << 18;  // minimum multiplications of a block
  constexpr int64_t kShallow = 32;                   // depth up to which writing C dominates: row by row
  int64_t row_step = depth <= kShallow ? std::min(rows, tile.rows) : rows, column_step = columns;
  while (row_step > tile.rows * kRowPanels) row_step = ceil_div(row_step, 2);
  const auto blocks = [&] { return ceil_div(rows, row_step) * ceil_div(columns, column_step); };
  while (blocks() < kBlocksWanted && row_step * column_step * depth >= 2 * kLeastBlock) {
    const bool tall = row_step > tile.rows * kRowPanelsWanted, wide = column_step > tile.columns * kColumnTilesWanted;
    if (tall || (!wide && row_step >= column_step && row_step > tile.rows)) row_step = ceil_div(row_step, 2);
    else if (column_step > tile.columns) column_step = round_up(ceil_div(column_step, 2), tile.columns);
    else break;
  }
  row_step = ceil_div(rows, ceil_div(rows, row_step));
  return {row_step, column_step, ceil_div(rows, row_step), ceil_div(columns, column_step)};
}

// Divides C where at most `most` columns of B are packed at a time. Returns the larger bytes(cut, columns) of the
// parts.
template <class Bytes>
int64_t cut_columns(GemmPlan& plan, const GemmProblem& p, int64_t depth, int64_t most, const Registers& tile,
                    Bytes bytes) {
  plan.columns_at_once = round_up(ceil_div(p.columns, ceil_div(p.columns, most)), tile.columns);
  const int64_t first = std::min(plan.columns_at_once, p.columns), last = (p.columns - 1) % plan.columns_at_once + 1;
  plan.cut = cut_of(p.rows, first, depth, tile);
  plan.last_cut = cut_of(p.rows, last, depth, tile);
  return std::max(bytes(plan.cut, first), bytes(plan.last_cut, last));
}

// Each function below sets the rest of the plan and returns the scratch bytes of one product for that many threads.

int64_t cut_small(GemmPlan& plan, const GemmProblem& p, const Registers& tile) {
  constexpr int64_t kColumnsInPlace = 4;  // in tiles of C: with fewer columns rows of A are not packed
  const int64_t element = static_cast<int64_t>(size_of(p.dtype));
  const bool rows_collide = p.a.row * element % 4096 == 0;  // rows map to one set of the first-level cache
  const bool repeats = p.depth > 1 && p.a.column == 0;      // BlockArgs::a_step uses 0 for packed operands
  plan.a_in_place =
      !repeats && (p.a.row == 1 || !(p.columns > kColumnsInPlace * tile.columns || (rows_collide && p.rows > 4)));
  plan.columns_in_place = p.b.column == 1 ? p.columns / tile.vector * tile.vector : 0;
  plan.a_size = plan.a_in_place ? 0 : round_up(p.rows * p.depth, 16);
  plan.b_size = round_up(p.columns - plan.columns_in_place, tile.columns) * p.depth;
  return (plan.a_size + plan.b_size) * element;
}

int64_t cut_blocked(GemmPlan& plan, const GemmProblem& p, const Registers& tile, int threads) {
  constexpr int64_t kColumnsAtOnce = 4096;  // maximum columns of B packed at a time
  constexpr int64_t kDepthBlock = 384;      // rows of a packed tile of B, about the size of the first-level cache
  constexpr int64_t kDepthInPlace = 512;    // deeper operands are packed for any layout
  constexpr int64_t kRowsInPlace = 128;     // maximum rows of C with which B is not packed
  plan.a_in_place = p.a.row == 1 && p.a.column != 0 && p.depth <= kDepthInPlace;
  plan.b_in_place = p.b.column == 1 && p.depth <= kDepthInPlace && p.rows <= kRowsInPlace;
  const int64_t most = plan.a_in_place || plan.b_in_place ? kDepthInPlace : kDepthBlock;
  plan.depth_at_once = ceil_div(p.depth, ceil_div(p.depth, most));
  return cut_columns(plan, p, p.depth, kColumnsAtOnce, tile, [&](const Cut& cut, int64_t columns) {
    const int64_t packed_b = round_up(plan.b_in_place ? columns % tile.vector : columns, tile.columns);
    const int64_t blocks = std::min<int64_t>(threads, cut.row_blocks * cut.column_blocks);
    const int64_t packed_a = plan.a_in_place ? 0 : blocks * slot_size(cut.rows * plan.depth_at_once);
    return (packed_b * plan.depth_at_once + packed_a) * static_cast<int64_t>(size_of(p.dtype));
  });
}

int64_t cut_half(GemmPlan& plan, const GemmProblem& p, const KernelTable& table, const Registers& tile, int threads) {
  using enum GemmAlgorithm;
  constexpr int64_t kDepthBlock = 384;               // as in cut_blocked
  constexpr int64_t kColumnsAtOnce = 1024;           // maximum columns of B packed at a time,
  constexpr int64_t kMostPacked = int64_t{1} << 22;  // limited to about this many elements,
  constexpr int64_t kLeastColumnsAtOnce = 128;       // but at least this many columns
  constexpr int64_t kFloat = sizeof(float);
  if (p.rows <= kFewRows && (p.b.column == 1 || p.b.row == 1)) {
    plan.algorithm = p.b.column == 1 ? combine_rows : row_dots;
    const int64_t least = kLeastChunk / (p.rows * p.depth) + 1;
    plan.grain =
        round_up(plan.algorithm == combine_rows ? std::max(least, std::min(p.columns / 4, kLongRow)) : least, 64);
    return (p.rows * (p.depth + p.columns) + p.columns) * kFloat;
  }
  const bool pairs = p.dtype == DType::bf16 && table.bf16_pairs_block;
  plan.algorithm = pairs ? blocked_pairs : blocked;
  const int64_t steps = pairs ? ceil_div(p.depth, 2) : p.depth;
  plan.depth_at_once = ceil_div(steps, ceil_div(steps, kDepthBlock));
  const int64_t most = std::clamp(kMostPacked / steps, kLeastColumnsAtOnce, kColumnsAtOnce);
  return cut_columns(plan, p, steps, most, tile, [&](const Cut& cut, int64_t columns) {
    const int64_t tiles = ceil_div(columns, tile.columns), length = plan.depth_at_once;
    const int64_t packings = ceil_div(ceil_div(tiles, kTilesTogether) * ceil_div(steps, length),
                                      ceil_div(kLeastPacked, kTilesTogether * tile.columns * length));
    const int64_t packing =
        std::min<int64_t>(threads, packings) * slot_size(std::min(kTilesTogether * tile.columns, columns) * length);
    const int64_t blocks = std::min<int64_t>(threads, cut.row_blocks * cut.column_blocks);
    const int64_t block =
        slot_size(cut.rows * length) + cut.rows * half_sums_stride(cut) + half_floats_size(cut, length, p.starts);
    return (tiles * tile.columns * steps + std::max(packing, blocks * block)) * kFloat;
  });
}

}  // namespace

GemmPlan select_gemm(const KernelTable& table, int threads, GemmProblem p) {
  using enum GemmAlgorithm;
  GemmPlan plan;
  if (p.rows == 0 || p.columns == 0) return plan;
  const bool half = is_half(p.dtype);
  const Registers tile = registers(table, p.dtype);
  if (half) {
    if (p.columns <= kFewRows && p.rows > kFewRows) transpose(plan, p);
  } else {
    // Rows of C are made contiguous by transposing if only its columns are. A single column is treated as a single row.
    const bool by_rows = p.c.column == 1 || p.columns == 1, by_columns = p.c.row == 1 || p.rows == 1;
    if (by_columns && (!by_rows || (p.columns == 1 && p.rows > 1))) transpose(plan, p);
  }

  int64_t chunks = 1;
  if (p.products > 1) {
    const int64_t work = p.rows * p.columns * p.depth;
    const bool share = work <= kSmallProduct || p.products >= kManyProducts;
    plan.products_at_once = share ? ceil_div(kLeastChunk, work + 1) : p.products;
    chunks = ceil_div(p.products, plan.products_at_once);
  }
  const int inside = chunks > 1 ? 1 : threads;  // threads per product

  int64_t bytes = 0;
  if (half) {
    bytes = cut_half(plan, p, table, tile, inside);
  } else {
    choose(plan, p);
    switch (plan.algorithm) {
      case combine_rows: {  // rows are divided into parts long enough to be streamed from memory
        const int64_t columns = std::max(kLeastChunk / (p.rows * p.depth), std::min(p.columns / 4, kLongRow));
        plan.grain = round_up(columns + 1, 64);
        break;
      }
      case row_dots: plan.grain = round_up(ceil_div(kLeastChunk, p.rows * p.depth), 8); break;
      case small: bytes = cut_small(plan, p, tile); break;
      case blocked:
      case blocked_pairs: bytes = cut_blocked(plan, p, tile, inside);
    }
  }
  plan.reason = reason_for(plan.algorithm, half);
  plan.workspace_bytes = std::min<int64_t>(threads, chunks) * bytes;
  return plan;
}

}  // namespace gradus::openmp_detail
