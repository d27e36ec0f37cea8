// Gradient of a convolution with respect to the weights, as a product for every tap:
//   dw[tap, c, k] = sum over pixels of x[pixel stride + tap, c] dy[pixel, k]
// over the pixels for which the tap is inside the image: the depth of the product. A register tile of input channels by
// filters stays put while a block of pixels, few enough for the first-level cache, goes through all taps. Where the
// channels are few, a tile has those of several taps in a row of the kernel: in memory, they follow each other.
//
// The threads share out parts: some of the images, and some of the filters. A part sums on its own; the parts of the
// same filters are added in order, so that threads change no bit.
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/conv2d/nhwc.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp_detail {
namespace {

// The outputs [begin, end) along an axis for which tap r reads the image.
struct Reach {
  int64_t begin, end;
};
Reach reach_of(int64_t r, int64_t stride, int64_t padding, int64_t dilation, int64_t in, int64_t out) {
  const int64_t shift = padding - r * dilation;  // output i reads i stride - shift
  const int64_t begin = shift > 0 ? ceil_div(shift, stride) : 0;
  const int64_t end = in + shift > 0 ? ceil_div(in + shift, stride) : 0;
  return {std::min(begin, out), std::min(end, out)};
}

// Taps [tap, tap + taps) of a row of the kernel, all of which read the image for the outputs `columns`. Their elements
// of the image are neighbours, so that together they are the rows of a register tile.
struct TapRun {
  int64_t tap, taps;
  Reach columns;
};

template <class T>
class WeightGradient {
 public:
  WeightGradient(const NhwcWeightTiles& tiles, const ConvGradientOperands<T>& o)
      : kernels_(o.kernels()), t_(tiles), dy_(o.dy), x_(o.x), dw_(o.dw), dbias_(o.dbias), geometry_(o.geometry),
        gradients_(kernels_, dy_, o.mask), images_(kernels_, x_, nullptr), width_(kernels_.tile_columns),
        channels_(dw_.C), taps_(dw_.H * dw_.W), filters_(dy_.C / geometry_.groups),
        group_tiles_(ceil_div(filters_, width_)), tiles_(group_tiles_ * geometry_.groups) {
    find_runs();
  }

  void run() {
    const Scratch<T> sums(t_.sums_size), bias_sums(t_.bias_sums_size);
    parallel_for(t_.parts * t_.filter_parts, 1, [&](int64_t begin, int64_t end) {
      const Scratch<T> x(t_.x_size), dy(t_.dy_size);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t part = i / t_.filter_parts, tile = i % t_.filter_parts * t_.filter_tiles;
        sum_part(part, tile, std::min(tile + t_.filter_tiles, tiles_), sums.get() + part * part_size(),
                 bias_sums.get() + part * dy_.C, x.get(), dy.get());
      }
    });
    parallel_for(tiles_ * t_.unpacking_pieces, 1, [&](int64_t begin, int64_t end) {
      const Scratch<T> total(t_.total_size), by_channel(t_.by_channel_size);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t c = i % t_.unpacking_pieces * t_.unpacked_channels;
        add_up(i / t_.unpacking_pieces, c, std::min(t_.unpacked_channels, channels_ - c), sums.get(), total.get(),
               by_channel.get());
      }
    });
    for (int64_t k = 0; dbias_ && k < dy_.C; ++k) {
      dbias_[k] = T(0);
      for (int64_t part = 0; part < t_.parts; ++part) dbias_[k] += bias_sums[part * dy_.C + k];
    }
  }

 private:
  void find_runs() {
    const auto reach = [&](int64_t s) {
      return reach_of(s, geometry_.stride[1], geometry_.padding[1], geometry_.dilation[1], x_.W, dy_.W);
    };
    if (t_.joins_taps) {
      std::vector<int64_t> ends{0, dy_.W};  // of columns with the same taps
      for (int64_t s = 0; s < dw_.W; ++s) ends.push_back(reach(s).begin), ends.push_back(reach(s).end);
      std::sort(ends.begin(), ends.end());
      for (size_t i = 1; i < ends.size(); ++i) {
        if (ends[i - 1] == ends[i]) continue;
        TapRun run{0, 0, {ends[i - 1], ends[i]}};
        for (int64_t s = dw_.W - 1; s >= 0; --s)
          if (reach(s).begin <= run.columns.begin && run.columns.end <= reach(s).end) run.tap = s, ++run.taps;
        if (run.taps > 0) runs_.push_back(run);
      }
    } else {
      for (int64_t s = 0; s < dw_.W; ++s) runs_.push_back({s, 1, reach(s)});
    }
    for (const TapRun& run : runs_)
      panels_ = std::max(panels_, ceil_div(run.taps * channels_, int64_t{kernels_.tile_rows}));
  }

  int64_t part_size() const { return tiles_ * taps_ * channels_ * width_; }
  int64_t first_channel(int64_t tile) const { return tile / group_tiles_ * filters_ + tile % group_tiles_ * width_; }
  int64_t columns(int64_t tile) const { return std::min(width_, filters_ - tile % group_tiles_ * width_); }
  ImagePart item_at(int64_t item, int64_t channel, int64_t channel_end) const {
    const int64_t n = item / t_.bands * t_.item_images, p = item % t_.bands * t_.item_rows;
    return {n, std::min(n + t_.item_images, dy_.N), p, std::min(p + t_.item_rows, dy_.H), channel, channel_end};
  }
  // What is read of x along with a part of dy.
  ImagePart read_with(const ImagePart& dy) const {
    const auto row = [&](int64_t p) { return p * geometry_.stride[0] - geometry_.padding[0]; };
    const int64_t reach = (dw_.H - 1) * geometry_.dilation[0] + 1;
    const int64_t begin = std::clamp<int64_t>(row(dy.row), 0, x_.H);
    return {dy.image, dy.image_end, begin, std::clamp<int64_t>(row(dy.row_end - 1) + reach, begin, x_.H), 0, x_.C};
  }

  // Sums of one part for tiles [tile, tile_end): for every tile, (tap, channel, column).
  void sum_part(int64_t part, int64_t tile, int64_t tile_end, T* sums, T* bias_sums, T* x_memory, T* dy_memory) const {
    const int64_t first = first_channel(tile), last = first_channel(tile_end - 1) + columns(tile_end - 1);
    std::fill(bias_sums + first, bias_sums + last, T(0));
    T* const tile_sums = sums + tile * taps_ * channels_ * width_;
    const auto clear = [&] { std::fill(tile_sums, sums + tile_end * taps_ * channels_ * width_, T(0)); };
    bool accumulate = t_.joins_taps;  // to taps that several runs have
    if (accumulate) clear();
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
        share_out(next, blocks * (tile_end - tile) * panels_ * dw_.H * static_cast<int64_t>(runs_.size()));
      }
      if (dbias_)
        kernels_.nhwc_sums({{dy_part.images(), dy_part.rows(), dy_.W}, {}, {dy.step[0], dy.step[1], dy.step[2]}},
                           dy.at(dy_part.image, dy_part.row, 0), last - first, bias_sums + first);
      for (int64_t i = dy_part.image; i < dy_part.image_end; i += t_.block_images)
        for (int64_t row = dy_part.row; row < dy_part.row_end; row += t_.block_rows) {
          const ImagePart block{i,   std::min(i + t_.block_images, dy_part.image_end),
                                row, std::min(row + t_.block_rows, dy_part.row_end),
                                0,   0};
          for (int64_t t = tile; t < tile_end; ++t)
            sum_block(block, t, x, dy, first_channel(t) - first, accumulate, next,
                      sums + t * taps_ * channels_ * width_);
          accumulate = true;
        }
    }
    if (!accumulate) clear();
  }

  // The block's share in one tile of filters, `offset` channels into dy's pixels.
  void sum_block(const ImagePart& block, int64_t tile, const Pixels<const T>& x, const Pixels<const T>& dy,
                 int64_t offset, bool accumulate, FetchAhead& next, T* sums) const {
    NhwcGradientArgs<T> args;
    args.columns = columns(tile);
    args.accumulate = accumulate;
    const auto [stride_h, stride_w] = geometry_.stride;
    for (int axis = 0; axis < 3; ++axis) args.box.y_step[axis] = dy.step[axis];
    args.box.x_step[0] = x.step[0], args.box.x_step[1] = x.step[1] * stride_h,
    args.box.x_step[2] = x.step[2] * stride_w;
    const int64_t group = tile / group_tiles_;
    for (int64_t panel = 0; panel < panels_; ++panel)
      for (int64_t r = 0; r < dw_.H; ++r) {
        Reach rows = reach_of(r, stride_h, geometry_.padding[0], geometry_.dilation[0], x_.H, dy_.H);
        rows = {std::max(rows.begin, block.row), std::min(rows.end, block.row_end)};
        for (const TapRun& run : runs_) {
          const int64_t height = run.taps * channels_, first = height * panel / panels_;
          const bool any = rows.begin < rows.end && run.columns.begin < run.columns.end;
          args.rows = height * (panel + 1) / panels_ - first;
          if (args.rows == 0 || (!any && accumulate)) continue;
          args.out = sums + ((r * dw_.W + run.tap) * channels_ + first) * width_;
          args.box.count[0] = any ? block.images() : 0;
          args.box.count[1] = any ? rows.end - rows.begin : 0;
          args.box.count[2] = any ? run.columns.end - run.columns.begin : 0;
          if (any) {
            const int64_t h = rows.begin * stride_h - geometry_.padding[0] + r * geometry_.dilation[0];
            const int64_t w = run.columns.begin * stride_w - geometry_.padding[1] + run.tap * geometry_.dilation[1];
            args.x = x.at(block.image, h, w) + group * channels_ + first;
            args.dy = dy.at(block.image, rows.begin, run.columns.begin) + offset;
          }
          fetch(next);
          kernels_.nhwc_gradient(args);
        }
      }
  }

  // Writes dw for `count` channels from `c` on of a tile: the parts' sums are added, then each tap's (channel, column)
  // is transposed to channels-last weights; or (tap, channel, column) becomes (channel, tap, column) first.
  void add_up(int64_t tile, int64_t c, int64_t count, const T* sums, T* total, T* by_channel) const {
    const bool neighbouring_taps = dw_.tap_stride() == 1;
    T* const to = dw_.data + first_channel(tile) * dw_.n_stride + c * dw_.c_stride;
    for (int64_t tap = 0; tap < taps_; ++tap) {
      const T* from = sums + ((tile * taps_ + tap) * channels_ + c) * width_;
      const T* added = from;
      for (int64_t part = 1; part < t_.parts; ++part, added = total)
        kernels_.binary[BinaryOp::add].apply(added, from + part * part_size(), total, count * width_);
      if (neighbouring_taps)
        kernels_.copy_rows({.rows = count,
                            .count = width_,
                            .from = added,
                            .from_stride = width_,
                            .to = by_channel + tap * width_,
                            .to_stride = taps_ * width_});
      else kernels_.transpose(added, width_, count, columns(tile), to + tap * channels_, dw_.n_stride);
    }
    if (neighbouring_taps) kernels_.transpose(by_channel, width_, count * taps_, columns(tile), to, dw_.n_stride);
  }

  const Kernels<T>& kernels_;
  const NhwcWeightTiles& t_;
  const Images<const T>&dy_, &x_;
  const Images<T>& dw_;
  T* const dbias_;
  const Conv2dGeometry& geometry_;
  const NhwcSource<T> gradients_, images_;
  const int64_t width_, channels_, taps_;        // columns of a tile; input channels of a group
  const int64_t filters_, group_tiles_, tiles_;  // filters of a group, their tiles, all tiles
  std::vector<TapRun> runs_;
  int64_t panels_ = 0;  // register tiles for a run, at most
};

}  // namespace

template <class T>
void run(const NhwcWeightTiles& tiles, const ConvGradientOperands<T>& o) {
  WeightGradient<T>(tiles, o).run();
}
template void run(const NhwcWeightTiles&, const ConvGradientOperands<float>&);
template void run(const NhwcWeightTiles&, const ConvGradientOperands<double>&);

}  // namespace gradus::openmp_detail
