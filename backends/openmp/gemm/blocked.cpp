// Products by packed register tiles; half types: blocked_half.cpp. `small` products run on one thread and read
// contiguous operands in place. `blocked` ones follow Goto and van de Geijn ("Anatomy of high-performance matrix
// multiplication", 2008): for each block of the depth, B is packed once for all threads, which then share blocks of C,
// divided by C's shape alone. The thread that computes a block packs the block's part of A, which stays in the
// second-level cache, while each tile of B stays in the first-level cache.
#include <algorithm>
#include <cmath>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {
namespace {

using namespace blocked_part;

// A product by register tiles. Operands that the plan says to read in place are not packed; columns of B in place are
// whole vectors.
template <class T>
class TiledProduct {
 public:
  TiledProduct(const Kernels<T>& kernels, const GemmPlan& plan, const Cut& cut, const GemmArgs<T>& args)
      : kernels_(kernels), plan_(plan), cut_(cut), args_(args), width_(kernels.tile_columns),
        packed_columns_begin_(plan.b_in_place ? args.columns / kernels.vector_size * kernels.vector_size
                                              : plan.columns_in_place),
        tiles_(ceil_div(args.columns - packed_columns_begin_, width_)) {}

  // Processes one block of the depth after another, on all threads.
  void run() {
    const Scratch<T> packed_b(tiles_ * width_ * plan_.depth_at_once);
    packed_b_ = packed_b.get();
    const int64_t blocks = cut_.row_blocks * cut_.column_blocks;
    const int64_t packed_a_size = plan_.a_in_place ? 0 : slot_size(cut_.rows * plan_.depth_at_once);
    for (first_ = 0; first_ < args_.depth; first_ += plan_.depth_at_once) {
      depth_ = std::min(plan_.depth_at_once, args_.depth - first_);
      parallel_for(tiles_, ceil_div(kLeastPacked, width_ * depth_),
                   [&](int64_t begin, int64_t end) { pack_b(begin, end); });
      parallel_each<T>(blocks, 1, packed_a_size, [&](int64_t i, T* packed_a) { multiply(i, packed_a); });
    }
  }
  // Runs on this thread; `packed` has room for the packed operands.
  void run_small(T* packed) {
    packed_b_ = packed + plan_.a_size, depth_ = args_.depth;
    if (tiles_ > 0) pack_b(0, tiles_);
    multiply(0, packed);
  }

 private:
  void pack_b(int64_t first_tile, int64_t end_tile) const {
    const Matrix<const T>& b = args_.b;
    const int64_t offset = first_tile * width_, column = packed_columns_begin_ + offset;
    const int64_t count = std::min(args_.columns - column, (end_tile - first_tile) * width_);
    kernels_.pack_b(b.data + first_ * b.row_stride + column * b.column_stride, b.row_stride, b.column_stride, depth_,
                    count, packed_b_ + offset * depth_);
  }

  // Computes block i of C, first the columns whose B is read in place, then those whose B is packed.
  void multiply(int64_t i, T* packed_a) const {
    const int64_t row = i % cut_.row_blocks * cut_.rows;
    const int64_t column = i / cut_.row_blocks * cut_.columns;
    const int64_t height = std::min(cut_.rows, args_.rows - row);
    const int64_t end = std::min(args_.columns, column + cut_.columns);
    const int64_t split = std::clamp(packed_columns_begin_, column, end);
    const Matrix<const T>& a = args_.a;
    const T* from = a.data + row * a.row_stride + first_ * a.column_stride;
    if (!plan_.a_in_place) kernels_.pack_a(from, a.row_stride, a.column_stride, height, depth_, packed_a);

    BlockArgs<T> block;
    block.rows = height, block.depth = depth_;
    block.a = plan_.a_in_place ? from : packed_a;
    // With a depth of 1, the column stride is irrelevant.
    if (plan_.a_in_place) block.a_row_stride = a.row_stride, block.a_step = depth_ == 1 ? 1 : a.column_stride;
    block.c_row_stride = args_.c.row_stride;
    block.accumulate = args_.accumulate || first_ > 0;
    block.row_bias = first_ == 0 && args_.row_bias ? args_.row_bias + row : nullptr;
    const auto columns = [&](int64_t begin, int64_t end) {
      if (begin == end) return;
      block.columns = end - begin;
      block.c = args_.c.data + row * args_.c.row_stride + begin;
      block.column_bias = first_ == 0 && args_.column_bias ? args_.column_bias + begin : nullptr;
      kernels_.block(block);
    };
    block.b = args_.b.data + first_ * args_.b.row_stride + column;
    block.b_row_stride = args_.b.row_stride, block.b_tile_step = width_;
    columns(column, split);
    if (split == end) return;  // there are no packed columns
    block.b = packed_b_ + (split - packed_columns_begin_) * depth_, block.b_packed = true;
    block.b_row_stride = width_, block.b_tile_step = depth_ * width_;
    columns(split, end);
  }

