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

// Images [n, n_end), rows of tiles [row, row_end), tiles of filters [filter, filter_end).
struct Part {
  int64_t n, n_end, row, row_end, filter, filter_end;
  int64_t tile_rows() const { return (n_end - n) * (row_end - row); }
};

class Winograd {
 public:
  Winograd(const WinogradTiles& tiles, const ConvOperands<float>& operands)
      : t_(tiles), o_(operands), kernels_(o_.kernels()),
        winograd_(tiles.tile == 2 ? o_.table.winograd_2x2 : o_.table.winograd_4x4), x_(o_.x), y_(o_.y),
        channels_(o_.channels()), filters_(o_.filters()), width_(kernels_.tile_columns), source_(kernels_, x_, o_.mask),
        target_(kernels_, y_), filter_tiles_(filter_tiles(o_.geometry.groups, filters_, width_)) {
    for (int axis = 0; axis < 2; ++axis)
      padding_[axis] = o_.backward ? 2 - o_.geometry.padding[axis] : o_.geometry.padding[axis];
  }

  void run() const {
    const Scratch<float> kept(t_.keeps_u ? filter_tile_count() * t_.u_size : 0);
    if (t_.keeps_u) transform_all_weights(kept.get());
    parallel_for(t_.parts[0] * t_.parts[1] * t_.parts[2], 1, [&](int64_t begin, int64_t end) {
      const Scratch<float> in(t_.in_size), out(t_.out_size), v(t_.v_size);
      const Scratch<float> u(t_.keeps_u ? 0 : t_.u_size), m(t_.m_size);
      for (int64_t i = begin; i < end; ++i) run(part_at(i), kept.get(), in.get(), out.get(), v.get(), u.get(), m.get());
    });
  }

 private:
  // V and U have a vector more than they need, so that positions at powers of two do not share sets of a cache.
  int64_t v_position(int64_t tiles) const { return tiles * t_.v_step + kernels_.vector_size; }
  int64_t m_position(int64_t tiles) const { return tiles * width_ + kernels_.vector_size; }
  int64_t filter_tile_count() const { return static_cast<int64_t>(filter_tiles_.size()); }
  const FilterTile& filter_tile(int64_t i) const { return filter_tiles_[static_cast<size_t>(i)]; }
  int64_t first_channel(const FilterTile& tile) const { return tile.g * filters_ + tile.begin; }

  Part part_at(int64_t i) const {
    const int64_t filter = i % t_.parts[2] * t_.part_filter_tiles, row = i / t_.parts[2] % t_.parts[1] * t_.part_rows;
    const int64_t n = i / t_.parts[2] / t_.parts[1] * t_.part_images;
    return {n,      std::min(n + t_.part_images, y_.N),
            row,    std::min(row + t_.part_rows, t_.rows),
            filter, std::min(filter + t_.part_filter_tiles, filter_tile_count())};
  }

