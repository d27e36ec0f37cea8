// Convolution and its gradient with respect to the image, both computed as a matrix product over pixels:
//   y[pixel, k] = sum over taps and channels of x[pixel + tap, c] w[tap, c, k]
//   forward        pixel (i, j) of y reads (i stride - padding + r dilation, …) of x
//   backward_data  pixels of dx with equal coordinates mod stride form one pass; its taps are those for which
//                  h + padding - r dilation is divisible by the stride, and they read dy at the quotient
// Padding is never read. The pixels are divided into boxes, for the border and the interior, whose pixels have the same
// taps inside the image, so zeros are neither stored nor multiplied. Within a row of taps the channels of neighbouring
// pixels are contiguous in memory and form one long run of the depth.
//
// In a depthwise convolution, output channel k reads only channel k of x. A register tile then has the filters of many
// groups, the depth is the taps alone, and every lane reads its own channel.
//
// Threads share parts of the output: some images or a band of rows, and some of the filters. Within a part the loop
// goes over tiles of filters and blocks of their weights that fit in the first-level cache; each block is applied to
// all pixels of the part.
#include <cmath>
#include <vector>

#include <gradus/backends/openmp/conv2d/nhwc.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {
namespace {

// One pair of axes: its weights, in tiles of depth (taps, then channels) by columns, and the boxes of pixels with the
// runs of the depth that each reads.
template <class T>
struct Pass {
  struct Box {
    Span rows, columns;
    std::vector<std::vector<DepthRun>> runs;  // for each block of the depth
  };
  const WindowAxis &rows, &columns;
  int64_t channels, depth;
  int64_t blocks = 0;
  std::vector<Box> boxes;
  Scratch<T> weights;

  Pass(const WindowAxis& rows, const WindowAxis& columns, int64_t channels, int64_t tiles, int64_t tile_columns)
      : rows(rows), columns(columns), channels(channels),
        depth(static_cast<int64_t>(rows.taps.size() * columns.taps.size()) * channels),
        weights(tiles * depth * tile_columns) {
    const std::vector<Span> across = spans_of(columns);
    for (const Span& row : spans_of(rows))
      for (const Span& column : across) boxes.push_back({row, column, {}});
  }

  // Divides the depth into blocks of at most `most` rows. Sums run through the blocks in order, so the division does
  // not change any bit.
  void cut(int64_t most, int64_t row_step, int64_t pixel_step) {
    // at least one block, which writes the bias even without taps
    blocks = std::max<int64_t>(1, ceil_div(depth, most));
    const int64_t length = ceil_div(depth, blocks), S = static_cast<int64_t>(columns.taps.size());
    for (int64_t block = 0; block < blocks; ++block)
      for (Box& box : boxes) {
        std::vector<DepthRun>& runs = box.runs.emplace_back();
        for (int64_t r = box.rows.first_tap; r < box.rows.last_tap; ++r)
          for (int64_t s = box.columns.first_tap; s < box.columns.last_tap; ++s) {
            const int64_t tap = (r * S + s) * channels;  // first row of this tap
            const int64_t begin = std::max(tap, block * length);
            const int64_t end = std::min(tap + channels, (block + 1) * length);
            if (begin >= end) continue;
            const int64_t from = rows.at(0, r) * row_step + columns.at(0, s) * pixel_step + begin - tap;
            DepthRun* before = runs.empty() ? nullptr : &runs.back();
            if (before && from == before->from + before->length && begin == before->row + before->length)
              before->length += end - begin;
            else runs.push_back({from, begin, end - begin});
          }
      }
  }
};

template <class T>
class NhwcConvolution {
 public:
  NhwcConvolution(const ConvPlan& plan, const ConvOperands<T>& operands)
      : t_(std::get<NhwcTiles>(plan.tiles)), o_(operands), kernels_(o_.kernels()), axes_{o_.axes(0), o_.axes(1)},
        tiles_(o_.geometry, o_.x, o_.y, kernels_.tile_columns), x_(o_.x), y_(o_.y), source_(kernels_, x_, o_.mask),
        target_(kernels_, y_) {
    if (!x_.data) x_.data = y_.data;  // an empty image is never read, but addresses in it are computed
    for (const WindowAxis& rows : axes_[0])
      for (const WindowAxis& columns : axes_[1]) {
        passes_.emplace_back(rows, columns, o_.channels(), tiles_.count(), kernels_.tile_columns);
        passes_.back().cut(t_.depth, source_.row_step(x_.C), source_.pixel_step(x_.C));
      }
  }

