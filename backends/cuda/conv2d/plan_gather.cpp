// The plan of the algorithm that select.cpp has chosen for a gather, that is, a forward convolution or a gradient of
// images: tile, split-K, workspace.
#include <limits>
#include <numeric>

#include <gradus/backends/cuda/conv2d/tile_sizes.h>

namespace gradus::cuda_detail {
namespace {

constexpr size_t aligned(int64_t bytes) { return static_cast<size_t>(ceil_div(bytes, 256) * 256); }

/// A gather with the plan that it gets.
struct GatherPlanner {
  const ConvProblem& p;
  const DeviceProperties& device;
  ConvPlan& plan;
  const ConvOperand &in = p.in(), &out = p.out();
  const bool forward = p.pass == ConvPass::forward;
  const int64_t groups = p.geometry.groups, rows = out.shape[1] / groups, channels = in.shape[1] / groups;
  const int64_t height = out.shape[2], width = out.shape[3], positions = out.shape[0] * height * width;
  const int64_t kernel = p.w.shape[2] * p.w.shape[3], element = static_cast<int64_t>(size_of(p.dtype));

  /// How many rows a thread makes. More of them for what it loads, unless multiprocessors then idle.
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
    const int64_t row_tiles = ceil_div(rows, of_thread), most = most_threads / row_tiles;  // strips of a block
    const int64_t columns = ceil_div(line, std::min(line, most)), strips = ceil_div(line, columns);
    const int64_t least_bands = ceil_div(device.multiprocessors, columns * images * groups);  // work for all of them
    const int64_t tile_height =
        ceil_div(height, std::min(height, std::max(ceil_div(height, most / strips), least_bands)));
    const int64_t bands = ceil_div(height, tile_height);
    const int64_t fitting = std::min(most / (strips * tile_height), images * groups / device.multiprocessors);
    const int64_t together = bands * columns == 1 ? std::clamp<int64_t>(fitting, 1, images) : 1;

    const int64_t of_tap = row_tiles * direct_weight_step(of_thread);
    const int64_t weight_pitch = of_tap + (of_tap >= 8 ? 4 : 0);               // neighbouring taps in different banks
    const int64_t quads = together * (tile_height + size - 1) * (strips + 1);  // of a channel
    const int64_t bytes = 16 * quads + 4 * size * size * weight_pitch;         // of it and its weights
    const int64_t chunks = ceil_div(channels, static_cast<int64_t>(kDirectBytes) / bytes);
    const int64_t of_chunk = ceil_div(channels, chunks);

    bool whole = out.strides[3] == 1 && width % kStrip == 0 && out.alignment >= kStrip * element;
    for (int i = 0; i < 3; ++i) whole = whole && out.strides[i] % kStrip == 0;
    const auto corner = [&](int i) {
      return static_cast<int>(forward ? -p.geometry.padding[i] : p.geometry.padding[i] - size + 1);
    };
    plan.direct = {.image_count = u32(images),
                   .row_tiles = u32(row_tiles),
                   .channels = u32(of_chunk),
                   .weight_pitch = u32(weight_pitch),
                   .top = corner(0),
                   .left = corner(1),
                   .strips = Divisor(strips),
                   .height = Divisor(tile_height),
                   .images = Divisor(together),
                   .columns = Divisor(columns),
                   .bands = Divisor(bands),
                   .quads = Divisor(strips + 1),
                   .lines = Divisor(tile_height + size - 1),
                   .staged = Divisor(of_chunk),
                   .planes = in.strides[3] == 1,
                   .whole_strips = whole,
                   .dense_lines = out.strides[1] == 1 && out.strides[3] == rows && rows > 1,
                   .strip_rows = Divisor(kStrip * rows)};

    const int64_t block_strips = together * tile_height * strips;
    const int64_t results = plan.direct.dense_lines ? block_strips * plan.direct.strip_pitch() : 0;  // before stores
    plan.shared_bytes = static_cast<size_t>(std::max(of_chunk * bytes, 4 * results));
    // More threads than strips where there is much to stage.
    const int64_t weights = row_tiles * of_thread * of_chunk * size * size;
    const int64_t staging = std::max(of_chunk * quads / kQuadsAtOnce, weights / kWeightsAtOnce);
    const int64_t threads = std::max(row_tiles * block_strips, std::min(staging, most_threads));
    plan.threads = u32(ceil_div(threads, 32) * 32);
    plan.blocks = u32(columns * bands * ceil_div(images, together));
    plan.tile = {of_thread, static_cast<int>(kStrip * block_strips)};
  }

