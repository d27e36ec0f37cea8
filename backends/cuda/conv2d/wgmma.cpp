// wgmma: 3x3, half types (fprop: also TF32), NHWC, on tensor cores of Hopper (wgmma_fprop.cu, wgmma_wgrad.cu).
#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cuda_detail {
namespace {

constexpr int64_t kSwizzle = 1024;         // alignment of slots
constexpr int64_t kMargin = 2 * kSwizzle;  // for the alignment of the first slot and the zeros before it

int64_t up(int64_t bytes) { return ceil_div(bytes, kSwizzle) * kSwizzle; }

/// Tiles of whole rows with at most `pixels` pixels. All tiles have nearly the same number of rows.
WgmmaTiling tiles_of_rows(const ConvOperand& image, int64_t pixels) {
  const int64_t height = image.shape[2], width = image.shape[3], pitch = width + 1;
  const int64_t tiles = ceil_div(height, std::max<int64_t>(pixels / pitch, 1)), rows = ceil_div(height, tiles);
  WgmmaTiling tiling;
  tiling.rows = static_cast<int>(rows), tiling.pitch = static_cast<int>(pitch);
  tiling.step = static_cast<int>(rows * pitch);
  tiling.height = static_cast<int>(height), tiling.width = static_cast<int>(width);
  tiling.tiles = static_cast<int>(tiles * image.shape[0]);
  tiling.image = Divisor(tiles), tiling.pitches = Divisor(pitch);
  return tiling;
}
/// Tiles of 128 pixels, or tiles of whole rows if these are not more.
WgmmaTiling tiles_of_pixels(const ConvOperand& image) {
  WgmmaTiling tiling = tiles_of_rows(image, kWgmmaPixels + 1);  // the last row needs no pixel of zeros after it
  const int64_t tiles = ceil_div(tiling.height * tiling.pitch - 1, kWgmmaPixels);
  if (tiles >= tiling.image.divisor) return tiling;
  tiling.step = kWgmmaPixels, tiling.tiles = static_cast<int>(tiles * image.shape[0]), tiling.image = Divisor(tiles);
  tiling.rows = 0;
  for (int i = 0; i < tiles; ++i)
    tiling.rows = std::max(tiling.rows, (tiling.tile_at(i).pixel + kWgmmaPixels - 1) / tiling.pitch + 1);
  tiling.rows = std::min(tiling.rows, tiling.height);
  return tiling;
}

/// Plans as many slots as fit in shared memory beside `others` bytes of dynamic and `static_bytes` of static memory,
/// and returns the bytes of dynamic memory.
size_t fill_ring(WgmmaTiling& tiling, int64_t others, int64_t static_bytes, const DeviceProperties& device) {
  const int64_t beside = others + kMargin, room = static_cast<int64_t>(device.shared_memory) - static_bytes;
  tiling.slots = static_cast<int>(std::clamp<int64_t>((room - beside) / tiling.slot_bytes, 0, kMaxWgmmaSlots));
  return static_cast<size_t>(beside + int64_t{tiling.slots} * tiling.slot_bytes);
}

/// Plans fprop or dgrad with tiles of `filters` filters. Empty if too few slots fit: the barriers of a slot can
/// tell only consecutive rounds apart, so the ring must hold the tiles of all other warpgroups and one slot more.
std::optional<ConvPlan> plan_wgmma_fprop(const ConvProblem& p, int filters, int line_bytes, int warpgroups) {
  const int64_t bytes = p.in().shape[1] * p.element(), results = p.out().shape[1];
  WgmmaTiling tiling = tiles_of_pixels(p.in());
  tiling.line_bytes = line_bytes, tiling.warpgroups = warpgroups;
  tiling.chunks = static_cast<int>(ceil_div(bytes, tiling.line_bytes));
  const int64_t pixels = (tiling.rows + 2) * tiling.pitch, read = kWgmmaPixels + 3 * tiling.pitch + 1;
  tiling.load_bytes = u32(pixels * tiling.line_bytes);
  tiling.slot_bytes = u32(up((std::max(pixels, read) + 1) * tiling.line_bytes));
  const int64_t of_filters = int64_t{9} * filters * tiling.line_bytes * tiling.chunks;
  const size_t shared_bytes = fill_ring(tiling, of_filters, kFpropStaticBytes, p.device);
  if (tiling.slots <= (warpgroups - 1) * tiling.chunks) return std::nullopt;
  tiling.blocks = u32(std::clamp<int64_t>(p.device.multiprocessors / ceil_div(results, filters), 1, tiling.tiles));
  return ConvPlan{.tile = {filters, kWgmmaPixels}, .shared_bytes = shared_bytes, .tiling = tiling};
}

/// Plans wgrad. Empty if two slots do not fit.
std::optional<ConvPlan> plan_wgmma_wgrad(const ConvProblem& p) {
  const int64_t K = p.w.shape[0], C = p.w.shape[1];
  WgmmaTiling tiling = tiles_of_rows(p.x, kWgmmaPixels);
  tiling.line_bytes = C <= 32 ? 64 : 128;
  const int64_t filters = K <= 32 ? 32 : 64, operands = p.mask_alignment > 0 ? 2 : 1;
  const int64_t chunks = ceil_div(2 * C, tiling.line_bytes), groups = ceil_div(K, filters);
  // To store and add the sums of 64 filters and 64 channels costs as much as to multiply five tiles. If a block has
  // fewer tiles, it computes one row of taps instead of three, unless dy has a mask, which three blocks would apply.
  const bool few =
      std::min(K, C) > 32 && operands == 1 && tiling.tiles * chunks * groups <= 5 * p.device.multiprocessors;
  const int tap_rows = few ? 1 : 3;
  const int64_t pixels = (tiling.rows + tap_rows - 1) * tiling.pitch, of_dy = tiling.rows * tiling.pitch;
  const int64_t read = kWgmmaPixels + (tap_rows - 1) * tiling.pitch + 1;
  tiling.load_bytes = u32(pixels * tiling.line_bytes + operands * of_dy * 2 * filters);
  tiling.dy_offset = u32(up(std::max(pixels, read) * tiling.line_bytes));
  tiling.slot_bytes = u32(tiling.dy_offset + operands * kWgmmaPixels * 2 * filters + kSwizzle);
  const size_t shared_bytes = fill_ring(tiling, 0, kWgradStaticBytes, p.device);
  if (tiling.slots < 2) return std::nullopt;
  const int64_t most =
      std::clamp<int64_t>(p.device.multiprocessors * tap_rows / (3 * chunks * groups), 1, tiling.tiles);
  const int64_t splits =
      ceil_div(tiling.tiles, ceil_div(tiling.tiles, most));  // the fewest with the same longest split
  const int64_t sums = groups * filters * chunks * tiling.line_bytes / 2 * 9;
  return ConvPlan{.tile = {static_cast<int>(filters), 3 * tap_rows * tiling.line_bytes / 2},
                  .split_k = u32(splits),
                  .workspace_bytes = static_cast<size_t>(4 * splits * (sums + (p.bias ? K : 0))),
                  .shared_bytes = shared_bytes,
                  .tiling = tiling};
}

std::optional<ConvPlan> plan_ring(const ConvProblem& p) {
  if (p.is_wgrad()) return plan_wgmma_wgrad(p);
  const int64_t bytes = p.in().shape[1] * p.element();
  const int line = bytes <= 64 ? 64 : 128;
  if (p.out().shape[1] > 32) {
    if (auto plan = plan_wgmma_fprop(p, 64, line, 3)) return plan;
    // With TF32, shorter lines and two warpgroups come before tiles of 32 filters, which read images twice as often.
    if (p.dtype == DType::f32)
      if (auto plan = plan_wgmma_fprop(p, 64, 64, 2)) return plan;
  }
  return plan_wgmma_fprop(p, 32, line, 3);
}

/// Returns true for dense half types (fprop: also TF32) with at most 128 channels, which must be innermost, and for 3x3
/// filters with padding 1 and no stride.
bool can_wgmma(const ConvProblem& p) {
  constexpr int64_t most_channels = 128;  // the filters of more channels do not fit in shared memory
  // wgmma cannot transpose TF32 operands, as dgrad and wgrad need.
  const bool tf32 = p.switches.tf32 && p.pass == ConvPass::forward;
  if (!suits_tma(p, !p.is_wgrad(), tf32) || p.w.shape[2] != 3 || p.w.shape[3] != 3 ||
      std::max(p.w.shape[0], p.w.shape[1]) > most_channels)
    return false;
  for (int i = 0; i < 2; ++i)
    if (p.geometry.stride[i] != 1 || p.geometry.padding[i] != 1 || p.geometry.dilation[i] != 1) return false;
  if (p.mask_alignment != 0 && p.mask_alignment != 16) return false;
  return p.x.shape[3] < kWgmmaPixels && plan_ring(p);
}

ConvPlan plan_wgmma(const ConvProblem& p) {
  ConvPlan plan = *plan_ring(p);
  plan.math_mode = *p.math_mode();
  plan.phases = phases_of(p);
  return plan;
}

// A step is a tile; warpgroups compute fprop's and dgrad's tiles in turn.
KernelWork work_of_wgmma(const ConvProblem& p) {
  const ConvPlan plan = plan_wgmma(p);
  const auto& tiling = std::get<WgmmaTiling>(plan.tiling);
  WorkCounter counter = work_counter(p, plan.math_mode);
  const int64_t chunks = tiling.chunks, line = tiling.line_bytes / p.element();
  if (p.is_wgrad()) {
    const int64_t blocks = ceil_div(p.w.shape[0], int64_t{plan.tile.rows}) *
                           ceil_div(9 * round_up(p.w.shape[1], line), int64_t{plan.tile.columns});
    counter.add_tiles({.blocks = plan.split_k * blocks,
                       .steps = ceil_div(int64_t{tiling.tiles}, int64_t{plan.split_k}),
                       .multiply_adds = int64_t{kWgmmaPixels} * plan.tile.rows * plan.tile.columns,
                       .bytes = tiling.load_bytes});
    counter.add_parts(plan.split_k, p.w.numel());
    return counter.work();
  }
  const int64_t groups = ceil_div(p.out().shape[1], int64_t{plan.tile.rows});
  counter.add_tiles({.blocks = tiling.blocks * groups,
                     .steps = ceil_div(int64_t{tiling.tiles}, int64_t{tiling.blocks}),
                     .multiply_adds = int64_t{kWgmmaPixels} * plan.tile.rows * 9 * line * chunks,
                     .bytes = tiling.load_bytes * chunks});
  return counter.work();
}

}  // namespace

bool suits_tma(const ConvProblem& p, bool of_weight_too, bool tf32) {
  if (!p.device.wgmma || !(p.is_half() || (tf32 && p.dtype == DType::f32)) || p.geometry.groups != 1 ||
      !p.has_ordinary_sizes())
    return false;
  for (const ConvOperand* operand : {&p.x, &p.w, &p.y})
    if ((operand != &p.w || of_weight_too) && (operand->alignment != 16 || !operand->is_dense(true))) return false;
  return p.w.shape[0] % 8 == 0 && p.w.shape[1] % 8 == 0 && std::min(p.w.shape[0], p.w.shape[1]) >= 16;
}

constinit const ConvAlgorithm kWgmma = {
    .name = "wgmma",
    .reason = "3x3 of half types or TF32, channels innermost",
    .parts = kTileParts,
    .can_run = can_wgmma,
    .work = work_of_wgmma,
    .plan = plan_wgmma,
    .launch = kHasKernels ? launch_wgmma : nullptr,
    .takes_mask = [](const ConvProblem& p) { return p.is_wgrad() && p.mask_alignment == 16; },
    .stores_masked = true,
};

}  // namespace gradus::cuda_detail
