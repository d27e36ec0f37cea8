// direct: 3x3 and 5x5 with few channels, on the FMA units (direct.cu, direct_wgrad.cu).
#include <limits>

#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cuda_detail {
namespace {

// ---- fprop and dgrad ----

bool can_direct_fprop(const ConvProblem& p) {
  const int64_t size = p.w.shape[3];
  return (size == 3 || size == 5) && p.w.shape[2] == size && !p.is_strided() && p.geometry.dilation[0] == 1 &&
         p.geometry.dilation[1] == 1 && p.rows() <= kMaxDirectRows && p.in().numel() > 0 && p.dtype != DType::f64 &&
         std::max(p.in().span(), p.w.span()) < kShortSpan;
}

/// The number of rows that a thread computes. Many rows share the input that the thread loads, but leave fewer threads
/// for the multiprocessors.
int direct_rows(const ConvProblem& p) {
  const Shape& out = p.out().shape;
  const int64_t strips = out[0] * out[2] * ceil_div(out[3], kStrip);
  int best = 0;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const int of_thread : kDirectRowChoices) {
    const int64_t warps = ceil_div(strips * p.geometry.groups * ceil_div(p.rows(), of_thread), 32);
    const int64_t cost = ceil_div(warps, 4 * p.device.multiprocessors) * (of_thread + 1);
    if (cost < least) least = cost, best = of_thread;
  }
  return best;
}

ConvPlan plan_direct_fprop(const ConvProblem& p) {
  constexpr int64_t most_threads = 256;
  const ConvOperand& out = p.out();
  const int64_t groups = p.geometry.groups, images = out.shape[0], height = out.shape[2], width = out.shape[3];
  const int of_thread = direct_rows(p);
  const int64_t size = p.w.shape[3], line = ceil_div(width, kStrip);
  const int64_t row_tiles = ceil_div(p.rows(), of_thread),
                most = most_threads / row_tiles;  // maximum number of strips of a block
  const int64_t columns = ceil_div(line, std::min(line, most)), strips = ceil_div(line, columns);
  const int64_t least_bands =
      ceil_div(p.device.multiprocessors, columns * images * groups);  // at least one block for each multiprocessor
  const int64_t tile_height =
      ceil_div(height, std::min(height, std::max(ceil_div(height, most / strips), least_bands)));
  const int64_t bands = ceil_div(height, tile_height);
  const int64_t fitting = std::min(most / (strips * tile_height), images * groups / p.device.multiprocessors);
  const int64_t together = bands * columns == 1 ? std::clamp<int64_t>(fitting, 1, images) : 1;

  const int64_t of_tap = row_tiles * direct_weight_step(of_thread);
  const int64_t weight_pitch = of_tap + (of_tap >= 8 ? 4 : 0);               // keeps neighbouring taps in other banks
  const int64_t quads = together * (tile_height + size - 1) * (strips + 1);  // quads of a channel
  const int64_t bytes = 16 * quads + 4 * size * size * weight_pitch;         // bytes of a channel and its weights
  const int64_t chunks = ceil_div(p.depth_channels(), static_cast<int64_t>(kDirectBytes) / bytes);
  const int64_t of_chunk = ceil_div(p.depth_channels(), chunks);

  bool whole = out.strides[3] == 1 && width % kStrip == 0 && out.alignment >= kStrip * p.element();
  for (int i = 0; i < 3; ++i) whole = whole && out.strides[i] % kStrip == 0;

  const int64_t block_strips = together * tile_height * strips;
  // A block has more threads than strips if there is much input, or many weights, to copy into shared memory.
  const int64_t weights = row_tiles * of_thread * of_chunk * size * size;
  const int64_t staging = std::max(of_chunk * quads / kQuadsAtOnce, weights / kWeightsAtOnce);
  const int64_t threads = std::max(row_tiles * block_strips, std::min(staging, most_threads));
  return {.tile = {of_thread, static_cast<int>(kStrip * block_strips)},
          .phases = phases_of(p),
          .shared_bytes = static_cast<size_t>(of_chunk * bytes),
          .tiling = DirectTiling{.image_count = u32(images),
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
                                 .blocks = u32(columns * bands * ceil_div(images, together)),
                                 .threads = u32(ceil_div(threads, 32) * 32),
                                 .whole_strips = whole}};
}

// ---- wgrad ----

/// The index in kDirectWgradSizes of the kernel for a problem.
int direct_wgrad_sizes(const ConvProblem& p) {
  const int64_t filters = p.filters();
  const bool along_filters = p.y.strides[1] == 1;
  if (p.w.shape[2] == 5) return (filters <= 6 ? 0 : 1) + (along_filters && filters > 1 ? 8 : 0);
  if (filters == 1) return 2;
  if (filters <= 8) return 3;
  return (p.channels() % 3 == 0 ? 4 : 6) + (along_filters ? 0 : 1);
}