  const Kernels<T>& kernels_;
  const GemmPlan& plan_;
  const Cut cut_;
  const GemmArgs<T>& args_;
  const int64_t width_;                 // of a tile
  const int64_t packed_columns_begin_;  // columns before this one are read in place
  const int64_t tiles_;                 // number of packed tiles
  int64_t first_ = 0, depth_ = 0;       // the current block of the depth
  T* packed_b_ = nullptr;
};

constexpr auto run_small = []<class T>(const KernelTable& table, const GemmPlan& plan, const GemmArgs<T>& args,
                                       T* packed) {
  TiledProduct<T>(kernels_of<T>(table), plan, {args.rows, args.columns, 1, 1}, args).run_small(packed);
};

constexpr auto run_blocked = []<class T>(const KernelTable& table, const GemmPlan& plan, const GemmArgs<T>& args, T*) {
  for (int64_t column = 0; column < args.columns; column += plan.columns_at_once) {
    const GemmArgs<T> part = columns_of(args, column, std::min(column + plan.columns_at_once, args.columns));
    const bool last = column + part.columns == args.columns;
    TiledProduct<T>(kernels_of<T>(table), plan, last ? plan.last_cut : plan.cut, part).run();
  }
};

GemmPlan plan_small(const GemmProblem& p) {
  constexpr int64_t kColumnsInPlace = 4;  // tiles; if C has at most this many columns, rows of A are not packed
  const Registers tile = p.tile();
  const bool rows_collide = p.a.row * p.element() % 4096 == 0;  // rows map to one set of the first-level cache
  const bool repeats = p.depth > 1 && p.a.column == 0;          // must be packed, since a_step 0 means "packed"
  GemmPlan plan;
  plan.a_in_place =
      !repeats && (p.a.row == 1 || !(p.columns > kColumnsInPlace * tile.columns || (rows_collide && p.rows > 4)));
  plan.columns_in_place = p.b.column == 1 ? p.columns / tile.vector * tile.vector : 0;
  plan.a_size = plan.a_in_place ? 0 : round_up(p.rows * p.depth, 16);
  plan.b_size = round_up(p.columns - plan.columns_in_place, tile.columns) * p.depth;
  plan.workspace_bytes = (plan.a_size + plan.b_size) * p.element();
  return plan;
}

KernelWork small_work(const GemmProblem& problem) {
  const GemmPlan plan = plan_small(problem);
  const auto one = [&](const GemmProblem& p) {
    const double depth = number(p.depth);
    KernelWork work = tiles_work(p, p.rows, depth, 1);
    if (!plan.a_in_place) add_packing_a(work, p, p.rows, depth, p.a.column, p.a.row, 1);
    add_packing_b(work, p, p.columns - plan.columns_in_place, depth, p.b.row, p.b.column, 1);
    return work;
  };
  return of_batch(problem, one, number((plan.a_size + plan.b_size) * problem.element()));
}

GemmPlan plan_blocked(const GemmProblem& p) {
  constexpr int64_t kColumnsAtOnce = 4096;  // maximum columns of B packed at a time
  constexpr int64_t kDepthInPlace = 512;    // deeper operands are packed for any layout
  constexpr int64_t kRowsInPlace = 128;     // maximum rows of C with which B is not packed
  const Registers tile = p.tile();
  GemmPlan plan;
  plan.a_in_place = p.a.row == 1 && p.a.column != 0 && p.depth <= kDepthInPlace;
  plan.b_in_place = p.b.column == 1 && p.depth <= kDepthInPlace && p.rows <= kRowsInPlace;
  const int64_t most = plan.a_in_place || plan.b_in_place ? kDepthInPlace : kDepthBlock;
  plan.depth_at_once = ceil_div(p.depth, ceil_div(p.depth, most));
  plan.workspace_bytes = cut_columns(plan, p, p.depth, kColumnsAtOnce, [&](const Cut& cut, int64_t columns) {
    const int64_t packed_b = round_up(plan.b_in_place ? columns % tile.vector : columns, tile.columns);
    const int64_t blocks = std::min<int64_t>(p.threads, cut.row_blocks * cut.column_blocks);
    const int64_t packed_a = plan.a_in_place ? 0 : blocks * slot_size(cut.rows * plan.depth_at_once);
    return (packed_b * plan.depth_at_once + packed_a) * p.element();
  });
  return plan;
}

}  // namespace

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
    const bool tall = row_step > tile.rows * kRowPanelsWanted;
    const bool wide = column_step > tile.columns * kColumnTilesWanted;
    if (tall || (!wide && row_step >= column_step && row_step > tile.rows)) row_step = ceil_div(row_step, 2);
    else if (column_step > tile.columns) column_step = round_up(ceil_div(column_step, 2), tile.columns);
    else break;
  }
  row_step = ceil_div(rows, ceil_div(rows, row_step));
  return {row_step, column_step, ceil_div(rows, row_step), ceil_div(columns, column_step)};
}

