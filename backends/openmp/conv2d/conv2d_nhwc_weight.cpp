// Gradient of a convolution with respect to the weights, as a matrix product for every tap:
//   dw[tap, c, k] = sum over pixels of x[pixel stride + tap, c] dy[pixel, k]
// over the pixels for which the tap is inside the image; they are the depth of the product. A register tile of input
// channels by filters stays in registers while a block of pixels, small enough for the first-level cache, is processed
// for all taps. If there are few channels, a tile combines those of several taps in a row of the filter, which are
// contiguous in memory. In a depthwise convolution a tile is such taps by filters, and each filter reads its own
// channel.
//
// Threads share parts: some of the images, and some of the filters. Each part has its own sums; the parts of the same
// filters are added in order, so the number of threads does not change any bit.
#include <vector>

#include <gradus/backends/openmp/conv2d/nhwc.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {
namespace {

template <class T>
class WeightGradient {
 public:
  WeightGradient(const ConvPlan& plan, const ConvOperands<T>& o)
      : kernels_(o.kernels()), t_(std::get<NhwcWeightTiles>(plan.tiles)), o_(o), dy_(o.x), x_(o.image),
        gradients_(kernels_, o.x, o.mask), images_(kernels_, o.image, nullptr),
        tiles_(o.geometry, o.image, o.x, kernels_.tile_columns), width_(kernels_.tile_columns), channels_(o_.dw.C),
        taps_(o_.dw.H * o_.dw.W), rows_(spans_of_taps(axis(0))),
        runs_(t_.joins_taps ? spans_of(axis(1)) : spans_of_taps(axis(1))) {
    for (const Span& run : runs_) panels_ = std::max(panels_, ceil_div(height(run), int64_t{kernels_.tile_rows}));
  }

  void run() {
    const Scratch<T> sums(t_.sums_size), bias_sums(t_.bias_sums_size);
    parallel_each<T>(t_.parts * t_.filter_parts, 1, t_.x_size + t_.dy_size, [&](int64_t i, T* memory) {
      const int64_t part = i / t_.filter_parts, tile = i % t_.filter_parts * t_.filter_tiles;
      sum_part(part, tile, std::min(tile + t_.filter_tiles, tiles_.count()), sums.get() + part * part_size(),
               bias_sums.get() + part * dy_.C, memory, memory + t_.x_size);
    });
    const int64_t channel_blocks = ceil_div(channels_, kPackedChannels);
    parallel_each<T>(tiles_.count() * channel_blocks, 1, t_.total_size + t_.by_channel_size, [&](int64_t i, T* total) {
      add_up(i / channel_blocks, i % channel_blocks * kPackedChannels, sums.get(), total, total + t_.total_size);
    });
    for (int64_t k = 0; o_.dbias && k < dy_.C; ++k) {
      o_.dbias[k] = T(0);
      for (int64_t part = 0; part < t_.parts; ++part) o_.dbias[k] += bias_sums[part * dy_.C + k];
    }
  }

 private:
  WindowAxis axis(int i) const { return conv_axes(false, o_.geometry, i, dy_.size(i), x_.size(i), o_.dw.size(i))[0]; }

  // For each tap of an axis, the range of output positions at which it reads inside the image.
  static std::vector<Span> spans_of_taps(const WindowAxis& axis) {
    std::vector<Span> spans;
    for (const WindowAxis::Tap& tap : axis.taps) {
      const int64_t end = tap.at < axis.source ? ceil_div(axis.source - tap.at, axis.step) : 0;
      const int64_t begin = std::min(axis.size, std::max<int64_t>(0, ceil_div(-tap.at, axis.step)));
      spans.push_back({begin, std::clamp(end, begin, axis.size), tap.index, tap.index + 1});
    }
    return spans;
  }