/// The distance in floats between rows of x in shared memory, which includes the zeros beside each row.
uint32_t direct_wgrad_pitch(const ConvProblem& p) {
  const int64_t reach =
      std::max(p.geometry.padding[1] + p.x.shape[3], ceil_div(p.y.shape[3], 4) * 4 + p.w.shape[3] - 1);
  return u32(ceil_div(reach, 4) * 4);
}

/// The maximum shared memory of a block if `blocks` blocks are resident. The system reserves some of it for each block.
size_t shared_memory_of(const DeviceProperties& device, int blocks) {
  constexpr size_t system = 1024;
  return (device.shared_memory + system) / blocks - system;
}

/// Returns true for few channels and 3x3 or 5x5 filters without stride and dilation, if the type is not float64 and dy
/// consists of whole aligned vectors along its rows or, if filters are innermost, along filters.
bool can_direct_wgrad(const ConvProblem& p) {
  constexpr int64_t most_channels = 6, most_filters = 128;
  const int64_t side = p.w.shape[2], filters = p.filters(), width = p.y.shape[3];
  if (!(side == 3 || (side == 5 && filters <= 16)) || p.w.shape[3] != side || p.channels() > most_channels ||
      filters > most_filters || p.dtype == DType::f64 || !p.device.has_async_copies() || p.x.numel() == 0 ||
      p.y.span() >= int64_t{1} << 31 || p.is_strided() || p.geometry.dilation[0] != 1 || p.geometry.dilation[1] != 1)
    return false;
  const DirectWgradSizes& sizes = kDirectWgradSizes[direct_wgrad_sizes(p)];
  // dy must consist of whole aligned vectors. A quad that reaches beyond the end of a row would multiply zeros by
  // elements of x that no tap reads, and these may be infinite.
  const int along = sizes.along_filters ? 1 : 3;
  if (p.y.strides[along] != 1 || width % sizes.row_unit() != 0 || (sizes.along_filters && filters % sizes.vec != 0) ||
      p.y.alignment < sizes.vec * p.element())
    return false;
  for (int i = 0; i < 4; ++i)
    if (i != along && p.y.shape[i] != 1 && p.y.strides[i] % sizes.vec != 0) return false;
  const uint32_t line = direct_wgrad_pitch(p) * u32(sizes.channels * side);
  return sizes.shared_bytes(sizeof(float), line, true) <= shared_memory_of(p.device, sizes.blocks);
}

ConvPlan plan_direct_wgrad(const ConvProblem& p) {
  const int64_t channels = p.channels(), side = p.w.shape[2], images = p.y.shape[0], height = p.y.shape[2];
  DirectWgradTiling tiling;
  tiling.sizes = direct_wgrad_sizes(p);
  const DirectWgradSizes& sizes = kDirectWgradSizes[tiling.sizes];
  const ConvTile tile = {sizes.filters * sizes.groups, static_cast<int>(sizes.channels * side * side)};
  const int64_t quads = ceil_div(p.y.shape[3], 4), slots = sizes.threads / sizes.groups;
  const int64_t channel_tiles = channels / sizes.channels;
  const int64_t blocks = ceil_div(p.filters(), tile.rows) * channel_tiles;
  const int64_t resident = std::max<int64_t>(sizes.blocks * p.device.multiprocessors / (blocks * p.geometry.groups), 1);
  const size_t memory = shared_memory_of(p.device, sizes.blocks);
  tiling.pitch = direct_wgrad_pitch(p);

  // Chooses the division into the smallest tiles whose cost is at most 5 % above the minimum. With small tiles, the
  // memory that all blocks read at the same time is close together. The cost is the number of steps of the slowest
  // block, where each tile costs a quarter of a step more than its own steps.
  constexpr int64_t most_images = 16;
  int64_t rows_of_tile = 0;
  const auto cut = [&](int64_t images_of_tile, int64_t band) {
    rows_of_tile = band;
    tiling.tile_images = u32(images_of_tile),
    tiling.tiles = u32(ceil_div(images, images_of_tile) * ceil_div(height, band));
    tiling.size = u32(images_of_tile * sizes.channels * (band + side - 1) * tiling.pitch);
    tiling.steps = u32(ceil_div(images_of_tile * band * quads, slots));
    const bool fits = sizes.shared_bytes(sizeof(float), tiling.size, true) <= memory;
    return fits ? static_cast<double>(ceil_div(tiling.tiles, resident)) * (tiling.steps + 0.25)
                : std::numeric_limits<double>::infinity();
  };
  std::vector<std::pair<int64_t, int64_t>> cuts;  // images of a tile, and rows of each of these images
  for (int64_t bands = height; bands > 0; --bands) cuts.emplace_back(1, ceil_div(height, bands));
  for (int64_t n = 2; n <= std::min(images, most_images); ++n) cuts.emplace_back(n, height);
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [n, band] : cuts) least = std::min(least, cut(n, band));
  for (const auto& [n, band] : cuts)
    if (cut(n, band) <= 1.05 * least) break;

  tiling.images = u32(images);
  tiling.bands = Divisor(ceil_div(height, rows_of_tile)), tiling.band = Divisor(rows_of_tile);
  tiling.quads = Divisor(quads), tiling.lines = Divisor(rows_of_tile + side - 1);
  tiling.advance[0] = u32(slots / quads / rows_of_tile), tiling.advance[1] = u32(slots / quads % rows_of_tile);
  tiling.advance[2] = u32(slots % quads);
  tiling.channel_tiles = u32(channel_tiles);
  tiling.interleaved =
      sizes.channels > 1 && channels == sizes.channels && p.x.strides[1] == 1 && p.x.strides[3] == channels;
  tiling.line = u32(p.x.shape[3] * (tiling.interleaved ? channels : 1));
  tiling.line_bits = tiling.line <= 8 ? 3 : tiling.line <= 16 ? 4 : 5;
  tiling.line_step = tiling.interleaved ? 1 : p.x.strides[3];
  ConvPlan plan = wgrad_plan(p, tile, std::min<int64_t>(resident, tiling.tiles));
  plan.shared_bytes = sizes.shared_bytes(size_of(p.dtype), tiling.size, p.mask_alignment > 0);
  plan.tiling = tiling;
  return plan;
}

