// Products of half types by packed register tiles, summed in float and rounded once. B is packed for all threads and
// converted to float. Then the threads share blocks of C, divided by C's shape alone; the thread that computes a block
// packs the block's part of A and keeps the block's sums through the whole depth. With `blocked_pairs`, elements of A
// and B are not converted; pairs of them along the depth are packed like floats.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <gradus/backends/openmp/gemm/half_rows.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {
namespace {

using namespace blocked_part;

// Distance between rows of a block's sums. The padding puts rows in different sets of the first-level cache.
int64_t sums_stride(const Cut& cut) { return slot_size(cut.columns) + 16; }
// The number of floats of scratch memory that a thread needs for A converted to floats. If `starts` is true, the same
// memory first holds a row of column biases.
int64_t floats_size(const Cut& cut, int64_t steps, bool starts) {
  return slot_size(std::max(cut.rows * steps, starts ? cut.columns : 0));
}

// A single product.
template <class H>
class HalfProduct {
 public:
  HalfProduct(const KernelTable& table, const GemmPlan& plan, const GemmArgs<H>& args)
      : half_(table, args), kernels_(table.f32), plan_(plan), args_(args), pairs_(plan.algorithm == &kBlockedPairs),
        block_(pairs_ ? table.bf16_pairs_block : table.f32.block),
        steps_(pairs_ ? ceil_div(args.depth, 2) : args.depth), steps_at_once_(plan.depth_at_once) {}

  void run() const {
    for (int64_t column = 0; column < args_.columns; column += plan_.columns_at_once)
      columns(column, std::min(plan_.columns_at_once, args_.columns - column));
  }

 private:
  // Computes `count` columns of C, starting at `first`.
  void columns(int64_t first, int64_t count) const {
    const int64_t tile = kernels_.tile_columns, tiles = ceil_div(count, tile), width = tiles * tile;
    const Scratch<float> packed_b(width * steps_);  // holds one block of the depth at a time
    const int64_t groups = ceil_div(tiles, kTilesTogether), depth_blocks = ceil_div(steps_, steps_at_once_);
    const int64_t grain = ceil_div(kLeastPacked, kTilesTogether * tile * steps_at_once_);
    const int64_t packed_floats = slot_size(std::min(kTilesTogether * tile, count) * steps_at_once_);
    parallel_each<float>(groups * depth_blocks, grain, packed_floats, [&](int64_t i, float* floats) {
      const int64_t k = i / groups * steps_at_once_, length = std::min(steps_at_once_, steps_ - k);
      const int64_t column = i % groups * kTilesTogether * tile;
      const int64_t some = std::min(kTilesTogether * tile, count - column);
      with_floats(args_.b.transposed(), first + column, some, k, length, floats, [&](const auto& b) {
        kernels_.pack_b(b.data, b.column_stride, b.row_stride, length, some,
                        packed_b.get() + k * width + column * length);
      });
    });

    const Cut& cut = first + count == args_.columns ? plan_.last_cut : plan_.cut;
    const int64_t blocks = cut.row_blocks * cut.column_blocks, stride = sums_stride(cut);
    const int64_t a_size = slot_size(cut.rows * steps_at_once_), sums_size = cut.rows * stride;
    const int64_t size = a_size + sums_size + floats_size(cut, steps_at_once_, half_.has_start());
    parallel_each<float>(blocks, 1, size, [&](int64_t i, float* packed_a) {
      float *const sums = packed_a + a_size, *const floats = sums + sums_size;
      const int64_t row = i % cut.row_blocks * cut.rows, column = i / cut.row_blocks * cut.columns;
      BlockArgs<float> block;
      block.rows = std::min(cut.rows, args_.rows - row), block.columns = std::min(cut.columns, count - column);
      block.a = packed_a;
      block.b_packed = true;
      block.b_row_stride = tile;
      block.c = sums, block.c_row_stride = stride;
      if (half_.has_start()) half_.start(row, block.rows, first + column, block.columns, floats, sums, stride);
      for (int64_t k = 0; k < steps_; k += steps_at_once_) {
        block.depth = std::min(steps_at_once_, steps_ - k);
        block.b = packed_b.get() + k * width + column * block.depth, block.b_tile_step = block.depth * tile;
        block.accumulate = k > 0 || half_.has_start();
        with_floats(args_.a, row, block.rows, k, block.depth, floats, [&](const auto& a) {
          kernels_.pack_a(a.data, a.row_stride, a.column_stride, block.rows, block.depth, packed_a);
        });
        block_(block);
      }
      half_.finish(row, block.rows, first + column, block.columns, sums, stride);
    });
  }

