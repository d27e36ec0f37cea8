// A convolution by Winograd's algorithm, part by part of its tiles: transform what they read (V), multiply it position
// by position with the transformed weights (U), and transform the products (M) back into the result:
//   M[position] (tiles, filters) = V[position] (tiles, channels) U[position] (channels, filters)
// The gradient of the image is the convolution of dy with the weights turned by half a circle.
//
// The threads share out parts, cut by shape alone: some images or a band of their rows, and some of the filters. One
// register tile of filters after the other is multiplied with all tiles of the part, so that M is small.
#include <cmath>
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d_winograd.h>
#include <gradus/core/convolution_accuracy.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

// U is 16/9 or four times as large as w. Where it outgrows the second-level cache, it is not kept, but transformed by
// each part anew, a register tile of filters at a time; parts are large then.
constexpr int64_t kKeptBytes = int64_t{2} << 20;       // of U at most, for parts to share it
constexpr int64_t kPartBytes = int64_t{640} << 10;     // of V and M: in the second-level cache
constexpr int64_t kLargePartBytes = int64_t{6} << 20;  // the same where U is not kept
constexpr int64_t kLeastTiles = 28,
                  kMostTiles = 128;  // in a part, if there are as many: they share what loading U costs
constexpr int64_t kPartsWanted = 8;
constexpr int64_t kLeastFilterTiles = 2;   // in a part, since each part transforms its input
constexpr int64_t kDepth = 384;            // channels multiplied at once: their U stays in the first-level cache
constexpr int64_t kChannelsAtOnce = 32;    // whose weights are laid out for their transform
constexpr int64_t kTransformGrain = 2048;  // pairs of channel and filter that are worth a chunk of work

// What is convolved: x (N, C, H, W) with padding, to y, with stride 1. The gradient of the image has dy for x.
struct Problem {
  const Images<const float>& x;
  const float* mask;  // as of PixelSource
  const float* w;
  int64_t k_stride, c_stride;  // of w, from one output or input channel to the next; groups follow each other
  bool turned;                 // w's taps count from the last one
  const float* bias;           // may be null
  bool relu;
  const Images<float>& y;
  int64_t padding[2], groups;
};

// Columns [begin, begin + width) of group g: what a register tile sums up.
struct FilterTile {
  int64_t g, begin, width;
};

// Images [n, n_end), rows of tiles [row, row_end), tiles of filters [filter, filter_end).
struct Part {
  int64_t n, n_end, row, row_end, filter, filter_end;
  int64_t tile_rows() const { return (n_end - n) * (row_end - row); }
};

class Winograd {
 public:
  Winograd(const Kernels<float>& kernels, const WinogradKernels& winograd, const Problem& problem)
      : kernels_(kernels), winograd_(winograd), p_(problem), x_(problem.x), y_(problem.y), channels_(x_.C / p_.groups),
        filters_(y_.C / p_.groups), width_(kernels.tile_columns), tile_(winograd.tile), rows_(divide_up(y_.H, tile_)),
        columns_(divide_up(y_.W, tile_)), v_step_(round_up(channels_, kernels.vector_size) + kernels.vector_size),
        u_position_(channels_ * width_ + kernels.vector_size), source_(kernels, x_, p_.mask), target_(kernels, y_),
        u_rows_(std::min(channels_, kDepth)) {
    for (int64_t g = 0; g < p_.groups; ++g)
      for (int64_t at = 0; at < filters_; at += width_)
        filter_tiles_.push_back({g, at, std::min(width_, filters_ - at)});
    for (int64_t i = 0; i < std::min(channels_, kDepth); ++i) u_rows_[i] = i * width_;
    cut();
  }

  void run() const {
    const Scratch<float> kept(keeps_u_ ? filter_tile_count() * u_size() : 0);
    if (keeps_u_) transform_all_weights(kept.get());
    const int64_t tiles = largest_.tile_rows() * columns_;
    const int64_t rows_read = std::min(x_.H, largest_.row_end * tile_ + 2), rows_written = largest_.row_end * tile_;
    const int64_t in_size = source_.size(largest_.n_end, rows_read, x_.C);
    const int64_t out_size = target_.size(largest_.n_end, rows_written, std::min(largest_.filter_end * width_, y_.C));
    parallel_for(parts_[0] * parts_[1] * parts_[2], 1, [&](int64_t begin, int64_t end) {
      const Scratch<float> in(in_size), out(out_size), v(winograd_.positions * v_position(tiles));
      const Scratch<float> u(keeps_u_ ? 0 : u_size()), m(winograd_.positions * m_position(tiles));
      for (int64_t i = begin; i < end; ++i) run(part_at(i), kept.get(), in.get(), out.get(), v.get(), u.get(), m.get());
    });
  }