KernelWork tiles_work(const GemmProblem& p, int64_t rows, double steps, double depth_blocks) {
  const Registers tile = p.tile();
  // A tile of B that does not fit in the first-level cache comes from the second one for each panel of A.
  constexpr double kVectorBytes = 64;
  const double tile_bytes = steps / depth_blocks * number(tile.columns / tile.vector) * kVectorBytes;
  KernelWork work = {tile_steps(tile, tile.rows, rows, p.columns) * steps};
  work[kCBytes] = number(rows) * number(p.columns * p.element()) * (2 * depth_blocks - 1);
  work[kTiles] = tile_count(tile, tile.rows, rows, p.columns) * depth_blocks;
  work[kDeepBytes] = work[kTiles] * beyond_first_level(tile_bytes);
  return work;
}

namespace {

// Adds the work of transposing a matrix in square blocks of vectors: the exchanges in registers, the loads and stores.
void add_transposition(KernelWork& work, const Registers& tile, int64_t rows, double steps, double times) {
  const double vector = number(tile.vector), count = number(rows);
  const double blocks = std::ceil(count / vector) * std::ceil(steps / vector);
  work[kTransposed] += times * blocks * vector * std::log2(vector) / 64;
  work[kPackedRows] += times * (count * std::ceil(steps / vector) + steps * std::ceil(count / vector));
}

}  // namespace

void add_packing_a(KernelWork& work, const GemmProblem& p, int64_t rows, double steps, int64_t along, int64_t across,
                   double times) {
  const Registers tile = p.tile();
  const int64_t panels = ceil_div(rows, tile.rows), height = ceil_div(rows, panels);
  if (along == 1) {
    add_transposition(work, tile, height, steps, times * number(panels));
  } else if (across == 1) {
    work[kCopiedRows] += times * number(panels) * steps;
  } else {
    work[kGathered] += times * number(rows) * steps;
  }
}

