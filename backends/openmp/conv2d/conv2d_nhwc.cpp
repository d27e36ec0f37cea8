// Convolution and its gradient with respect to the image, as one kind of product over pixels:
//   y[pixel, k] = sum over taps and channels of x[pixel + tap, c] w[tap, c, k]
//   forward        pixel (i, j) of y reads (i stride - padding + r dilation, …) of x
//   backward_data  the pixels of dx whose coordinates are equal mod stride form one pass, whose taps are those with
//                  h + padding - r dilation divisible by the stride; they read dy at the quotient
// Padding is never read: the pixels are cut into boxes that have the same taps inside the image, the border's and the
// interior, so zeros are neither stored nor multiplied. Within a row of taps the channels of neighbouring pixels follow
// each other in memory and become one long run of the depth.
//
// The threads share out parts of the output: some images or a band of rows, and some of the filters. Inside, one tile
// of filters after the other, and a block of its weights that fits in the first-level cache is applied to all pixels
// of the part.
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/conv2d/nhwc.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp_detail {
namespace {

// Positions [begin, end) of an axis, for which taps [first_tap, last_tap) are inside the image.
struct Span {
  int64_t begin, end, first_tap, last_tap;
};

std::vector<Span> spans_of(const WindowAxis& axis) {
  std::vector<Span> spans;
  for (int64_t i = 0; i < axis.size; ++i) {
    Span span{i, i + 1, 0, static_cast<int64_t>(axis.taps.size())};
    const auto at = [&](int64_t tap) { return i * axis.step + axis.taps[static_cast<size_t>(tap)].at; };
    while (span.first_tap < span.last_tap && at(span.first_tap) < 0) ++span.first_tap;
    while (span.first_tap < span.last_tap && at(span.last_tap - 1) >= axis.source) --span.last_tap;
    if (!spans.empty() && spans.back().first_tap == span.first_tap && spans.back().last_tap == span.last_tap)
      spans.back().end = span.end;
    else spans.push_back(span);
  }
  return spans;
}

// One pair of axes: its weights, in tiles of depth (taps, then channels) by columns, and how boxes of pixels go through
// them.
template <class T>
struct Pass {
  struct Box {
    Span rows, columns;
    std::vector<std::vector<DepthRun>> runs;  // for each block of the depth
  };
  const WindowAxis &rows, &columns;
  int64_t channels, depth;
  size_t blocks = 0;
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

  // Cuts the depth into blocks of at most `most` rows: of several rows of taps, several taps or part of the channels.
  void cut(int64_t most, int64_t row_step, int64_t pixel_step) {
    const int64_t R = static_cast<int64_t>(rows.taps.size()), S = static_cast<int64_t>(columns.taps.size());
    const auto step = [most](int64_t size, int64_t each) {
      const int64_t fit = std::max<int64_t>(1, most / std::max<int64_t>(each, 1));
      return std::max<int64_t>(1, ceil_div(size, ceil_div(std::max<int64_t>(size, 1), fit)));
    };
    const int64_t r_step = step(R, S * channels), s_step = r_step > 1 || S * channels <= most ? S : step(S, channels);
    const int64_t c_step = s_step > 1 || channels <= most ? channels : step(channels, 1);
    for (int64_t r = 0; r < R; r += r_step)
      for (int64_t s = 0; s < S; s += s_step)
        for (int64_t c = 0; c < channels; c += c_step, ++blocks)
          for (Box& box : boxes) {
            const Span& down = box.rows;
            const Span& across = box.columns;
            std::vector<DepthRun>& runs = box.runs.emplace_back();
            const int64_t length = std::min(c_step, channels - c);
            for (int64_t i = std::max(r, down.first_tap); i < std::min(r + r_step, down.last_tap); ++i)
              for (int64_t j = std::max(s, across.first_tap); j < std::min(s + s_step, across.last_tap); ++j) {
                const DepthRun run{rows.taps[static_cast<size_t>(i)].at * row_step +
                                       columns.taps[static_cast<size_t>(j)].at * pixel_step + c,
                                   (i * S + j) * channels + c, length};
                DepthRun* before = runs.empty() ? nullptr : &runs.back();
                if (before && run.from == before->from + before->length && run.row == before->row + before->length)
                  before->length += length;
                else runs.push_back(run);
              }
          }
    if (blocks > 0) return;
    blocks = 1;  // no taps: what is written is the bias
    for (Box& box : boxes) box.runs.resize(1);
  }
};

template <class T>
class NhwcConvolution {
 public:
  NhwcConvolution(const NhwcTiles& tiles, const ConvOperands<T>& operands)
      : t_(tiles), o_(operands), kernels_(o_.kernels()), axes_{o_.axes(0), o_.axes(1)},
        tiles_(filter_tiles(o_.geometry.groups, o_.filters(), kernels_.tile_columns)), x_(o_.x), y_(o_.y),
        source_(kernels_, x_, o_.mask), target_(kernels_, y_) {
    if (!x_.data) x_.data = y_.data;  // an image without pixels is never read, but places in it are computed
    for (const WindowAxis& rows : axes_[0])
      for (const WindowAxis& columns : axes_[1]) {
        passes_.emplace_back(rows, columns, o_.channels(), tile_count(), kernels_.tile_columns);
        passes_.back().cut(t_.depth, source_.row_step(x_.C), source_.pixel_step(x_.C));
      }
  }

  void run() const {
    parallel_for(tile_count() * t_.packing_pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t c = i % t_.packing_pieces * t_.packed_channels;
        pack(i / t_.packing_pieces, std::min(c, o_.channels()), std::min(c + t_.packed_channels, o_.channels()));
      }
    });
    parallel_for(t_.parts, 1, [&](int64_t begin, int64_t end) {
      const Scratch<T> in(t_.in_size), out(t_.out_size);
      for (int64_t i = begin; i < end; ++i) {
        FetchAhead next;
        if ((i + 1) % t_.filter_parts == 0 && i + 1 < t_.parts) {  // the next part reads something else
          const ImagePart read = read_by(part_at(i + 1));
          next = {{source_.memory(read), source_.mask_memory(read)}};
        }
        run(part_at(i), next, in.get(), out.get());
      }
    });
  }

 private:
  // A part of the output: images [n, n_end), rows [begin, end) of every pass, filters [tile, tile_end).
  struct Part {
    int64_t n, n_end, begin, end, tile, tile_end;
  };

  int64_t tile_count() const { return static_cast<int64_t>(tiles_.size()); }
  const FilterTile& tile_at(int64_t tile) const { return tiles_[static_cast<size_t>(tile)]; }
  int64_t first_channel(int64_t tile) const { return tile_at(tile).g * o_.filters() + tile_at(tile).begin; }

  Part part_at(int64_t i) const {
    const int64_t tile = i % t_.filter_parts * t_.filter_tiles, row = i / t_.filter_parts % t_.bands * t_.rows;
    const int64_t n = i / t_.filter_parts / t_.bands * t_.images;
    return {n,    std::min(n + t_.images, y_.N),
            row,  std::min(row + t_.rows, axes_[0][0].size),
            tile, std::min(tile + t_.filter_tiles, tile_count())};
  }

  // What a part reads.
  ImagePart read_by(const Part& part) const {
    const int64_t step = axes_[0][0].step;
    const int64_t first = std::clamp<int64_t>(part.begin * step + t_.least[0], 0, x_.H);
    const int64_t last = std::clamp<int64_t>((part.end - 1) * step + t_.most[0] + 1, first, x_.H);
    return {part.n, part.n_end, first, last, 0, x_.C};
  }

  // Packs the weights of channels [begin, end) of a tile for all passes. Neighbours in memory are taps, or in
  // channels-last weights input channels.
  void pack(int64_t tile, int64_t begin, int64_t end) const {
    const FilterTile& filters = tile_at(tile);
    const int64_t width = kernels_.tile_columns, count = end - begin, all_taps = o_.w.H * o_.w.W;
    const int64_t k_stride = o_.filter_stride(), c_stride = o_.channel_stride(), tap_stride = o_.w.tap_stride();
    const T* from = o_.w.data + filters.g * o_.group_stride() + filters.begin * k_stride + begin * c_stride;
    const bool neighbouring_taps = tap_stride == 1;
    const Scratch<T> taps(t_.pack_size);  // (channel, tap, column), of neighbouring taps
    if (neighbouring_taps) {
      if (filters.width < width) std::fill_n(taps.get(), count * all_taps * width, T(0));
      if (c_stride == all_taps) kernels_.transpose(from, k_stride, filters.width, count * all_taps, taps.get(), width);
      else
        for (int64_t c = 0; c < count; ++c)
          kernels_.transpose(from + c * c_stride, k_stride, filters.width, all_taps, taps.get() + c * all_taps * width,
                             width);
    }
    for (const Pass<T>& pass : passes_) {
      T* to = pass.weights.get() + (tile * pass.depth + begin) * width;
      for (const WindowAxis::Tap& r : pass.rows.taps)
        for (const WindowAxis::Tap& s : pass.columns.taps) {
          const int64_t tap = r.index * o_.w.W + s.index;
          if (neighbouring_taps || k_stride == 1)
            kernels_.copy_rows({.rows = count,
                                .count = neighbouring_taps ? width : filters.width,
                                .from = neighbouring_taps ? taps.get() + tap * width : from + tap * tap_stride,
                                .from_stride = neighbouring_taps ? all_taps * width : c_stride,
                                .to = to,
                                .to_stride = width,
                                .right = neighbouring_taps ? 0 : width - filters.width});
          else {
            if (filters.width < width) std::fill_n(to, count * width, T(0));
            kernels_.transpose(from + tap * tap_stride, k_stride, filters.width, count, to, width);
          }
          to += pass.channels * width;
        }
    }
  }

  // `next` is what is fetched meanwhile.
  void run(const Part& part, FetchAhead next, T* in, T* out) const {
    const auto [n, n_end, begin, end, tile, tile_end] = part;
    const Pixels<const T> from = source_.load(read_by(part), in);
    const auto row_tiles = [&, images = n_end - n, begin = begin, end = end](const typename Pass<T>::Box& box) {
      const int64_t rows = std::max<int64_t>(0, std::min(end, box.rows.end) - std::max(begin, box.rows.begin));
      return ceil_div(images * (box.columns.end - box.columns.begin) * rows, kernels_.pixel_rows);
    };
    int64_t all_row_tiles = 0;
    for (const Pass<T>& pass : passes_)
      for (const typename Pass<T>::Box& box : pass.boxes) all_row_tiles += row_tiles(box);
    const int64_t out_step = axes_[0][0].out_step;
    const ImagePart written{n,
                            n_end,
                            begin * out_step,
                            std::min(end * out_step, y_.H),
                            first_channel(tile),
                            first_channel(tile_end - 1) + tile_at(tile_end - 1).width};
    const Pixels<T> to = target_.pixels(written, out);
    next.places[2] = target_.memory(written);
    share_out(next, all_row_tiles);
    for (int64_t t = tile; t < tile_end; ++t)
      for (const Pass<T>& pass : passes_)
        for (size_t block = 0; block < pass.blocks; ++block)
          for (const typename Pass<T>::Box& box : pass.boxes) {
            const int64_t top = std::max(begin, box.rows.begin), bottom = std::min(end, box.rows.end);
            const bool starts = block == 0, ends = block + 1 == pass.blocks;
            const std::vector<DepthRun>& runs = box.runs[block];
            if (top >= bottom || (runs.empty() && !starts && !ends)) continue;
            const WindowAxis &rows = pass.rows, &columns = pass.columns;
            const int64_t left = box.columns.begin;
            NhwcProductArgs<T> args;
            args.box = {{n_end - n, bottom - top, box.columns.end - left},
                        {from.step[0], from.step[1] * rows.step, from.step[2] * columns.step},
                        {to.step[0], to.step[1] * rows.out_step, to.step[2] * columns.out_step}};
            args.from = from.at(n, top * rows.step, left * columns.step) + tile_at(t).g * pass.channels;
            args.to = to.at(n, rows.out_begin + top * rows.out_step, columns.out_begin + left * columns.out_step) +
                      first_channel(t) - written.channel;
            args.runs = runs.data(), args.run_count = static_cast<int64_t>(runs.size());
            args.weights = pass.weights.get() + t * pass.depth * kernels_.tile_columns;
            args.columns = tile_at(t).width;
            args.accumulate = !starts;
            args.bias = o_.bias && starts ? o_.bias + first_channel(t) : nullptr;
            args.relu = o_.relu && ends;
            if (t == tile && starts) {
              args.ahead = next;
              for (FetchAhead::Place& place : next.places) place.at += row_tiles(box) * place.bytes;
            }
            kernels_.nhwc_product(args);
          }
    target_.store(written, out);
  }

  const NhwcTiles& t_;
  const ConvOperands<T>& o_;
  const Kernels<T>& kernels_;
  const std::vector<WindowAxis> axes_[2];  // every pair is a pass
  const std::vector<FilterTile> tiles_;
  Images<const T> x_;
  const Images<T>& y_;
  const NhwcSource<T> source_;
  const NhwcTarget<T> target_;
  std::vector<Pass<T>> passes_;
};

}  // namespace

template <class T>
void run(const NhwcTiles& tiles, const ConvOperands<T>& o) {
  NhwcConvolution<T>(tiles, o).run();
}
template void run(const NhwcTiles&, const ConvOperands<float>&);
template void run(const NhwcTiles&, const ConvOperands<double>&);

}  // namespace gradus::openmp_detail