 private:
  // V and U have a vector more than they need, so that rows and positions at powers of two do not share sets of a
  // cache.
  int64_t v_position(int64_t tiles) const { return tiles * v_step_ + kernels_.vector_size; }
  int64_t m_position(int64_t tiles) const { return tiles * width_ + kernels_.vector_size; }
  int64_t u_size() const { return winograd_.positions * u_position_; }
  int64_t filter_tile_count() const { return static_cast<int64_t>(filter_tiles_.size()); }
  const FilterTile& filter_tile(int64_t i) const { return filter_tiles_[static_cast<size_t>(i)]; }
  int64_t first_channel(const FilterTile& tile) const { return tile.g * filters_ + tile.begin; }

  void cut() {
    const int64_t count = filter_tile_count(), image = rows_ * columns_;
    const int64_t tile_bytes = winograd_.positions * (v_step_ + width_) * int64_t{sizeof(float)};
    const bool large = count * u_size() * int64_t{sizeof(float)} > kKeptBytes;
    const int64_t tiles = large ? std::clamp(kLargePartBytes / tile_bytes, kLeastTiles, kMostTiles)
                                : std::max(kPartBytes / tile_bytes, kLeastTiles);
    const int64_t images = std::clamp<int64_t>(tiles / image, 1, y_.N);
    const int64_t rows = images > 1 ? rows_ : std::clamp<int64_t>(tiles / columns_, 1, rows_);
    parts_[0] = divide_up(y_.N, images), parts_[1] = divide_up(rows_, rows);
    const int64_t wanted = divide_up(kPartsWanted, parts_[0] * parts_[1]);
    const int64_t step = divide_up(count, std::min(wanted, divide_up(count, kLeastFilterTiles)));
    parts_[2] = divide_up(count, step);
    largest_ = {0, divide_up(y_.N, parts_[0]), 0, divide_up(rows_, parts_[1]), 0, step};
    keeps_u_ = !large && parts_[0] * parts_[1] > 1;
  }

  Part part_at(int64_t i) const {
    const int64_t filter = i % parts_[2] * largest_.filter_end, row = i / parts_[2] % parts_[1] * largest_.row_end;
    const int64_t n = i / parts_[2] / parts_[1] * largest_.n_end;
    return {n,      std::min(n + largest_.n_end, y_.N),
            row,    std::min(row + largest_.row_end, rows_),
            filter, std::min(filter + largest_.filter_end, filter_tile_count())};
  }