void add_packing_b(KernelWork& work, const GemmProblem& p, int64_t columns, double steps, int64_t along, int64_t across,
                   double times) {
  const Registers tile = p.tile();
  const int64_t rest = columns % tile.columns;
  if (across == 1) {
    constexpr double kVectorBytes = 64;
    work[kCopied] += times * steps * number((columns - rest) / tile.vector) * kVectorBytes;
    work[kGathered] += times * steps * number(rest / 8 + rest % 8);
    work[kCopiedRows] += columns > 0 ? times * steps : 0;
  } else if (along == 1) {
    add_transposition(work, tile, columns, steps, times);
  } else {
    work[kGathered] += times * steps * number(columns);
  }
}

int64_t packing_chunks(const GemmProblem& p, int64_t columns, int64_t depth_at_once, int64_t tiles_together) {
  const int64_t width = tiles_together * p.tile().columns;
  return ceil_div(ceil_div(columns, width), ceil_div(kLeastPacked, width * depth_at_once));
}

namespace {

KernelWork blocked_work(const GemmProblem& problem) {
  return of_batch(problem, [](const GemmProblem& p) {
    const GemmPlan plan = plan_blocked(p);
    const Cut& cut = plan.cut;
    const double depth = number(p.depth);
    const double row_blocks = number(cut.row_blocks);
    const double parts = std::ceil(number(p.columns) / number(plan.columns_at_once));
    const double depth_blocks = number(ceil_div(p.depth, plan.depth_at_once));
    const int64_t blocks = cut.row_blocks * cut.column_blocks;
    const double share = share_of(p.threads, blocks);
    KernelWork work = tiles_work(p, cut.rows, depth, depth_blocks);
    for (double& part : work) part *= row_blocks * share;
    // Threads take blocks in turn, which costs about as much as the calls that pack a small block of A.
    work[kBlocks] = number(blocks) * parts * depth_blocks * share * (plan.a_in_place ? 1 : 2);
    if (!plan.a_in_place)
      add_packing_a(work, p, cut.rows, depth, p.a.column, p.a.row,
                    row_blocks * number(cut.column_blocks) * parts * share);
    const int64_t packed = plan.b_in_place ? p.columns % p.tile().vector : p.columns;
    const int64_t chunks = packing_chunks(p, std::min(packed, plan.columns_at_once), plan.depth_at_once, 1);
    add_packing_b(work, p, packed, depth, p.b.row, p.b.column, share_of(p.threads, chunks));
    if (p.threads > 1) work[kLoops] = parts * depth_blocks * ((chunks > 1) + (blocks > 1));
    // Lines of the packed B that have left the packing thread's first-level cache cost the other thread little.
    const double bytes = number(round_up(packed, p.tile().columns) * p.depth * p.element());
    if (work[kLoops] > 0)
      work[kExchanged] = std::min(bytes, kFirstLevelBytes) * (chunks > 1 ? 0.5 : 1) * (cut.row_blocks > 1 ? 1 : share);
    return work;
  });
}

}  // namespace

const GemmAlgorithm kSmall = {.name = "small",
                              .reason = "one thread and little packing cost less than sharing the work",
                              .parts = kBlockedParts,
                              // A longer sum in a single float would lose precision; kBlocked divides the depth.
                              .can_run =
                                  [](const GemmProblem& p) {
                                    constexpr int64_t kMostDepth = 512;
                                    return !p.is_half() && p.has_rows() && p.depth <= kMostDepth;
                                  },
                              .work = small_work,
                              .plan = plan_small,
                              .launch = {run_small, run_small, nullptr, nullptr}};

const GemmAlgorithm kBlocked = {.name = "blocked",
                                .reason = "large enough for packing and threads to pay off",
                                .parts = kBlockedParts,
                                .can_run = [](const GemmProblem& p) { return !p.is_half() && p.has_rows(); },
                                .work = blocked_work,
                                .plan = plan_blocked,
                                .launch = {run_blocked, run_blocked, nullptr, nullptr}};

}  // namespace gradus::openmp_detail
