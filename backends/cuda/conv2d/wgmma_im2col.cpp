// wgmma_im2col: any filter size, half types, NHWC, on tensor cores of Hopper (wgmma_im2col.cu).
#include <limits>

#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cuda_detail {
namespace {

/// The size of wgmma_im2col's matrix product. Under a stride, dgrad consists of several phases (ConvPhase); otherwise
/// there is one.
struct Im2colSize {
  int64_t positions;  // pixels of the result in the largest phase; wgrad: pixels of dy, over which it sums
  int64_t row_tiles;  // tiles of kIm2colRows rows (pixels; wgrad: filters) in all phases
  int64_t boxes;      // groups of kIm2colBox columns (channels of the result; wgrad: channels for each tap)
  int64_t steps;      // steps of kIm2colBox along the sums, in the phase with the most
  int64_t weights;    // elements of dw; 0 for fprop and dgrad
};
Im2colSize im2col_size(const ConvProblem& p) {
  const ConvOperand& image = p.is_wgrad() ? p.y : p.out();
  int64_t positions = image.shape[0], taps = 1, phases = 1;
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t stride = p.pass == ConvPass::backward_data ? p.geometry.stride[axis] : 1;
    positions *= ceil_div(image.shape[2 + axis], stride), taps *= ceil_div(p.w.shape[2 + axis], stride);
    phases *= std::min(stride, image.shape[2 + axis]);
  }
  const int64_t chunks = ceil_div(p.in().shape[1], kIm2colBox);
  if (p.is_wgrad())
    return {positions, ceil_div(p.w.shape[0], kIm2colRows), taps * chunks, ceil_div(positions, kIm2colBox),
            p.w.numel()};
  return {positions, phases * ceil_div(positions, kIm2colRows), ceil_div(p.out().shape[1], kIm2colBox), taps * chunks,
          0};
}

/// How blocks share the product: the number of boxes of columns in a tile; the numbers of blocks of a cluster and of
/// parts of dw, both of which split the depth; the number of clusters, and of those that run at the same time if there
/// is one block on each multiprocessor.
struct Im2colShare {
  int64_t boxes = 1, cluster = 1, parts = 1, clusters = 0, at_once = 1;
  int64_t waves() const { return ceil_div(clusters, at_once); }
};
/// Returns the division with the least estimated time. Times are measured in the KiB that a multiprocessor of an H200
/// loads in that time: 72 KiB per microsecond, with one block or two. A cluster runs on the multiprocessors of one GPC,
/// so only few large clusters run at a time. The blocks of a cluster add their sums through distributed shared memory;
/// parts of dw go through global memory.
Im2colShare share_im2col(const Im2colSize& size, int64_t multiprocessors) {
  constexpr int64_t clusters_of_132[kMaxIm2colCluster] = {132, 66, 39, 28, 21, 16, 14, 14}, most_parts = 16;
  // Costs of starting and finishing a tile (per box of columns), a cluster, each block of a cluster, and parts of dw.
  constexpr int64_t box_kib = 54, cluster_kib = 54, block_kib = 18, parts_kib = 216;
  Im2colShare best;
  int64_t least_kib = std::numeric_limits<int64_t>::max();
  for (int64_t boxes = 1; boxes <= std::min<int64_t>(size.boxes, 2); ++boxes)
    for (int64_t cluster = 1; cluster <= kMaxIm2colCluster; ++cluster)
      for (int64_t parts = 1; parts <= (size.weights > 0 ? most_parts : 1); ++parts) {
        const int64_t splits = cluster * parts, steps = ceil_div(size.steps, splits);
        if ((splits - 1) * steps >= size.steps && splits > 1) continue;  // the last part would be empty
        const Im2colShare share = {boxes, cluster, parts, size.row_tiles * ceil_div(size.boxes, boxes) * parts,
                                   std::max<int64_t>(clusters_of_132[cluster - 1] * multiprocessors / 132, 1)};
        int64_t kib = share.waves() * (steps * (2 + boxes) * 8 + box_kib * boxes);
        if (cluster > 1) kib += cluster_kib + block_kib * cluster;
        if (parts > 1) kib += parts_kib + 8 * parts * size.weights / multiprocessors / 1024;
        if (kib < least_kib) least_kib = kib, best = share;
      }
  return best;
}