  // Total number of register-tile rows of a run of taps.
  int64_t height(const Span& run) const { return (run.last_tap - run.first_tap) * channels_; }
  int64_t part_size() const { return tiles_.count() * taps_ * channels_ * width_; }
  ImagePart item_at(int64_t item, int64_t channel, int64_t channel_end) const {
    const int64_t n = item / t_.bands * t_.item_images, p = item % t_.bands * t_.item_rows;
    return {n, std::min(n + t_.item_images, dy_.N), p, std::min(p + t_.item_rows, dy_.H), channel, channel_end};
  }
  // The part of x that is read with a part of dy.
  ImagePart read_with(const ImagePart& dy) const {
    const auto row = [&](int64_t p) { return p * o_.geometry.stride[0] - o_.geometry.padding[0]; };
    const int64_t reach = (o_.dw.H - 1) * o_.geometry.dilation[0] + 1;
    return rows_of(x_, dy.image, dy.image_end, row(dy.row), row(dy.row_end - 1) + reach);
  }

  // Sums of one part, for tiles [tile, tile_end). The layout for every tile is (tap, channel, column).
  void sum_part(int64_t part, int64_t tile, int64_t tile_end, T* sums, T* bias_sums, T* x_memory, T* dy_memory) const {
    const int64_t first = tiles_.first(tile), last = tiles_.end(tile_end - 1);
    const int64_t tile_size = taps_ * channels_ * width_;
    std::fill(bias_sums + first, bias_sums + last, T(0));
    std::fill(sums + tile * tile_size, sums + tile_end * tile_size, T(0));
    const int64_t end = std::min(t_.items, (part + 1) * t_.items_in_part);
    for (int64_t item = part * t_.items_in_part; item < end; ++item) {
      const ImagePart dy_part = item_at(item, first, last);
      const Pixels<const T> x = images_.load(read_with(dy_part), x_memory), dy = gradients_.load(dy_part, dy_memory);
      FetchAhead next;
      if (item + 1 < end) {
        const ImagePart next_part = item_at(item + 1, first, last);
        next = {
            {gradients_.memory(next_part), gradients_.mask_memory(next_part), images_.memory(read_with(next_part))}};
        const int64_t blocks = ceil_div(dy_part.images(), t_.block_images) * ceil_div(dy_part.rows(), t_.block_rows);
        share_out(next, blocks * (tile_end - tile) * panels_ * o_.dw.H * static_cast<int64_t>(runs_.size()));
      }
      if (o_.dbias)
        kernels_.nhwc_sums({{dy_part.images(), dy_part.rows(), dy_.W}, {}, {dy.step[0], dy.step[1], dy.step[2]}},
                           dy.at(dy_part.image, dy_part.row, 0), last - first, bias_sums + first);
      for (int64_t i = dy_part.image; i < dy_part.image_end; i += t_.block_images)
        for (int64_t row = dy_part.row; row < dy_part.row_end; row += t_.block_rows) {
          const ImagePart block{i,   std::min(i + t_.block_images, dy_part.image_end),
                                row, std::min(row + t_.block_rows, dy_part.row_end),
                                0,   0};
          for (int64_t t = tile; t < tile_end; ++t)
            sum_block(block, t, x, dy, tiles_.first(t) - first, next, sums + t * tile_size);
        }
    }
  }

