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
// of filters after the other, and a block of its weights that the first-level cache holds meets all pixels of the part.
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d_pixels.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

// Tap `index` of the kernel reads `at` rows (columns) from where the output pixel is.
struct Tap {
  int64_t index, at;
};

// Output rows (columns) [begin, end) of a pass, for which taps [first_tap, last_tap) are inside the image.
struct Span {
  int64_t begin, end, first_tap, last_tap;
};

// Rows (columns) begin + i write_step of the output, i < size, which read rows i read_step + Tap::at.
struct Axis {
  std::vector<Tap> taps;  // by `at`
  int64_t begin = 0, size = 0;
  std::vector<Span> spans;
};

struct Plan {
  std::vector<Axis> along[2];  // every pair is a pass
  int64_t read_step[2], write_step[2];
  int64_t groups;
};

void find_spans(Axis& axis, int64_t read_step, int64_t read_size) {
  for (int64_t i = 0; i < axis.size; ++i) {
    Span span{i, i + 1, 0, static_cast<int64_t>(axis.taps.size())};
    const auto at = [&](int64_t tap) { return i * read_step + axis.taps[static_cast<size_t>(tap)].at; };
    while (span.first_tap < span.last_tap && at(span.first_tap) < 0) ++span.first_tap;
    while (span.first_tap < span.last_tap && at(span.last_tap - 1) >= read_size) --span.last_tap;
    if (!axis.spans.empty() && axis.spans.back().first_tap == span.first_tap &&
        axis.spans.back().last_tap == span.last_tap)
      axis.spans.back().end = span.end;
    else axis.spans.push_back(span);
  }
}

Plan make_plan(bool backward, const Conv2dGeometry& geometry, const int64_t (&kernel)[2], const int64_t (&in)[2],
               const int64_t (&out)[2]) {
  Plan plan;
  plan.groups = geometry.groups;
  for (int i = 0; i < 2; ++i) {
    const int64_t stride = geometry.stride[i], dilation = geometry.dilation[i], padding = geometry.padding[i];
    plan.read_step[i] = backward ? 1 : stride;
    plan.write_step[i] = backward ? stride : 1;
    for (int64_t residue = 0; residue < std::min(plan.write_step[i], out[i]); ++residue) {
      Axis axis;
      axis.begin = residue, axis.size = divide_up(out[i] - residue, plan.write_step[i]);
      for (int64_t k = 0; k < kernel[i]; ++k) {
        const int64_t r = backward ? kernel[i] - 1 - k : k;
        const int64_t distance = residue + padding - r * dilation;
        if (!backward) axis.taps.push_back({r, -distance});
        else if (distance % stride == 0) axis.taps.push_back({r, distance / stride});
      }
      find_spans(axis, plan.read_step[i], in[i]);
      plan.along[i].push_back(std::move(axis));
    }
  }
  return plan;
}

// Where the weight of output channel k, input channel c (both counted in their group), group g and a tap is. Neighbours
// in memory are taps, or in channels-last weights (tap > 1) input channels.
struct WeightStrides {
  int64_t k, c, g, tap;
};

// Columns [begin, begin + width) of group g: what a register tile sums up.
struct FilterTile {
  int64_t g, begin, width;
};

// One pass: its weights, in tiles of depth (taps, then channels) by columns, and how boxes of pixels go through them.
template <class T>
struct Pass {
  struct Box {
    Span rows, columns;
    std::vector<std::vector<DepthRun>> runs;  // for each block of the depth
  };
  const Axis &rows, &columns;
  int64_t channels, depth;
  size_t blocks = 0;
  std::vector<Box> boxes;
  Scratch<T> weights;

  Pass(const Axis& rows, const Axis& columns, int64_t channels, int64_t tiles, int64_t tile_columns)
      : rows(rows), columns(columns), channels(channels),
        depth(static_cast<int64_t>(rows.taps.size() * columns.taps.size()) * channels),
        weights(tiles * depth * tile_columns) {
    for (const Span& row : rows.spans)
      for (const Span& column : columns.spans) boxes.push_back({row, column, {}});
  }

