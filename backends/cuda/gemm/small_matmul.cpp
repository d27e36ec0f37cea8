// The algorithms whose kernels small_matmul.cu has: small_dots and small_tiles.
#include <gradus/backends/cuda/gemm/select.h>

#include <gradus/backends/cuda/device/divisor.h>

namespace gradus::cuda_detail {
namespace {

// Returns true if offsets within the matrix fit in 31 bits.
bool has_small_span(const GemmOperand& x) {
  int64_t last = 0;
  for (int i = 0; i < 2; ++i) last += (x.shape[i] - 1) * x.strides[i];
  return last < int64_t{1} << 31;
}

// Returns true if the axis has unit stride and rows along it consist of aligned vectors.
bool can_vectorize(const GemmOperand& x, int axis, int64_t element) {
  return x.strides[axis] == 1 && x.shape[axis] % kGemmVec == 0 && x.strides[1 - axis] % kGemmVec == 0 &&
         x.alignment % (kGemmVec * element) == 0;
}

int64_t tiles_of(const GemmProblem& p, const GemmTile& tile) {
  return ceil_div(p.M(), int64_t{tile.rows}) * ceil_div(p.N(), int64_t{tile.columns});
}

// Both kernels multiply two matrices, and count their elements, and those beyond their ends, in 31 bits. The rows of
// tiles are the blocks along y of the grid.
bool can_run(const GemmProblem& p, const GemmTile& tile) {
  constexpr int64_t kMostBlocks = 65535, kMostSize = int64_t{1} << 30;
  return is_floating(p.dtype) && p.y.ndim() == 2 && has_small_span(p.a) && has_small_span(p.b) && has_small_span(p.y) &&
         std::max(p.N(), p.K()) <= kMostSize && ceil_div(p.M(), int64_t{tile.rows}) <= kMostBlocks;
}

GemmPlan plan_small(const GemmAlgorithm& algorithm, const GemmProblem& p, const GemmTile& tile) {
  GemmPlan plan;
  plan.algorithm = &algorithm;
  plan.adds_bias = p.bias;
  plan.tile = tile;
  plan.a_vectorized = can_vectorize(p.a, p.a.strides[1] == 1 ? 1 : 0, p.element());
  plan.b_vectorized = can_vectorize(p.b, p.b.strides[1] == 1 ? 1 : 0, p.element());
  return plan;
}

// Elements along K that a thread of small_dots loads at once.
int64_t dot_width(const GemmPlan& plan) { return plan.a_vectorized && plan.b_vectorized ? kGemmVec : 1; }

GemmPlan plan_dots(const GemmProblem& p) {
  constexpr int64_t kManyBlocks = 256;
  GemmPlan plan = plan_small(kSmallDots, p, kDotTile);
  // If there are many blocks, each of them has fewer warps, so that all blocks are resident at once.
  const int64_t rounds = ceil_div(p.K(), 32 * dot_width(plan)), blocks = tiles_of(p, kDotTile);
  const int64_t most_warps = blocks > kManyBlocks ? kGemmWarps / 2 : kGemmWarps;
  plan.threads = static_cast<uint32_t>(32 * std::min(rounds, most_warps));
  return plan;
}

// The number of blocks of a cluster that share the sum over K: more than 1 if the tiles alone would leave much of the
// device idle and K is long. The barriers of a cluster take a microsecond, which a short K does not save.
uint32_t split_k_of(int64_t K, int64_t tiles, const DeviceProperties& device) {
  if (K < 512 || !device.has_clusters()) return 1;
  uint32_t split_k = 1;
  while (split_k < 8 && 256 * split_k <= K && 2 * split_k * tiles <= 128) split_k *= 2;
  return split_k;
}

GemmPlan plan_tiles(const GemmProblem& p) {
  GemmPlan plan = plan_small(kSmallTiles, p, kSmallTile);
  plan.threads = 32 * kGemmWarps;
  plan.split_k = split_k_of(p.K(), tiles_of(p, kSmallTile), p.device);
  return plan;
}

// The work of blocks that sum `depth` elements along K in a step, and load `single` rows of a or columns of b not as
// vectors but as single elements.
WorkCounter count(const GemmProblem& p, const GemmPlan& plan, int64_t resident, int64_t depth, int64_t single) {
  WorkCounter counter(p.device, p.dtype, MathMode::fma, p.operand_bytes());
  const int64_t rows = plan.tile.rows, columns = plan.tile.columns;
  counter.add_tiles({.blocks = tiles_of(p, plan.tile) * plan.split_k,
                     .resident = resident,
                     .steps = ceil_div(p.K(), depth * plan.split_k),
                     .multiply_adds = rows * columns * depth,
                     .bytes = (rows + columns) * depth * p.element(),
                     .elements = single * depth});
  counter.add(kLaunches, 1);
  return counter;
}

KernelWork dots_work(const GemmProblem& p) {
  constexpr int64_t kResidentThreads = 1024;  // of a multiprocessor: registers limit them
  const GemmPlan plan = plan_dots(p);
  const int64_t width = dot_width(plan), single = width > 1 ? 0 : plan.tile.rows + plan.tile.columns;
  return count(p, plan, kResidentThreads / plan.threads, plan.threads * width, single).work();
}

KernelWork tiles_work(const GemmProblem& p) {
  constexpr int64_t kResident = 2, kDepth = 8 * kGemmWarps;
  const GemmPlan plan = plan_tiles(p);
  const int64_t single = (plan.a_vectorized ? 0 : plan.tile.rows) + (plan.b_vectorized ? 0 : plan.tile.columns);
  WorkCounter counter = count(p, plan, kResident, kDepth, single);
  if (plan.split_k > 1) counter.add(kClusterBlocks, plan.split_k);
  return counter.work();
}

}  // namespace

constinit const GemmAlgorithm kSmallDots = {
    .name = "small_dots",
    .reason = "few results, contiguous along K",
    .parts = kTileParts,
    .can_run = [](const GemmProblem& p) { return can_run(p, kDotTile) && p.a.strides[1] == 1 && p.b.strides[0] == 1; },
    .work = dots_work,
    .plan = plan_dots,
    .launch = kHasKernels ? small_matmul : nullptr};

constinit const GemmAlgorithm kSmallTiles = {.name = "small_tiles",
                                             .reason = "results that do not fill the device",
                                             .parts = kTileParts,
                                             .can_run = [](const GemmProblem& p) { return can_run(p, kSmallTile); },
                                             .work = tiles_work,
                                             .plan = plan_tiles,
                                             .launch = kHasKernels ? small_matmul : nullptr};

}  // namespace gradus::cuda_detail
