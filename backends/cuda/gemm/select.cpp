// Chooses the algorithm of a matrix product: the one with the lowest estimate among those that can run.
#include <gradus/backends/cuda/gemm/select.h>

#include <gradus/backends/cuda/device/divisor.h>

namespace gradus::cuda_detail {

GemmProblem::GemmProblem(const View& a, const View& b, const View* bias, const View& y, const DeviceProperties& device,
                         bool tf32)
    : dtype(y.dtype), a(a), b(b), y(y), bias(bias), tf32(tf32), device(device) {
  library_bias = bias && y.ndim() == 2 && dtype != DType::f64 && bias->dtype == dtype &&
                 (y.shape[1] == 1 || bias->strides[0] == 1);
}

GemmProblem GemmProblem::transposed() const {
  GemmProblem problem = *this;
  problem.a = cuda_detail::transposed(b), problem.b = cuda_detail::transposed(a);
  problem.y = cuda_detail::transposed(y), problem.bias = false;
  return problem;
}

const GemmFamily& gemm_family() {
  static const GemmFamily family("cuda_gemm", {std::begin(kProductTypes), std::end(kProductTypes)},
                                 {&kSmallDots, &kSmallTiles, &kCublasLt}, tuned_devices(), tuning_table());
  return family;
}

GemmPlan select(const GemmProblem& problem) {
  if (!is_floating(problem.dtype)) return kInteger.plan(problem);
  thread_local RecentPlans<GemmProblem, GemmPlan> recent;
  const uint64_t hash = hash_of({problem.M(), problem.N(), problem.K(), problem.a.strides[problem.a.ndim() - 1]});
  return recent.get(problem, hash, [&] { return gemm_family().select(problem).algorithm->plan(problem); });
}

constinit const GemmAlgorithm kInteger = {.name = "integer",
                                          .reason = "integers",
                                          .parts = {},
                                          .can_run = [](const GemmProblem& p) { return !is_floating(p.dtype); },
                                          .work = [](const GemmProblem&) { return KernelWork{}; },
                                          .plan = [](const GemmProblem&) { return GemmPlan{.algorithm = &kInteger}; },
                                          .launch = kHasKernels ? integer_matmul : nullptr};

// ---- small_dots and small_tiles, whose kernels small_matmul.cu has ----

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
  plan.threads = u32(32 * std::min(rounds, most_warps));
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
  return counter;
}

