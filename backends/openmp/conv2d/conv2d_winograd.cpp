// A convolution by Winograd's algorithm, part by part of its tiles: transform what they read (V), multiply it position
// by position with the transformed weights (U), and transform the products (M) back into the result:
//   M[position] (tiles, filters) = V[position] (tiles, channels) U[position] (channels, filters)
// The gradient of the image is the convolution of dy with the weights turned by half a circle.
//
// The threads share out parts, cut by shape alone: some images or a band of their rows, and some of the filters. One
// register tile of filters after the other is multiplied with all tiles of the part, so that M is small.
#include <vector>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/conv2d/nhwc.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp_detail {
namespace {

using Part = OutputParts::Part;

class Winograd {
 public:
  Winograd(const WinogradTiles& tiles, const ConvOperands<float>& operands)
      : t_(tiles), o_(operands), kernels_(o_.kernels()),
        winograd_(tiles.tile == 2 ? o_.table.winograd_2x2 : o_.table.winograd_4x4), x_(o_.x), y_(o_.y),
        channels_(o_.channels()), width_(kernels_.tile_columns), source_(kernels_, x_, o_.mask), target_(kernels_, y_),
        filter_tiles_(o_.geometry, x_, y_, width_, false) {
    for (int axis = 0; axis < 2; ++axis)
      padding_[axis] = o_.backward ? 2 - o_.geometry.padding[axis] : o_.geometry.padding[axis];
  }

  void run() const {
    const Scratch<float> kept(t_.keeps_u ? filter_tiles_.count() * t_.u_size : 0);
    if (t_.keeps_u) transform_all_weights(kept.get());
    const int64_t u_size = t_.keeps_u ? 0 : slot_size(t_.u_size), taps_size = t_.keeps_u ? 0 : t_.taps_size;
    const int64_t size = t_.in_size + t_.out_size + t_.v_size + t_.m_size + u_size + taps_size;
    parallel_each<float>(t_.parts, 1, size, [&](int64_t i, float* in) {
      float *const out = in + t_.in_size, *const v = out + t_.out_size, *const m = v + t_.v_size;
      float *const u = m + t_.m_size, *const taps = u + u_size;
      run(t_.part(i, y_.N, t_.tile_rows, filter_tiles_.count()), kept.get(), in, out, v, u, m, taps);
    });
  }

 private:
  void transform_all_weights(float* u) const {
    const int64_t channel_blocks = ceil_div(channels_, kPackedChannels);
    parallel_each<float>(filter_tiles_.count() * channel_blocks, 1, t_.taps_size, [&](int64_t i, float* taps) {
      transform_weights(i / channel_blocks, i % channel_blocks * kPackedChannels, u + i / channel_blocks * t_.u_size,
                        taps);
    });
  }

  // U of a tile of filters, for channels from `c` on.
  void transform_weights(int64_t tile, int64_t c, float* u, float* taps) const {
    const int64_t count = std::min(channels_ - c, kPackedChannels);
    o_.weights_by_channel(filter_tiles_, tile, c, count, taps);
    winograd_.weights({.channels = count,
                       .taps = taps + (o_.backward ? 8 * width_ : 0),
                       .tap_step = o_.backward ? -width_ : width_,
                       .to = u + c * width_,
                       .position_step = t_.u_position});
  }

  // V of group g.
  void transform_input(const Part& part, const Pixels<const float>& pixels, int64_t g, float* v) const {
    WinogradInputArgs args{.tiles = t_.tile_columns,
                           .channels = channels_,
                           .rows = {},
                           .pixel_step = pixels.step[2],
                           .columns = x_.W,
                           .padding = padding_[1],
                           .to = v,
                           .tile_step = t_.v_step,
                           .position_step = t_.v_position};
    for (int64_t n = part.n; n < part.n_end; ++n)
      for (int64_t row = part.row; row < part.row_end; ++row, args.to += t_.tile_columns * t_.v_step) {
        for (int64_t i = 0; i < t_.tile + 2; ++i) {
          const int64_t h = row * t_.tile - padding_[0] + i;
          args.rows[i] = h >= 0 && h < x_.H ? pixels.at(n, h, 0) + g * channels_ : nullptr;
        }
        winograd_.input(args);
      }
  }

