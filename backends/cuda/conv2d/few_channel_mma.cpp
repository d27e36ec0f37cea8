// few_channel_mma: fewer than eight channels, half types (fprop: also TF32), on tensor cores (few_channel_mma.cu).
#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cuda_detail {
namespace {

/// How the output is divided into tiles; empty if the kernels cannot compute the problem.
std::optional<FewChannelTiling> few_channel_tiling(const ConvProblem& p) {
  constexpr int64_t most_channels = 7, most_taps = 64;
  constexpr int64_t most_pixels = 384, most_bytes = 24 << 10;  // limits of a tile of several rows, and of a buffer
  const std::optional<MathMode> mode = p.math_mode();
  const int64_t channels = p.channels();
  const bool tf32 = mode == MathMode::tf32 && p.pass == ConvPass::forward && p.y.shape[1] > kMaxDirectRows;
  if ((mode != MathMode::half && !tf32) || channels > most_channels || p.taps() > most_taps / (tf32 ? 2 : 1) ||
      p.y.shape[1] % 8 != 0 || p.geometry.groups != 1 || p.y.alignment != 16 || !p.y.is_dense(true))
    return std::nullopt;
  if (!p.has_ordinary_sizes()) return std::nullopt;
  const bool inner = p.x.strides[1] == 1 && p.x.strides[3] == channels;  // channels are innermost
  if (!inner && p.x.strides[3] != 1) return std::nullopt;

  const auto size = p.element();
  const int64_t pixel = inner ? channels : 1, planes = inner ? 1 : channels, line = p.x.shape[3] * pixel;
  const auto up = [&](int64_t elements) { return ceil_div(size * elements, 16) * 16; };  // bytes of whole vectors
  const Conv2dGeometry& geometry = p.geometry;
  const int64_t reach = (p.y.shape[3] - 1) * geometry.stride[1] + (p.w.shape[3] - 1) * geometry.dilation[1] + 1;
  const int64_t front = up(geometry.padding[1] * pixel);
  const int64_t pitch = front + up(std::max(line, (reach - geometry.padding[1]) * pixel));
  const int64_t tap_rows = (p.w.shape[2] - 1) * geometry.dilation[0] + 1;
  const auto lines_of = [&](int64_t rows) { return ((rows - 1) * geometry.stride[0] + tap_rows) * planes; };
  const auto size_of_buffer = [&](int64_t rows) { return (lines_of(rows) + tap_rows * planes) * pitch; };
  // Smaller tiles for small batches, so that every multiprocessor gets a tile, measured almost no faster.
  int64_t rows = std::clamp<int64_t>(most_pixels / p.y.shape[3], 1, p.y.shape[2]);
  while (rows > 1 && size_of_buffer(rows) > most_bytes) --rows;
  if (size_of_buffer(rows) > most_bytes) return std::nullopt;
  const int64_t tiles = ceil_div(p.y.shape[2], rows);
  rows = ceil_div(p.y.shape[2], tiles);  // so that all tiles have nearly the same number of rows

  int64_t copy_bytes = p.x.alignment;
  for (const int64_t length : {line, p.x.strides[0], p.x.strides[2], inner ? 0 : p.x.strides[1]})
    while (copy_bytes > size && length * size % copy_bytes != 0) copy_bytes /= 2;
  copy_bytes = std::max(copy_bytes, size);
  return FewChannelTiling{.tiles = Divisor(tiles),
                          .tile_count = u32(p.x.shape[0] * tiles),
                          .tile_rows = u32(rows),
                          .planes = Divisor(planes),
                          .copies = Divisor(line * size / copy_bytes),
                          .copy_bytes = u32(copy_bytes),
                          .lines = u32(lines_of(rows)),
                          .pitch = u32(pitch),
                          .front = u32(front),
                          .origin = u32(front - size * geometry.padding[1] * pixel),
                          .row_step = u32(geometry.stride[0] * planes * pitch),
                          .column_step = u32(size * geometry.stride[1] * pixel),
                          .zeros = u32(lines_of(rows) * pitch),
                          .size = u32(size_of_buffer(rows)),
                          .tap_channel = u32(inner ? size : pitch),
                          .tap_row = u32(geometry.dilation[0] * planes * pitch),
                          .tap_column = u32(size * geometry.dilation[1] * pixel)};
}

bool can_few_channel_mma(const ConvProblem& p) { return p.pass != ConvPass::backward_data && few_channel_tiling(p); }

ConvPlan plan_few_channel_mma_fprop(const ConvProblem& p) {
  FewChannelTiling tiling = *few_channel_tiling(p);
  const int64_t rows = p.rows();
  const bool two = p.is_half() && p.taps() <= 32 && rows > kFewChannelFilters;
  const int filters = two ? 2 * kFewChannelFilters : kFewChannelFilters;
  tiling.blocks = u32(std::clamp<int64_t>(kFewChannelBlocks * p.device.multiprocessors / ceil_div(rows, filters), 1,
                                          tiling.tile_count));
  return {.math_mode = *p.math_mode(),
          .tile = {filters, static_cast<int>(tiling.tile_rows * p.y.shape[3])},
          .phases = phases_of(p),
          .shared_bytes = 2 * size_t{tiling.size},
          .tiling = tiling};
}

ConvPlan plan_few_channel_mma_wgrad(const ConvProblem& p) {
  const FewChannelTiling tiling = *few_channel_tiling(p);
  const int64_t rows = p.filters(), columns = p.taps() + (p.bias ? 1 : 0);
  const ConvTile tile = columns > 32 ? ConvTile{32, 72} : ConvTile{rows > 32 ? 64 : 32, columns > 16 ? 32 : 16};
  const int64_t wanted =
      few_channel_wgrad_blocks(tile.rows, tile.columns) * p.device.multiprocessors / ceil_div(rows, tile.rows);
  ConvPlan plan = wgrad_plan(p, tile, std::clamp<int64_t>(wanted, 1, tiling.tile_count));
  const size_t sums = kFewChannelWarps * sizeof(float) * tile.rows * (tile.columns + 1);
  plan.math_mode = *p.math_mode();
  plan.shared_bytes = std::max(2 * size_t{tiling.size}, sums);
  plan.tiling = tiling;
  return plan;
}

ConvPlan plan_few_channel_mma(const ConvProblem& p) {
  return (p.is_wgrad() ? plan_few_channel_mma_wgrad : plan_few_channel_mma_fprop)(p);
}

// A step is a tile.
KernelWork work_of_few_channel_mma(const ConvProblem& p) {
  const ConvPlan plan = plan_few_channel_mma(p);
  const auto& tiling = std::get<FewChannelTiling>(plan.tiling);
  WorkCounter counter = work_counter(p, plan.math_mode);
  const int64_t groups = ceil_div(p.filters(), int64_t{plan.tile.rows});
  const int64_t blocks = p.is_wgrad() ? plan.split_k : tiling.blocks, pixels = tiling.tile_rows * p.y.shape[3];
  const int64_t depth = p.is_wgrad() ? plan.tile.columns : round_up(p.taps(), int64_t{16});
  counter.add_tiles(
      {.blocks = blocks * groups,
       .resident = p.is_wgrad() ? few_channel_wgrad_blocks(plan.tile.rows, plan.tile.columns) : kFewChannelBlocks,
       .steps = ceil_div(int64_t{tiling.tile_count}, blocks),
       .multiply_adds = round_up(pixels, int64_t{16 * kFewChannelWarps}) * plan.tile.rows * depth,
       .bytes = tiling.lines * tiling.pitch,
       .elements = round_up(pixels, int64_t{16 * kFewChannelWarps}) * depth});
  if (p.is_wgrad()) counter.add_parts(plan.split_k, p.w.numel());
  return counter.work();
}

}  // namespace

constinit const ConvAlgorithm kFewChannelMma = {
    .name = "few_channel_mma",
    .reason = "few channels of half types or TF32",
    .parts = kTileParts,
    .can_run = can_few_channel_mma,
    .work = work_of_few_channel_mma,
    .plan = plan_few_channel_mma,
    .launch = kHasKernels ? launch_few_channel_mma : nullptr,
    .takes_mask = [](const ConvProblem& p) { return p.mask_alignment == 16; },
};

}  // namespace gradus::cuda_detail