KernelWork dots_work(const GemmProblem& p) {
  constexpr int64_t kResidentThreads = 1024;  // threads of a multiprocessor for which there are registers
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

// ---- cuBLASLt, which library.cpp runs ----

namespace {

// Describes the last two axes (rows, columns) of an operand as a column-major matrix. If neighbours in a row are
// adjacent in memory, the matrix is the transpose (columns, rows) of the operand. If neighbours in a column are
// adjacent, it is the operand itself (rows, columns), and `transposed` is set. Empty if neither axis has unit stride.
std::optional<LibraryMatrix> column_major(const GemmOperand& x) {
  const int n = x.ndim();
  const int64_t rows = std::max<int64_t>(x.rows(), 1), columns = std::max<int64_t>(x.columns(), 1);
  const int64_t row_step = x.strides[n - 2], column_step = x.strides[n - 1];
  if ((columns == 1 || column_step == 1) && (rows == 1 || row_step >= columns))
    return LibraryMatrix{false, rows == 1 ? columns : row_step};
  if ((rows == 1 || row_step == 1) && (columns == 1 || column_step >= rows))
    return LibraryMatrix{true, columns == 1 ? rows : column_step};
  return std::nullopt;
}

// Reserves space in the workspace for a dense copy of an operand, and returns its offset.
size_t reserve(GemmPlan& plan, const GemmOperand& x, int64_t element) {
  const size_t offset = static_cast<size_t>(ceil_div(static_cast<int64_t>(plan.workspace_bytes), int64_t{256})) * 256;
  plan.workspace_bytes = offset + static_cast<size_t>(x.numel() * element);
  return offset;
}

GemmOperand dense(GemmOperand x) {
  x.strides = contiguous_strides(x.shape);
  return x;
}

// The distance in elements from one matrix of the batch to the next; empty if the distances are not all equal.
std::optional<int64_t> batch_step(const GemmOperand& x) {
  int64_t step = 0, expected = -1;
  for (int axis = x.ndim() - 3; axis >= 0; --axis) {
    if (x.shape[axis] == 1) continue;
    if (expected < 0) step = x.strides[axis];
    else if (x.strides[axis] != expected) return std::nullopt;
    expected = x.strides[axis] * x.shape[axis];
  }
  return step;
}

// Returns true if cuBLASLt can use the operand without a copy.
bool has_library_form(const GemmOperand& x) { return column_major(x) && batch_step(x); }

// cuBLASLt's matrices are column-major, so it computes yᵀ = bᵀ aᵀ.
GemmPlan plan_library(const GemmProblem& p) {
  if (!has_library_form(p.y)) {
    GemmProblem copied = p;
    copied.y = dense(p.y), copied.bias = false;
    GemmPlan plan = plan_library(copied);
    plan.y_copy = reserve(plan, p.y, p.element());
    return plan;
  }
  const LibraryMatrix result = *column_major(p.y);
  if (result.transposed) {
    GemmPlan plan = plan_library(p.transposed());
    plan.swapped = !plan.swapped;
    return plan;
  }
  GemmPlan plan;
  plan.algorithm = &kCublasLt;
  plan.math_mode = p.library_mode();
  plan.workspace_bytes = kLibraryWorkspace;
  plan.adds_bias = p.bias && p.library_bias;
  GemmOperand left = p.a, right = p.b;
  if (!has_library_form(left)) plan.a_copy = reserve(plan, left, p.element()), left = dense(left);
  if (!has_library_form(right)) plan.b_copy = reserve(plan, right, p.element()), right = dense(right);
  plan.a = *column_major(left), plan.b = *column_major(right), plan.y = result;
  plan.batch_steps[0] = *batch_step(left), plan.batch_steps[1] = *batch_step(right);
  plan.batch_steps[2] = *batch_step(p.y);
  plan.batch = p.products();
  return plan;
}

// ---- work ----

// The parts of an estimate for cuBLASLt. Its kernels are unknown, so their work is counted as that of tiles of two
// sizes, whose depth may be split.
struct Part {
  enum Index : size_t {
    kMultiplyAdds,       // of the busiest multiprocessor with tiles of 128 x 128, times the number of multiprocessors
    kSmallTiles,         // the same with tiles of 64 x 64
    kDepth,              // depth of a product
    kSplitDepth,         // depth of a block, if the depth is split until the device is full
    kPartBytes,          // bytes of the partial sums of a split depth
    kBytes,              // bytes of the operands and the result
    kNarrowBytes,        // the same for products with few rows or columns
    kVectorBytes,        // the same for products with one row or column, which have separate kernels
    kLooseMultiplyAdds,  // multiply-adds of operands whose rows are not aligned to 16 bytes
    kLooseBytes,
    kProducts,
    kCopiedBytes,  // bytes that are copied to and from dense copies
    kKernels,
  };
};
constexpr WorkParts kParts = {{{"multiply_adds", WorkLimit::multiply_adds},
                               {"small_tiles", WorkLimit::multiply_adds},
                               {"depth", WorkLimit::calls},
                               {"split_depth", WorkLimit::calls},
                               {"part_bytes", WorkLimit::bytes},
                               {"bytes", WorkLimit::bytes},
                               {"narrow_bytes", WorkLimit::bytes},
                               {"vector_bytes", WorkLimit::bytes},
                               {"loose_multiply_adds", WorkLimit::multiply_adds},
                               {"loose_bytes", WorkLimit::bytes},
                               {"products", WorkLimit::calls},
                               {"copied_bytes", WorkLimit::bytes},
                               {"kernels", WorkLimit::calls}}};

KernelWork library_work(const GemmProblem& p) {
  using enum Part::Index;
  constexpr int64_t kLarge = 128, kSmall = 64, kLeastDepth = 256, kNarrow = 16, kAligned = 16;
  const GemmPlan plan = plan_library(p);
  const int64_t SMs = p.device.multiprocessors, M = p.M(), N = p.N(), K = p.K(), products = p.products();
  const double at_once = multiply_adds_at_once(p.dtype, plan.math_mode);
  const auto tiles_of = [&](int64_t size) { return ceil_div(M, size) * ceil_div(N, size) * products; };
  const auto multiply_adds = [&](int64_t tiles, int64_t size, int64_t depth) {
    return number(tiles * size * size * depth) / at_once;
  };
  const int64_t small = tiles_of(kSmall);
  const int64_t splits = std::clamp<int64_t>(std::min(SMs / small, K / kLeastDepth), 1, SMs);
  const GemmOperand &a = plan.swapped ? p.b : p.a, &b = plan.swapped ? p.a : p.b;
  KernelWork work = {};
  work[kProducts] = number(products), work[kKernels] = 1;
  if (std::min(M, N) == 1) {
    work[kVectorBytes] = p.operand_bytes();
  } else {
    work[kMultiplyAdds] = multiply_adds(ceil_div(tiles_of(kLarge), SMs) * SMs, kLarge, ceil_div(K, splits));
    work[kSmallTiles] = multiply_adds(ceil_div(small * splits, SMs) * SMs, kSmall, ceil_div(K, splits));
    work[kDepth] = number(K), work[kSplitDepth] = number(ceil_div(K, splits));
    if (splits > 1) work[kPartBytes] = number(2 * splits * M * N * std::max<int64_t>(p.element(), 4));
    work[kBytes] = p.operand_bytes();
    if (std::min(M, N) < kNarrow) work[kNarrowBytes] = p.operand_bytes();
    const auto is_loose = [&](const LibraryMatrix& x, const GemmOperand& operand, bool copied) {
      return x.leading * p.element() % kAligned != 0 || (!copied && operand.alignment < kAligned);
    };
    if (is_loose(plan.a, a, plan.a_copy.has_value()) || is_loose(plan.b, b, plan.b_copy.has_value()) ||
        is_loose(plan.y, p.y, plan.y_copy.has_value())) {
      work[kLooseMultiplyAdds] = work[kSmallTiles];
      work[kLooseBytes] = p.operand_bytes();
    }
    if (splits > 1) work[kKernels] = 2;
  }
  const auto add_copy = [&](const GemmOperand& x, bool copied) {
    if (!copied) return;
    work[kCopiedBytes] += number(2 * x.numel() * p.element());
    work[kKernels] += 1;
  };
  add_copy(a, plan.a_copy.has_value()), add_copy(b, plan.b_copy.has_value()), add_copy(p.y, plan.y_copy.has_value());
  add_copy(p.y, p.bias && !plan.adds_bias);  // another kernel adds it
  return scaled_to(p.device, kParts, work);
}

}  // namespace

constinit const GemmAlgorithm kCublasLt = {.name = "cublaslt",
                                           .reason = "results or sums that are large",
                                           .parts = kParts,
                                           .can_run = [](const GemmProblem& p) { return is_floating(p.dtype); },
                                           .work = library_work,
                                           .plan = plan_library,
                                           .launch = kHasKernels ? run_library : nullptr};

}  // namespace gradus::cuda_detail