/// Returns true for dense half types with channels innermost, filters up to 16x16, strides up to 2 and padding smaller
/// than the filter.
bool can_wgmma_im2col(const ConvProblem& p) {
  if (!suits_tma(p, true, false) || (p.is_wgrad() && p.bias)) return false;
  constexpr int64_t most_taps = 16, most_stride = 2;  // along an axis; TMA's offsets have few bits
  for (int i = 0; i < 2; ++i)
    if (p.w.shape[2 + i] > most_taps || p.geometry.padding[i] >= p.w.shape[2 + i] || p.geometry.dilation[i] != 1 ||
        p.geometry.stride[i] > most_stride)
      return false;
  return true;
}

ConvPlan plan_wgmma_im2col(const ConvProblem& p) {
  Im2colTiling tiling;
  const std::vector<ConvPhase> all = phases_of(p);
  ConvPhase first = all.front();  // has the most positions
  const auto phases = [&](int axis) {
    return p.pass == ConvPass::backward_data ? std::min(p.geometry.stride[axis], p.x.shape[2 + axis]) : 1;
  };
  tiling.phases_w = static_cast<int>(phases(1)), tiling.taps_w = static_cast<int>(p.w.shape[3]);
  for (int axis = 0; axis < 2; ++axis) {
    ConvPhase::Axis* const to = axis == 0 ? tiling.h : tiling.w;
    int lower = std::numeric_limits<int>::max();
    for (int i = 0; i < phases(axis); ++i) {
      to[i] = axis == 0 ? all[i * tiling.phases_w].h : all[i].w;
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
  const Im2colShare share = share_im2col(size, p.device.multiprocessors);
  const int64_t parts = share.parts, axes = phases(0) * phases(1);
  tiling.positions = static_cast<int>(size.positions);
  tiling.chunks = static_cast<int>(ceil_div(p.in().shape[1], kIm2colBox));
  const int columns = static_cast<int>(kIm2colBox * share.boxes);
  tiling.row_tiles = u32(size.row_tiles / axes), tiling.column_tiles = u32(ceil_div(size.boxes, share.boxes));
  tiling.cluster = u32(share.cluster);
  tiling.z = u32(p.is_wgrad() ? parts : axes);
  const int slot = columns == 64 ? kIm2colSlotBytes<64> : kIm2colSlotBytes<128>;
  constexpr int64_t margin = 4096;  // static shared memory, and to align the first slot
  tiling.slots =
      static_cast<int>((static_cast<int64_t>(p.device.shared_memory) / (share.waves() > 1 ? 2 : 1) - margin) / slot);
  tiling.slots = std::min(tiling.slots, kMaxWgmmaSlots);
  first.split_k = u32(parts);
  first.h.first = first.w.first = 0;  // the kernel adds the first tap of each phase itself
  return {.math_mode = MathMode::half,
          .tile = {kIm2colRows, columns},
          .phases = {first},
          .split_k = u32(parts),
          .reduce_lanes = 1,
          .workspace_bytes = parts > 1 ? static_cast<size_t>(4 * parts * p.w.numel()) : 0,
          .shared_bytes = static_cast<size_t>(tiling.slots * slot + 1024),
          .tiling = tiling};
}

// Clusters wait for a GPC with enough free multiprocessors, so that they run in more waves than their blocks alone.
KernelWork work_of_wgmma_im2col(const ConvProblem& p) {
  const Im2colSize size = im2col_size(p);
  const Im2colShare share = share_im2col(size, p.device.multiprocessors);
  WorkCounter counter = work_counter(p, MathMode::half);
  const int64_t columns = share.boxes * kIm2colBox;
  counter.add_tiles({.blocks = share.waves() * p.device.multiprocessors,
                     .steps = ceil_div(size.steps, share.cluster * share.parts),
                     .multiply_adds = kIm2colRows * columns * kIm2colBox,
                     .bytes = (kIm2colRows + columns) * 2 * kIm2colBox});
  if (share.cluster > 1) counter.add(kClusterBlocks, share.waves() * share.cluster);
  if (share.parts > 1) counter.add_parts(share.parts, p.w.numel());
  return counter.work();
}

}  // namespace

constinit const ConvAlgorithm kWgmmaIm2col = {
    .name = "wgmma_im2col",
    .reason = "half types, channels innermost",
    .parts = kTileParts,
    .can_run = can_wgmma_im2col,
    .work = work_of_wgmma_im2col,
    .plan = plan_wgmma_im2col,
    .launch = kHasKernels ? launch_wgmma_im2col : nullptr,
    .sums_bias = false,
};

}  // namespace gradus::cuda_detail
