// How each algorithm of a convolution cuts its work: tiles and scratch memory.
#include <gradus/backends/openmp/conv2d/select_tiles.h>

#include <gradus/backends/openmp/conv2d/nhwc.h>

namespace gradus::openmp_detail {

constexpr int64_t kCacheBytes = int64_t{512} << 10;  // what is worked on together: in the second-level cache
constexpr int64_t kParts = 16;                       // for the threads to share, if there is work for as many
constexpr int64_t kPartElements = int64_t{1} << 23;  // sums of all parts together, at most
constexpr int64_t kChunkWork = int64_t{1} << 17;     // multiply-adds that are worth a chunk of parallel work
constexpr int64_t kChunksWanted = 32;

static int64_t grain_of(int64_t count, int64_t work) {
  return std::max(ceil_div(count, kChunksWanted), ceil_div(kChunkWork, work + 1));
}

// What the taps of axes read: rows (columns) from `least` to `most` beyond a position's place.
namespace {
struct TapRange {
  int64_t least = 0, most = 0, total = 0;  // total: taps of all axes
};
}  // namespace
static TapRange tap_range(const std::vector<WindowAxis>& axes) {
  TapRange range;
  for (const WindowAxis& axis : axes)
    for (const WindowAxis::Tap& tap : axis.taps) {
      range.least = range.total ? std::min(range.least, tap.at) : tap.at;
      range.most = range.total ? std::max(range.most, tap.at) : tap.at;
      ++range.total;
    }
  return range;
}

int64_t cut(NhwcTiles& t, const ConvProblem& p) {
  constexpr int64_t kLeastPixels = 128;  // in a part, if it can be: they share what loading the weights costs
  constexpr int64_t kDepth = 288;        // 36 KiB for a tile
  const WindowAxis rows = p.axes(0)[0], columns = p.axes(1)[0];  // of the first pass, which has most
  const TapRange taps = tap_range(p.axes(0));
  t.least = taps.least, t.most = taps.total ? taps.most : -1;
  const int64_t width = registers(p.settings.table, p.dtype).columns, channels = p.in.C / p.g.groups;
  const bool depthwise = is_depthwise(p.g, p.in, p.out);
  const int64_t tiles = FilterTiles(p.g, p.in, p.out, width, depthwise).count(), images = p.out.N;

  const int64_t row_bytes = (rows.step * p.in.W * p.in.C + rows.out_step * p.out.W * p.out.C) * p.element();
  // All parts of the filters read the same channels, or, depthwise, pixels that are laid out as a whole.
  const int64_t most_filter_parts = depthwise ? 1 : ceil_div(tiles, 2), wanted = ceil_div(kParts, most_filter_parts);
  t.images = 1, t.rows = rows.size;
  // What a part reads and writes, half of it if that is several images, is in the cache beside what the next one reads.
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

int64_t cut(NhwcWeightTiles& t, const ConvProblem& p) {  // in: x, out: dy
  constexpr int64_t kFilterPartsEnough = 8;              // to do without parts of the batch, whose sums take memory
  constexpr int64_t kPixels = 256;                       // in a block
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

// How many rows of `total` are worked on together: `fit` at most, in bands of nearly equal height.
static int64_t band_of(int64_t total, int64_t fit) {
  const int64_t most = std::max<int64_t>(1, std::min(total, fit));
  return std::max<int64_t>(1, ceil_div(total, std::max<int64_t>(1, ceil_div(total, most))));
}

int64_t cut(DirectTiles& t, const ConvProblem& p, bool wants_out, bool wants_dw) {
  constexpr int64_t kBandBytes = int64_t{32} << 10;       // of planes, which every filter reads anew,
  constexpr int64_t kLeastRows = 16;                      // but as many rows as two tiles have
  constexpr int64_t kGradientBytes = int64_t{256} << 10;  // of planes of x and dy
  const int64_t vector = registers(p.settings.table, p.dtype).vector, groups = p.g.groups;
  const int64_t channels = p.in.C / groups, filters = p.out.C / groups;
  int64_t positions[2] = {0, 0}, reach[2] = {0, 0}, x_reach[2] = {0, 0};  // positions: of a pass or of dy
  t.weights_size = wants_out ? p.w.N * p.w.C : 0;                         // those of all passes
  t.in.channels = channels, t.x.channels = p.backward ? filters : 0;
  // What an axis adds to planes; `reach`: rows (columns) beyond an output's place.
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
  t.grain = grain_of(t.parts * groups, t.items_in_part * work);

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

}  // namespace gradus::openmp_detail