  void few_channel_mma() const {
    plan.few_channel = *few_channel_tiling(p, plan.math_mode);
    plan.k_steps = plan.few_channel.taps > 32 ? 4 : plan.few_channel.taps > 16 ? 2 : 1;
    const int filters = plan.k_steps < 4 && rows > kFewChannelFilters ? 2 * kFewChannelFilters : kFewChannelFilters;
    plan.tile = {filters, static_cast<int>(plan.few_channel.tile_rows * width)};
    plan.shared_bytes = 2 * size_t{plan.few_channel.size};
    plan.blocks = u32(std::clamp<int64_t>(kFewChannelBlocks * device.multiprocessors / ceil_div(rows, filters), 1,
                                          plan.few_channel.tile_count));
  }

  /// Packed weights, then the parts of the sums, of an implicit GEMM over `steps` of the depth.
  void add_workspace(int64_t steps, int64_t splits, int64_t of_positions) const {
    const size_t packed =
        aligned(groups * steps * ceil_div(rows, plan.tile.rows) * plan.tile.rows * static_cast<int64_t>(kRowBytes));
    const size_t partial = splits > 1 ? static_cast<size_t>(4 * splits * groups * rows * of_positions) : 0;
    plan.partial_offset = std::max(plan.partial_offset, packed);
    plan.workspace_bytes = std::max(plan.workspace_bytes, plan.partial_offset + partial);
  }

  void implicit_gemm() const {
    plan.tile = rows <= kWarpRows ? warps_tile(1, 4) : warps_tile(2, 2);
    const int64_t steps = ceil_div(channels * element, kRowBytes) * kernel;
    const int64_t tiles = ceil_div(rows, plan.tile.rows) * ceil_div(positions, plan.tile.columns);
    // Where tiles are too few to fill the device, the steps are split.
    const int64_t resident = implicit_blocks(plan.math_mode, warps_of(plan.tile)) * device.multiprocessors;
    const int64_t wanted = std::min(resident / (tiles * groups), steps / 8);
    plan.per_split = u32(wanted > 1 ? ceil_div(steps, wanted) : steps);
    plan.split_k = u32(ceil_div(steps, plan.per_split));
    const int64_t vec = 16 / element;
    plan.vectorized = in.strides[1] == 1 && in.strides[0] % vec == 0 && in.strides[2] % vec == 0 &&
                      in.strides[3] % vec == 0 && in.alignment == 16;
    add_workspace(steps, plan.split_k, positions);
  }