  void transform_all_weights(float* u) const {
    const int64_t pieces = divide_up(channels_ * width_, kTransformGrain), each = divide_up(channels_, pieces);
    parallel_for(filter_tile_count() * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t tile = i / pieces, c = i % pieces * each;
        transform_weights(filter_tile(tile), std::min(c, channels_), std::min(c + each, channels_),
                          u + tile * u_size());
      }
    });
  }

  // U of channels [begin, end) for one tile of filters.
  void transform_weights(const FilterTile& tile, int64_t begin, int64_t end, float* u) const {
    const Scratch<float> taps(kChannelsAtOnce * 9 * width_);  // (channel, tap, filter)
    if (tile.width < width_) std::fill_n(taps.get(), kChannelsAtOnce * 9 * width_, 0.0f);
    for (int64_t c = begin; c < end; c += kChannelsAtOnce) {
      const int64_t count = std::min(end - c, kChannelsAtOnce);
      const float* from = p_.w + tile.g * filters_ * channels_ * 9 + tile.begin * p_.k_stride + c * p_.c_stride;
      if (p_.c_stride == 9) kernels_.transpose(from, p_.k_stride, tile.width, count * 9, taps.get(), width_);
      else
        for (int64_t i = 0; i < count; ++i)
          kernels_.transpose(from + i * p_.c_stride, p_.k_stride, tile.width, 9, taps.get() + i * 9 * width_, width_);
      winograd_.weights({.channels = count,
                         .taps = taps.get() + (p_.turned ? 8 * width_ : 0),
                         .tap_step = p_.turned ? -width_ : width_,
                         .to = u + c * width_,
                         .position_step = u_position_});
    }
  }

  // V of group g.
  void transform_input(const Part& part, const Pixels<const float>& pixels, int64_t g, float* v) const {
    WinogradInputArgs args{.tiles = columns_,
                           .channels = channels_,
                           .rows = {},
                           .pixel_step = pixels.step[2],
                           .columns = x_.W,
                           .padding = p_.padding[1],
                           .to = v,
                           .tile_step = v_step_,
                           .position_step = v_position(part.tile_rows() * columns_)};
    for (int64_t n = part.n; n < part.n_end; ++n)
      for (int64_t row = part.row; row < part.row_end; ++row, args.to += columns_ * v_step_) {
        for (int64_t i = 0; i < tile_ + 2; ++i) {
          const int64_t h = row * tile_ - p_.padding[0] + i;
          args.rows[i] = h >= 0 && h < x_.H ? pixels.at(n, h, 0) + g * channels_ : nullptr;
        }
        winograd_.input(args);
      }
  }

  // M of one tile of filters.
  void multiply(int64_t tiles, const float* v, const float* u, float* m, int64_t columns) const {
    BlockArgs<float> block;
    block.rows = tiles;
    block.columns = columns;
    block.a_row_stride = v_step_, block.a_step = 1;
    block.offsets = u_rows_.get();
    block.b_tile_step = 0;
    block.c_row_stride = width_;
    for (int64_t c = 0; c < channels_; c += kDepth) {
      block.depth = std::min(channels_ - c, kDepth);
      block.accumulate = c > 0;
      for (int64_t i = 0; i < winograd_.positions; ++i) {
        block.a = v + i * v_position(tiles) + c;
        block.b = u + i * u_position_ + c * width_;
        block.c = m + i * m_position(tiles);
        kernels_.block(block);
      }
    }
  }

  // `to` has the channels from `channel` on.
  void transform_output(const Part& part, const FilterTile& tile, const float* m, const Pixels<float>& to,
                        int64_t channel) const {
    WinogradOutputArgs args{.tiles = columns_,
                            .channels = tile.width,
                            .from = m,
                            .tile_step = width_,
                            .position_step = m_position(part.tile_rows() * columns_),
                            .to = nullptr,
                            .rows = 0,
                            .columns = y_.W,
                            .row_step = to.step[1],
                            .pixel_step = to.step[2],
                            .bias = p_.bias ? p_.bias + first_channel(tile) : nullptr,
                            .relu = p_.relu};
    for (int64_t n = part.n; n < part.n_end; ++n)
      for (int64_t row = part.row; row < part.row_end; ++row, args.from += columns_ * width_) {
        args.to = to.at(n, row * tile_, 0) + first_channel(tile) - channel;
        args.rows = y_.H - row * tile_;
        winograd_.output(args);
      }
  }

  void run(const Part& part, const float* kept_u, float* in, float* out, float* v, float* u, float* m) const {
    const int64_t top = part.row * tile_ - p_.padding[0], bottom = part.row_end * tile_ - p_.padding[0] + 2;
    const int64_t first_row = std::clamp<int64_t>(top, 0, x_.H);
    const Pixels<const float> from =
        source_.load({part.n, part.n_end, first_row, std::clamp<int64_t>(bottom, first_row, x_.H), 0, x_.C}, in);
    const FilterTile &first = filter_tile(part.filter), &last = filter_tile(part.filter_end - 1);
    const ImagePart written{part.n,
                            part.n_end,
                            part.row * tile_,
                            std::min(part.row_end * tile_, y_.H),
                            first_channel(first),
                            first_channel(last) + last.width};
    const Pixels<float> to = target_.pixels(written, out);
    for (int64_t i = part.filter; i < part.filter_end; ++i) {
      const FilterTile& tile = filter_tile(i);
      if (i == part.filter || tile.g != filter_tile(i - 1).g) transform_input(part, from, tile.g, v);
      if (!keeps_u_) transform_weights(tile, 0, channels_, u);
      multiply(part.tile_rows() * columns_, v, keeps_u_ ? kept_u + i * u_size() : u, m,
               round_up(tile.width, kernels_.vector_size));
      transform_output(part, tile, m, to, written.channel);
    }
    target_.store(written, out);
  }

  const Kernels<float>& kernels_;
  const WinogradKernels& winograd_;
  const Problem& p_;
  const Images<const float>& x_;
  const Images<float>& y_;
  const int64_t channels_, filters_;  // in a group
  const int64_t width_;               // of a register tile
  const int64_t tile_;                // m
  const int64_t rows_, columns_;      // tiles of an image
  const int64_t v_step_, u_position_;
  const PixelSource<float> source_;
  const PixelTarget<float> target_;
  const Scratch<int64_t> u_rows_;  // where the rows of U begin
  std::vector<FilterTile> filter_tiles_;
  Part largest_;      // counted from 0
  int64_t parts_[3];  // how many, of images, rows of tiles and filters
  bool keeps_u_;      // for all parts
};