  void run() const {
    const int64_t channel_blocks = ceil_div(o_.channels(), kPackedChannels);
    parallel_each<T>(tiles_.count() * channel_blocks, 1, t_.pack_size, [&](int64_t i, T* by_channel) {
      pack(i / channel_blocks, i % channel_blocks * kPackedChannels, by_channel);
    });
    parallel_each<T>(t_.parts, 1, t_.in_size + t_.out_size, [&](int64_t i, T* memory) {
      FetchAhead next;
      if ((i + 1) % t_.filter_parts == 0 && i + 1 < t_.parts) {  // the next part reads another part of x
        const ImagePart read = read_by(part_at(i + 1));
        next = {{source_.memory(read), source_.mask_memory(read)}};
      }
      run(part_at(i), next, memory, memory + t_.in_size);
    });
  }

 private:
  struct Part {
    int64_t n, n_end, row, row_end, tile, tile_end;  // rows are counted within each pass
  };
  Part part_at(int64_t i) const {
    const int64_t tile = i % t_.filter_parts * t_.filter_tiles;
    const int64_t row = i / t_.filter_parts % t_.bands * t_.rows;
    const int64_t n = i / t_.filter_parts / t_.bands * t_.images;
    return {n,    std::min(n + t_.images, y_.N),
            row,  std::min(row + t_.rows, axes_[0][0].size),
            tile, std::min(tile + t_.filter_tiles, tiles_.count())};
  }

  // The part of x that a part of the output reads.
  ImagePart read_by(const Part& part) const {
    const int64_t step = axes_[0][0].step;
    return rows_of(x_, part.n, part.n_end, part.row * step + t_.least, (part.row_end - 1) * step + t_.most + 1);
  }

  // Packs the weights of a tile for the channels from `begin` on, for all passes. If taps are contiguous in memory, the
  // weights are first rearranged in `by_channel`.
  void pack(int64_t tile, int64_t begin, T* by_channel) const {
    const int64_t width = tiles_.width, count = std::min(o_.channels() - begin, kPackedChannels);
    const int64_t all_taps = o_.w.H * o_.w.W;
    const T* from = o_.weights_of(tiles_, tile, begin);
    const int64_t together = o_.channel_stride() == all_taps ? count : 1;  // channels that are contiguous in memory
    for (int64_t c = 0; by_channel && c < count; c += together)
      kernels_.pack_b(from + c * o_.channel_stride(), 1, o_.filter_stride(), together * all_taps, tiles_.columns(tile),
                      by_channel + c * all_taps * width);
    for (const Pass<T>& pass : passes_) {
      if (pass.depth == 0) continue;
      T* to = pass.weights.get() + (tile * pass.depth + begin) * width;
      for (const WindowAxis::Tap& r : pass.rows.taps)
        for (const WindowAxis::Tap& s : pass.columns.taps) {
          const int64_t tap = r.index * o_.w.W + s.index;
          if (by_channel) kernels_.pack_b(by_channel + tap * width, all_taps * width, 1, count, width, to);
          else
            kernels_.pack_b(from + tap * o_.w.tap_stride(), o_.channel_stride(), o_.filter_stride(), count,
                            tiles_.columns(tile), to);
          to += pass.channels * width;
        }
    }
  }

  // Computes a part; `next` is prefetched meanwhile.
  void run(const Part& part, FetchAhead next, T* in, T* out) const {
    const auto [n, n_end, begin, end, tile, tile_end] = part;
    const Pixels<const T> from = source_.load(read_by(part), in);
    const int64_t out_step = axes_[0][0].out_step;
    const ImagePart written{
        n, n_end, begin * out_step, std::min(end * out_step, y_.H), tiles_.first(tile), tiles_.end(tile_end - 1)};
    const Pixels<T> to = target_.pixels(written, out);
    next.places[2] = target_.memory(written);
    share_out(next, ceil_div(written.images() * written.rows() * y_.W, kernels_.pixel_rows));
    for (int64_t t = tile; t < tile_end; ++t)
      for (const Pass<T>& pass : passes_)
        for (int64_t block = 0; block < pass.blocks; ++block)
          for (const typename Pass<T>::Box& box : pass.boxes) {
            const int64_t top = std::max(begin, box.rows.begin);
            const int64_t bottom = std::min(end, box.rows.end);
            const bool starts = block == 0, ends = block + 1 == pass.blocks;
            const std::vector<DepthRun>& runs = box.runs[static_cast<size_t>(block)];
            if (top >= bottom || (runs.empty() && !starts && !ends)) continue;
            const WindowAxis &rows = pass.rows, &columns = pass.columns;
            const int64_t left = box.columns.begin;
            NhwcProductArgs<T> args;
            args.box = {{n_end - n, bottom - top, box.columns.end - left},
                        {from.step[0], from.step[1] * rows.step, from.step[2] * columns.step},
                        {to.step[0], to.step[1] * rows.out_step, to.step[2] * columns.out_step}};
            args.from = from.at(n, top * rows.step, left * columns.step) + tiles_.source(t);
            args.to = to.at(n, rows.out_begin + top * rows.out_step, columns.out_begin + left * columns.out_step) +
                      tiles_.first(t) - written.channel;
            args.runs = runs.data(), args.run_count = static_cast<int64_t>(runs.size());
            args.weights = pass.weights.get() + t * pass.depth * kernels_.tile_columns;
            args.columns = tiles_.columns(t);
            args.depthwise = tiles_.depthwise;
            args.accumulate = !starts;
            args.bias = o_.bias && starts ? o_.bias + tiles_.first(t) : nullptr;
            args.relu = o_.relu && ends;
            if (t == tile && starts) args.ahead = &next;
            kernels_.nhwc_product(args);
          }
    target_.store(written, out);
  }

