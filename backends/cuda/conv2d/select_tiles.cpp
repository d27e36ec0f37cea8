// How select() cuts a problem: tiles, parts of sums, workspace.
#include <limits>
#include <numeric>

#include <gradus/backends/cuda/conv2d/tiles.h>

namespace gradus::cuda_detail {
namespace {

constexpr uint32_t u32(int64_t size) { return static_cast<uint32_t>(size); }
constexpr size_t aligned(int64_t bytes) { return static_cast<size_t>(ceil_div(bytes, 256) * 256); }

/// Into how many parts to cut sums of so many steps, which `blocks` blocks make, for a device that runs `resident` of
/// them at a time: the whole is done after the fewest steps, where beginning and end of a block cost some, too. Parts
/// beyond max_waves waves even out little and take memory.
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
  int stencil_rows() const {
    const int64_t strips = out.shape[0] * height * ceil_div(width, kStrip);
    int best = 0;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const int of_thread : kStencilRows) {
      const int64_t warps = ceil_div(strips * groups * ceil_div(rows, of_thread), 32);
      const int64_t cost = ceil_div(warps, 4 * device.multiprocessors) * (of_thread + 1);
      if (cost < least) least = cost, best = of_thread;
    }
    return best;
  }
  void stencil() const {
    constexpr int64_t most_threads = 256;
    const int of_thread = stencil_rows();
    const int64_t size = p.w.shape[3], line = ceil_div(width, kStrip), images = out.shape[0];
    StencilTiling& tiling = plan.stencil;
    tiling.row_tiles = u32(ceil_div(rows, of_thread));
    const int64_t most = most_threads / tiling.row_tiles;  // strips of a block
    const int64_t columns = ceil_div(line, std::min(line, most)), strips = ceil_div(line, columns);
    const int64_t least_bands = ceil_div(device.multiprocessors, columns * images * groups);  // work for all of them
    const int64_t tile_height =
        ceil_div(height, std::min(height, std::max(ceil_div(height, most / strips), least_bands)));
    const int64_t bands = ceil_div(height, tile_height);
    const int64_t fitting = std::min(most / (strips * tile_height), images * groups / device.multiprocessors);
    const int64_t together = bands * columns == 1 ? std::clamp<int64_t>(fitting, 1, images) : 1;
    tiling.strips = u32(strips), tiling.height = u32(tile_height), tiling.images = u32(together);
    tiling.columns = u32(columns), tiling.bands = u32(bands);

    const uint32_t of_tap = tiling.row_tiles * stencil_weight_step(of_thread);
    tiling.weight_pitch = of_tap + (of_tap >= 8 ? 4 : 0);                      // neighbouring taps in different banks
    const int64_t quads = together * (tile_height + size - 1) * (strips + 1);  // of a channel
    const int64_t weights = size * size * tiling.weight_pitch;                 // floats
    const int64_t chunks = ceil_div(channels, static_cast<int64_t>(kStencilBytes) / (16 * quads + 4 * weights));
    tiling.channels = u32(ceil_div(channels, chunks));

    tiling.planes = in.strides[3] == 1;
    bool whole = out.strides[3] == 1 && width % kStrip == 0 && out.alignment >= kStrip * element;
    for (int i = 0; i < 3; ++i) whole = whole && out.strides[i] % kStrip == 0;
    tiling.whole_strips = whole;
    tiling.dense_lines = out.strides[1] == 1 && out.strides[3] == rows && rows > 1;

    const int64_t block_strips = together * tile_height * strips;
    const int64_t results = tiling.dense_lines ? block_strips * (kStrip * rows + 1) : 0;  // wait to be stored in lines
    plan.shared_bytes = static_cast<size_t>(std::max(tiling.channels * (16 * quads + 4 * weights), 4 * results));
    // More threads than strips where there is much to stage.
    const int64_t staged_weights = tiling.row_tiles * of_thread * tiling.channels * size * size;
    const int64_t staging = std::max(tiling.channels * quads / kQuadsAtOnce, staged_weights / kWeightsAtOnce);
    const int64_t threads = std::max(tiling.row_tiles * block_strips, std::min(staging, most_threads));
    tiling.threads = u32(ceil_div(threads, 32) * 32);
    plan.tile = {of_thread, static_cast<int>(kStrip * block_strips)};
  }

  void direct() const {
    // Two positions per thread halve the loads of weights, once there are blocks for the whole device.
    const bool many = p.dtype != DType::f64 && positions >= 64 * device.multiprocessors;
    plan.tile = {rows <= 8 ? 8 : 16, many ? 64 : 32};
  }