  // Calls use(matrix) with rows [row, row + rows) and steps [k, k + length) of a matrix, as floats or as pairs along
  // the steps. Pairs are used in place if steps are contiguous and aligned; otherwise the elements are written to
  // `floats`.
  template <class Use>
  void with_floats(const Matrix<const H>& from, int64_t row, int64_t rows, int64_t k, int64_t length, float* floats,
                   Use&& use) const {
    const int64_t elements = std::min(pairs_ ? 2 * length : length, args_.depth - k * (pairs_ ? 2 : 1));
    const H* data = from.data + row * from.row_stride + k * (pairs_ ? 2 : 1) * from.column_stride;
    const bool along_steps = from.column_stride == 1;
    if (pairs_ && along_steps && from.row_stride % 2 == 0 && elements % 2 == 0 &&
        reinterpret_cast<uintptr_t>(data) % alignof(float) == 0)
      return use(Matrix<const float>{reinterpret_cast<const float*>(data), from.row_stride / 2, 1});
    if (along_steps && !pairs_) {
      for (int64_t i = 0; i < rows; ++i) half_.widen(data + i * from.row_stride, 1, length, floats + i * length);
      return use(Matrix<const float>{floats, length, 1});
    }
    for (int64_t i = 0; i < length; ++i) {
      const H* column = data + i * (pairs_ ? 2 : 1) * from.column_stride;
      // The last odd element is paired with zero.
      const H* next = 2 * i + 1 < elements ? column + from.column_stride : nullptr;
      if (pairs_) pair_up(column, next, from.row_stride, rows, floats + i * rows);
      else half_.widen(column, from.row_stride, rows, floats + i * rows);
    }
    use(Matrix<const float>{floats, 1, rows});
  }

  // Combines the bits of an even element (low half) and the next odd one (high half; zeros if `odd` is null).
  static void pair_up(const H* even, const H* odd, int64_t step, int64_t count, float* to) {
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t pair = even[i * step].bits | (odd ? static_cast<uint32_t>(odd[i * step].bits) << 16 : 0u);
      std::memcpy(to + i, &pair, 4);
    }
  }

  const HalfRows<H> half_;
  const Kernels<float>& kernels_;
  const GemmPlan& plan_;
  const GemmArgs<H>& args_;
  const bool pairs_;
  void (*const block_)(const BlockArgs<float>&);
  const int64_t steps_, steps_at_once_;  // number of steps of the depth; a step is an element or a pair
};

constexpr auto run_half = []<class H>(const KernelTable& table, const GemmPlan& plan, const GemmArgs<H>& args, H*) {
  HalfProduct<H>(table, plan, args).run();
};

int64_t steps_of(const GemmProblem& p, bool pairs) { return pairs ? ceil_div(p.depth, 2) : p.depth; }

template <bool pairs>
GemmPlan plan_half(const GemmProblem& p) {
  constexpr int64_t kColumnsAtOnce = 1024;           // maximum columns of B packed at a time,
  constexpr int64_t kMostPacked = int64_t{1} << 22;  // limited to about this many elements,
  constexpr int64_t kLeastColumnsAtOnce = 128;       // but at least this many columns
  const Registers tile = p.tile();
  const int64_t steps = steps_of(p, pairs);
  GemmPlan plan;
  plan.depth_at_once = ceil_div(steps, ceil_div(steps, kDepthBlock));
  const int64_t most = std::clamp(kMostPacked / steps, kLeastColumnsAtOnce, kColumnsAtOnce);
  plan.workspace_bytes = cut_columns(plan, p, steps, most, [&](const Cut& cut, int64_t columns) {
    const int64_t tiles = ceil_div(columns, tile.columns), length = plan.depth_at_once;
    const int64_t packings = ceil_div(ceil_div(tiles, kTilesTogether) * ceil_div(steps, length),
                                      ceil_div(kLeastPacked, kTilesTogether * tile.columns * length));
    const int64_t packing =
        std::min<int64_t>(p.threads, packings) * slot_size(std::min(kTilesTogether * tile.columns, columns) * length);
    const int64_t blocks = std::min<int64_t>(p.threads, cut.row_blocks * cut.column_blocks);
    const int64_t block =
        slot_size(cut.rows * length) + cut.rows * sums_stride(cut) + floats_size(cut, length, p.starts);
    return (tiles * tile.columns * steps + std::max(packing, blocks * block)) * int64_t{sizeof(float)};
  });
  return plan;
}

