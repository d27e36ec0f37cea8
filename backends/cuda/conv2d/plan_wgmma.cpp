// The plan of the wgmma kernels and of wgmma_im2col: tiles of images, the ring of slots in shared memory, clusters and
// split-K; and which problems they can compute.
#include <limits>

#include <gradus/backends/cuda/conv2d/tile_sizes.h>

namespace gradus::cuda_detail {
namespace {

constexpr int64_t kSwizzle = 1024;         // alignment of slots
constexpr int64_t kMargin = 2 * kSwizzle;  // to align the first slot, and for the zeros in front of it

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

/// Plans as many slots as fit in shared memory beside `others` bytes of dynamic and `static_bytes` of static memory.
void fill_ring(WgmmaTiling& tiling, int64_t others, int64_t static_bytes, const DeviceProperties& device,
               size_t& shared_bytes) {
  const int64_t beside = others + kMargin, room = static_cast<int64_t>(device.shared_memory) - static_bytes;
  tiling.slots = static_cast<int>(std::clamp<int64_t>((room - beside) / tiling.slot_bytes, 0, kMaxWgmmaSlots));
  shared_bytes = static_cast<size_t>(beside + int64_t{tiling.slots} * tiling.slot_bytes);
}

/// Plans fprop or dgrad with tiles of `filters` filters. Returns false if too few slots fit: the barriers of a slot can
/// tell only consecutive rounds apart, so the ring must hold the tiles of all other warpgroups and one slot more.
bool plan_wgmma_fprop(const ConvProblem& p, const DeviceProperties& device, int filters, int line_bytes,
                       int warpgroups, ConvPlan& plan) {
  const int64_t bytes = p.in().shape[1] * static_cast<int64_t>(size_of(p.dtype)), results = p.out().shape[1];
  WgmmaTiling& tiling = plan.wgmma = tiles_of_pixels(p.in());
  tiling.line_bytes = line_bytes, tiling.warpgroups = warpgroups;
  tiling.chunks = static_cast<int>(ceil_div(bytes, tiling.line_bytes));
  const int64_t pixels = (tiling.rows + 2) * tiling.pitch, read = kWgmmaPixels + 3 * tiling.pitch + 1;
  tiling.load_bytes = u32(pixels * tiling.line_bytes);
  tiling.slot_bytes = u32(up((std::max(pixels, read) + 1) * tiling.line_bytes));
  const int64_t of_filters = int64_t{9} * filters * tiling.line_bytes * tiling.chunks;
  fill_ring(tiling, of_filters, kFpropStaticBytes, device, plan.shared_bytes);
  plan.tile = {filters, kWgmmaPixels};
  plan.blocks = u32(std::clamp<int64_t>(device.multiprocessors / ceil_div(results, filters), 1, tiling.tiles));
  return tiling.slots > (warpgroups - 1) * tiling.chunks;
}

/// Plans wgrad. Returns false if two slots do not fit.
bool plan_wgmma_wgrad(const ConvProblem& p, const DeviceProperties& device, ConvPlan& plan) {
  const int64_t K = p.w.shape[0], C = p.w.shape[1];
  WgmmaTiling& tiling = plan.wgmma = tiles_of_rows(p.x, kWgmmaPixels);
  tiling.line_bytes = C <= 32 ? 64 : 128;
  const int64_t filters = K <= 32 ? 32 : 64, operands = p.mask_alignment > 0 ? 2 : 1;
  const int64_t chunks = ceil_div(2 * C, tiling.line_bytes), groups = ceil_div(K, filters);
  // To store and add the sums of 64 filters and 64 channels costs as much as to multiply five tiles. If a block has
  // fewer tiles, it computes one row of taps instead of three, unless dy has a mask, which three blocks would apply.
  const bool few = std::min(K, C) > 32 && operands == 1 && tiling.tiles * chunks * groups <= 5 * device.multiprocessors;
  const int tap_rows = few ? 1 : 3;
  const int64_t pixels = (tiling.rows + tap_rows - 1) * tiling.pitch, of_dy = tiling.rows * tiling.pitch;
  const int64_t read = kWgmmaPixels + (tap_rows - 1) * tiling.pitch + 1;
  tiling.load_bytes = u32(pixels * tiling.line_bytes + operands * of_dy * 2 * filters);
  tiling.dy_offset = u32(up(std::max(pixels, read) * tiling.line_bytes));
  tiling.slot_bytes = u32(tiling.dy_offset + operands * kWgmmaPixels * 2 * filters + kSwizzle);
  fill_ring(tiling, 0, kWgradStaticBytes, device, plan.shared_bytes);
  plan.tile = {static_cast<int>(filters), 3 * tap_rows * tiling.line_bytes / 2};
  const int64_t most = std::clamp<int64_t>(device.multiprocessors * tap_rows / (3 * chunks * groups), 1, tiling.tiles);
  plan.split_k = u32(ceil_div(tiling.tiles, ceil_div(tiling.tiles, most)));  // as few as have the same longest split
  const int64_t sums = groups * filters * chunks * tiling.line_bytes / 2 * 9;
  plan.workspace_bytes = static_cast<size_t>(4 * plan.split_k * (sums + (p.bias ? K : 0)));
  return tiling.slots >= 2;
}

/// The size of wgmma_im2col's product: positions of a phase, tiles of rows of all phases, boxes of columns, the most
/// steps of the depth of any phase, and elements of dw (0 for fprop and dgrad).
struct Im2colSize {
  int64_t positions, row_tiles, boxes, steps, weights;
};
Im2colSize im2col_size(const ConvProblem& p) {
  const bool of_weight = p.pass == ConvPass::backward_weight;
  const ConvOperand& image = of_weight ? p.y : p.out();
  int64_t positions = image.shape[0], taps = 1, phases = 1;
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t stride = p.pass == ConvPass::backward_data ? p.geometry.stride[axis] : 1;
    positions *= ceil_div(image.shape[2 + axis], stride), taps *= ceil_div(p.w.shape[2 + axis], stride);
    phases *= std::min(stride, image.shape[2 + axis]);
  }
  const int64_t chunks = ceil_div(p.in().shape[1], kIm2colBox);
  if (of_weight)
    return {positions, ceil_div(p.w.shape[0], kIm2colRows), taps * chunks, ceil_div(positions, kIm2colBox),
            p.w.numel()};
  return {positions, phases * ceil_div(positions, kIm2colRows), ceil_div(p.out().shape[1], kIm2colBox), taps * chunks,
          0};
}

/// How blocks share the product: boxes of columns in a tile; blocks of a cluster and parts of dw, which split the
/// depth; the number of clusters, and how many run at a time with one block on a multiprocessor.
struct Im2colShare {
  int64_t boxes = 1, cluster = 1, parts = 1, clusters = 0, at_once = 1;
  int64_t waves() const { return ceil_div(clusters, at_once); }
};
/// Returns the division with the least estimated time. Time is measured in KiB that a multiprocessor of an H200 loads
/// meanwhile: 72 KiB are a microsecond, with one block or with two. A cluster runs on the multiprocessors of one GPC,
/// so only few large clusters run at a time. The blocks of a cluster add their sums through distributed shared memory;
/// parts of dw go through global memory.
Im2colShare share_im2col(const Im2colSize& size, int64_t multiprocessors) {
  constexpr int64_t clusters_of_132[kMaxIm2colCluster] = {132, 66, 39, 28, 21, 16, 14, 14}, most_parts = 16;
  constexpr int64_t of_box = 54, of_cluster = 54, of_member = 18, of_parts = 216;  // costs of starting and finishing
  Im2colShare best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t boxes = 1; boxes <= std::min<int64_t>(size.boxes, 2); ++boxes)
    for (int64_t cluster = 1; cluster <= kMaxIm2colCluster; ++cluster)
      for (int64_t parts = 1; parts <= (size.weights > 0 ? most_parts : 1); ++parts) {
        const int64_t splits = cluster * parts, steps = ceil_div(size.steps, splits);
        if ((splits - 1) * steps >= size.steps && splits > 1) continue;  // the last part would be empty
        const Im2colShare share = {boxes, cluster, parts, size.row_tiles * ceil_div(size.boxes, boxes) * parts,
                                   std::max<int64_t>(clusters_of_132[cluster - 1] * multiprocessors / 132, 1)};
        int64_t cost = share.waves() * (steps * (2 + boxes) * 8 + of_box * boxes);
        if (cluster > 1) cost += of_cluster + of_member * cluster;
        if (parts > 1) cost += of_parts + 8 * parts * size.weights / multiprocessors / 1024;
        if (cost < least) least = cost, best = share;
      }
  return best;
}