  /// Of the taps along an axis those of the results at, at + stride, …
  ConvPhase::Axis phase_of(int at, int axis) const {
    const int dilation = static_cast<int>(forward ? -p.geometry.dilation[axis] : p.geometry.dilation[axis]);
    const int origin = static_cast<int>(forward ? -p.geometry.padding[axis] : p.geometry.padding[axis]);
    const int stride = forward ? 1 : static_cast<int>(p.geometry.stride[axis]);
    const int taps = static_cast<int>(p.w.shape[2 + axis]);
    const int period = stride / std::gcd(stride, dilation);
    int first = 0;
    while (first < period && (at + origin - first * dilation) % stride != 0) ++first;
    const int count = first < period && first < taps ? (taps - first + period - 1) / period : 0;
    return {.at = at,
            .size = static_cast<int>(ceil_div(out.shape[2 + axis] - at, stride)),
            .first = first,
            .period = period,
            .count = count,
            .origin = count > 0 ? (at + origin - first * dilation) / stride : 0,
            .step = -period * dilation / stride};
  }
  void implicit_gemm_async() const {
    plan.tile = rows <= 32 ? warps_tile(1, 3) : rows <= 64 ? warps_tile(2, 1) : warps_tile(4, 1);
    const int64_t resident = fma_blocks(warps_of(plan.tile)) * device.multiprocessors;
    const auto phases = [&](int axis) { return forward ? 1 : std::min(p.geometry.stride[axis], out.shape[2 + axis]); };
    for (int i = 0; i < phases(0); ++i)
      for (int j = 0; j < phases(1); ++j) {
        ConvPhase phase{phase_of(i, 0), phase_of(j, 1), 1, 0};
        const int64_t steps = channels / 16 * phase.h.count * phase.w.count;
        const int64_t of_positions = out.shape[0] * phase.h.size * phase.w.size;
        const int64_t tiles = ceil_div(rows, plan.tile.rows) * ceil_div(of_positions, plan.tile.columns);
        phase.split_k = u32(balanced_splits(tiles * groups, steps, resident));
        phase.per_split = u32(ceil_div(steps, phase.split_k));
        plan.split_k = std::max(plan.split_k, phase.split_k);
        plan.phases.push_back(phase);
        add_workspace(steps, 1, 0);
      }
    for (const ConvPhase& phase : plan.phases)  // behind the packed weights of any
      add_workspace(0, phase.split_k, out.shape[0] * phase.h.size * phase.w.size);
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
    if ((splits - 1) * length >= steps && splits > 1) continue;  // the last would be empty
    const int64_t cost = ceil_div(blocks * splits, resident) * (length + overhead);
    if (cost < least) least = cost, best = splits;
  }
  return best;
}

std::optional<FewChannelTiling> few_channel_tiling(const ConvProblem& p, std::optional<MathMode> mode) {
  constexpr int64_t most_channels = 7, most_taps = 64;
  constexpr int64_t most_pixels = 384, most_bytes = 24 << 10;  // of a tile, unless a row has more; of a buffer
  const int64_t channels = p.w.shape[1], kernel = p.w.shape[2] * p.w.shape[3];
  if (mode != MathMode::half || channels > most_channels || channels * kernel > most_taps || p.y.shape[1] % 8 != 0 ||
      p.geometry.groups != 1 || p.y.alignment != 16 || !p.y.is_dense(true))
    return std::nullopt;
  for (const ConvOperand* operand : {&p.x, &p.w, &p.y})
    if (operand->numel() == 0 || (operand != &p.w && operand->numel() >= int64_t{1} << 31)) return std::nullopt;
  const bool inner = p.x.strides[1] == 1 && p.x.strides[3] == channels;  // channels innermost, else planes
  if (!inner && p.x.strides[3] != 1) return std::nullopt;

  const int64_t pixel = inner ? channels : 1, planes = inner ? 1 : channels, line = p.x.shape[3] * pixel;
  const auto up = [](int64_t elements) { return ceil_div(2 * elements, 16) * 16; };  // to bytes of whole vectors
  const Conv2dGeometry& geometry = p.geometry;
  const int64_t reach = (p.y.shape[3] - 1) * geometry.stride[1] + (p.w.shape[3] - 1) * geometry.dilation[1] + 1;
  const int64_t front = up(geometry.padding[1] * pixel);
  const int64_t pitch = front + up(std::max(line, (reach - geometry.padding[1]) * pixel));
  const int64_t tap_rows = (p.w.shape[2] - 1) * geometry.dilation[0] + 1;
  const auto lines_of = [&](int64_t rows) { return ((rows - 1) * geometry.stride[0] + tap_rows) * planes; };
  const auto size_of_buffer = [&](int64_t rows) { return (lines_of(rows) + tap_rows * planes) * pitch; };
  // (Smaller tiles for few images, so that all multiprocessors have one, took 1 us off the gradient's 6.7 for 32 images
  // of 3x32x32 and changed nothing else.)
  int64_t rows = std::clamp<int64_t>(most_pixels / p.y.shape[3], 1, p.y.shape[2]);
  while (rows > 1 && size_of_buffer(rows) > most_bytes) --rows;
  if (size_of_buffer(rows) > most_bytes) return std::nullopt;
  const int64_t tiles = ceil_div(p.y.shape[2], rows);
  rows = ceil_div(p.y.shape[2], tiles);  // much the same for all

  int64_t piece = p.x.alignment;
  for (const int64_t length : {line, p.x.strides[0], p.x.strides[2], inner ? 0 : p.x.strides[1]})
    while (piece > 2 && length * 2 % piece != 0) piece /= 2;
  piece = std::max<int64_t>(piece, 2);
  return FewChannelTiling{.tiles = Divisor(tiles),
                          .tile_count = u32(p.x.shape[0] * tiles),
                          .tile_rows = u32(rows),
                          .out_height = u32(p.y.shape[2]),
                          .out_width = Divisor(p.y.shape[3]),
                          .stride = static_cast<int>(geometry.stride[0]),
                          .padding = static_cast<int>(geometry.padding[0]),
                          .in_height = static_cast<int>(p.x.shape[2]),
                          .x_image = p.x.strides[0],
                          .x_row = p.x.strides[2],
                          .x_plane = p.x.strides[1],
                          .planes = Divisor(planes),
                          .pieces = Divisor(line * 2 / piece),
                          .piece = u32(piece),
                          .lines = u32(lines_of(rows)),
                          .pitch = u32(pitch),
                          .front = u32(front),
                          .origin = u32(front - 2 * geometry.padding[1] * pixel),
                          .row_step = u32(geometry.stride[0] * planes * pitch),
                          .column_step = u32(2 * geometry.stride[1] * pixel),
                          .zeros = u32(lines_of(rows) * pitch),
                          .size = u32(size_of_buffer(rows)),
                          .taps = u32(channels * kernel),
                          .kernel = Divisor(kernel),
                          .kernel_width = Divisor(p.w.shape[3]),
                          .tap_channel = u32(inner ? 2 : pitch),
                          .tap_row = u32(geometry.dilation[0] * planes * pitch),
                          .tap_column = u32(2 * geometry.dilation[1] * pixel)};
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
