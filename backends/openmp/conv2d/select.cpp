#include <gradus/backends/openmp/conv2d/select.h>

#include <gradus/backends/openmp/conv2d/nhwc.h>
#include <gradus/backends/openmp/simd/loops.h>

namespace gradus::openmp_detail {
namespace {

// ---- The algorithm
// ---------------------------------------------------------------------------------------------------

bool has_channels_last(const ImageLayout& x) { return x.c_stride == 1 && x.C > 1; }

// Dense planes so small that converting them to channels-last and back pays off.
bool has_small_planes(const ImageLayout& x) {
  return x.C >= 16 && x.H * x.W <= 400 && (x.W == 1 || x.w_stride == 1) && (x.H == 1 || x.h_stride == x.W);
}

// True if each group has one channel and vectors of channels are faster than `direct`'s vectors of pixels.
bool prefers_depthwise(const Conv2dGeometry& g, const ImageLayout& in, const ImageLayout& out) {
  return is_depthwise(g, in, out) &&
         ((has_channels_last(in) && has_channels_last(out)) || (has_small_planes(in) && has_small_planes(out)));
}

// True if both sides have too few channels to fill a register tile of pixels by channels, even with short vectors. Then
// `direct` computes both gradients, in one pass.
bool has_few_channels(const StridedLayout& w, const Conv2dGeometry& g) {
  const int64_t channels = w.shape[1], filters = w.shape[0] / g.groups;
  return filters <= 4 && channels * filters <= 9;
}

// The algorithm of a pass from `in` to `out` with sums for `columns` channels of a group: implicit_gemm_nhwc if these
// channels fill vectors well enough to make it fast.
ConvAlgorithm algorithm_of(const ConvSettings& settings, DType dtype, const Conv2dGeometry& g, const ImageLayout& in,
                           const ImageLayout& out, const StridedLayout& w, int64_t columns) {
  if (prefers_depthwise(g, in, out)) return ConvAlgorithm::depthwise;
  const int64_t vector = registers(settings.table, dtype).vector;
  const bool fills = columns >= vector && 4 * columns >= 3 * round_up(columns, vector);
  return fills && !has_few_channels(w, g) ? ConvAlgorithm::implicit_gemm_nhwc : ConvAlgorithm::direct;
}

// The reason for the algorithm, for reports.
const char* reason_for(ConvAlgorithm algorithm, bool few_channels) {
  if (algorithm == ConvAlgorithm::depthwise) return "one channel in a group, in vectors of channels";
  if (algorithm == ConvAlgorithm::implicit_gemm_nhwc) return "channels fill vectors";
  return few_channels ? "few channels on both sides" : "channels do not fill vectors";
}

// Channels-last weights; implicit_gemm_nhwc uses them without a copy.
bool is_channels_last(const StridedLayout& w) {
  int64_t expected = 1;
  for (int axis : {1, 3, 2, 0}) {
    if (w.shape[axis] > 1 && w.strides[axis] != expected) return false;
    expected *= w.shape[axis];
  }
  return w.shape[1] > 1;
}

// ---- The tiles
// -------------------------------------------------------------------------------------------------------

// A convolution, or the gradient of an image, which is computed as a convolution.
struct ConvProblem {
  const ConvSettings& settings;
  DType dtype;             // in which it computes
  ImageLayout in, w, out;  // the images read, the weights, the images written
  const Conv2dGeometry& g;
  bool backward, mask;