  void thin() const {
    plan.thin = *thin_tiling(p, plan.math_mode);
    const int64_t taps = channels * kernel;
    ThinTiling& tiling = plan.thin;
    tiling.k_steps = taps > 32 ? 4 : taps > 16 ? 2 : 1;
    const int filters = tiling.k_steps < 4 && rows > kThinFilters ? 2 * kThinFilters : kThinFilters;
    plan.tile = {filters, static_cast<int>(tiling.rows * width)};
    plan.shared_bytes = 2 * size_t{tiling.buffer_bytes};
    tiling.blocks = u32(std::clamp<int64_t>(kThinBlocks * device.multiprocessors / ceil_div(rows, filters), 1,
                                            out.shape[0] * tiling.tiles));
  }

  /// Packed weights, then the parts of the sums, of an implicit GEMM over `steps` of the depth.
  void add_workspace(int64_t steps, int64_t splits, int64_t of_positions) const {
    const size_t packed =
        aligned(groups * steps * ceil_div(rows, plan.tile.rows) * plan.tile.rows * static_cast<int64_t>(kRowBytes));
    const size_t partial = splits > 1 ? static_cast<size_t>(4 * splits * groups * rows * of_positions) : 0;
    plan.partial_offset = std::max(plan.partial_offset, packed);
    plan.workspace_bytes = std::max(plan.workspace_bytes, plan.partial_offset + partial);
  }

