#include <gradus/backends/openmp/conv2d/select_tiles.h>

#include <gradus/backends/openmp/conv2d/nhwc.h>

namespace gradus::openmp_detail {

constexpr int64_t kCacheBytes = int64_t{512} << 10;  // what is worked on together: in the second-level cache
constexpr int64_t kParts = 16;                       // for the threads to share, if there is work for as many
constexpr int64_t kPartElements = int64_t{1} << 23;  // sums of all parts together, at most
constexpr int64_t kChunkWork = int64_t{1} << 17;     // multiply-adds that are worth a chunk of parallel work
constexpr int64_t kChunksWanted = 32;

static int64_t grain_of(int64_t pieces, int64_t work) {
  return std::max(ceil_div(pieces, kChunksWanted), ceil_div(kChunkWork, work + 1));
}

// What the taps of axes read: rows (columns) from `least` to `most` beyond a position's place.
namespace {
struct TapRange {
  int64_t least = 0, most = 0;
  int64_t total = 0, largest = 0;  // taps of all axes; of the one with most
};
}  // namespace
static TapRange tap_range(const std::vector<WindowAxis>& axes) {
  TapRange range;
  for (const WindowAxis& axis : axes) {
    for (const WindowAxis::Tap& tap : axis.taps) {
      range.least = range.total ? std::min(range.least, tap.at) : tap.at;
      range.most = range.total ? std::max(range.most, tap.at) : tap.at;
      ++range.total;
    }
    range.largest = std::max(range.largest, static_cast<int64_t>(axis.taps.size()));
  }
  return range;
}

// Sets the planes that a convolution reads forward, but for their rows and pitch, and how many rows and columns beyond
// an output's place.
static void set_planes(PlaneLayout& planes, int64_t channels, const ConvProblem& p, int64_t (&reach)[2]) {
  planes.channels = channels;
  for (int axis = 0; axis < 2; ++axis) {
    planes.split[axis] = p.g.stride[axis], planes.shift[axis] = p.g.padding[axis];
    reach[axis] = (p.w.size(axis) - 1) * p.g.dilation[axis] / p.g.stride[axis];
  }
}

int64_t cut(NhwcTiles& t, const ConvProblem& p) {
  constexpr int64_t kLeastPixels = 128;        // in a part, if it can be: they share what loading the weights costs
  constexpr int64_t kPackGrain = 16384;        // weights that are worth a chunk of packing
  constexpr int64_t kDepth = 288;              // 36 KiB for a tile
  int64_t steps[2][2], rows[2], all_taps = 1;  // steps: read, written
  for (int axis = 0; axis < 2; ++axis) {
    const std::vector<WindowAxis> axes = p.axes(axis);
    const TapRange taps = tap_range(axes);
    t.least[axis] = taps.least, t.most[axis] = taps.total ? taps.most : -1;
    steps[axis][0] = axes[0].step, steps[axis][1] = axes[0].out_step;
    rows[axis] = axes[0].size;  // the first pass has most
    all_taps *= taps.total;
  }
  const int64_t width = registers(p.settings, p.dtype).columns, channels = p.in.C / p.g.groups;
  const int64_t tiles = p.g.groups * ceil_div(p.out.C / p.g.groups, width), images = p.out.N;

  const int64_t row_bytes = (steps[0][0] * p.in.W * p.in.C + steps[0][1] * p.out.W * p.out.C) * p.element();
  const int64_t most_filter_parts = ceil_div(tiles, 2), wanted = ceil_div(kParts, most_filter_parts);
  t.images = 1, t.rows = rows[0];
  // What a part reads and writes, half of it if that is several images, is in the cache beside what the next one reads.
  const int64_t fit = kCacheBytes / std::max<int64_t>(row_bytes, 1);  // rows
  if (fit >= 2 * rows[0]) {
    t.images =
        std::clamp<int64_t>(std::min(fit / 2 / std::max<int64_t>(rows[0], 1), ceil_div(images, wanted)), 1, images);
    const int64_t least = ceil_div(kLeastPixels, std::max<int64_t>(rows[0] * rows[1], 1));
    if (tiles > 2) t.images = std::clamp(least, t.images, images);
  }
  if (t.images == 1) {
    const int64_t bands = std::max(ceil_div(rows[0], std::max<int64_t>(fit, 1)),
                                   std::min(ceil_div(wanted, images), ceil_div(rows[0], 4)));
    t.rows = ceil_div(rows[0], bands);
  }
  t.bands = ceil_div(rows[0], t.rows);
  const int64_t pixel_parts = ceil_div(images, t.images) * t.bands;
  t.filter_tiles = ceil_div(tiles, std::clamp<int64_t>(ceil_div(kParts, pixel_parts), 1, most_filter_parts));
  t.filter_parts = ceil_div(tiles, t.filter_tiles);
  t.parts = pixel_parts * t.filter_parts;

  t.depth = kDepth;
  t.packing_pieces = ceil_div(channels, ceil_div(kPackGrain, p.w.H * p.w.W * width));
  t.packed_channels = ceil_div(channels, std::max<int64_t>(t.packing_pieces, 1));
  t.pack_size = p.w.tap_stride() == 1 ? t.packed_channels * p.w.H * p.w.W * width : 0;
  const int64_t rows_read = std::min(p.in.H, (t.rows - 1) * steps[0][0] + t.most[0] - t.least[0] + 1);
  t.in_size = in_place(p.in, p.mask) ? 0 : t.images * std::max<int64_t>(rows_read, 0) * p.in.W * p.in.C;
  t.out_size =
      has_pixels(p.out) ? 0 : t.images * t.rows * steps[0][1] * p.out.W * std::min(t.filter_tiles * width, p.out.C);
  return (tiles * width * channels * all_taps +
          std::max(p.threads(tiles * t.packing_pieces) * t.pack_size, p.threads(t.parts) * (t.in_size + t.out_size))) *
         p.element();
}

int64_t cut(NhwcWeightTiles& t, const ConvProblem& p) {  // in: x, out: dy
  constexpr int64_t kFilterPartsEnough = 8;              // to do without parts of the batch, whose sums take memory
  constexpr int64_t kPixels = 256;                       // in a block
  constexpr int64_t kUnpackGrain = 16384;                // sums that are worth a chunk of adding up
  const ImageLayout &x = p.in, &dy = p.out;
  const Registers tile = registers(p.settings, p.dtype);
  const int64_t channels = p.w.C, taps = p.w.H * p.w.W, width = tile.columns, groups = p.g.groups;
  const int64_t tiles = groups * ceil_div(dy.C / groups, width), part_size = tiles * taps * channels * width;
  // A pixel with few channels makes a tile of few rows, too few to hide the latency of their multiply-adds.
  t.joins_taps =
      2 * channels < tile.rows && groups == 1 && p.g.dilation[1] == 1 && (!in_place(x, false) || x.w_stride == x.C);

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

  t.filter_tiles = ceil_div(tiles, std::min(ceil_div(tiles, 2), kParts));
  t.filter_parts = ceil_div(tiles, t.filter_tiles);
  const int64_t batch_parts = t.filter_parts >= kFilterPartsEnough ? 1 : ceil_div(kParts, t.filter_parts);
  const int64_t wanted = std::min(batch_parts, kPartElements / (part_size + 1) + 1);
  t.item_images = std::min(t.item_images, std::max<int64_t>(1, ceil_div(dy.N, wanted)));
  t.items = ceil_div(dy.N, t.item_images) * t.bands;
  t.items_in_part = std::max<int64_t>(1, ceil_div(t.items, wanted));
  t.parts = std::max<int64_t>(1, ceil_div(t.items, t.items_in_part));
  t.unpacked_channels = std::clamp<int64_t>(kUnpackGrain / (taps * width), 1, std::max<int64_t>(channels, 1));
  t.unpacking_pieces = ceil_div(channels, t.unpacked_channels);

  const int64_t rows_read =
      std::min(x.H, std::max<int64_t>(0, (t.item_rows - 1) * p.g.stride[0] + (p.w.H - 1) * p.g.dilation[0] + 1));
  t.sums_size = t.parts * part_size, t.bias_sums_size = t.parts * dy.C;
  t.x_size = in_place(x, false) ? 0 : t.item_images * rows_read * x.W * x.C;
  t.dy_size = in_place(dy, p.mask) ? 0 : t.item_images * t.item_rows * dy.W * std::min(t.filter_tiles * width, dy.C);
  t.total_size = t.unpacked_channels * width;
  t.by_channel_size = p.w.tap_stride() == 1 ? t.total_size * taps : 0;
  return (t.sums_size + t.bias_sums_size +
          std::max(p.threads(t.parts * t.filter_parts) * (t.x_size + t.dy_size),
                   p.threads(tiles * t.unpacking_pieces) * (t.total_size + t.by_channel_size))) *
         p.element();
}

int64_t cut(WinogradTiles& t, const ConvProblem& p, int64_t tile_size) {
  // U is 16/9 or four times as large as w. Where it outgrows the second-level cache, it is not kept, but transformed by
  // each part anew, a register tile of filters at a time; parts are large then.
  constexpr int64_t kKeptBytes = int64_t{2} << 20;       // of U at most, for parts to share it
  constexpr int64_t kPartBytes = int64_t{640} << 10;     // of V and M: in the second-level cache
  constexpr int64_t kLargePartBytes = int64_t{6} << 20;  // the same where U is not kept
  constexpr int64_t kLeastTiles = 28, kMostTiles = 128;  // in a part, if there are: they share what loading U costs
  constexpr int64_t kPartsWanted = 8;
  constexpr int64_t kLeastFilterTiles = 2;   // in a part, since each part transforms its input
  constexpr int64_t kDepth = 384;            // channels multiplied at once: their U stays in the first-level cache
  constexpr int64_t kTransformGrain = 2048;  // pairs of channel and filter that are worth a chunk of work
  const Registers tile = registers(p.settings, p.dtype);
  const int64_t channels = p.in.C / p.g.groups, filters = p.out.C / p.g.groups, width = tile.columns;
  const int64_t filter_tiles = p.g.groups * ceil_div(filters, width), bytes = p.element();
  t.tile = tile_size, t.positions = (t.tile + 2) * (t.tile + 2);
  t.rows = ceil_div(p.out.H, t.tile), t.columns = ceil_div(p.out.W, t.tile);
  // V and U have a vector more than they need, so that rows and positions at powers of two do not share sets of a
  // cache.
  t.v_step = round_up(channels, tile.vector) + tile.vector, t.u_position = channels * width + tile.vector;
  t.u_size = t.positions * t.u_position;
  t.depth = std::min(channels, kDepth);

  const int64_t tile_bytes = t.positions * (t.v_step + width) * bytes;
  const bool large = filter_tiles * t.u_size * bytes > kKeptBytes;
  const int64_t tiles = large ? std::clamp(kLargePartBytes / tile_bytes, kLeastTiles, kMostTiles)
                              : std::max(kPartBytes / tile_bytes, kLeastTiles);
  const int64_t images = std::clamp<int64_t>(tiles / (t.rows * t.columns), 1, p.out.N);
  const int64_t rows = images > 1 ? t.rows : std::clamp<int64_t>(tiles / t.columns, 1, t.rows);
  t.parts[0] = ceil_div(p.out.N, images), t.parts[1] = ceil_div(t.rows, rows);
  const int64_t wanted = ceil_div(kPartsWanted, t.parts[0] * t.parts[1]);
  t.part_filter_tiles = ceil_div(filter_tiles, std::min(wanted, ceil_div(filter_tiles, kLeastFilterTiles)));
  t.parts[2] = ceil_div(filter_tiles, t.part_filter_tiles);
  t.part_images = ceil_div(p.out.N, t.parts[0]), t.part_rows = ceil_div(t.rows, t.parts[1]);
  t.keeps_u = !large && t.parts[0] * t.parts[1] > 1;
  t.packing_pieces = ceil_div(channels * width, kTransformGrain);
  t.packed_channels = ceil_div(channels, t.packing_pieces);

  const int64_t part_tiles = t.part_images * t.part_rows * t.columns, rows_written = t.part_rows * t.tile;
  t.v_size = t.positions * (part_tiles * t.v_step + tile.vector);
  t.m_size = t.positions * (part_tiles * width + tile.vector);
  t.in_size = in_place(p.in, p.mask) ? 0 : t.part_images * std::min(p.in.H, rows_written + 2) * p.in.W * p.in.C;
  t.out_size =
      has_pixels(p.out) ? 0 : t.part_images * rows_written * p.out.W * std::min(t.part_filter_tiles * width, p.out.C);
  t.taps_size = kWinogradChannelsAtOnce * 9 * width;
  const int64_t of_thread = t.in_size + t.out_size + t.v_size + t.m_size + (t.keeps_u ? 0 : t.u_size + t.taps_size);
  return (t.keeps_u ? filter_tiles * t.u_size : 0) * bytes +
         std::max(t.keeps_u ? p.threads(filter_tiles * t.packing_pieces) * t.taps_size : 0,
                  p.threads(t.parts[0] * t.parts[1] * t.parts[2]) * of_thread) *
             bytes;
}

// How many rows of `total` are worked on together: `fit` at most, in bands of nearly equal height.
static int64_t band_of(int64_t total, int64_t fit) {
  const int64_t most = std::max<int64_t>(1, std::min(total, fit));
  return std::max<int64_t>(1, ceil_div(total, std::max<int64_t>(1, ceil_div(total, most))));
}

int64_t cut(DirectTiles& t, const ConvProblem& p) {
  constexpr int64_t kBandBytes = int64_t{32} << 10;  // of planes, which every filter reads anew,
  constexpr int64_t kLeastRows = 16;                 // but as many rows as two tiles have
  const int64_t vector = registers(p.settings, p.dtype).vector, filters = p.out.C / p.g.groups;
  int64_t reach[2];
  set_planes(t.planes, p.w.C, p, reach);
  t.planes.pitch = round_up(p.out.W, vector) + reach[1];
  const int64_t row_bytes = p.w.C * p.g.stride[0] * p.g.stride[1] * t.planes.pitch * p.element();
  t.band = band_of(p.out.H, std::max(kLeastRows, kBandBytes / std::max<int64_t>(row_bytes, 1) - reach[0]));
  t.bands = ceil_div(p.out.H, t.band);
  t.planes.rows = t.band + reach[0];
  const int64_t bands = p.out.N * p.g.groups * t.bands;
  t.grain = grain_of(bands, filters * p.w.C * p.w.H * p.w.W * t.band * p.out.W);

  t.weights_size = p.out.C * p.w.C * p.w.H * p.w.W;
  t.planes_size = p.w.C * t.planes.channel_stride();
  t.sums_size = p.out.w_stride == 1 ? 0 : filters * t.band * round_up(p.out.W, vector);
  const int64_t chunks = ceil_div(bands, t.grain);
  return heap_bytes(t.weights_size, p.element()) +
         p.threads(chunks) * (heap_bytes(t.planes_size, p.element()) + heap_bytes(t.sums_size, p.element()));
}

int64_t cut(DirectBackwardTiles& t, const ConvProblem& p, const ImageLayout& dx, bool wants_dx, bool wants_dw) {
  constexpr int64_t kBandBytes = int64_t{256} << 10;  // of planes of x and dy
  const ImageLayout& dy = p.out;
  const int64_t vector = registers(p.settings, p.dtype).vector, groups = p.g.groups, filters = dy.C / groups;
  int64_t positions[2] = {0, 0}, dy_reach[2] = {0, 0}, x_reach[2];  // positions: of a pass or of dy
  int64_t weights = wants_dx ? p.w.N * p.w.C : 0;                   // those of dx's passes
  set_planes(t.x, p.w.C, p, x_reach);
  for (int axis = 0; axis < 2; ++axis) {
    if (wants_dw) positions[axis] = dy.size(axis);
    if (!wants_dx) continue;
    const std::vector<WindowAxis> axes = conv_axes(true, p.g, axis, dx.size(axis), dy.size(axis), p.w.size(axis));
    const TapRange taps = tap_range(axes);
    positions[axis] = std::max(positions[axis], axes[0].size);
    weights *= taps.total;
    t.dy.shift[axis] = std::max<int64_t>(0, -taps.least);
    dy_reach[axis] = std::max<int64_t>(0, taps.most);
  }
  t.dy.channels = filters;
  t.dy.pitch = t.dy.shift[1] + round_up(positions[1], vector) + dy_reach[1];
  t.x.pitch = round_up(dy.W, vector) + x_reach[1];
  const int64_t row_bytes =
      (t.dy.channels * t.dy.pitch + t.x.channels * t.x.split[0] * t.x.split[1] * t.x.pitch) * p.element();
  t.band = band_of(positions[0], kBandBytes / std::max<int64_t>(row_bytes, 1));
  t.bands = ceil_div(positions[0], t.band);
  t.dy.rows = t.dy.shift[0] + t.band + dy_reach[0], t.x.rows = t.band + x_reach[0];
  t.items = dy.N * t.bands;

  const int64_t taps = wants_dw ? p.w.C * p.w.H * p.w.W : 0;
  const int64_t work = filters * p.w.C * p.w.H * p.w.W * t.band * (dy.W + dx.W);
  const int64_t parts_wanted = std::min(ceil_div(kParts, groups), ceil_div(t.items * groups * work, kChunkWork));
  t.items_in_part = std::max<int64_t>(1, ceil_div(t.items, std::max<int64_t>(parts_wanted, 1)));
  t.parts = std::max<int64_t>(1, ceil_div(t.items, t.items_in_part));
  t.grain = grain_of(t.parts * groups, t.items_in_part * work);

  t.weights_size = weights;
  t.partial_size = wants_dw ? t.parts * (dy.C * taps + dy.C) : 0;
  t.dy_size = filters * t.dy.channel_stride();
  t.x_size = wants_dw ? t.x.channels * t.x.channel_stride() : 0;
  t.sums_size = wants_dx && dx.w_stride * p.g.stride[1] != 1
                    ? p.w.C * t.band * round_up(ceil_div(dx.W, p.g.stride[1]), vector)
                    : 0;
  t.vectors_size = filters * taps * vector;
  int64_t of_thread = 0;
  for (int64_t size : {t.dy_size, t.x_size, t.sums_size, t.vectors_size}) of_thread += heap_bytes(size, p.element());
  return heap_bytes(t.partial_size, p.element()) + heap_bytes(t.weights_size, p.element()) +
         p.threads(ceil_div(t.parts * groups, t.grain)) * of_thread;
}

// A copy with the channels last, of planes.
static int64_t channels_last_bytes(const ImageLayout& x, int64_t element) {
  return x.c_stride == 1 ? 0 : x.numel() * element;
}

int64_t cut(DepthwiseTiles& t, const ConvProblem& p) {
  t.weights_size = p.w.N * p.w.H * p.w.W;
  if (p.out.N * p.out.H * p.out.W > 0) t.grain = grain_of(p.out.N * p.out.H, p.out.W * p.out.C * p.w.H * p.w.W);
  return t.weights_size * p.element() + channels_last_bytes(p.in, p.element()) +
         channels_last_bytes(p.out, p.element());
}

int64_t cut(DepthwiseTiles& t, const ConvProblem& p, const ImageLayout& dx, bool wants_dx, bool wants_dw) {
  const ImageLayout &dy = p.out, &x = p.in;
  const int64_t taps = p.w.H * p.w.W, items = dy.N * dy.H, element = p.element();
  if (wants_dx && dx.N * dx.H * dx.W > 0) {
    int64_t row_taps[2];  // of the first residue mod stride, which has those that count
    for (int axis = 0; axis < 2; ++axis)
      row_taps[axis] = tap_range(conv_axes(true, p.g, axis, 1, dy.size(axis), p.w.size(axis))).total;
    t.grain = grain_of(dx.N * dx.H, dx.W * dx.C * row_taps[0] * row_taps[1]);
  }
  const int64_t parts_wanted = std::clamp<int64_t>(items * dy.W * x.C * taps / kChunkWork, 1, kParts);
  t.items_in_part = std::max<int64_t>(1, ceil_div(items, parts_wanted));
  t.parts = std::max<int64_t>(1, ceil_div(items, t.items_in_part));
  t.weights_size = wants_dx ? taps * p.w.N : 0;
  t.partial_size = wants_dw ? t.parts * (taps * x.C + x.C) : 0;
  const int64_t of_dx = wants_dx ? t.weights_size * element + channels_last_bytes(dx, element) : 0;
  const int64_t of_dw = wants_dw ? (t.partial_size + x.C) * element + channels_last_bytes(x, element) : 0;
  return channels_last_bytes(dy, element) + std::max(of_dx, of_dw);
}

}  // namespace gradus::openmp_detail
