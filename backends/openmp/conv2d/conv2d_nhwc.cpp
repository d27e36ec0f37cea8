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
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d.h>
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
            const int64_t begin = std::max(tap, block * length), end = std::min(tap + channels, (block + 1) * length);
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
  NhwcConvolution(const NhwcTiles& tiles, const ConvOperands<T>& operands)
      : t_(tiles), o_(operands), kernels_(o_.kernels()), axes_{o_.axes(0), o_.axes(1)},
        tiles_(o_.geometry, o_.x, o_.y, kernels_.tile_columns, is_depthwise(o_.geometry, o_.x, o_.y)), x_(o_.x),
        y_(o_.y), source_(kernels_, x_, o_.mask), target_(kernels_, y_) {
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
    const int64_t tile = i % t_.filter_parts * t_.filter_tiles, row = i / t_.filter_parts % t_.bands * t_.rows;
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
            const int64_t top = std::max(begin, box.rows.begin), bottom = std::min(end, box.rows.end);
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

}  // namespace

template <class T>
void run(const NhwcTiles& tiles, const ConvOperands<T>& o) {
  NhwcConvolution<T>(tiles, o).run();
}
template void run(const NhwcTiles&, const ConvOperands<float>&);
template void run(const NhwcTiles&, const ConvOperands<double>&);

}  // namespace gradus::openmp_detail