/// Returns true for dense images of half types (with `tf32` also float32) with channels innermost, on Hopper. If
/// `of_weight_too`, the weights or their gradient must have the same layout.
bool are_for_hopper(const ConvProblem& p, const DeviceProperties& device, bool of_weight_too, bool tf32 = false) {
  const bool half = p.dtype == DType::f16 || p.dtype == DType::bf16;
  if (!device.wgmma || !(half || (tf32 && p.dtype == DType::f32)) || p.geometry.groups != 1) return false;
  for (const ConvOperand* operand : {&p.x, &p.w, &p.y}) {
    if (operand->numel() == 0 || operand->numel() >= int64_t{1} << 31) return false;
    if ((operand != &p.w || of_weight_too) && (operand->alignment != 16 || !operand->is_dense(true))) return false;
  }
  return p.w.shape[0] % 8 == 0 && p.w.shape[1] % 8 == 0 && std::min(p.w.shape[0], p.w.shape[1]) >= 16;
}

}  // namespace

bool plan_wgmma(const ConvProblem& problem, const DeviceProperties& device, ConvPlan& plan) {
  if (problem.pass == ConvPass::backward_weight) return plan_wgmma_wgrad(problem, device, plan);
  const int64_t bytes = problem.in().shape[1] * static_cast<int64_t>(size_of(problem.dtype));
  const int line = bytes <= 64 ? 64 : 128;
  if (problem.out().shape[1] > 32) {
    if (plan_wgmma_fprop(problem, device, 64, line, 3, plan)) return true;
    // With TF32, shorter lines and two warpgroups come before tiles of 32 filters, which read images twice as often.
    if (problem.dtype == DType::f32 && plan_wgmma_fprop(problem, device, 64, 64, 2, plan)) return true;
  }
  return plan_wgmma_fprop(problem, device, 32, line, 3, plan);
}