bool can_direct(const ConvProblem& p) { return p.is_wgrad() ? can_direct_wgrad(p) : can_direct_fprop(p); }
ConvPlan plan_direct(const ConvProblem& p) { return (p.is_wgrad() ? plan_direct_wgrad : plan_direct_fprop)(p); }

/// How many blocks of `threads` threads and `shared_bytes` bytes a multiprocessor runs at a time.
int64_t resident_blocks(const ConvProblem& p, int64_t threads, size_t shared_bytes) {
  constexpr int64_t most_threads = 1024;  // number of threads for which a multiprocessor has registers
  return std::clamp<int64_t>(static_cast<int64_t>(p.device.shared_memory / (shared_bytes + 1024)), 1,
                             std::max<int64_t>(most_threads / threads, 1));
}

// fprop, dgrad: a step is a line of taps of one channel. wgrad: a step is four pixels of a thread.
KernelWork work_of_direct(const ConvProblem& p) {
  const ConvPlan plan = plan_direct(p);
  WorkCounter counter = work_counter(p, MathMode::fma);
  const int64_t groups = p.geometry.groups, side = p.w.shape[3];
  if (p.is_wgrad()) {
    const auto& tiling = std::get<DirectWgradTiling>(plan.tiling);
    const DirectWgradSizes& sizes = kDirectWgradSizes[tiling.sizes];
    const int64_t tiles = ceil_div(tiling.tiles, plan.split_k);
    const int64_t per_thread = sizes.channels * sizes.filters;
    counter.add_tiles(
        {.blocks = plan.split_k * ceil_div(p.filters(), int64_t{plan.tile.rows}) * tiling.channel_tiles * groups,
         .resident = sizes.blocks,
         .steps = tiles * tiling.steps,
         .multiply_adds = sizes.threads * per_thread * 4 * side * side,
         .bytes = sizes.threads * 4 * sizes.filters * p.element(),
         .elements = tiling.size / std::max<uint32_t>(tiling.steps, 1)});
    counter.add_parts(plan.split_k, p.w.numel());
    return counter.work();
  }
  const auto& tiling = std::get<DirectTiling>(plan.tiling);
  const int64_t strips = plan.tile.columns / kStrip;
  const int64_t staged = int64_t{tiling.channels.divisor} * side;
  const int64_t chunks = ceil_div(p.depth_channels(), int64_t{tiling.channels.divisor});
  const int64_t quads = int64_t{tiling.images.divisor} * tiling.lines.divisor * tiling.quads.divisor;
  counter.add_tiles({.blocks = tiling.blocks * groups,
                     .resident = resident_blocks(p, tiling.threads, plan.shared_bytes),
                     .steps = p.depth_channels() * side,
                     .multiply_adds = round_up(tiling.row_tiles * strips, int64_t{32}) * kStrip * plan.tile.rows * side,
                     .bytes = static_cast<int64_t>(plan.shared_bytes) / staged,
                     .elements = 4 * quads / side});
  counter.add_tiles({.blocks = tiling.blocks * groups, .resident = 8, .steps = chunks});  // threads wait at barriers
  counter.add(kLaunches, -1);                                                             // both are one launch
  return counter.work();
}

}  // namespace

constinit const ConvAlgorithm kDirect = {
    .name = "direct",
    .reason = "few channels, 3x3 or 5x5 without a stride",
    .parts = kTileParts,
    .can_run = can_direct,
    .work = work_of_direct,
    .plan = plan_direct,
    .launch = kHasKernels ? launch_direct : nullptr,
    .takes_mask =
        [](const ConvProblem& p) { return p.is_wgrad() ? p.mask_alignment == 16 : p.filters() <= kMaxDirectRows; },
};

}  // namespace gradus::cuda_detail