  void transform_all_weights(float* u) const {
    parallel_for(filter_tile_count() * t_.packing_pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t tile = i / t_.packing_pieces, c = i % t_.packing_pieces * t_.packed_channels;
        transform_weights(filter_tile(tile), std::min(c, channels_), std::min(c + t_.packed_channels, channels_),
                          u + tile * t_.u_size);
      }
    });
  }

  // U of channels [begin, end) for one tile of filters.
  void transform_weights(const FilterTile& tile, int64_t begin, int64_t end, float* u) const {
    const Scratch<float> taps(t_.taps_size);  // (channel, tap, filter)
    if (tile.width < width_) std::fill_n(taps.get(), t_.taps_size, 0.0f);
    for (int64_t c = begin; c < end; c += kWinogradChannelsAtOnce) {
      const int64_t count = std::min(end - c, kWinogradChannelsAtOnce);
      const int64_t k_stride = o_.filter_stride(), c_stride = o_.channel_stride();
      const float* from = o_.w.data + tile.g * o_.group_stride() + tile.begin * k_stride + c * c_stride;
      if (c_stride == 9) kernels_.transpose(from, k_stride, tile.width, count * 9, taps.get(), width_);
      else
        for (int64_t i = 0; i < count; ++i)
          kernels_.transpose(from + i * c_stride, k_stride, tile.width, 9, taps.get() + i * 9 * width_, width_);
      winograd_.weights({.channels = count,
                         .taps = taps.get() + (o_.backward ? 8 * width_ : 0),
                         .tap_step = o_.backward ? -width_ : width_,
                         .to = u + c * width_,
                         .position_step = t_.u_position});
    }
  }

  // V of group g.
  void transform_input(const Part& part, const Pixels<const float>& pixels, int64_t g, float* v) const {
    WinogradInputArgs args{.tiles = t_.columns,
                           .channels = channels_,
                           .rows = {},
                           .pixel_step = pixels.step[2],
                           .columns = x_.W,
                           .padding = padding_[1],
                           .to = v,
                           .tile_step = t_.v_step,
                           .position_step = v_position(part.tile_rows() * t_.columns)};
    for (int64_t n = part.n; n < part.n_end; ++n)
      for (int64_t row = part.row; row < part.row_end; ++row, args.to += t_.columns * t_.v_step) {
        for (int64_t i = 0; i < t_.tile + 2; ++i) {
          const int64_t h = row * t_.tile - padding_[0] + i;
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
    block.a_row_stride = t_.v_step, block.a_step = 1;
    block.b_row_stride = width_;
    block.b_tile_step = 0;
    block.c_row_stride = width_;
    for (int64_t c = 0; c < channels_; c += t_.depth) {
      block.depth = std::min(channels_ - c, t_.depth);
      block.accumulate = c > 0;
      for (int64_t i = 0; i < winograd_.positions; ++i) {
        block.a = v + i * v_position(tiles) + c;
        block.b = u + i * t_.u_position + c * width_;
        block.c = m + i * m_position(tiles);
        kernels_.block(block);
      }
    }
  }

  // `to` has the channels from `channel` on.
  void transform_output(const Part& part, const FilterTile& tile, const float* m, const Pixels<float>& to,
                        int64_t channel) const {
    WinogradOutputArgs args{.tiles = t_.columns,
                            .channels = tile.width,
                            .from = m,
                            .tile_step = width_,
                            .position_step = m_position(part.tile_rows() * t_.columns),
                            .to = nullptr,
                            .rows = 0,
                            .columns = y_.W,
                            .row_step = to.step[1],
                            .pixel_step = to.step[2],
                            .bias = o_.bias ? o_.bias + first_channel(tile) : nullptr,
                            .relu = o_.relu};
    for (int64_t n = part.n; n < part.n_end; ++n)
      for (int64_t row = part.row; row < part.row_end; ++row, args.from += t_.columns * width_) {
        args.to = to.at(n, row * t_.tile, 0) + first_channel(tile) - channel;
        args.rows = y_.H - row * t_.tile;
        winograd_.output(args);
      }
  }

  void run(const Part& part, const float* kept_u, float* in, float* out, float* v, float* u, float* m) const {
    const int64_t top = part.row * t_.tile - padding_[0], bottom = part.row_end * t_.tile - padding_[0] + 2;
    const int64_t first_row = std::clamp<int64_t>(top, 0, x_.H);
    const Pixels<const float> from =
        source_.load({part.n, part.n_end, first_row, std::clamp<int64_t>(bottom, first_row, x_.H), 0, x_.C}, in);
    const FilterTile &first = filter_tile(part.filter), &last = filter_tile(part.filter_end - 1);
    const ImagePart written{part.n,
                            part.n_end,
                            part.row * t_.tile,
                            std::min(part.row_end * t_.tile, y_.H),
                            first_channel(first),
                            first_channel(last) + last.width};
    const Pixels<float> to = target_.pixels(written, out);
    for (int64_t i = part.filter; i < part.filter_end; ++i) {
      const FilterTile& tile = filter_tile(i);
      if (i == part.filter || tile.g != filter_tile(i - 1).g) transform_input(part, from, tile.g, v);
      if (!t_.keeps_u) transform_weights(tile, 0, channels_, u);
      multiply(part.tile_rows() * t_.columns, v, t_.keeps_u ? kept_u + i * t_.u_size : u, m,
               round_up(tile.width, kernels_.vector_size));
      transform_output(part, tile, m, to, written.channel);
    }
    target_.store(written, out);
  }

  const WinogradTiles& t_;
  const ConvOperands<float>& o_;
  const Kernels<float>& kernels_;
  const WinogradKernels& winograd_;
  const Images<const float>& x_;
  const Images<float>& y_;
  const int64_t channels_, filters_;  // in a group
  const int64_t width_;               // of a register tile
  const NhwcSource<float> source_;
  const NhwcTarget<float> target_;
  const std::vector<FilterTile> filter_tiles_;
  int64_t padding_[2];
};

}  // namespace

void run(const WinogradTiles& tiles, const ConvOperands<float>& o) { Winograd(tiles, o).run(); }

}  // namespace gradus::openmp_detail