  // Adds the block's contribution for one tile of filters; the tile starts at channel `offset` of dy's pixels.
  void sum_block(const ImagePart& block, int64_t tile, const Pixels<const T>& x, const Pixels<const T>& dy,
                 int64_t offset, FetchAhead& next, T* sums) const {
    NhwcGradientArgs<T> args;
    args.columns = tiles_.columns(tile);
    args.ahead = &next;
    args.depthwise = tiles_.depthwise;
    args.x_row = tiles_.depthwise ? x.step[2] * o_.geometry.dilation[1] : 1;
    const auto [stride_h, stride_w] = o_.geometry.stride;
    for (int axis = 0; axis < 3; ++axis) args.box.y_step[axis] = dy.step[axis];
    args.box.x_step[0] = x.step[0], args.box.x_step[1] = x.step[1] * stride_h,
    args.box.x_step[2] = x.step[2] * stride_w;
    for (int64_t panel = 0; panel < panels_; ++panel)
      for (int64_t r = 0; r < o_.dw.H; ++r) {
        const int64_t top = std::max(rows_[static_cast<size_t>(r)].begin, block.row);
        const int64_t bottom = std::min(rows_[static_cast<size_t>(r)].end, block.row_end);
        for (const Span& run : runs_) {
          const int64_t first = height(run) * panel / panels_;
          args.rows = height(run) * (panel + 1) / panels_ - first;
          if (args.rows == 0 || top >= bottom || run.begin >= run.end) continue;
          args.box.count[0] = block.images(), args.box.count[1] = bottom - top, args.box.count[2] = run.end - run.begin;
          const int64_t h = top * stride_h - o_.geometry.padding[0] + r * o_.geometry.dilation[0];
          const int64_t w = run.begin * stride_w - o_.geometry.padding[1] + run.first_tap * o_.geometry.dilation[1];
          args.x = x.at(block.image, h, w) + tiles_.source(tile) + first * args.x_row;
          args.dy = dy.at(block.image, top, run.begin) + offset;
          args.out = sums + ((r * o_.dw.W + run.first_tap) * channels_ + first) * width_;
          kernels_.nhwc_gradient(args);
        }
      }
  }

  // Writes dw for the channels of a tile from `c` on. Adds the parts' sums. Then, for channels-last weights, transposes
  // each tap's (channel, column); for contiguous weights, first reorders (tap, channel, column) to (channel, tap,
  // column).
  void add_up(int64_t tile, int64_t c, const T* sums, T* total, T* by_channel) const {
    const int64_t count = std::min(channels_ - c, kPackedChannels);
    const bool neighbouring_taps = o_.dw.tap_stride() == 1;
    T* const to = o_.dw.data + tiles_.first(tile) * o_.dw.n_stride + c * o_.dw.c_stride;
    for (int64_t tap = 0; tap < taps_; ++tap) {
      const T* from = sums + ((tile * taps_ + tap) * channels_ + c) * width_;
      const T* added = from;
      for (int64_t part = 1; part < t_.parts; ++part, added = total)
        kernels_.of(BinaryOp::add).apply(added, from + part * part_size(), total, count * width_);
      if (neighbouring_taps)
        kernels_.copy_rows({.rows = count,
                            .count = width_,
                            .from = added,
                            .from_stride = width_,
                            .to = by_channel + tap * width_,
                            .to_stride = taps_ * width_});
      else kernels_.transpose({added, width_, count, tiles_.columns(tile), to + tap * channels_, o_.dw.n_stride});
    }
    if (neighbouring_taps)
      kernels_.transpose({by_channel, width_, count * taps_, tiles_.columns(tile), to, o_.dw.n_stride});
  }

