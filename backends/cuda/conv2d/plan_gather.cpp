// The plan of the algorithm that select.cpp has chosen for fprop or dgrad: tile, split-K, workspace; and which problems
// few_channel_mma can compute.
#include <limits>

#include <gradus/backends/cuda/conv2d/tile_sizes.h>

namespace gradus::cuda_detail {
namespace {

/// An fprop or dgrad problem and the plan to fill in.
struct GatherPlanner {
  const ConvProblem& p;
  const DeviceProperties& device;
  ConvPlan& plan;
  const ConvOperand &in = p.in(), &out = p.out();
  const bool forward = p.pass == ConvPass::forward;
  const int64_t groups = p.geometry.groups, rows = out.shape[1] / groups, channels = in.shape[1] / groups;
  const int64_t height = out.shape[2], width = out.shape[3], element = static_cast<int64_t>(size_of(p.dtype));

  /// The number of rows that a thread computes. Many rows share the input that the thread loads, but leave fewer
  /// threads for the multiprocessors.
  int direct_rows() const {
    const int64_t strips = out.shape[0] * height * ceil_div(width, kStrip);
    int best = 0;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const int of_thread : kDirectRowChoices) {
      const int64_t warps = ceil_div(strips * groups * ceil_div(rows, of_thread), 32);
      const int64_t cost = ceil_div(warps, 4 * device.multiprocessors) * (of_thread + 1);
      if (cost < least) least = cost, best = of_thread;
    }
    return best;
  }
  void direct() const {
    constexpr int64_t most_threads = 256;
    const int of_thread = direct_rows();
    const int64_t size = p.w.shape[3], line = ceil_div(width, kStrip), images = out.shape[0];
    const int64_t row_tiles = ceil_div(rows, of_thread), most = most_threads / row_tiles;  // the most strips of a block
    const int64_t columns = ceil_div(line, std::min(line, most)), strips = ceil_div(line, columns);
    const int64_t least_bands = ceil_div(device.multiprocessors, columns * images * groups);  // a block for each
    const int64_t tile_height =
        ceil_div(height, std::min(height, std::max(ceil_div(height, most / strips), least_bands)));
    const int64_t bands = ceil_div(height, tile_height);
    const int64_t fitting = std::min(most / (strips * tile_height), images * groups / device.multiprocessors);
    const int64_t together = bands * columns == 1 ? std::clamp<int64_t>(fitting, 1, images) : 1;

    const int64_t of_tap = row_tiles * direct_weight_step(of_thread);
    const int64_t weight_pitch = of_tap + (of_tap >= 8 ? 4 : 0);               // keeps neighbouring taps in other banks
    const int64_t quads = together * (tile_height + size - 1) * (strips + 1);  // of a channel
    const int64_t bytes = 16 * quads + 4 * size * size * weight_pitch;         // of a channel and its weights
    const int64_t chunks = ceil_div(channels, static_cast<int64_t>(kDirectBytes) / bytes);
    const int64_t of_chunk = ceil_div(channels, chunks);

    bool whole = out.strides[3] == 1 && width % kStrip == 0 && out.alignment >= kStrip * element;
    for (int i = 0; i < 3; ++i) whole = whole && out.strides[i] % kStrip == 0;
    plan.direct = {.image_count = u32(images),
                   .row_tiles = u32(row_tiles),
                   .weight_pitch = u32(weight_pitch),
                   .strips = Divisor(strips),
                   .height = Divisor(tile_height),
                   .images = Divisor(together),
                   .columns = Divisor(columns),
                   .bands = Divisor(bands),
                   .quads = Divisor(strips + 1),
                   .lines = Divisor(tile_height + size - 1),
                   .channels = Divisor(of_chunk),
                   .whole_strips = whole};

    const int64_t block_strips = together * tile_height * strips;
    plan.shared_bytes = static_cast<size_t>(of_chunk * bytes);
    // A block has more threads than strips if there is much input, or many weights, to copy into shared memory.
    const int64_t weights = row_tiles * of_thread * of_chunk * size * size;
    const int64_t staging = std::max(of_chunk * quads / kQuadsAtOnce, weights / kWeightsAtOnce);
    const int64_t threads = std::max(row_tiles * block_strips, std::min(staging, most_threads));
    plan.threads = u32(ceil_div(threads, 32) * 32);
    plan.blocks = u32(columns * bands * ceil_div(images, together));
    plan.tile = {of_thread, static_cast<int>(kStrip * block_strips)};
  }

  void few_channel_mma() const {
    plan.few_channel = *few_channel_tiling(p, plan.math_mode);
    const bool two = element == 2 && p.w.numel() / rows <= 32 && rows > kFewChannelFilters;
    const int filters = two ? 2 * kFewChannelFilters : kFewChannelFilters;
    plan.tile = {filters, static_cast<int>(plan.few_channel.tile_rows * width)};
    plan.shared_bytes = 2 * size_t{plan.few_channel.size};
    plan.blocks = u32(std::clamp<int64_t>(kFewChannelBlocks * device.multiprocessors / ceil_div(rows, filters), 1,
                                          plan.few_channel.tile_count));
  }