  const NhwcTiles& t_;
  const ConvOperands<T>& o_;
  const Kernels<T>& kernels_;
  const std::vector<WindowAxis> axes_[2];  // every pair of axes is a pass
  const FilterTiles tiles_;
  Images<const T> x_;
  const Images<T>& y_;
  const NhwcSource<T> source_;
  const NhwcTarget<T> target_;
  std::vector<Pass<T>> passes_;
};

ConvPlan plan_nhwc(const ConvProblem& p) {
  ConvPlan plan;
  plan.dense_weights = !p.filters_last;
  if (p.out.numel() == 0) return plan;
  NhwcTiles t = {};
  constexpr int64_t kLeastPixels = 128;  // per part if possible, to amortise loading the weights
  constexpr int64_t kDepth = 288;        // 36 KiB per tile
  const WindowAxis rows = p.axes(0)[0], columns = p.axes(1)[0];  // of the first pass, which is the largest
  const TapRange taps = TapRange(p.axes(0));
  t.least = taps.least, t.most = taps.total ? taps.most : -1;
  const int64_t width = p.tile().columns, channels = p.in.C / p.g.groups;
  const bool depthwise = is_depthwise(p.g, p.in, p.out);
  const int64_t tiles = FilterTiles(p.g, p.in, p.out, width).count(), images = p.out.N;

  const int64_t row_bytes = (rows.step * p.in.W * p.in.C + rows.out_step * p.out.W * p.out.C) * p.element();
  // All parts of the filters read the same channels; depthwise, they read whole pixels.
  const int64_t most_filter_parts = depthwise ? 1 : ceil_div(tiles, 2);
  const int64_t wanted = ceil_div(kParts, most_filter_parts);
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
  const int64_t rows_written = t.rows * rows.out_step;
  const int64_t filters = std::min(t.filter_tiles * width, p.out.C);
  t.in_size = in_place(p.in, p.mask) ? 0 : slot_size(t.images * std::max<int64_t>(rows_read, 0) * p.in.W * p.in.C);
  t.out_size = has_pixels(p.out) ? 0 : slot_size(t.images * rows_written * p.out.W * filters);
  plan.workspace_bytes = (tiles * width * channels * taps.total * TapRange(p.axes(1)).total +
                          std::max(p.threads_of(tiles * ceil_div(channels, kPackedChannels)) * t.pack_size,
                                   p.threads_of(t.parts) * (t.in_size + t.out_size))) *
                         p.element();
  plan.tiles = t;
  return plan;
}

constexpr WorkParts kWorkParts = {{{"multiply_adds", WorkLimit::multiply_adds},
                                   {"transposed_blocks"},
                                   {"packed_bytes", WorkLimit::bytes},
                                   {"tiles"},
                                   {"runs"},
                                   {"boxes"},
                                   {"packs"},
                                   {"parts"},
                                   {"loops", WorkLimit::loops},
                                   {"calls", WorkLimit::loops},
                                   {"far_bytes", WorkLimit::bytes},
                                   {"spans"},
                                   {"span_taps"}}};

// The boxes of one part of images, over all passes and bands.
struct TapBoxes {
  double spans = 0, span_taps = 0;    // boxes that a call sets up, not divided into bands; and their taps
  double count = 0, tiles = 0;        // boxes and register tiles of pixels
  double steps[2] = {0, 0};           // steps of these tiles along the taps, for one and for two vectors of filters
  double taps = 0, rows_of_taps = 0;  // sums over the tiles
  double most_taps = 0;
};

TapBoxes boxes_of(const ConvProblem& p, const NhwcTiles& t) {
  TapBoxes sum;
  // In a depthwise convolution every multiply-add loads a vector of its pixel, which may be in two cache lines.
  const double loads = !is_depthwise(p.g, p.in, p.out) ? 0 : p.in.C * p.element() % 64 == 0 ? 1 : 2;
  const auto step = [&](double pixels, double vectors) {
    return std::max(tile_step(pixels, vectors), (loads * pixels + 1) * vectors);
  };
  const std::vector<WindowAxis> columns = p.axes(1);
  std::vector<std::vector<Span>> across;
  for (const WindowAxis& axis : columns) across.push_back(spans_of(axis));
  for (const WindowAxis& axis : p.axes(0))
    for (const Span& row : spans_of(axis))
      for (int64_t band = row.begin / t.rows; band * t.rows < row.end; ++band) {
        const int64_t height = std::min(row.end, (band + 1) * t.rows) - std::max(row.begin, band * t.rows);
        for (const std::vector<Span>& spans : across)
          for (const Span& column : spans) {
            const int64_t pixels = t.images * height * (column.end - column.begin);
            const int64_t tiles = ceil_div(pixels, p.tile().pixel_rows);
            const double count = number(tiles), rows_of_taps = number(row.last_tap - row.first_tap);
            const double taps = rows_of_taps * number(column.last_tap - column.first_tap);
            for (int vectors : {1, 2}) sum.steps[vectors - 1] += count * taps * step(number(pixels) / count, vectors);
            sum.count += 1, sum.tiles += count, sum.taps += count * taps, sum.rows_of_taps += count * rows_of_taps;
            sum.most_taps = std::max(sum.most_taps, taps);
            if (band * t.rows <= row.begin) sum.spans += 1, sum.span_taps += taps;
          }
      }
  return sum;
}

KernelWork work_nhwc(const ConvProblem& p) {
  const ConvPlan plan = plan_nhwc(p);
  const auto* t = std::get_if<NhwcTiles>(&plan.tiles);
  if (!t) return {};
  const Registers tile = p.tile();
  const bool depthwise = is_depthwise(p.g, p.in, p.out);
  const int64_t groups = depthwise ? 1 : p.g.groups, filters = p.out.C / groups, channels = p.in.C / p.g.groups;
  const int64_t image_parts = ceil_div(p.out.N, t->images);
  const TapBoxes boxes = boxes_of(p, *t);
  const int64_t rest = filters % tile.columns, whole = filters / tile.columns;
  const double column_tiles = number(groups * ceil_div(filters, tile.columns));
  const double share = share_of(p.threads, p.out.N * p.axes(0)[0].size, t->images * t->rows, t->filter_parts);
  const double in_group = number(channels);
  const double all_images = number(image_parts);
  const double steps = number(whole) * boxes.steps[1] + (rest > 0 ? boxes.steps[rest > tile.vector ? 1 : 0] : 0);
  const bool joined = p.g.dilation[1] == 1 && groups == 1 && !depthwise;
  const double moved =
      (t->in_size > 0 ? transposed_blocks(p.in, tile, t->bands, t->most - t->least) * number(t->filter_parts) : 0) +
      (t->out_size > 0 ? transposed_blocks(p.out, tile, t->bands, 0) : 0);
  return {number(groups) * steps * in_group * all_images * share,
          moved * share,
          p.w_elements() * number(p.element()) / p.threads,
          boxes.tiles * all_images * column_tiles * std::ceil(boxes.most_taps * in_group / number(t->depth)) * share,
          (joined ? boxes.rows_of_taps : boxes.taps) * all_images * column_tiles * share,
          boxes.count * all_images * column_tiles * share,
          column_tiles * number(p.w.H * p.w.W * ceil_div(channels, kPackedChannels)) / p.threads,
          number(t->parts) * share,
          p.threads > 1 ? number((column_tiles * number(ceil_div(channels, kPackedChannels)) > 1) + (t->parts > 1)) : 0,
          1,
          far_bytes(operand_bytes(p, share, share)),
          boxes.spans,
          boxes.span_taps * std::ceil(boxes.most_taps * in_group / number(t->depth))};
}

template <bool kDepthwise>
constexpr ConvAlgorithm kAlgorithm =
    nhwc_algorithm<NhwcConvolution, kDepthwise, ConvPass::fprop, ConvPass::dgrad>(kWorkParts, work_nhwc, plan_nhwc);

}  // namespace

const ConvAlgorithm kImplicitGemm = kAlgorithm<false>;
const ConvAlgorithm kDepthwise = kAlgorithm<true>;

}  // namespace gradus::openmp_detail