// Adds the work of HalfProduct::with_floats, which converts `count` rows of A (columns of B), `width` at a time, before
// they are packed. Returns the strides of the converted elements along the depth and across it.
std::pair<int64_t, int64_t> add_conversion(KernelWork& work, const GemmProblem& p, bool pairs, double count,
                                           int64_t width, int64_t along, int64_t across) {
  const double depth = number(p.depth);
  if (pairs && along == 1 && across % 2 == 0 && p.depth % 2 == 0) return {1, across / 2};
  const bool contiguous = along == 1 ? !pairs : across == 1;
  work[contiguous && !pairs ? kConverted : kGathered] += count * depth;
  if (contiguous && (along == 1 ? p.depth : width) % p.tile().vector > 0)
    work[kPartialHalves] += along == 1 ? count : count * depth / number(width);
  return along == 1 && !pairs ? std::pair<int64_t, int64_t>(1, p.depth) : std::pair<int64_t, int64_t>(2, 1);
}

template <bool pairs>
KernelWork half_work(const GemmProblem& problem) {
  return of_batch(problem, [](const GemmProblem& p) {
    const GemmPlan plan = plan_half<pairs>(p);
    const Cut& cut = plan.cut;
    const double steps = number(steps_of(p, pairs)), row_blocks = number(cut.row_blocks);
    const double rows = number(p.rows), columns = number(p.columns);
    const double parts = std::ceil(columns / number(plan.columns_at_once));
    const double depth_blocks = std::ceil(steps / number(plan.depth_at_once));
    const int64_t blocks = cut.row_blocks * cut.column_blocks;
    const double share = share_of(p.threads, blocks), packings = number(cut.column_blocks) * parts * share;
    KernelWork work = tiles_work(p, cut.rows, steps, depth_blocks);
    for (double& part : work) part *= row_blocks * share;
    work[kConverted] = rows * columns * share;
    if (cut.columns % p.tile().vector > 0) work[kPartialHalves] = rows * packings;
    const auto [a_along, a_across] = add_conversion(work, p, pairs, rows * packings, cut.rows, p.a.column, p.a.row);
    add_packing_a(work, p, cut.rows, steps, a_along, a_across, row_blocks * packings);
    const int64_t chunks =
        packing_chunks(p, std::min(p.columns, plan.columns_at_once), plan.depth_at_once, kTilesTogether);
    const double packing_share = share_of(p.threads, chunks * static_cast<int64_t>(depth_blocks));
    const auto [b_along, b_across] =
        add_conversion(work, p, pairs, columns * packing_share, std::min(p.columns, kTilesTogether * p.tile().columns),
                       p.b.row, p.b.column);
    add_packing_b(work, p, p.columns, steps, b_along, b_across, packing_share);
    if (p.threads > 1) work[kLoops] = parts * ((chunks * depth_blocks > 1) + (blocks > 1));
    return work;
  });
}

}  // namespace

const GemmAlgorithm kBlockedHalf = {.name = "blocked",
                                    .reason = "large enough for packing and threads to pay off",
                                    .parts = kBlockedParts,
                                    .can_run = [](const GemmProblem& p) { return p.is_half() && p.has_rows(); },
                                    .work = half_work<false>,
                                    .plan = plan_half<false>,
                                    .launch = {nullptr, nullptr, run_half, run_half}};

const GemmAlgorithm kBlockedPairs = {
    .name = "blocked_pairs",
    .reason = "the processor multiplies pairs of bfloat16",
    .parts = kBlockedParts,
    .can_run = [](const GemmProblem& p) { return p.dtype == DType::bf16 && p.table->bf16_pairs_block && p.has_rows(); },
    .work = half_work<true>,
    .plan = plan_half<true>,
    .launch = {nullptr, nullptr, nullptr, run_half}};

}  // namespace gradus::openmp_detail