  // Cuts the depth into blocks of at most `most` rows: of several rows of taps, several taps or part of the channels.
  void cut(int64_t most, int64_t row_step, int64_t pixel_step) {
    const int64_t R = static_cast<int64_t>(rows.taps.size()), S = static_cast<int64_t>(columns.taps.size());
    const auto step = [most](int64_t size, int64_t each) {
      const int64_t fit = std::max<int64_t>(1, most / std::max<int64_t>(each, 1));
      return std::max<int64_t>(1, divide_up(size, divide_up(std::max<int64_t>(size, 1), fit)));
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

// Packs the weights of one tile for all passes. `w` is (filters, channels, taps) by strides.
template <class T>
class WeightPacker {
 public:
  WeightPacker(const Kernels<T>& kernels, const NhwcTiles& tiles, const T* w, const WeightStrides& strides,
               const int64_t (&kernel)[2])
      : kernels_(kernels), t_(tiles), w_(w), strides_(strides), kernel_columns_(kernel[1]),
        taps_(kernel[0] * kernel[1]) {}

  // Channels [begin, end) of a tile.
  void pack(std::vector<Pass<T>>& passes, int64_t tile, const FilterTile& filters, int64_t begin, int64_t end) const {
    const int64_t width = kernels_.tile_columns, count = end - begin;
    const T* from = w_ + filters.g * strides_.g + filters.begin * strides_.k + begin * strides_.c;
    const bool neighbouring_taps = strides_.tap == 1;
    const Scratch<T> taps(t_.pack_size);  // (channel, tap, column), of neighbouring taps
    if (neighbouring_taps) {
      if (filters.width < width) std::fill_n(taps.get(), count * taps_ * width, T(0));
      if (strides_.c == taps_) kernels_.transpose(from, strides_.k, filters.width, count * taps_, taps.get(), width);
      else
        for (int64_t c = 0; c < count; ++c)
          kernels_.transpose(from + c * strides_.c, strides_.k, filters.width, taps_, taps.get() + c * taps_ * width,
                             width);
    }
    for (Pass<T>& pass : passes) {
      T* to = pass.weights.get() + (tile * pass.depth + begin) * width;
      for (const Tap& r : pass.rows.taps)
        for (const Tap& s : pass.columns.taps) {
          const int64_t tap = r.index * kernel_columns_ + s.index;
          if (neighbouring_taps || strides_.k == 1)
            kernels_.copy_rows({.rows = count,
                                .count = neighbouring_taps ? width : filters.width,
                                .from = neighbouring_taps ? taps.get() + tap * width : from + tap * strides_.tap,
                                .from_stride = neighbouring_taps ? taps_ * width : strides_.c,
                                .to = to,
                                .to_stride = width,
                                .right = neighbouring_taps ? 0 : width - filters.width});
          else {
            if (filters.width < width) std::fill_n(to, count * width, T(0));
            kernels_.transpose(from + tap * strides_.tap, strides_.k, filters.width, count, to, width);
          }
          to += pass.channels * width;
        }
    }
  }

 private:
  const Kernels<T>& kernels_;
  const NhwcTiles& t_;
  const T* w_;
  const WeightStrides strides_;
  const int64_t kernel_columns_, taps_;
};

template <class T>
struct Correlation {
  const Kernels<T>& kernels;
  const NhwcTiles& cut;
  const Plan& plan;
  const Images<const T>& x;
  const Images<T>& y;
  const PixelSource<T>& source;
  const PixelTarget<T>& target;
  const std::vector<Pass<T>>& passes;
  const std::vector<FilterTile>& tiles;
  const T* bias;
  bool relu;

  // A part of the output: images [n, n_end), rows [begin, end) of every pass, filters [tile, tile_end).
  struct Part {
    int64_t n, n_end, begin, end;
    size_t tile, tile_end;
  };

  // What a part reads.
  ImagePart read_by(const Part& part) const {
    const int64_t first = std::clamp<int64_t>(part.begin * plan.read_step[0] + cut.least[0], 0, x.H);
    const int64_t last = std::clamp<int64_t>((part.end - 1) * plan.read_step[0] + cut.most[0] + 1, first, x.H);
    return {part.n, part.n_end, first, last, 0, x.C};
  }

  // What is read for a part.
  FetchAhead memory(const Part& part) const {
    const ImagePart read = read_by(part);
    return {{source.memory(read), source.mask_memory(read)}};
  }

  // `next` is what is fetched meanwhile.
  void run(const Part& part, FetchAhead next, T* in, T* out) const {
    const auto [n, n_end, begin, end, tile, tile_end] = part;
    const int64_t filters = y.C / plan.groups;
    const Pixels<const T> from = source.load(read_by(part), in);
    int64_t row_tiles = 0;
    for (const Pass<T>& pass : passes)
      for (const typename Pass<T>::Box& box : pass.boxes)
        row_tiles += divide_up((n_end - n) * (box.columns.end - box.columns.begin) *
                                   std::max<int64_t>(0, std::min(end, box.rows.end) - std::max(begin, box.rows.begin)),
                               kernels.pixel_rows);
    const auto channel = [&](size_t t) { return tiles[t].g * filters + tiles[t].begin; };
    const ImagePart written{n,
                            n_end,
                            begin * plan.write_step[0],
                            std::min(end * plan.write_step[0], y.H),
                            channel(tile),
                            channel(tile_end - 1) + tiles[tile_end - 1].width};
    const Pixels<T> to = target.pixels(written, out);
    next.places[2] = target.memory(written);
    share_out(next, row_tiles);
    for (size_t t = tile; t < tile_end; ++t)
      for (const Pass<T>& pass : passes)
        for (size_t block = 0; block < pass.blocks; ++block)
          for (const typename Pass<T>::Box& box : pass.boxes) {
            const int64_t top = std::max(begin, box.rows.begin), bottom = std::min(end, box.rows.end);
            const bool starts = block == 0, ends = block + 1 == pass.blocks;
            const std::vector<DepthRun>& runs = box.runs[block];
            if (top >= bottom || (runs.empty() && !starts && !ends)) continue;
            const int64_t left = box.columns.begin;
            PixelProductArgs<T> args;
            args.box = {{n_end - n, bottom - top, box.columns.end - left},
                        {from.step[0], from.step[1] * plan.read_step[0], from.step[2] * plan.read_step[1]},
                        {to.step[0], to.step[1] * plan.write_step[0], to.step[2] * plan.write_step[1]}};
            args.from =
                from.at(n, top * plan.read_step[0], left * plan.read_step[1]) + tiles[t].g * (x.C / plan.groups);
            args.to =
                to.at(n, pass.rows.begin + top * plan.write_step[0], pass.columns.begin + left * plan.write_step[1]) +
                channel(t) - channel(tile);
            args.runs = runs.data(), args.run_count = static_cast<int64_t>(runs.size());
            args.weights = pass.weights.get() + static_cast<int64_t>(t) * pass.depth * kernels.tile_columns;
            args.columns = tiles[t].width;
            args.accumulate = !starts;
            args.bias = bias && starts ? bias + channel(t) : nullptr;
            args.relu = relu && ends;
            if (t == tile && starts) {
              args.ahead = next;
              const int64_t row_tiles =
                  divide_up(args.box.count[0] * args.box.count[1] * args.box.count[2], kernels.pixel_rows);
              for (FetchAhead::Place& place : next.places) place.at += row_tiles * place.bytes;
            }
            kernels.pixel_product(args);
          }
    target.store(written, out);
  }
};

template <class T>
void correlate(const Kernels<T>& kernels, const NhwcTiles& cut, const Plan& plan, Images<const T> x, const T* mask,
               const T* w, const int64_t (&kernel)[2], const WeightStrides& strides, const T* bias, bool relu,
               const Images<T>& y) {
  if (!x.data) x.data = y.data;  // an image without pixels is never read, but places in it are computed
  const int64_t filters = y.C / plan.groups, channels = x.C / plan.groups, width = kernels.tile_columns;
  std::vector<FilterTile> tiles;
  for (int64_t g = 0; g < plan.groups; ++g)
    for (int64_t at = 0; at < filters; at += width) tiles.push_back({g, at, std::min(width, filters - at)});
  const int64_t tile_count = static_cast<int64_t>(tiles.size());

  const PixelSource<T> source(kernels, x, mask);
  const PixelTarget<T> target(kernels, y);
  std::vector<Pass<T>> passes;
  for (const Axis& rows : plan.along[0])
    for (const Axis& columns : plan.along[1]) {
      passes.emplace_back(rows, columns, channels, tile_count, width);
      passes.back().cut(cut.depth, source.row_step(x.C), source.pixel_step(x.C));
    }
  const WeightPacker<T> packer(kernels, cut, w, strides, kernel);
  parallel_for(tile_count * cut.packing_pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t tile = i / cut.packing_pieces, c = i % cut.packing_pieces * cut.packed_channels;
      packer.pack(passes, tile, tiles[static_cast<size_t>(tile)], std::min(c, channels),
                  std::min(c + cut.packed_channels, channels));
    }
  });

  const int64_t rows = plan.along[0][0].size;
  const Correlation<T> correlation{kernels, cut, plan, x, y, source, target, passes, tiles, bias, relu};
  const auto part_at = [&](int64_t i) {
    const int64_t tile = i % cut.filter_parts * cut.filter_tiles, row = i / cut.filter_parts % cut.bands * cut.rows;
    const int64_t n = i / cut.filter_parts / cut.bands * cut.images;
    return typename Correlation<T>::Part{n,
                                         std::min(n + cut.images, y.N),
                                         row,
                                         std::min(row + cut.rows, rows),
                                         static_cast<size_t>(tile),
                                         static_cast<size_t>(std::min(tile + cut.filter_tiles, tile_count))};
  };
  parallel_for(cut.parts, 1, [&](int64_t begin, int64_t end) {
    const Scratch<T> in(cut.in_size), out(cut.out_size);
    for (int64_t i = begin; i < end; ++i) {
      // Where the next part reads something else.
      const bool last_use = (i + 1) % cut.filter_parts == 0 && i + 1 < cut.parts;
      const FetchAhead next = last_use ? correlation.memory(part_at(i + 1)) : FetchAhead{};
      correlation.run(part_at(i), next, in.get(), out.get());
    }
  });
}

}  // namespace

