// The implicit GEMMs for any filter size (implicit_gemm{,_wgrad,_generic}.cu): implicit_gemm in any math mode, loaded
// through registers; implicit_gemm_async for float32 in NCHW on the FMA units, loaded by cp.async; and
// implicit_gemm_generic on the FMA units, for any type, sizes and strides.
#include <limits>

#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cuda_detail {
namespace {

// The tile of a block of y x x warps, and its number of warps.
constexpr ConvTile warps_tile(int y, int x) { return {y * kWarpRows, x * kWarpColumns}; }
constexpr int warps_of(const ConvTile& tile) { return tile.rows / kWarpRows * (tile.columns / kWarpColumns); }

/// Returns the number of parts into which to split sums of `steps` steps that `blocks` blocks compute, on a device that
/// runs `resident` blocks at a time. With this number the last block ends after the fewest steps, where starting and
/// finishing a block counts as a few steps. More parts than for max_waves waves would hardly improve the balance but
/// take memory.
int64_t balanced_splits(int64_t blocks, int64_t steps, int64_t resident) {
  constexpr int64_t overhead = 3, shortest = 4, max_waves = 4;
  const int64_t most = std::min(steps / shortest, max_waves * resident / blocks);
  int64_t best = 1, least = std::numeric_limits<int64_t>::max();
  for (int64_t splits = 1; splits <= std::clamp<int64_t>(most, 1, 1024); ++splits) {
    const int64_t length = ceil_div(steps, splits);
    if ((splits - 1) * length >= steps && splits > 1) continue;  // the last part would be empty
    const int64_t cost = ceil_div(blocks * splits, resident) * (length + overhead);
    if (cost < least) least = cost, best = splits;
  }
  return best;
}

// ---- fprop and dgrad ----

bool has_short_images(const ConvProblem& p) {
  return p.in().numel() > 0 && std::max(p.in().span(), p.out().span()) < kShortSpan;
}

bool can_async_fprop(const ConvProblem& p) { return p.depth_channels() % 16 == 0 && has_short_images(p); }

bool can_fprop(const ConvProblem& p) { return p.depth_channels() * p.element() % 16 == 0 && has_short_images(p); }

/// Splits the sums of each phase into splits(blocks, steps) parts. A step consists of `of_step` channels of a tap. The
/// workspace has space for the packed weights of the largest phase, followed by space for its parts.
template <class F>
void split_phases(const ConvProblem& p, int64_t of_step, ConvPlan& plan, F&& splits) {
  const int64_t groups = p.geometry.groups, rows = p.rows(), row_tiles = ceil_div(rows, plan.tile.rows);
  plan.phases = phases_of(p);
  for (ConvPhase& phase : plan.phases) {
    const int64_t steps = ceil_div(p.depth_channels(), of_step) * phase.h.count * phase.w.count;
    const int64_t positions = p.out().shape[0] * phase.h.size * phase.w.size;
    const int64_t parts = splits(row_tiles * ceil_div(positions, plan.tile.columns) * groups, steps);
    phase.per_split = u32(ceil_div(steps, parts));
    phase.split_k = steps > 0 ? u32(ceil_div(steps, phase.per_split)) : 1;
    plan.split_k = std::max(plan.split_k, phase.split_k);
    const int64_t packed = groups * steps * row_tiles * plan.tile.rows * static_cast<int64_t>(kRowBytes);
    plan.partial_offset = std::max(plan.partial_offset, static_cast<size_t>(ceil_div(packed, 256) * 256));
    if (phase.split_k > 1)
      plan.workspace_bytes =
          std::max(plan.workspace_bytes, static_cast<size_t>(4 * phase.split_k * groups * rows * positions));
  }
  plan.workspace_bytes += plan.partial_offset;
}

template <MathMode kMode>
ConvPlan plan_fprop(const ConvProblem& p) {
  const ConvOperand& in = p.in();
  const int64_t element = p.element();
  const int64_t vec = 16 / element;
  ConvPlan plan;
  plan.math_mode = kMode;
  plan.tile = p.rows() <= kWarpRows ? warps_tile(1, 4) : warps_tile(2, 2);
  plan.tiling = ImplicitGemmTiling{in.strides[1] == 1 && in.strides[0] % vec == 0 && in.strides[2] % vec == 0 &&
                                   in.strides[3] % vec == 0 && in.alignment == 16};
  const int64_t resident = implicit_blocks(kMode, warps_of(plan.tile)) * p.device.multiprocessors;
  split_phases(p, static_cast<int64_t>(kRowBytes) / element, plan, [&](int64_t blocks, int64_t steps) {
    // The steps are split if there are too few tiles to fill the device.
    return std::max<int64_t>(std::min(resident / blocks, steps / 8), 1);
  });
  return plan;
}

ConvPlan plan_async_fprop(const ConvProblem& p) {
  ConvPlan plan;
  plan.tile = p.rows() <= 32 ? warps_tile(1, 3) : p.rows() <= 64 ? warps_tile(2, 1) : warps_tile(4, 1);
  const int64_t resident = implicit_blocks(MathMode::fma, warps_of(plan.tile)) * p.device.multiprocessors;
  split_phases(p, 16, plan, [&](int64_t blocks, int64_t steps) { return balanced_splits(blocks, steps, resident); });
  return plan;
}

// ---- wgrad ----

int64_t wgrad_positions(const ConvProblem& p) { return p.y.shape[0] * p.y.shape[2] * p.y.shape[3]; }

/// The number of tiles of the gradients dw of all groups, each with `columns` columns.
int64_t wgrad_tiles(const ConvProblem& p, const ConvTile& tile, int64_t columns) {
  return ceil_div(p.filters(), tile.rows) * ceil_div(columns, tile.columns) * p.geometry.groups;
}

/// The number of splits with which each multiprocessor gets two blocks, if each block has at least 64 positions.
int64_t filling_splits(const ConvProblem& p, int64_t blocks) {
  constexpr int64_t waves = 2, shortest = 64;
  return std::clamp<int64_t>(std::min(waves * p.device.multiprocessors / blocks, wgrad_positions(p) / shortest), 1,
                             1024);
}

bool has_short_wgrad(const ConvProblem& p) {
  const int64_t padding = p.geometry.padding[0] * p.x.strides[2] + p.geometry.padding[1] * p.x.strides[3];
  return p.x.numel() > 0 && p.y.span() < kShortSpan && p.x.span() + padding < kShortSpan;
}

/// Returns true if, among other conditions, dy consists of aligned vectors of four neighbouring pixels of one image.
bool can_async_wgrad(const ConvProblem& p) {
  const Strides& strides = p.y.strides;
  const bool has_vectors = strides[3] == 1 && strides[2] == p.y.shape[3] && p.y.shape[2] * p.y.shape[3] % 4 == 0 &&
                           strides[0] % 4 == 0 && strides[1] % 4 == 0 && p.y.alignment == 16;
  return has_vectors && p.channels() % 32 == 0 && has_short_wgrad(p);
}

bool can_wgrad(const ConvProblem& p) { return p.kernel() <= 32 && has_short_wgrad(p); }

ConvPlan plan_async_wgrad(const ConvProblem& p) {
  const ConvTile tile = warps_tile(3, p.filters() > 64 ? 2 : 1);
  const ConvTile turned = {tile.columns, tile.rows};  // the filters are the columns of the tile in shared memory
  const int64_t resident = implicit_blocks(MathMode::fma, warps_of(tile)) * p.device.multiprocessors;
  const int64_t steps = ceil_div(wgrad_positions(p), 16);
  return wgrad_plan(p, turned, balanced_splits(wgrad_tiles(p, turned, p.taps()), steps, resident), 16);
}

ConvTile implicit_wgrad_tile(int64_t filters) { return filters <= kWarpRows ? warps_tile(1, 5) : warps_tile(2, 3); }

template <MathMode kMode>
ConvPlan plan_wgrad(const ConvProblem& p) {
  const ConvTile tile = implicit_wgrad_tile(p.filters());
  ConvPlan plan = wgrad_plan(p, tile, filling_splits(p, wgrad_tiles(p, tile, p.taps())));
  plan.math_mode = kMode;
  plan.tiling = ImplicitGemmTiling{p.x.strides[1] == 1};
  return plan;
}

// ---- implicit_gemm_generic ----

ConvPlan plan_generic(const ConvProblem& p) {
  if (p.is_empty()) return {};
  const int64_t rows = p.is_wgrad() ? p.filters() : p.rows();
  const ConvTile tile = {rows <= 16 ? 16 : rows <= 32 ? 32 : 64, 128};
  if (!p.is_wgrad()) return {.tile = tile, .phases = phases_of(p)};
  return wgrad_plan(p, tile, filling_splits(p, wgrad_tiles(p, tile, p.taps() + (p.bias ? 1 : 0))));
}

// ---- work ----

/// Counts the blocks of all phases, whose steps have `depth` channels of a tap (wgrad: pixels). `scattered`: threads
/// load the columns of a step one by one.
KernelWork work_of_plan(const ConvProblem& p, const ConvPlan& plan, int64_t resident, int64_t depth, bool scattered,
                        bool packs) {
  WorkCounter counter = work_counter(p, plan.math_mode);
  const int64_t element = p.element();
  const int64_t rows = plan.tile.rows, columns = plan.tile.columns, groups = p.geometry.groups;
  const auto add = [&](int64_t blocks, int64_t steps) {
    counter.add_tiles({.blocks = blocks,
                       .resident = resident,
                       .steps = steps,
                       .multiply_adds = rows * columns * depth,
                       .bytes = (rows + columns) * depth * element,
                       .elements = scattered ? columns * depth : 0});
  };
  for (const ConvPhase& phase : plan.phases) {
    if (packs) counter.add(kLaunches, 1);
    if (p.is_wgrad()) {
      add(wgrad_tiles(p, plan.tile, p.taps()) * plan.split_k, ceil_div(int64_t{phase.per_split}, depth));
      counter.add_parts(plan.split_k, p.w.numel());
      continue;
    }
    const int64_t positions = p.out().shape[0] * phase.h.size * phase.w.size, taps = phase.h.count * phase.w.count;
    const int64_t tiles = ceil_div(p.rows(), rows) * ceil_div(positions, columns) * groups;
    // implicit_gemm_generic has no per_split, and its steps may contain several taps.
    add(tiles * phase.split_k, packs ? phase.per_split : ceil_div(p.depth_channels() * taps, depth));
    if (phase.split_k > 1) counter.add_parts(phase.split_k, p.out().shape[1] * positions);
  }
  return counter.work();
}

// ---- the algorithms ----

bool can_implicit_gemm_async(const ConvProblem& p) {
  return p.is_async_fma() && (p.is_wgrad() ? can_async_wgrad : can_async_fprop)(p);
}
ConvPlan plan_implicit_gemm_async(const ConvProblem& p) {
  return (p.is_wgrad() ? plan_async_wgrad : plan_async_fprop)(p);
}

KernelWork work_of_implicit_gemm_async(const ConvProblem& p) {
  const ConvPlan plan = plan_implicit_gemm_async(p);
  return work_of_plan(p, plan, implicit_blocks(MathMode::fma, warps_of(plan.tile)), 16, false, !p.is_wgrad());
}

template <MathMode kMode>
bool can_implicit_gemm(const ConvProblem& p) {
  return p.math_mode() == kMode && (p.is_wgrad() ? can_wgrad : can_fprop)(p);
}
template <MathMode kMode>
ConvPlan plan_implicit_gemm(const ConvProblem& p) {
  return (p.is_wgrad() ? plan_wgrad<kMode> : plan_fprop<kMode>)(p);
}

template <MathMode kMode>
KernelWork work_of_implicit_gemm(const ConvProblem& p) {
  const ConvPlan plan = plan_implicit_gemm<kMode>(p);
  const int64_t depth = p.is_wgrad() ? (p.is_half() ? 32 : 16) : static_cast<int64_t>(kRowBytes / size_of(p.dtype));
  return work_of_plan(p, plan, implicit_blocks(kMode, warps_of(plan.tile)), depth,
                      !std::get<ImplicitGemmTiling>(plan.tiling).vectorized, !p.is_wgrad());
}

KernelWork work_of_generic(const ConvProblem& p) {
  constexpr int64_t resident = 3, depth = 16;
  return work_of_plan(p, plan_generic(p), resident, depth, true, false);
}

template <MathMode kMode>
constexpr ConvAlgorithm implicit_gemm(const char* name) {
  return {.name = name,
          .reason = "channels fill vectors",
          .parts = kTileParts,
          .can_run = can_implicit_gemm<kMode>,
          .work = work_of_implicit_gemm<kMode>,
          .plan = plan_implicit_gemm<kMode>,
          .launch = kHasKernels ? launch_implicit_gemm : nullptr};
}

}  // namespace

constinit const ConvAlgorithm kImplicitGemmFma = implicit_gemm<MathMode::fma>("implicit_gemm_fma");
constinit const ConvAlgorithm kImplicitGemmTf32 = implicit_gemm<MathMode::tf32>("implicit_gemm_tf32");
constinit const ConvAlgorithm kImplicitGemmHalf = implicit_gemm<MathMode::half>("implicit_gemm_half");
constinit const ConvAlgorithm kImplicitGemmAsync = {
    .name = "implicit_gemm_async",
    .reason = "exact float32 in planes, many channels",
    .parts = kTileParts,
    .can_run = can_implicit_gemm_async,
    .work = work_of_implicit_gemm_async,
    .plan = plan_implicit_gemm_async,
    .launch = kHasKernels ? launch_implicit_gemm_async : nullptr,
};
constinit const ConvAlgorithm kImplicitGemmGeneric = {
    .name = "implicit_gemm_generic",
    .reason = "sizes, strides or a type that no other kernel takes",
    .parts = kTileParts,
    .can_run = [](const ConvProblem&) { return true; },
    .work = work_of_generic,
    .plan = plan_generic,
    .launch = kHasKernels ? launch_implicit_gemm_generic : nullptr,
};

}  // namespace gradus::cuda_detail