  int64_t element() const { return static_cast<int64_t>(size_of(dtype)); }
  // The axes of `out`, except in gradients of weights, where `out` is dy.
  std::vector<WindowAxis> axes(int axis) const {
    return conv_axes(backward, g, axis, out.size(axis), in.size(axis), w.size(axis));
  }
  int64_t threads(int64_t chunks) const { return std::min<int64_t>(settings.threads, chunks); }
};

constexpr int64_t kCacheBytes = int64_t{512} << 10;  // size of a part's data, for the second-level cache
constexpr int64_t kParts = 16;                       // parts for the threads to share, if there is enough work
constexpr int64_t kPartElements = int64_t{1} << 23;  // maximum size of the sums of all parts together
constexpr int64_t kChunkWork = int64_t{1} << 17;     // minimum multiply-adds of a parallel chunk
constexpr int64_t kChunksWanted = 32;

// The rows (columns) that the taps of axes read, relative to an output position: from `least` to `most`.
struct TapRange {
  int64_t least = 0, most = 0, total = 0;  // total: taps of all axes
};
TapRange tap_range(const std::vector<WindowAxis>& axes) {
  TapRange range;
  for (const WindowAxis& axis : axes)
    for (const WindowAxis::Tap& tap : axis.taps) {
      range.least = range.total ? std::min(range.least, tap.at) : tap.at;
      range.most = range.total ? std::max(range.most, tap.at) : tap.at;
      ++range.total;
    }
  return range;
}

// Each `cut` sets the tiles and returns the bytes of scratch memory that the kernel needs.

int64_t cut(NhwcTiles& t, const ConvProblem& p) {
  constexpr int64_t kLeastPixels = 128;  // per part if possible, to amortise loading the weights
  constexpr int64_t kDepth = 288;        // 36 KiB per tile
  const WindowAxis rows = p.axes(0)[0], columns = p.axes(1)[0];  // of the first pass, which is the largest
  const TapRange taps = tap_range(p.axes(0));
  t.least = taps.least, t.most = taps.total ? taps.most : -1;
  const int64_t width = registers(p.settings.table, p.dtype).columns, channels = p.in.C / p.g.groups;
  const bool depthwise = is_depthwise(p.g, p.in, p.out);
  const int64_t tiles = FilterTiles(p.g, p.in, p.out, width, depthwise).count(), images = p.out.N;

  const int64_t row_bytes = (rows.step * p.in.W * p.in.C + rows.out_step * p.out.W * p.out.C) * p.element();
  // All parts of the filters read the same channels; depthwise, they read whole pixels.
  const int64_t most_filter_parts = depthwise ? 1 : ceil_div(tiles, 2), wanted = ceil_div(kParts, most_filter_parts);
  t.images = 1, t.rows = rows.size;
  // The data that a part reads and writes fits in the cache. A part of several images uses only half of it, which
  // leaves room for prefetching the next part.
  const int64_t fit = kCacheBytes / std::max<int64_t>(row_bytes, 1);  // rows
  if (fit >= 2 * rows.size) {
    t.images =
        std::clamp<int64_t>(std::min(fit / 2 / std::max<int64_t>(rows.size, 1), ceil_div(images, wanted)), 1, images);
    const int64_t least = ceil_div(kLeastPixels, std::max<int64_t>(rows.size * columns.size, 1));
    if (tiles > 2) t.images = std::clamp(least, t.images, images);
  }
  if (t.images == 1) {
    const int64_t bands = std::max(ceil_div(rows.size, std::max<int64_t>(fit, 1)),
                                   std::min(ceil_div(wanted, images), ceil_div(rows.size, 4)));
    t.rows = ceil_div(rows.size, bands);
  }
  t.bands = ceil_div(rows.size, t.rows);
  const int64_t pixel_parts = ceil_div(images, t.images) * t.bands;
  t.filter_tiles = ceil_div(tiles, std::clamp<int64_t>(ceil_div(kParts, pixel_parts), 1, most_filter_parts));
  t.filter_parts = ceil_div(tiles, t.filter_tiles);
  t.parts = pixel_parts * t.filter_parts;

  t.depth = kDepth;
  const int64_t kernel = p.w.H * p.w.W;
  t.pack_size =
      p.w.tap_stride() == 1 && kernel > 1 ? slot_size(std::min(channels, kPackedChannels) * kernel * width) : 0;
  const int64_t rows_read = std::min(p.in.H, (t.rows - 1) * rows.step + t.most - t.least + 1);
  const int64_t rows_written = t.rows * rows.out_step, filters = std::min(t.filter_tiles * width, p.out.C);
  t.in_size = in_place(p.in, p.mask) ? 0 : slot_size(t.images * std::max<int64_t>(rows_read, 0) * p.in.W * p.in.C);
  t.out_size = has_pixels(p.out) ? 0 : slot_size(t.images * rows_written * p.out.W * filters);
  return (tiles * width * channels * taps.total * tap_range(p.axes(1)).total +
          std::max(p.threads(tiles * ceil_div(channels, kPackedChannels)) * t.pack_size,
                   p.threads(t.parts) * (t.in_size + t.out_size))) *
         p.element();
}

// The gradient of the weights: `in` is x and `out` is dy.
int64_t cut(NhwcWeightTiles& t, const ConvProblem& p) {
  // enough parts without splitting the batch, which would need memory for sums
  constexpr int64_t kFilterPartsEnough = 8;
  constexpr int64_t kPixels = 256;  // pixels per block
  const ImageLayout &x = p.in, &dy = p.out;
  const Registers tile = registers(p.settings.table, p.dtype);
  const bool depthwise = is_depthwise(p.g, x, dy);
  const int64_t channels = p.w.C, taps = p.w.H * p.w.W, width = tile.columns, groups = p.g.groups;
  const int64_t tiles = FilterTiles(p.g, x, dy, width, depthwise).count();
  const int64_t part_size = tiles * taps * channels * width;
  // A pixel with few channels makes a tile of few rows, too few to hide the latency of their multiply-adds.
  t.joins_taps = depthwise || (2 * channels < tile.rows && groups == 1 && p.g.dilation[1] == 1 &&
                               (!in_place(x, false) || x.w_stride == x.C));

  const int64_t row_bytes = (x.W * x.C * p.g.stride[0] + dy.W * dy.C) * p.element();
  const int64_t fit = std::max<int64_t>(1, kCacheBytes / std::max<int64_t>(row_bytes, 1));
  t.bands = std::max<int64_t>(1, ceil_div(dy.H, fit));
  t.item_rows = ceil_div(dy.H, t.bands);
  t.bands = t.item_rows > 0 ? ceil_div(dy.H, t.item_rows) : 0;
  const int64_t image_pixels = std::max<int64_t>(1, dy.H * dy.W);
  t.item_images = t.bands == 1 ? std::clamp<int64_t>(std::max(fit / 2 / dy.H, ceil_div(kPixels, image_pixels)), 1,
                                                     std::max<int64_t>(dy.N, 1))
                               : 1;
  t.block_rows = t.bands == 1 && 2 * image_pixels <= 3 * kPixels
                     ? t.item_rows
                     : std::clamp<int64_t>(kPixels / std::max<int64_t>(dy.W, 1), 1, std::max<int64_t>(t.item_rows, 1));
  t.block_images = t.block_rows == t.item_rows ? std::clamp<int64_t>(kPixels / image_pixels, 1, t.item_images) : 1;

  t.filter_tiles = depthwise ? tiles : ceil_div(tiles, std::min(ceil_div(tiles, 2), kParts));
  t.filter_parts = ceil_div(tiles, t.filter_tiles);
  const int64_t batch_parts = t.filter_parts >= kFilterPartsEnough ? 1 : ceil_div(kParts, t.filter_parts);
  const int64_t wanted = std::min(batch_parts, kPartElements / (part_size + 1) + 1);
  t.item_images = std::min(t.item_images, std::max<int64_t>(1, ceil_div(dy.N, wanted)));
  t.items = ceil_div(dy.N, t.item_images) * t.bands;
  t.items_in_part = std::max<int64_t>(1, ceil_div(t.items, wanted));
  t.parts = std::max<int64_t>(1, ceil_div(t.items, t.items_in_part));

  const int64_t rows_read =
      std::min(x.H, std::max<int64_t>(0, (t.item_rows - 1) * p.g.stride[0] + (p.w.H - 1) * p.g.dilation[0] + 1));
  t.sums_size = t.parts * part_size, t.bias_sums_size = t.parts * dy.C;
  t.x_size = in_place(x, false) ? 0 : slot_size(t.item_images * rows_read * x.W * x.C);
  const int64_t filters = std::min(t.filter_tiles * width, dy.C);
  t.dy_size = in_place(dy, p.mask) ? 0 : slot_size(t.item_images * t.item_rows * dy.W * filters);
  t.total_size = slot_size(std::min(channels, kPackedChannels) * width);
  t.by_channel_size = p.w.tap_stride() == 1 ? t.total_size * taps : 0;
  return (t.sums_size + t.bias_sums_size +
          std::max(p.threads(t.parts * t.filter_parts) * (t.x_size + t.dy_size),
                   p.threads(tiles * ceil_div(channels, kPackedChannels)) * (t.total_size + t.by_channel_size))) *
         p.element();
}

// Number of rows of `total` in a band: at most `fit`, with bands of nearly equal height.
int64_t band_of(int64_t total, int64_t fit) {
  const int64_t most = std::max<int64_t>(1, std::min(total, fit));
  return std::max<int64_t>(1, ceil_div(total, std::max<int64_t>(1, ceil_div(total, most))));
}

// Backward, `wants_out` requests dx, and `wants_dw` requests dw and dbias.
int64_t cut(DirectTiles& t, const ConvProblem& p, bool wants_out = true, bool wants_dw = false) {
  constexpr int64_t kBandBytes = int64_t{32} << 10;       // for planes, which every filter reads again,
  constexpr int64_t kLeastRows = 16;                      // but at least the rows of two tiles
  constexpr int64_t kGradientBytes = int64_t{256} << 10;  // for planes of x and dy
  const int64_t vector = registers(p.settings.table, p.dtype).vector, groups = p.g.groups;
  const int64_t channels = p.in.C / groups, filters = p.out.C / groups;
  int64_t positions[2] = {0, 0}, reach[2] = {0, 0}, x_reach[2] = {0, 0};  // positions: size of a pass or of dy
  t.weights_size = wants_out ? p.w.N * p.w.C : 0;                         // of all passes
  t.in.channels = channels, t.x.channels = p.backward ? filters : 0;
  // Adds an axis to `planes`. `reach`: number of rows (columns) read beyond an output's position.
  const auto add_axis = [](PlaneLayout& planes, int axis, const std::vector<WindowAxis>& passes, int64_t& reach) {
    const TapRange taps = tap_range(passes);
    planes.split[axis] = passes[0].step, planes.shift[axis] = std::max<int64_t>(0, -taps.least);
    reach = (std::max<int64_t>(0, taps.most) + planes.shift[axis]) / planes.split[axis];
    return taps.total;
  };
  for (int axis = 0; axis < 2; ++axis) {
    if (wants_dw) positions[axis] = p.in.size(axis);
    if (p.backward)
      add_axis(t.x, axis, conv_axes(false, p.g, axis, p.in.size(axis), p.out.size(axis), p.w.size(axis)),
               x_reach[axis]);
    if (!wants_out) continue;
    const std::vector<WindowAxis> passes = p.axes(axis);
    positions[axis] = std::max(positions[axis], passes[0].size);
    t.weights_size *= add_axis(t.in, axis, passes, reach[axis]);
  }
  t.in.pitch = round_up(positions[1], vector) + reach[1], t.x.pitch = round_up(p.in.W, vector) + x_reach[1];
  const auto row_bytes = [&](const PlaneLayout& planes) {
    return planes.channels * planes.split[0] * planes.split[1] * planes.pitch * p.element();
  };
  const int64_t bytes = std::max<int64_t>(1, row_bytes(t.in) + row_bytes(t.x));
  t.band =
      band_of(positions[0], p.backward ? kGradientBytes / bytes : std::max(kLeastRows, kBandBytes / bytes - reach[0]));
  t.bands = ceil_div(positions[0], t.band);
  t.in.rows = t.band + reach[0], t.x.rows = t.band + x_reach[0];
  t.items = p.in.N * t.bands;

  const int64_t taps = p.w.C * p.w.H * p.w.W;
  const int64_t work = p.w.N / groups * taps * t.band * (p.out.W + (p.backward ? p.in.W : 0));
  const int64_t parts_wanted =
      p.backward ? std::min(ceil_div(kParts, groups), ceil_div(t.items * groups * work, kChunkWork)) : t.items;
  t.items_in_part = std::max<int64_t>(1, ceil_div(t.items, std::max<int64_t>(parts_wanted, 1)));
  t.parts = std::max<int64_t>(1, ceil_div(t.items, t.items_in_part));
  t.grain = std::max(ceil_div(t.parts * groups, kChunksWanted), ceil_div(kChunkWork, t.items_in_part * work + 1));

  t.partial_size = wants_dw ? t.parts * p.in.C * (taps + 1) : 0;
  t.in_size = slot_size(channels * t.in.channel_stride());
  t.x_size = wants_dw ? slot_size(filters * t.x.channel_stride()) : 0;
  if (wants_out) {
    const WindowAxis columns = p.axes(1)[0];
    t.sums_size =
        p.out.w_stride * columns.out_step == 1 ? 0 : slot_size(filters * t.band * round_up(columns.size, vector));
  }
  t.vectors_size = wants_dw ? slot_size(channels * taps * vector) : 0;
  const int64_t of_thread = t.in_size + t.x_size + t.sums_size + t.vectors_size;
  return (t.partial_size + t.weights_size + p.threads(ceil_div(t.parts * groups, t.grain)) * of_thread) * p.element();
}

// ---- Copies of operands ---------------------------------------------------------------------------------------------

// The layout of x after the copy that the kernels need, if any.
ImageLayout seen(const StridedLayout& x, DType dtype, bool dense) {
  ImageLayout images(x);
  if (!needs_copy(x, dtype, dense)) return images;
  const bool pixels = copy_format(x, dense) == MemoryFormat::channels_last;
  images.c_stride = pixels ? 1 : images.H * images.W, images.w_stride = pixels ? images.C : 1;
  images.h_stride = images.W * images.w_stride, images.n_stride = images.C * images.H * images.W;
  return images;
}
int64_t copy_bytes(const StridedLayout* x, DType dtype, bool dense) {
  return x && needs_copy(*x, dtype, dense) ? x->numel() * static_cast<int64_t>(size_of(dtype)) : 0;
}

// Sets the tiles and adds the kernel's scratch memory.
template <class Tiles, class... Wanted>
void cut_into(ConvPlan& plan, Tiles tiles, const ConvProblem& p, const Wanted&... wanted) {
  plan.workspace_bytes += cut(tiles, p, wanted...);
  plan.tiles = tiles;
}

// Sets the tiles of y from x, or of dx from dy.
void cut_images(ConvPlan& plan, const ConvProblem& p) {
  if (p.out.numel() == 0) return;
  if (plan.algorithm == ConvAlgorithm::direct) cut_into(plan, DirectTiles{}, p);
  else cut_into(plan, NhwcTiles{}, p);
}

}  // namespace

MemoryFormat copy_format(const StridedLayout& x, bool dense) {
  return !dense && x.ndim() == 4 && has_channels_last(ImageLayout(x)) ? MemoryFormat::channels_last
                                                                      : MemoryFormat::contiguous;
}

bool needs_copy(const StridedLayout& x, DType dtype, bool dense) {
  const bool no_neighbours = x.ndim() == 4 && x.shape[1] > 1 && x.strides[1] != 1 && x.strides[3] != 1;
  return (x.dtype != dtype || (dense && !is_row_major(x)) || no_neighbours) && x.numel() > 0;
}

ConvPlan select_conv2d(const ConvSettings& settings, const StridedLayout& x, const StridedLayout& w,
                       const StridedLayout* bias, const StridedLayout& y, const Conv2dGeometry& g) {
  const DType dtype = wide(y.dtype);
  const ImageLayout in = seen(x, dtype, false), out = seen(y, dtype, false);
  ConvPlan plan;
  plan.algorithm = algorithm_of(settings, dtype, g, in, out, w, w.shape[0] / g.groups);
  plan.reason = reason_for(plan.algorithm, has_few_channels(w, g));
  plan.dense_weights = plan.algorithm != ConvAlgorithm::implicit_gemm_nhwc || !is_channels_last(w);
  plan.workspace_bytes = copy_bytes(&x, dtype, false) + copy_bytes(bias, dtype, true) + copy_bytes(&y, dtype, false) +
                         copy_bytes(&w, dtype, plan.dense_weights);
  cut_images(plan, {settings, dtype, in, seen(w, dtype, plan.dense_weights), out, g, false, false});
  return plan;
}

ConvBackwardPlan select_conv2d_backward(const ConvSettings& settings, const StridedLayout& dy, const StridedLayout& x,
                                        const StridedLayout& w, const StridedLayout* y_if_relu, const StridedLayout* dx,
                                        const StridedLayout* dw, const StridedLayout* dbias, const Conv2dGeometry& g,
                                        bool masked) {
  const DType dtype = wide(dy.dtype);
  const auto same_layout = [&](const StridedLayout& y) {
    for (int i = 0; i < 4; ++i)
      if (dy.shape[i] != 1 && dy.strides[i] != y.strides[i]) return false;
    return true;
  };
  ConvBackwardPlan plan;
  plan.masks_first = y_if_relu && (needs_copy(dy, dtype, false) || !same_layout(*y_if_relu));
  const bool mask = y_if_relu && !plan.masks_first;
  StridedLayout gradient = dy;
  if (plan.masks_first && !masked) {
    plan.workspace_bytes += dy.numel() * static_cast<int64_t>(size_of(dy.dtype));
    if (!StridedLoop<1>(dy.shape, {&dy.strides}).all_contiguous())
      gradient.strides = contiguous_strides(dy.shape);  // the masked dy is row-major
  }
  const ImageLayout dy_seen = seen(gradient, dtype, false);
  plan.workspace_bytes += copy_bytes(&gradient, dtype, false);
  const ImageLayout x_seen = dw ? seen(x, dtype, false) : ImageLayout(x);
  const ImageLayout dx_seen = dx ? seen(*dx, dtype, false) : ImageLayout(x);

  const auto algorithm = [&](int64_t columns) {
    return algorithm_of(settings, dtype, g, ImageLayout(x), ImageLayout(dy), w, columns);
  };
  plan.data.algorithm = algorithm(w.shape[1]), plan.weight.algorithm = algorithm(w.shape[0] / g.groups);
  for (ConvPlan* pass : {&plan.data, &plan.weight}) pass->reason = reason_for(pass->algorithm, has_few_channels(w, g));
  plan.at_once = plan.data.algorithm == ConvAlgorithm::direct && plan.weight.algorithm == ConvAlgorithm::direct;
  const bool wants_dx = dx && dx->numel() > 0, wants_dw = dw && dw->numel() > 0;
  if (dx || plan.at_once) {
    ConvPlan& data = plan.data;
    data.dense_weights = data.algorithm != ConvAlgorithm::implicit_gemm_nhwc || !is_channels_last(w);
    data.workspace_bytes = copy_bytes(dx ? &w : nullptr, dtype, data.dense_weights) + copy_bytes(dx, dtype, false);
    const ConvProblem p{settings, dtype, dy_seen, seen(w, dtype, data.dense_weights), dx_seen, g, true, mask};
    if (plan.at_once) cut_into(data, DirectTiles{}, p, wants_dx, wants_dw);
    else cut_images(data, p);
  }
  if (dw) {
    ConvPlan& pass = plan.at_once ? plan.data : plan.weight;
    pass.dense_weights = pass.algorithm != ConvAlgorithm::implicit_gemm_nhwc || !is_channels_last(*dw);
    pass.workspace_bytes +=
        copy_bytes(&x, dtype, false) + copy_bytes(dw, dtype, pass.dense_weights) + copy_bytes(dbias, dtype, true);
    const ImageLayout dw_seen = seen(*dw, dtype, pass.dense_weights);
    if (plan.weight.algorithm != ConvAlgorithm::direct && dy.shape[1] > 0)
      cut_into(pass, NhwcWeightTiles{}, {settings, dtype, x_seen, dw_seen, dy_seen, g, true, mask});
    else if (plan.weight.algorithm == ConvAlgorithm::direct && !plan.at_once)
      cut_into(pass, DirectTiles{}, {settings, dtype, dy_seen, dw_seen, x_seen, g, true, mask}, false, wants_dw);
  }
  plan.workspace_bytes += std::max(plan.data.workspace_bytes, plan.weight.workspace_bytes);
  return plan;
}

}  // namespace gradus::openmp_detail