  const Kernels<T>& kernels_;
  const NhwcWeightTiles& t_;
  const ConvOperands<T>& o_;
  const Images<const T>&dy_, &x_;
  const NhwcSource<T> gradients_, images_;
  const FilterTiles tiles_;
  const int64_t width_, channels_, taps_;  // columns of a tile; input channels of a group; R S
  const std::vector<Span> rows_;           // for each row of the filter
  const std::vector<Span> runs_;           // taps that are contiguous in memory and share register tiles
  int64_t panels_ = 0;                     // maximum number of register tiles for a run
};

ConvPlan plan_weight(const ConvProblem& p) {
  constexpr int64_t kPartElements = int64_t{1} << 23;  // maximum size of the sums of all parts together
  // enough parts without splitting the batch, which would need memory for sums
  constexpr int64_t kFilterPartsEnough = 8;
  constexpr int64_t kPixels = 256;  // pixels per block
  const ImageLayout &x = p.out, &dy = p.in;
  const Registers tile = p.tile();
  const bool depthwise = is_depthwise(p.g, x, dy);
  ConvPlan plan;
  plan.dense_weights = !p.filters_last;
  if (dy.C == 0 || p.w.numel() == 0) return plan;
  NhwcWeightTiles t = {};
  const int64_t channels = p.w.C, taps = p.w.H * p.w.W, width = tile.columns, groups = p.g.groups;
  const int64_t tiles = FilterTiles(p.g, x, dy, width).count();
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
  plan.workspace_bytes =
      (t.sums_size + t.bias_sums_size +
       std::max(p.threads_of(t.parts * t.filter_parts) * (t.x_size + t.dy_size),
                p.threads_of(tiles * ceil_div(channels, kPackedChannels)) * (t.total_size + t.by_channel_size))) *
      p.element();
  plan.tiles = t;
  return plan;
}

constexpr WorkParts kWorkParts = {{{"multiply_adds", WorkLimit::multiply_adds},
                                   {"transposed_blocks"},
                                   {"sums_bytes", WorkLimit::bytes},
                                   {"tiles"},
                                   {"rows"},
                                   {"weights"},
                                   {"items"},
                                   {"loops", WorkLimit::loops},
                                   {"calls", WorkLimit::loops},
                                   {"far_bytes", WorkLimit::bytes},
                                   {"near_bytes", WorkLimit::bytes},
                                   {"added_rows"}}};

KernelWork work_weight(const ConvProblem& p) {
  const ConvPlan plan = plan_weight(p);
  const auto* t = std::get_if<NhwcWeightTiles>(&plan.tiles);
  if (!t) return {};
  const ImageLayout &x = p.out, &dy = p.in;
  const Registers tile = p.tile();
  const bool depthwise = is_depthwise(p.g, x, dy);
  const int64_t groups = depthwise ? 1 : p.g.groups, taps = p.w.H * p.w.W;
  // A run of taps has pixels for which all of them are inside the image.
  const int64_t run_height = (t->joins_taps ? p.w.W : 1) * p.w.C;
  const int64_t runs = t->joins_taps ? p.w.H : taps;
  const double pixels = t->joins_taps ? number(dy.N * p.pairs_along(0) * dy.W) : p.pairs();
  const double blocks =
      number(t->items * ceil_div(t->item_images, t->block_images) * ceil_div(t->item_rows, t->block_rows) * runs);
  const double tiles = number(groups) * tile_count(tile, tile.rows, run_height, dy.C / groups);
  const double share = share_of(p.threads, t->items, t->items_in_part, t->filter_parts);
  const double moved =
      (t->x_size > 0 ? transposed_blocks(x, tile, t->bands, (p.w.H - 1) * p.g.dilation[0]) * number(t->filter_parts)
                     : 0) +
      (t->dy_size > 0 ? transposed_blocks(dy, tile, t->bands, 0) : 0);
  const double bytes = operand_bytes(p, share, share);
  const int64_t sums = groups * ceil_div(dy.C / groups, tile.columns) * ceil_div(p.w.C, kPackedChannels);
  return {number(groups) * tile_steps(tile, tile.rows, run_height, dy.C / groups) * pixels * share,
          moved * share,
          number(t->sums_size * p.element()) * share,
          blocks * tiles * share,
          pixels / number(std::max<int64_t>(dy.W, 1)) * tiles * share,
          p.w_elements(),
          number(t->items * t->filter_parts) * share,
          p.threads > 1 ? number((share < 1) + (sums > 1)) : 0,
          1,
          far_bytes(bytes),
          beyond_first_level(bytes),
          number(sums * taps * t->parts) * share_of(p.threads, sums)};
}

template <bool kDepthwise>
constexpr ConvAlgorithm kAlgorithm = nhwc_algorithm<WeightGradient, kDepthwise, ConvPass::wgrad>(kWorkParts,
                                                                                                 work_weight,
                                                                                                 plan_weight);

}  // namespace

const ConvAlgorithm kImplicitGemmWeight = kAlgorithm<false>;
const ConvAlgorithm kDepthwiseWeight = kAlgorithm<true>;

}  // namespace gradus::openmp_detail