template <class T>
void convolve_pixels(const Kernels<T>& kernels, const NhwcTiles& tiles, const Images<const T>& x,
                     const Images<const T>& w, const T* bias, bool relu, const Images<T>& y,
                     const Conv2dGeometry& geometry) {
  const int64_t kernel[2] = {w.H, w.W}, in[2] = {x.H, x.W}, out[2] = {y.H, y.W};
  const WeightStrides strides{w.n_stride, w.c_stride, w.N / geometry.groups * w.n_stride, tap_stride(w)};
  correlate(kernels, tiles, make_plan(false, geometry, kernel, in, out), x, static_cast<const T*>(nullptr), w.data,
            kernel, strides, bias, relu, y);
}

template <class T>
void convolve_pixels_backward_data(const Kernels<T>& kernels, const NhwcTiles& tiles, const Images<const T>& dy,
                                   const T* mask, const Images<const T>& w, const Images<T>& dx,
                                   const Conv2dGeometry& geometry) {
  const int64_t kernel[2] = {w.H, w.W}, in[2] = {dy.H, dy.W}, out[2] = {dx.H, dx.W};
  const WeightStrides strides{w.c_stride, w.n_stride, w.N / geometry.groups * w.n_stride, tap_stride(w)};
  correlate(kernels, tiles, make_plan(true, geometry, kernel, in, out), dy, mask, w.data, kernel, strides,
            static_cast<const T*>(nullptr), false, dx);
}

template void convolve_pixels(const Kernels<float>&, const NhwcTiles&, const Images<const float>&,
                              const Images<const float>&, const float*, bool, const Images<float>&,
                              const Conv2dGeometry&);
template void convolve_pixels(const Kernels<double>&, const NhwcTiles&, const Images<const double>&,
                              const Images<const double>&, const double*, bool, const Images<double>&,
                              const Conv2dGeometry&);
template void convolve_pixels_backward_data(const Kernels<float>&, const NhwcTiles&, const Images<const float>&,
                                            const float*, const Images<const float>&, const Images<float>&,
                                            const Conv2dGeometry&);
template void convolve_pixels_backward_data(const Kernels<double>&, const NhwcTiles&, const Images<const double>&,
                                            const double*, const Images<const double>&, const Images<double>&,
                                            const Conv2dGeometry&);

}  // namespace gradus::openmp