// Pairs of an output row (column) and a tap that reads an input row, not padding.
int64_t taps_inside(int64_t in, int64_t out, int64_t padding) {
  int64_t sum = 0;
  for (int64_t r = 0; r < 3; ++r)
    sum += std::max<int64_t>(0, std::min(out, in + padding - r) - std::max<int64_t>(0, padding - r));
  return sum;
}

}  // namespace

const WinogradKernels* faster_winograd(const KernelTable& table, ConvolutionPass pass, DType dtype, const Shape& x,
                                       const Shape& w, const Shape& y, const Conv2dGeometry& geometry) {
  const ConvolutionAccuracy accuracy = convolution_accuracy();
  if (accuracy == ConvolutionAccuracy::exact || dtype != DType::f32) return nullptr;
  for (int axis = 0; axis < 2; ++axis)
    if (w[2 + axis] != 3 || geometry.stride[axis] != 1 || geometry.dilation[axis] != 1) return nullptr;
  // A model in multiply-adds of vectors. Its constants were fitted to measured times: products of Winograd run a little
  // slower than the exact kernels, every element that is transformed costs so many of them, the exact kernels need so
  // many to pack the nine weights of a channel for a vector of filters, and a gain has to be worth it.
  constexpr double kProduct = 1.15, kInput = 8, kOutput = 7, kWeight = 11, kPacking = 200, kGain = 0.9;
  const bool forward = pass == ConvolutionPass::forward;
  const Shape &in = forward ? x : y, &out = forward ? y : x;
  const double lanes = table.f32.vector_size, groups = static_cast<double>(geometry.groups);
  const double channels = static_cast<double>(in[1]) / groups, filters = static_cast<double>(out[1]) / groups;
  const auto vectors = [&](double count) { return std::ceil(count / lanes); };
  double pairs = static_cast<double>(out[0]) * groups;
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t padding = forward ? geometry.padding[axis] : 2 - geometry.padding[axis];
    pairs *= static_cast<double>(taps_inside(in[2 + axis], out[2 + axis], padding));
  }
  if (pairs == 0) return nullptr;
  double least = kGain * (pairs * channels * filters / lanes + kPacking * channels * vectors(filters) * groups);
  const WinogradKernels* best = nullptr;
  for (const WinogradKernels* winograd : {&table.winograd_2x2, &table.winograd_4x4}) {
    if (winograd == &table.winograd_4x4 && accuracy != ConvolutionAccuracy::winograd_4x4) break;
    const double tiles =
        static_cast<double>(out[0] * divide_up(out[2], winograd->tile) * divide_up(out[3], winograd->tile));
    const double cost =
        winograd->positions * groups *
        (tiles * (kProduct * channels * vectors(filters) + kInput * vectors(channels) + kOutput * vectors(filters)) +
         kWeight * channels * vectors(filters));
    if (cost < least) least = cost, best = winograd;
  }
  return best;
}

void convolve_winograd(const KernelTable& table, const WinogradKernels& winograd, const Images<const float>& x,
                       const Images<const float>& w, const float* bias, bool relu, const Images<float>& y,
                       const Conv2dGeometry& geometry) {
  const Problem problem{x,
                        nullptr,
                        w.data,
                        w.C * 9,
                        9,
                        false,
                        bias,
                        relu,
                        y,
                        {geometry.padding[0], geometry.padding[1]},
                        geometry.groups};
  Winograd(table.f32, winograd, problem).run();
}

void convolve_winograd_backward_data(const KernelTable& table, const WinogradKernels& winograd,
                                     const Images<const float>& dy, const float* mask, const Images<const float>& w,
                                     const Images<float>& dx, const Conv2dGeometry& geometry) {
  const Problem problem{dy,
                        mask,
                        w.data,
                        9,
                        w.C * 9,
                        true,
                        nullptr,
                        false,
                        dx,
                        {2 - geometry.padding[0], 2 - geometry.padding[1]},
                        geometry.groups};
  Winograd(table.f32, winograd, problem).run();
}

}  // namespace gradus::openmp