  void implicit() const {
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
  void fma() const {
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

  void tiled() const { plan.tile = {rows <= 32 ? 32 : 64, 128}; }
};

/// A gradient of weights with the plan that it gets.
struct WeightPlanner {
  const ConvProblem& p;
  const DeviceProperties& device;
  ConvPlan& plan;
  const int64_t groups = p.geometry.groups, rows = p.w.shape[0] / groups, kernel = p.w.shape[2] * p.w.shape[3];
  const int64_t taps = p.w.shape[1] * kernel, columns = taps + (p.bias ? 1 : 0);
  const int64_t positions = p.y.shape[0] * p.y.shape[2] * p.y.shape[3];

  int64_t tiles(int64_t of_columns) const {
    return ceil_div(rows, plan.tile.rows) * ceil_div(of_columns, plan.tile.columns);
  }
  /// Enough splits to fill the device, each long enough to be worth its sum.
  void fill(int64_t blocks, int64_t waves, int64_t shortest) const {
    const int64_t wanted = waves * device.multiprocessors / (blocks * groups);
    plan.split_k = u32(std::clamp<int64_t>(std::min(wanted, positions / shortest), 1, 1024));
  }
  void balance(int64_t blocks, int64_t step, int64_t resident) const {
    plan.split_k = u32(balanced_splits(blocks * groups, ceil_div(positions, step), resident * device.multiprocessors));
  }

  void direct() const {
    plan.tile = {rows <= 8 ? 8 : rows <= 16 ? 16 : 32, kDirectColumns};
    plan.sharers = rows <= kDirectRows || columns > 16 ? 1 : columns <= 8 ? 4 : 2;
    fill(tiles(columns), rows <= kDirectRows ? 4 : 2, kDirectPositions);
  }
  void narrow() const {
    plan.tile = {kNarrowColumns, kNarrowColumns};
    balance(ceil_div(rows, kNarrowColumns), kNarrowPositions, kNarrowBlocks);
  }
  void fma() const {  // the filters are columns of the tile in shared memory
    const ConvTile tile = warps_tile(3, rows > 64 ? 2 : 1);
    plan.tile = {tile.columns, tile.rows};
    balance(tiles(taps), 16, fma_blocks(warps_of(tile)));
  }
  void implicit() const {
    plan.tile = implicit_weight_tile(rows);
    plan.vectorized = p.x.strides[1] == 1;
    fill(tiles(taps), 2, 64);
  }
  void tiled() const {
    plan.tile = {rows <= 32 ? 32 : 64, 128};
    fill(tiles(columns), 2, 64);
  }
  void thin() const {
    plan.thin = *thin_tiling(p, plan.math_mode);
    plan.tile = columns > 32 ? ConvTile{32, 72} : ConvTile{rows > 32 ? 64 : 32, columns > 16 ? 32 : 16};
    const int64_t wanted =
        thin_weight_blocks(plan.tile.rows, plan.tile.columns) * device.multiprocessors / ceil_div(rows, plan.tile.rows);
    plan.split_k = u32(std::clamp<int64_t>(wanted, 1, p.x.shape[0] * plan.thin.tiles));
    const size_t sums = kThinWarps * sizeof(float) * plan.tile.rows * (plan.tile.columns + 1);
    plan.shared_bytes = std::max(2 * size_t{plan.thin.buffer_bytes}, sums);
  }
  void sliding() const;

  /// Work space for the parts, and who adds them.
  void add_parts() const {
    const int64_t parts = int64_t{plan.split_k} * plan.sharers, results = groups * rows * columns;
    plan.workspace_bytes = static_cast<size_t>((p.dtype == DType::f64 ? 8 : 4) * parts * results);
    const bool channels_innermost = plan.algorithm == ConvAlgorithm::fma || plan.algorithm == ConvAlgorithm::implicit;
    if (channels_innermost && parts <= kMostTransposedParts && kernel <= kMostTransposedTaps) return;
    // One thread sums few parts, many are shared; those of few results always, so that they fill the device.
    constexpr int64_t few = 4096;
    plan.reduce_lanes = parts <= 64 && results > few ? 1 : parts <= 128 && results > few ? 8 : 32;
  }
};

int sliding_shape(int64_t side, int64_t filters, int64_t channels, bool along_filters) {
  if (side == 5) return filters <= 6 ? 0 : 1;
  if (filters == 1) return 2;
  if (filters <= 8) return 3;
  return (channels % 3 == 0 ? 4 : 6) + (along_filters ? 0 : 1);
}

/// Floats from line to line of x in shared memory, with zeros beside each.
uint32_t sliding_pitch(const ConvProblem& p) {
  const int64_t reach =
      std::max(p.geometry.padding[1] + p.x.shape[3], ceil_div(p.y.shape[3], 4) * 4 + p.w.shape[3] - 1);
  return u32(ceil_div(reach, 4) * 4);
}

/// That each of so many blocks on a multiprocessor may have. The system takes some for each.
size_t shared_memory_of(const DeviceProperties& device, int blocks) {
  constexpr size_t system = 1024;
  return (device.shared_memory + system) / blocks - system;
}

void WeightPlanner::sliding() const {
  SlidingTiling& tiling = plan.sliding;
  const int64_t channels = p.w.shape[1], side = p.w.shape[2];
  tiling.shape = sliding_shape(side, rows, channels, p.y.strides[1] == 1);
  const SlidingSizes& shape = kSlidingSizes[tiling.shape];
  tiling.pitch = sliding_pitch(p);
  tiling.interleaved =
      shape.channels > 1 && channels == shape.channels && p.x.strides[1] == 1 && p.x.strides[3] == channels;
  plan.tile = {shape.filters * shape.groups, static_cast<int>(shape.channels * side * side)};

  // Of the ways to cut the positions after which the blocks are done soonest, where a tile costs a quarter of a step,
  // too, or a twentieth later, the one with the smallest tiles: what all blocks read at a time is then close together.
  constexpr int64_t most_images = 16;
  const int64_t slots = shape.threads / shape.groups, images = p.y.shape[0], height = p.y.shape[2];
  const int64_t quads = ceil_div(p.y.shape[3], 4),
                blocks = ceil_div(rows, plan.tile.rows) * (channels / shape.channels);
  const int64_t resident = std::max<int64_t>(shape.blocks * device.multiprocessors / (blocks * groups), 1);
  const size_t memory = shared_memory_of(device, shape.blocks);
  const auto cut = [&](int64_t of_tile, int64_t band) {
    tiling.images = u32(of_tile), tiling.band = u32(band);
    tiling.tiles = u32(ceil_div(images, of_tile) * ceil_div(height, band));
    tiling.buffer_floats = u32(of_tile * shape.channels * (band + side - 1) * tiling.pitch);
    tiling.steps = u32(ceil_div(of_tile * band * quads, slots));
    const bool fits = shape.shared_bytes(sizeof(float), tiling.buffer_floats, true) <= memory;
    return fits ? static_cast<double>(ceil_div(tiling.tiles, resident)) * (tiling.steps + 0.25)
                : std::numeric_limits<double>::infinity();
  };
  double least = std::numeric_limits<double>::infinity();
  const auto first_below = [&](double bound) {
    for (int64_t bands = height, last = 0; bands > 0; --bands) {
      const int64_t band = ceil_div(height, bands);
      if (band == last) continue;
      const double cost = cut(1, last = band);
      if (cost <= bound) return;
      least = std::min(least, cost);
    }
    for (int64_t of_tile = 2; of_tile <= std::min(images, most_images); ++of_tile) {
      const double cost = cut(of_tile, height);
      if (cost <= bound) return;
      least = std::min(least, cost);
    }
  };
  first_below(0);
  first_below(1.05 * least);
  plan.split_k = u32(std::min<int64_t>(resident, tiling.tiles));
  plan.shared_bytes = shape.shared_bytes(size_of(p.dtype), tiling.buffer_floats, p.mask_alignment > 0);
}

}  // namespace

std::optional<ThinTiling> thin_tiling(const ConvProblem& p, std::optional<MathMode> mode) {
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

  int64_t copy_bytes = p.x.alignment;
  for (const int64_t length : {line, p.x.strides[0], p.x.strides[2], inner ? 0 : p.x.strides[1]})
    while (copy_bytes > 2 && length * 2 % copy_bytes != 0) copy_bytes /= 2;
  return ThinTiling{.channels_innermost = inner,
                    .rows = u32(rows),
                    .tiles = u32(tiles),
                    .copy_bytes = u32(std::max<int64_t>(copy_bytes, 2)),
                    .lines = u32(lines_of(rows)),
                    .front = u32(front),
                    .pitch = u32(pitch),
                    .buffer_bytes = u32(size_of_buffer(rows))};
}

bool can_slide(const ConvProblem& p, const DeviceProperties& device) {
  constexpr int64_t most_channels = 6, most_filters = 128;
  const int64_t side = p.w.shape[2], filters = p.w.shape[0] / p.geometry.groups, width = p.y.shape[3];
  if (!(side == 3 || (side == 5 && filters <= 16)) || p.w.shape[3] != side || p.w.shape[1] > most_channels ||
      filters > most_filters || p.dtype == DType::f64 || device.compute_capability < 80 || p.x.numel() == 0 ||
      p.y.span() >= int64_t{1} << 31 || p.is_strided() || p.geometry.dilation[0] != 1 || p.geometry.dilation[1] != 1)
    return false;
  const SlidingSizes& shape = kSlidingSizes[sliding_shape(side, filters, p.w.shape[1], p.y.strides[1] == 1)];
  // Do whole vectors of dy exist and are they aligned? (A quad that a row ends in would multiply zeros with elements of
  // x that no tap reads, and those may be infinite.)
  const int along = shape.along_filters ? 1 : 3;
  if (p.y.strides[along] != 1 || width % (shape.along_filters ? 4 : shape.vec) != 0 ||
      (shape.along_filters && filters % shape.vec != 0) ||
      p.y.alignment < shape.vec * static_cast<int64_t>(size_of(p.dtype)))
    return false;
  for (int i = 0; i < 4; ++i)
    if (i != along && p.y.shape[i] != 1 && p.y.strides[i] % shape.vec != 0) return false;
  const uint32_t line = sliding_pitch(p) * static_cast<uint32_t>(shape.channels * side);
  return shape.shared_bytes(sizeof(float), line, true) <= shared_memory_of(device, shape.blocks);
}

ConvTile implicit_weight_tile(int64_t rows) { return rows <= kWarpRows ? warps_tile(1, 5) : warps_tile(2, 3); }

void plan_gather(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan) {
  const GatherPlanner planner{problem, device, plan};
  switch (plan.algorithm) {
    case ConvAlgorithm::stencil: return planner.stencil();
    case ConvAlgorithm::direct: return planner.direct();
    case ConvAlgorithm::thin: return planner.thin();
    case ConvAlgorithm::fma: return planner.fma();
    case ConvAlgorithm::implicit: return planner.implicit();
    default: return planner.tiled();
  }
}

void plan_weight(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan) {
  const WeightPlanner planner{problem, device, plan};
  int64_t unit = 1;  // of pixels that a part consists of
  switch (plan.algorithm) {
    case ConvAlgorithm::direct: planner.direct(), unit = kDirectPositions; break;
    case ConvAlgorithm::narrow: planner.narrow(), unit = kNarrowPositions; break;
    case ConvAlgorithm::fma: planner.fma(), unit = 16; break;
    case ConvAlgorithm::implicit: planner.implicit(); break;
    case ConvAlgorithm::sliding: planner.sliding(); break;
    case ConvAlgorithm::thin: planner.thin(); break;
    default: planner.tiled(); break;
  }
  plan.per_split = u32(ceil_div(ceil_div(planner.positions, plan.split_k), unit) * unit);
  planner.add_parts();
}

}  // namespace gradus::cuda_detail
