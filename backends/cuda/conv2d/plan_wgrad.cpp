// The plan of the algorithm that select.cpp has chosen for wgrad: tile, split-K, workspace; and which problems
// direct_wgrad can compute.
#include <limits>

#include <gradus/backends/cuda/conv2d/tile_sizes.h>

namespace gradus::cuda_detail {
namespace {

/// A wgrad problem and the plan to fill in.
struct WgradPlanner {
  const ConvProblem& p;
  const DeviceProperties& device;
  ConvPlan& plan;
  const int64_t groups = p.geometry.groups, rows = p.w.shape[0] / groups, kernel = p.w.shape[2] * p.w.shape[3];
  const int64_t taps = p.w.shape[1] * kernel, columns = taps + (p.bias ? 1 : 0);
  const int64_t positions = p.y.shape[0] * p.y.shape[2] * p.y.shape[3];

  int64_t tiles(int64_t of_columns) const {
    return ceil_div(rows, plan.tile.rows) * ceil_div(of_columns, plan.tile.columns);
  }
  /// Plans as many splits as give each multiprocessor `waves` blocks, each of at least `shortest` positions.
  void fill(int64_t blocks, int64_t waves, int64_t shortest) const {
    const int64_t wanted = waves * device.multiprocessors / (blocks * groups);
    plan.split_k = u32(std::clamp<int64_t>(std::min(wanted, positions / shortest), 1, 1024));
  }
  void implicit_gemm_async() const {  // the filters are the columns of the tile in shared memory
    const ConvTile tile = warps_tile(3, rows > 64 ? 2 : 1);
    plan.tile = {tile.columns, tile.rows};
    const int64_t resident = implicit_blocks(MathMode::fma, warps_of(tile)) * device.multiprocessors;
    plan.split_k = u32(balanced_splits(tiles(taps) * groups, ceil_div(positions, 16), resident));
  }
  void implicit_gemm() const {
    plan.tile = implicit_wgrad_tile(rows);
    plan.vectorized = p.x.strides[1] == 1;
    fill(tiles(taps), 2, 64);
  }
  void implicit_gemm_generic() const {
    plan.tile = generic_tile(rows);
    fill(tiles(columns), 2, 64);
  }
  void few_channel_mma() const {
    plan.few_channel = *few_channel_tiling(p, plan.math_mode);
    plan.tile = columns > 32 ? ConvTile{32, 72} : ConvTile{rows > 32 ? 64 : 32, columns > 16 ? 32 : 16};
    const int64_t wanted = few_channel_wgrad_blocks(plan.tile.rows, plan.tile.columns) * device.multiprocessors /
                           ceil_div(rows, plan.tile.rows);
    plan.split_k = u32(std::clamp<int64_t>(wanted, 1, plan.few_channel.tile_count));
    const size_t sums = kFewChannelWarps * sizeof(float) * plan.tile.rows * (plan.tile.columns + 1);
    plan.shared_bytes = std::max(2 * size_t{plan.few_channel.size}, sums);
  }
  void direct() const;

  /// Plans the workspace of the parts and the number of threads that add them.
  void add_parts() const {
    const int64_t parts = int64_t{plan.split_k}, results = groups * rows * columns;
    plan.workspace_bytes = static_cast<size_t>((p.dtype == DType::f64 ? 8 : 4) * parts * results);
    // One thread adds few parts. Several threads share many parts, or those of too few results to fill the device.
    constexpr int64_t few = 4096;
    plan.reduce_lanes = parts <= 64 && results > few ? 1 : parts <= 128 && results > few ? 8 : 32;
  }
};

int direct_wgrad_shape(int64_t side, int64_t filters, int64_t channels, bool along_filters) {
  if (side == 5) return (filters <= 6 ? 0 : 1) + (along_filters && filters > 1 ? 8 : 0);
  if (filters == 1) return 2;
  if (filters <= 8) return 3;
  return (channels % 3 == 0 ? 4 : 6) + (along_filters ? 0 : 1);
}

/// Floats from line to line of x in shared memory, with the zeros beside each line.
uint32_t direct_wgrad_pitch(const ConvProblem& p) {
  const int64_t reach =
      std::max(p.geometry.padding[1] + p.x.shape[3], ceil_div(p.y.shape[3], 4) * 4 + p.w.shape[3] - 1);
  return u32(ceil_div(reach, 4) * 4);
}

/// The shared memory of each of `blocks` resident blocks of a multiprocessor. The system reserves some for each block.
size_t shared_memory_of(const DeviceProperties& device, int blocks) {
  constexpr size_t system = 1024;
  return (device.shared_memory + system) / blocks - system;
}

void WgradPlanner::direct() const {
  const int64_t channels = p.w.shape[1], side = p.w.shape[2], images = p.y.shape[0], height = p.y.shape[2];
  plan.shape = direct_wgrad_shape(side, rows, channels, p.y.strides[1] == 1);
  const DirectWgradSizes& shape = kDirectWgradSizes[plan.shape];
  plan.tile = {shape.filters * shape.groups, static_cast<int>(shape.channels * side * side)};
  const int64_t quads = ceil_div(p.y.shape[3], 4), slots = shape.threads / shape.groups;
  const int64_t channel_tiles = channels / shape.channels, blocks = ceil_div(rows, plan.tile.rows) * channel_tiles;
  const int64_t resident = std::max<int64_t>(shape.blocks * device.multiprocessors / (blocks * groups), 1);
  const size_t memory = shared_memory_of(device, shape.blocks);
  DirectWgradTiling& tiling = plan.direct_wgrad;
  tiling.pitch = direct_wgrad_pitch(p);

  // Of the ways to divide the positions into tiles, take the one with the smallest tiles among those that cost at most
  // 5 % more than the cheapest. With small tiles, what all blocks read at a time is close together. The cost is that of
  // the slowest block in steps; a tile costs a quarter of a step besides its own steps.
  constexpr int64_t most_images = 16;
  int64_t rows_of_tile = 0;
  const auto cut = [&](int64_t images_of_tile, int64_t band) {
    rows_of_tile = band;
    tiling.tile_images = u32(images_of_tile),
    tiling.tiles = u32(ceil_div(images, images_of_tile) * ceil_div(height, band));
    tiling.size = u32(images_of_tile * shape.channels * (band + side - 1) * tiling.pitch);
    tiling.steps = u32(ceil_div(images_of_tile * band * quads, slots));
    const bool fits = shape.shared_bytes(sizeof(float), tiling.size, true) <= memory;
    return fits ? static_cast<double>(ceil_div(tiling.tiles, resident)) * (tiling.steps + 0.25)
                : std::numeric_limits<double>::infinity();
  };
  std::vector<std::pair<int64_t, int64_t>> cuts;  // images of a tile, rows
  for (int64_t bands = height; bands > 0; --bands) cuts.emplace_back(1, ceil_div(height, bands));
  for (int64_t n = 2; n <= std::min(images, most_images); ++n) cuts.emplace_back(n, height);
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [n, band] : cuts) least = std::min(least, cut(n, band));
  for (const auto& [n, band] : cuts)
    if (cut(n, band) <= 1.05 * least) break;

