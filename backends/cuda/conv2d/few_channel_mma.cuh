// Convolutions of few input channels by half types, forward by TF32 too, on tensor cores: what the kernels of forward
// and weight gradient share, how blocks share the output and the input in shared memory. All taps (c, r, s) of a pixel
// together are one depth of at most 64; a warp gathers its fragments element by element from rows of x that the block
// has copied. A block's tile is some whole rows of y, which is channels-last and dense. While a tile is computed, the
// rows of x for the next are under way.
#pragma once

#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/cp_async.cuh>

namespace gradus::cuda_detail {

inline constexpr int kFewChannelThreads = 32 * kFewChannelWarps;
inline constexpr int kFewChannelStep = 16;  // pixels that a warp takes at a time

/// The kernels' argument: the tiles and the convolution.
struct FewChannelArgs : FewChannelTiling {
  Gather g;  // of y from x

  /// A tile: its first pixel of y, and how many there are.
  struct Tile {
    uint32_t image, row, first, count;
  };
  __device__ Tile tile_at(uint32_t index) const {
    Tile tile;
    tile.row = index;
    tile.image = tiles.split(tile.row);
    tile.row *= tile_rows;
    tile.first = (tile.image * g.out_height.divisor + tile.row) * g.out_width.divisor;
    tile.count = min(tile_rows, g.out_height.divisor - tile.row) * g.out_width.divisor;
    return tile;
  }
  /// Where the taps of a pixel of the tile begin.
  __device__ uint32_t pixel_at(uint32_t pixel, const Tile& tile) const {
    uint32_t column = pixel;
    const uint32_t row = g.out_width.split(column);
    return pixel < tile.count ? origin + row * row_step + column * column_step : zeros;
  }
  /// A tap's distance from there. Beyond the last, that of the first.
  __device__ uint32_t tap_at(uint32_t index) const {
    if (index >= g.depth) return 0;
    const Gather::Place at = g.place_of_tap(index);
    return at.outer * tap_channel + at.h * tap_row + at.w * tap_column;
  }
  /// Begins to copy the lines of a tile; finish_copies() waits for them.
  template <class T>
  __device__ void copy_lines(const Tile& tile, const T* x, char* buffer) const {
    const int first_row = static_cast<int>(tile.row) * g.step[0] + g.origin[0];
    x += tile.image * g.in.n;
    for (uint32_t i = threadIdx.x; i < lines * copies.divisor; i += kFewChannelThreads) {
      uint32_t at = i;
      const uint32_t line = copies.split(at);
      uint32_t plane = line;
      const int row = first_row + static_cast<int>(planes.split(plane));
      const bool inside = within(row, g.in_height);
      const T* const from = inside ? x + row * g.in.h + plane * g.in.c + at * (copy_bytes / sizeof(T)) : x;
      char* const to = buffer + line * pitch + front + at * copy_bytes;
      switch (copy_bytes) {
        case 16: cp_async<16>(to, from, inside); break;
        case 8: cp_async<8>(to, from, inside); break;
        case 4: cp_async<4>(to, from, inside); break;
        default: *reinterpret_cast<T*>(to) = inside ? *from : T(0.0f);
      }
    }
  }
};

/// Waits until the block's copies have arrived, and for all of its threads.
__device__ inline void finish_copies() {
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
}

/// Both buffers as they are before the first copy: zero.
__device__ inline void clear_buffers(const FewChannelArgs& args, Vec16* memory) {
  for (uint32_t i = threadIdx.x; i < 2 * args.size / sizeof(Vec16); i += kFewChannelThreads) memory[i] = {};
  __syncthreads();
}

/// The element of a pixel's window under a tap.
template <class T>
__device__ T element(const char* pixel, uint32_t tap) {
  return *reinterpret_cast<const T*>(pixel + tap);
}

}  // namespace gradus::cuda_detail