  // M of one tile of filters.
  void multiply(const Part& part, const float* v, const float* u, float* m, int64_t columns) const {
    const int64_t tiles = (part.n_end - part.n) * (part.row_end - part.row) * t_.tile_columns;
    for (int64_t c = 0; c < channels_; c += t_.depth)
      for (int64_t i = 0; i < t_.positions; ++i)
        kernels_.block({.rows = tiles,
                        .columns = columns,
                        .depth = std::min(channels_ - c, t_.depth),
                        .a = v + i * t_.v_position + c,
                        .a_step = 1,
                        .a_row_stride = t_.v_step,
                        .b = u + i * t_.u_position + c * width_,
                        .b_row_stride = width_,
                        .b_tile_step = 0,
                        .c = m + i * t_.m_position,
                        .c_row_stride = width_,
                        .accumulate = c > 0});
  }

  // `to` has the channels from `channel` on.
  void transform_output(const Part& part, int64_t tile, const float* m, const Pixels<float>& to,
                        int64_t channel) const {
    WinogradOutputArgs args{.tiles = t_.tile_columns,
                            .channels = filter_tiles_.columns(tile),
                            .from = m,
                            .tile_step = width_,
                            .position_step = t_.m_position,
                            .to = nullptr,
                            .rows = 0,
                            .columns = y_.W,
                            .row_step = to.step[1],
                            .pixel_step = to.step[2],
                            .bias = o_.bias ? o_.bias + filter_tiles_.first(tile) : nullptr,
                            .relu = o_.relu};
    for (int64_t n = part.n; n < part.n_end; ++n)
      for (int64_t row = part.row; row < part.row_end; ++row, args.from += t_.tile_columns * width_) {
        args.to = to.at(n, row * t_.tile, 0) + filter_tiles_.first(tile) - channel;
        args.rows = y_.H - row * t_.tile;
        winograd_.output(args);
      }
  }

  void run(const Part& part, const float* kept_u, float* in, float* out, float* v, float* u, float* m,
           float* taps) const {
    const int64_t top = part.row * t_.tile - padding_[0], bottom = part.row_end * t_.tile - padding_[0] + 2;
    const Pixels<const float> from = source_.load(rows_of(x_, part.n, part.n_end, top, bottom), in);
    const ImagePart written{part.n,
                            part.n_end,
                            part.row * t_.tile,
                            std::min(part.row_end * t_.tile, y_.H),
                            filter_tiles_.first(part.tile),
                            filter_tiles_.end(part.tile_end - 1)};
    const Pixels<float> to = target_.pixels(written, out);
    for (int64_t i = part.tile; i < part.tile_end; ++i) {
      const int64_t group = filter_tiles_.group(i);
      if (i == part.tile || group != filter_tiles_.group(i - 1)) transform_input(part, from, group, v);
      for (int64_t c = 0; !t_.keeps_u && c < channels_; c += kPackedChannels) transform_weights(i, c, u, taps);
      multiply(part, v, t_.keeps_u ? kept_u + i * t_.u_size : u, m,
               round_up(filter_tiles_.columns(i), kernels_.vector_size));
      transform_output(part, i, m, to, written.channel);
    }
    target_.store(written, out);
  }

  const WinogradTiles& t_;
  const ConvOperands<float>& o_;
  const Kernels<float>& kernels_;
  const WinogradKernels& winograd_;
  const Images<const float>& x_;
  const Images<float>& y_;
  const int64_t channels_;  // in a group
  const int64_t width_;     // of a register tile
  const NhwcSource<float> source_;
  const NhwcTarget<float> target_;
  const FilterTiles filter_tiles_;
  int64_t padding_[2];
};

}  // namespace

void run(const WinogradTiles& tiles, const ConvOperands<float>& o) { Winograd(tiles, o).run(); }

}  // namespace gradus::openmp_detail