bool can_wgmma(const ConvProblem& p, const DeviceProperties& device, bool tf32) {
  constexpr int64_t most_channels = 128;       // the filters of more channels do not fit in shared memory
  tf32 = tf32 && p.pass == ConvPass::forward;  // wgmma cannot transpose TF32 operands, as dgrad and wgrad need
  if (!are_for_hopper(p, device, p.pass != ConvPass::backward_weight, tf32) || p.w.shape[2] != 3 || p.w.shape[3] != 3 ||
      std::max(p.w.shape[0], p.w.shape[1]) > most_channels)
    return false;
  for (int i = 0; i < 2; ++i)
    if (p.geometry.stride[i] != 1 || p.geometry.padding[i] != 1 || p.geometry.dilation[i] != 1) return false;
  if (p.mask_alignment != 0 && p.mask_alignment != 16) return false;
  if (p.x.shape[3] >= kWgmmaPixels) return false;
  ConvPlan plan;
  return plan_wgmma(p, device, plan);
}

void plan_im2col(const ConvProblem& p, const DeviceProperties& device, ConvPlan& plan) {
  Im2colTiling& tiling = plan.im2col;
  const bool of_weight = p.pass == ConvPass::backward_weight;
  const ConvPhase first = plan.phases.front();  // has the most positions
  const auto phases = [&](int axis) {
    return p.pass == ConvPass::backward_data ? std::min(p.geometry.stride[axis], p.x.shape[2 + axis]) : 1;
  };
  tiling.phases_w = static_cast<int>(phases(1)), tiling.taps_w = static_cast<int>(p.w.shape[3]);
  for (int axis = 0; axis < 2; ++axis) {
    ConvPhase::Axis* const to = axis == 0 ? tiling.h : tiling.w;
    int lower = std::numeric_limits<int>::max();
    for (int i = 0; i < phases(axis); ++i) {
      to[i] = axis == 0 ? plan.phases[i * tiling.phases_w].h : plan.phases[i].w;
      if (to[i].count > 0) lower = std::min(lower, to[i].origin + std::min(0, (to[i].count - 1) * to[i].step));
    }
    for (int i = 0; i < phases(axis); ++i) to[i].origin -= lower;
    const auto stride = static_cast<int>(p.geometry.stride[axis]);
    tiling.lower[axis] = lower;
    tiling.stride[axis] = p.pass == ConvPass::backward_data ? 1 : stride;
    tiling.out_stride[axis] = p.pass == ConvPass::backward_data ? stride : 1;
  }
  tiling.height = Divisor(first.h.size), tiling.width = Divisor(first.w.size);
  const Im2colSize size = im2col_size(p);
  const Im2colShare share = share_im2col(size, device.multiprocessors);
  const int64_t parts = share.parts, axes = phases(0) * phases(1);
  tiling.positions = static_cast<int>(size.positions);
  tiling.chunks = static_cast<int>(ceil_div(p.in().shape[1], kIm2colBox));
  plan.tile = {kIm2colRows, static_cast<int>(kIm2colBox * share.boxes)};
  tiling.row_tiles = u32(size.row_tiles / axes), tiling.column_tiles = u32(ceil_div(size.boxes, share.boxes));
  tiling.cluster = u32(share.cluster);
  tiling.z = u32(of_weight ? parts : axes);
  plan.phases.resize(1), plan.phases[0].split_k = plan.split_k = u32(parts), plan.reduce_lanes = 1;
  plan.phases[0].h.first = plan.phases[0].w.first = 0;  // the kernel adds the first tap of each phase itself
  if (parts > 1) plan.workspace_bytes = static_cast<size_t>(4 * parts * p.w.numel());
  const int slot = plan.tile.columns == 64 ? kIm2colSlotBytes<64> : kIm2colSlotBytes<128>;
  tiling.slots = static_cast<int>(
      (static_cast<int64_t>(device.shared_memory) / (share.waves() > 1 ? 2 : 1) - 4 * kSwizzle) / slot);
  tiling.slots = std::min(tiling.slots, kMaxWgmmaSlots);
  plan.shared_bytes = static_cast<size_t>(tiling.slots * slot + kSwizzle);
}

bool fills_im2col(const ConvProblem& p, const DeviceProperties& device) {
  const Im2colShare share = share_im2col(im2col_size(p), device.multiprocessors);
  return share.waves() <= 2 && 5 * share.clusters >= 4 * share.waves() * share.at_once;
}

bool can_im2col(const ConvProblem& p, const DeviceProperties& device) {
  if (!are_for_hopper(p, device, true) || (p.pass == ConvPass::backward_weight && p.bias)) return false;
  constexpr int64_t most_taps = 16, most_stride = 2;  // along an axis; TMA's offsets have few bits
  for (int i = 0; i < 2; ++i)
    if (p.w.shape[2 + i] > most_taps || p.geometry.padding[i] >= p.w.shape[2 + i] || p.geometry.dilation[i] != 1 ||
        p.geometry.stride[i] > most_stride)
      return false;
  return true;
}

}  // namespace gradus::cuda_detail
