// Plans depthwise convolutions (depthwise.cu), in which one or several filters read each channel, and counts their
// work.
#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cuda_detail {
namespace {

using Axis = DepthwiseTiling::Axis;

constexpr int64_t kMostThreads = kThreads, kMostSharedBytes = 48 << 10;
constexpr int64_t kBlocksWanted = 4;  // number of blocks for each multiprocessor

Axis axis_of(const ConvProblem& p, int axis) {
  const Conv2dGeometry& g = p.geometry;
  return {.in = static_cast<int>(p.in().shape[2 + axis]),
          .out = static_cast<int>(p.out().shape[2 + axis]),
          .taps = static_cast<int>(p.w.shape[2 + axis]),
          .padding = static_cast<int>(g.padding[axis]),
          .dilation = static_cast<int>(g.dilation[axis]),
          .stride = Divisor(g.stride[axis])};
}

/// Returns the width of the filters if there is a specialised kernel for this problem, otherwise 0.
int known_side(const ConvProblem& p, const DepthwiseTiling& t, bool planes) {
  const int side = t.w.taps, stride = static_cast<int>(t.w.stride.divisor);
  const bool known = (side == 3 || side == 5 || side == 7) && t.w.dilation == 1 && stride <= 2;
  const bool square = t.h.taps == side && t.h.dilation == 1 && t.h.stride.divisor == t.w.stride.divisor;
  return known && (!planes || square) && p.dtype != DType::f64 ? side : 0;
}

/// Divides the work into blocks of channels and pixels (NHWC). Returns false if the weights do not fit in shared
/// memory.
bool cut_channels(const ConvProblem& p, DepthwiseTiling& t) {
  constexpr int64_t most_channels = 64, most_strips = 4, most_rounds = 4;
  const int64_t in_vector = 16 / p.element();
  const bool aligned =
      t.out_channels % in_vector == 0 && t.multiplier.divisor == 1 && p.in().alignment == 16 && p.out().alignment == 16;
  t.vec = aligned ? static_cast<int>(in_vector) : 1;
  t.side = known_side(p, t, false);
  int64_t most = most_channels / t.vec;
  if (!p.is_wgrad()) most = std::min(most, kMostSharedBytes / (4 * t.vec * t.sums.divisor * p.kernel()));
  if (most == 0) return false;
  const int64_t all = t.out_channels / t.vec, slabs = ceil_div(all, most), vectors = ceil_div(all, slabs);
  t.vectors = Divisor(vectors), t.slabs = Divisor(slabs);
  const int64_t wanted = kBlocksWanted * p.device.multiprocessors;
  if (p.is_wgrad()) {
    const int64_t groups = t.side > 0 ? t.h.taps : p.kernel();
    const int64_t strips = ceil_div(t.w.out, kDepthwisePixels);
    const int64_t tap_blocks = ceil_div(groups, std::min(groups, kMostThreads / vectors));
    t.groups = Divisor(ceil_div(groups, tap_blocks)), t.tap_blocks = Divisor(tap_blocks), t.strips = Divisor(strips);
    const int64_t lanes = kMostThreads / (vectors * t.groups.divisor);
    const int64_t most_parts = std::max<int64_t>(t.lines * strips / (2 * lanes), 1);  // two strips for each thread
    const int64_t parts = std::clamp<int64_t>(wanted / (slabs * tap_blocks), 1, std::min<int64_t>(most_parts, t.lines));
    t.split = u32(ceil_div(t.lines, parts));
    t.blocks = u32(slabs * tap_blocks * ceil_div(t.lines, t.split));
    t.threads = u32(vectors * t.groups.divisor * lanes), t.lanes = Divisor(lanes);
    return true;
  }
  if (p.pass == ConvPass::backward_data && t.side > 0) t.shift = t.w.padding % static_cast<int>(t.w.stride.divisor);
  const int64_t line = ceil_div(t.w.out + t.shift, kDepthwisePixels);
  const int64_t across = ceil_div(line, most_strips);
  const int64_t strips = ceil_div(line, across), filling = slabs * across * t.lines / wanted;
  const int64_t lines = std::clamp<int64_t>(std::min(kMostThreads / (vectors * strips), filling), 1, t.lines);
  t.strips = Divisor(strips), t.across = Divisor(across), t.tile_lines = u32(lines);
  const int64_t rounds = std::clamp<int64_t>(filling / (2 * lines), 1, most_rounds);  // tiles that share the weights
  t.split = u32(rounds * lines);
  t.blocks = u32(slabs * across * ceil_div(t.lines, rounds * lines)), t.threads = u32(vectors * strips * lines);
  return true;
}

/// wgrad in NCHW: chooses the number of filters of a block (up to `most`), items of a step and parts for which a
/// multiprocessor has the least work. `bytes`: of a plane (or band) of x and of dy; bytes_of_x: of x alone.
void cut_items(const ConvProblem& p, DepthwiseTiling& t, int64_t bytes_of_x, int64_t bytes, int64_t few_bytes,
               int64_t most) {
  // A multiprocessor has registers for kBlocksWanted blocks of most_threads. The planes of an item have at least
  // least_bytes. The work of a block, in steps of threads: it starts in start_steps, and a result takes result_steps.
  constexpr int64_t most_threads = kMostThreads / 2, least_bytes = 128, start_steps = 2, result_steps = 2;
  const int64_t units = t.strips.divisor * t.row_groups.divisor, kernel = p.kernel();
  const int64_t items = p.out().shape[0] * t.bands.divisor, processors = p.device.multiprocessors;
  t.tap_blocks = Divisor(t.side > 0 ? 1 : kernel);
  most = std::clamp<int64_t>(most_threads / units, 1, most);
  int64_t least_work = std::numeric_limits<int64_t>::max();
  for (int64_t filters = std::min(most, ceil_div(least_bytes, bytes)); filters <= most; ++filters) {
    const auto vectors = [&](int64_t of_plane) { return ceil_div(filters * of_plane, int64_t{16}) + 1; };
    const int64_t of_x = vectors(bytes_of_x), buffer = (of_x + vectors(bytes - bytes_of_x)) | 1;
    const int64_t fitting = std::min(most_threads / (units * filters), few_bytes / (16 * buffer));
    const int64_t most_lanes = std::clamp<int64_t>(fitting, 1, items);
    const int64_t tiles = ceil_div(int64_t{t.out_channels}, filters);
    int64_t blocks = tiles * t.tap_blocks.divisor;
    const int64_t most_parts = ceil_div(items, most_lanes);
    const int64_t wanted = kBlocksWanted * processors / blocks;
    const int64_t split = ceil_div(items, std::clamp<int64_t>(wanted, 1, most_parts));
    const int64_t steps = ceil_div(split, most_lanes), lanes = ceil_div(split, steps);
    const int64_t threads = round_up(units * filters * lanes, int64_t{32});  // whole warps, which add the sums
    blocks *= ceil_div(items, split);
    const int64_t of_block = (steps + start_steps) * threads + result_steps * filters * kernel;
    const int64_t work = ceil_div(blocks, processors) * of_block;
    if (work >= least_work) continue;
    least_work = work;
    t.tile_planes = u32(filters), t.tiles = Divisor(tiles);
    t.lanes = Divisor(lanes), t.split = u32(split);
    t.buffer_of_x = u32(of_x), t.buffer = u32(buffer);
    t.blocks = u32(blocks), t.threads = u32(threads);
  }
}

/// Divides the work into blocks of planes or bands (NCHW). Returns false if four rows of a plane are too many for a
/// block.
bool cut_planes(const ConvProblem& p, DepthwiseTiling& t) {
  constexpr int64_t pixels = kDepthwisePixels;
  t.side = known_side(p, t, true);
  const int64_t size = p.element();
  const auto aligned = [&](const ConvOperand& image, int64_t vec) {
    return image.shape[3] % vec == 0 && image.alignment >= vec * size;
  };
  const bool dgrad = p.pass == ConvPass::backward_data;
  t.vec = aligned(p.in(), pixels) ? pixels : aligned(p.in(), 2) ? 2 : 1, t.whole_strips = aligned(p.out(), pixels);
  if (t.w.padding != t.side / 2 || (dgrad && t.w.stride.divisor > 1)) t.vec = 1;
  const int64_t strips = ceil_div(t.w.out, pixels), all_groups = ceil_div(t.h.out, pixels);
  if (strips > kMostThreads) return false;
  const auto tile_rows = [&](int64_t groups) {
    return (pixels * groups - 1) * (dgrad ? 1 : t.h.stride.divisor) + int64_t{t.h.taps - 1} * t.h.dilation + 1;
  };
  const auto bytes_of_in = [&](int64_t groups) {
    const int64_t rows = dgrad ? tile_rows(groups) / t.h.stride.divisor + 1 : tile_rows(groups);
    return (groups == all_groups ? t.h.in : std::min<int64_t>(rows, t.h.in)) * t.w.in * size;
  };
  const auto bytes = [&](int64_t groups) {
    return bytes_of_in(groups) + (p.is_wgrad() ? std::min<int64_t>(pixels * groups, t.h.out) * t.w.out * size : 0);
  };
  // Buffers (wgrad: their parts for x and dy) begin and end with vectors that contain other bytes.
  constexpr int64_t around = 3 * 32;
  const int64_t shared =
      p.is_wgrad() ? static_cast<int64_t>(p.device.shared_memory) / kDepthwiseBuffers : kMostSharedBytes;
  const int64_t few_bytes = kMostSharedBytes / (p.is_wgrad() ? kDepthwiseBuffers : 2) - around;
  int64_t groups = std::min(all_groups, kMostThreads / strips);
  while (groups > 1 && bytes(groups) > few_bytes) --groups;
  if (bytes(groups) > shared - around) return false;
  const int64_t bands = ceil_div(all_groups, groups);
  const int64_t wanted = kBlocksWanted * p.device.multiprocessors;
  groups = ceil_div(all_groups, bands);
  t.strips = Divisor(strips), t.row_groups = Divisor(groups), t.bands = Divisor(bands);
  t.tile_rows = static_cast<int>(tile_rows(groups));
  const int64_t fitting = bands > 1 ? 1 : std::min(kMostThreads / (strips * groups), few_bytes / bytes(groups));
  if (p.is_wgrad()) {
    cut_items(p, t, bytes_of_in(groups), bytes(groups), few_bytes, std::clamp<int64_t>(fitting, 1, t.out_channels));
    return true;
  }
  const int64_t planes = t.planes;
  const int64_t most = t.sums.divisor > 1 ? 1 : std::min(fitting, planes / wanted);
  const int64_t tiles = ceil_div(planes, std::clamp<int64_t>(most, 1, planes));
  t.tiles = Divisor(tiles), t.tile_planes = u32(ceil_div(planes, tiles));
  t.buffer = u32(ceil_div(t.tile_planes * bytes(groups), int64_t{16}) + 1);
  t.threads = u32(strips * groups * t.tile_planes), t.blocks = u32(tiles * bands);
  return true;
}

/// Returns nothing if the kernels do not support the problem.
std::optional<DepthwiseTiling> depthwise_tiling(const ConvProblem& p) {
  constexpr int64_t most_reach = 1 << 28;
  const bool planes = p.in().is_dense(false) && p.out().is_dense(false);
  if (p.channels() != 1 || p.geometry.groups == 1 || p.dtype == DType::f64 || !p.has_ordinary_sizes() ||
      !(planes || (p.in().is_dense(true) && p.out().is_dense(true))) || (!p.is_wgrad() && !p.w.is_dense(false)))
    return std::nullopt;
  for (int i = 0; i < 2; ++i) {
    const Conv2dGeometry& g = p.geometry;
    for (const int64_t each : {g.padding[i], g.dilation[i], g.stride[i], p.w.shape[2 + i]})
      if (each < 0 || each >= most_reach) return std::nullopt;
    if (g.dilation[i] * p.w.shape[2 + i] >= most_reach || g.stride[i] * (p.y.shape[2 + i] + 4) >= most_reach ||
        g.stride[i] * (p.x.shape[2 + i] + 4) >= most_reach)
      return std::nullopt;
  }
  const Shape& out = p.out().shape;
  DepthwiseTiling t{.h = axis_of(p, 0),
                    .w = axis_of(p, 1),
                    .in_channels = u32(p.in().shape[1]),
                    .out_channels = u32(out[1]),
                    .lines = u32(out[0] * out[2]),
                    .planes = u32(out[0] * out[1]),
                    .multiplier = Divisor(p.filters()),
                    .sums = Divisor(p.pass == ConvPass::backward_data ? p.filters() : 1),
                    .height = Divisor(out[2]),
                    .taps = Divisor(p.kernel())};
  if (!(planes ? cut_planes(p, t) : cut_channels(p, t))) return std::nullopt;
  return t;
}

bool is_planes(const DepthwiseTiling& t) { return t.tile_planes > 0; }

bool can_depthwise(const ConvProblem& p) { return depthwise_tiling(p).has_value(); }

ConvPlan plan_depthwise(const ConvProblem& p) {
  const DepthwiseTiling t = *depthwise_tiling(p);
  const bool planes = is_planes(t);
  const int64_t rows = planes ? t.tile_planes : int64_t{t.vectors.divisor} * t.vec;
  const int64_t lines = planes ? kDepthwisePixels * t.row_groups.divisor : t.tile_lines;
  const int64_t columns = p.is_wgrad() ? p.taps() : lines * t.strips.divisor * kDepthwisePixels;
  const ConvTile tile = {static_cast<int>(rows), static_cast<int>(columns)};
  ConvPlan plan{.tile = tile};
  if (p.is_wgrad()) {
    const int64_t items = planes ? int64_t{t.bands.divisor} * p.y.shape[0] : t.lines;
    plan = wgrad_plan(p, tile, ceil_div(items, int64_t{t.split}));
  } else {  // for any stride there is a single phase
    const auto whole = [](const Axis& axis) { return ConvPhase::Axis{0, axis.out, 0, 1, axis.taps, 0, 0}; };
    plan.phases = {{.h = whole(t.h), .w = whole(t.w)}};
  }
  // Floats: the sums of wgrad's threads, or the weights; in NCHW, a vector of zeros and the buffers.
  const int64_t sums = planes ? std::max(t.side, 1) * (kMostThreads + 1) : kMostThreads * t.vec;
  const int64_t loaded = p.is_wgrad() ? sums : planes ? 0 : t.sums.divisor * p.kernel() * rows;
  const int64_t buffers = (p.is_wgrad() ? kDepthwiseBuffers : 1) * int64_t{t.lanes.divisor} * t.buffer;
  plan.shared_bytes = static_cast<size_t>(4 * std::max(4 * (1 + buffers), loaded));
  plan.tiling = t;
  return plan;
}

// A step is a row of taps of a strip or, in NCHW, a tile. In NHWC, dgrad skips the taps that read no pixel of dy.
KernelWork work_of_depthwise(const ConvProblem& p) {
  const ConvPlan plan = plan_depthwise(p);
  const auto& t = std::get<DepthwiseTiling>(plan.tiling);
  const bool planes = is_planes(t), wgrad = p.is_wgrad(), skips = p.pass == ConvPass::backward_data && !planes;
  const int64_t size = p.element(), sums = t.sums.divisor;
  const int64_t rows = ceil_div(t.h.taps, skips ? t.h.stride.divisor : 1);
  const int64_t taps = ceil_div(t.w.taps, skips ? t.w.stride.divisor : 1);
  const int64_t of_thread = kDepthwisePixels * (planes ? kDepthwisePixels * p.kernel() : t.vec * taps);
  const int64_t loaded =
      planes ? 16 * int64_t{t.lanes.divisor} * t.buffer / size : int64_t{t.threads} * (kDepthwisePixels + taps) * t.vec;
  const int64_t steps = planes  ? sums * std::max<int64_t>(ceil_div(t.split, t.lanes.divisor), 1)
                        : wgrad ? ceil_div(int64_t{t.split} * t.strips.divisor, int64_t{t.lanes.divisor})
                                : sums * rows * t.split / t.tile_lines;
  WorkCounter counter = work_counter(p, MathMode::fma);
  counter.add_tiles({.blocks = t.blocks,
                     .resident = std::max<int64_t>(1024 / t.threads, 1),
                     .steps = steps,
                     .multiply_adds = t.threads * of_thread,
                     .bytes = loaded * size,
                     .elements = t.vec == 1 && !planes ? loaded : 0});
  if (wgrad) counter.add_parts(plan.split_k, p.w.numel());
  return counter.work();
}

}  // namespace

constinit const ConvAlgorithm kDepthwise = {
    .name = "depthwise",
    .reason = "as many groups as channels",
    .parts = kTileParts,
    .can_run = can_depthwise,
    .work = work_of_depthwise,
    .plan = plan_depthwise,
    .launch = kHasKernels ? launch_depthwise : nullptr,
};

}  // namespace gradus::cuda_detail