  tiling.images = u32(images), plan.split_k = u32(std::min<int64_t>(resident, tiling.tiles));
  tiling.bands = Divisor(ceil_div(height, rows_of_tile)), tiling.band = Divisor(rows_of_tile);
  tiling.quads = Divisor(quads), tiling.lines = Divisor(rows_of_tile + side - 1);
  tiling.advance[0] = u32(slots / quads / rows_of_tile), tiling.advance[1] = u32(slots / quads % rows_of_tile);
  tiling.advance[2] = u32(slots % quads);
  tiling.channel_tiles = u32(channel_tiles);
  tiling.interleaved =
      shape.channels > 1 && channels == shape.channels && p.x.strides[1] == 1 && p.x.strides[3] == channels;
  tiling.line = u32(p.x.shape[3] * (tiling.interleaved ? channels : 1));
  tiling.line_bits = tiling.line <= 8 ? 3 : tiling.line <= 16 ? 4 : 5;
  tiling.line_step = tiling.interleaved ? 1 : p.x.strides[3];
  plan.shared_bytes = shape.shared_bytes(size_of(p.dtype), tiling.size, p.mask_alignment > 0);
}

}  // namespace

bool can_direct_wgrad(const ConvProblem& p, const DeviceProperties& device) {
  constexpr int64_t most_channels = 6, most_filters = 128;
  const int64_t side = p.w.shape[2], filters = p.w.shape[0] / p.geometry.groups, width = p.y.shape[3];
  if (!(side == 3 || (side == 5 && filters <= 16)) || p.w.shape[3] != side || p.w.shape[1] > most_channels ||
      filters > most_filters || p.dtype == DType::f64 || !device.has_async_copies() || p.x.numel() == 0 ||
      p.y.span() >= int64_t{1} << 31 || p.is_strided() || p.geometry.dilation[0] != 1 || p.geometry.dilation[1] != 1)
    return false;
  const DirectWgradSizes& shape =
      kDirectWgradSizes[direct_wgrad_shape(side, filters, p.w.shape[1], p.y.strides[1] == 1)];
  // dy must consist of whole aligned vectors. A quad that reaches beyond the end of a row would multiply zeros by
  // elements of x that no tap reads, and these may be infinite.
  const int along = shape.along_filters ? 1 : 3;
  if (p.y.strides[along] != 1 || width % shape.row_unit() != 0 || (shape.along_filters && filters % shape.vec != 0) ||
      p.y.alignment < shape.vec * static_cast<int64_t>(size_of(p.dtype)))
    return false;
  for (int i = 0; i < 4; ++i)
    if (i != along && p.y.shape[i] != 1 && p.y.strides[i] % shape.vec != 0) return false;
  const uint32_t line = direct_wgrad_pitch(p) * static_cast<uint32_t>(shape.channels * side);
  return shape.shared_bytes(sizeof(float), line, true) <= shared_memory_of(device, shape.blocks);
}

ConvTile implicit_wgrad_tile(int64_t rows) { return rows <= kWarpRows ? warps_tile(1, 5) : warps_tile(2, 3); }

void plan_wgrad(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan) {
  const WgradPlanner planner{problem, device, plan};
  int64_t unit = 1;  // the pixels of a part are a multiple of it
  switch (plan.algorithm) {
    case ConvAlgorithm::implicit_gemm_async: planner.implicit_gemm_async(), unit = 16; break;
    case ConvAlgorithm::implicit_gemm: planner.implicit_gemm(); break;
    case ConvAlgorithm::direct: planner.direct(); break;
    case ConvAlgorithm::few_channel_mma: planner.few_channel_mma(); break;
    default: planner.implicit_gemm_generic(); break;
  }
  plan.phases[0].split_k = plan.split_k;
  plan.phases[0].per_split = u32(ceil_div(ceil_div(planner.positions, plan.split_k), unit) * unit);
  planner.add_parts();
}

}  // namespace gradus::cuda_detail