  /// Splits the sums of each phase into splits(blocks, steps) parts. The workspace has space for the packed weights of
  /// any phase, then for its parts.
  template <class F>
  void split(int64_t of_step, F&& splits) const {
    for (ConvPhase& phase : plan.phases) {
      const int64_t steps = ceil_div(channels, of_step) * phase.h.count * phase.w.count;
      const int64_t of_positions = out.shape[0] * phase.h.size * phase.w.size;
      const int64_t row_tiles = ceil_div(rows, plan.tile.rows);
      const int64_t parts = splits(row_tiles * ceil_div(of_positions, plan.tile.columns) * groups, steps);
      phase.per_split = u32(ceil_div(steps, parts));
      phase.split_k = steps > 0 ? u32(ceil_div(steps, phase.per_split)) : 1;
      const int64_t packed = groups * steps * row_tiles * plan.tile.rows * static_cast<int64_t>(kRowBytes);
      plan.partial_offset = std::max(plan.partial_offset, static_cast<size_t>(ceil_div(packed, 256) * 256));
      if (phase.split_k > 1)
        plan.workspace_bytes =
            std::max(plan.workspace_bytes, static_cast<size_t>(4 * phase.split_k * groups * rows * of_positions));
    }
    plan.workspace_bytes += plan.partial_offset;
  }
  void implicit_gemm() const {
    plan.tile = rows <= kWarpRows ? warps_tile(1, 4) : warps_tile(2, 2);
    const int64_t vec = 16 / element;
    plan.vectorized = in.strides[1] == 1 && in.strides[0] % vec == 0 && in.strides[2] % vec == 0 &&
                      in.strides[3] % vec == 0 && in.alignment == 16;
    const int64_t resident = implicit_blocks(plan.math_mode, warps_of(plan.tile)) * device.multiprocessors;
    split(static_cast<int64_t>(kRowBytes) / element, [&](int64_t blocks, int64_t steps) {
      // The steps are split if there are too few tiles to fill the device.
      return std::max<int64_t>(std::min(resident / blocks, steps / 8), 1);
    });
  }
  void implicit_gemm_async() const {
    plan.tile = rows <= 32 ? warps_tile(1, 3) : rows <= 64 ? warps_tile(2, 1) : warps_tile(4, 1);
    const int64_t resident = implicit_blocks(MathMode::fma, warps_of(plan.tile)) * device.multiprocessors;
    split(16, [&](int64_t blocks, int64_t steps) { return balanced_splits(blocks, steps, resident); });
  }

  void implicit_gemm_generic() const { plan.tile = generic_tile(rows); }
};

}  // namespace

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

std::optional<FewChannelTiling> few_channel_tiling(const ConvProblem& p, std::optional<MathMode> mode) {
  constexpr int64_t most_channels = 7, most_taps = 64;
  constexpr int64_t most_pixels = 384, most_bytes = 24 << 10;  // of a tile of several rows; of a buffer
  const int64_t channels = p.w.shape[1], kernel = p.w.shape[2] * p.w.shape[3];
  const bool tf32 = mode == MathMode::tf32 && p.pass == ConvPass::forward && p.y.shape[1] > kMaxDirectRows;
  if ((mode != MathMode::half && !tf32) || channels > most_channels || channels * kernel > most_taps / (tf32 ? 2 : 1) ||
      p.y.shape[1] % 8 != 0 || p.geometry.groups != 1 || p.y.alignment != 16 || !p.y.is_dense(true))
    return std::nullopt;
  for (const ConvOperand* operand : {&p.x, &p.w, &p.y})
    if (operand->numel() == 0 || (operand != &p.w && operand->numel() >= int64_t{1} << 31)) return std::nullopt;
  const bool inner = p.x.strides[1] == 1 && p.x.strides[3] == channels;  // channels are innermost
  if (!inner && p.x.strides[3] != 1) return std::nullopt;

  const auto size = static_cast<int64_t>(size_of(p.dtype));
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

void plan_gather(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan) {
  const GatherPlanner planner{problem, device, plan};
  switch (plan.algorithm) {
    case ConvAlgorithm::direct: return planner.direct();
    case ConvAlgorithm::few_channel_mma: return planner.few_channel_mma();
    case ConvAlgorithm::implicit_gemm_async: return planner.implicit_gemm_async();
    case ConvAlgorithm::implicit_gemm: return planner.implicit_gemm();
    default: return planner.implicit_gemm_generic();
  }
}

}  // namespace gradus::cuda_detail
