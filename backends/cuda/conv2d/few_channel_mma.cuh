// Convolutions of few input channels on tensor cores, half types (fprop: also TF32): what fprop and wgrad share.
// All taps (c, r, s) of a pixel, at most 64, are together the depth of fprop's implicit GEMM, or wgrad's columns.
// Tile: whole rows of y, which is channels-last and dense. A block copies the rows of x that a tile reads into shared
// memory; its warps load their fragments from there, element by element.
// Pipeline: while a tile is computed, the rows of x for the next tile are copied.
#pragma once

#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/cp_async.cuh>

namespace gradus::cuda_detail {

inline constexpr int kFewChannelThreads = 32 * kFewChannelWarps;
inline constexpr int kFewChannelStep = 16;  // pixels that a warp multiplies at a time

/// The argument of the kernels: the tiles and the convolution.
struct FewChannelArgs : FewChannelTiling {
  ImplicitGemm g;  // y from x

  /// A tile: its image, its first row and first pixel of y, and its number of pixels.
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
  /// Where the taps of a pixel of the tile begin, in bytes from the beginning of a buffer.
  __device__ uint32_t pixel_at(uint32_t pixel, const Tile& tile) const {
    uint32_t column = pixel;
    const uint32_t row = g.out_width.split(column);
    return pixel < tile.count ? origin + row * row_step + column * column_step : zeros;
  }
  /// The distance of a tap from pixel_at(); beyond the last tap, that of the first.
  __device__ uint32_t tap_at(uint32_t index) const {
    if (index >= g.depth) return 0;
    const ImplicitGemm::Place at = g.place_of_tap(index);
    return at.outer * tap_channel + at.h * tap_row + at.w * tap_column;
  }
  /// Starts to copy the lines of x that a tile reads; finish_copies() waits for them.
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

/// Waits until the copies of all threads of the block have arrived.
__device__ inline void finish_copies() {
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
}

/// Sets both buffers to zero. Copies never overwrite the zeros between the lines, which are the padding.
__device__ inline void clear_buffers(const FewChannelArgs& args, Vec16* memory) {
  for (uint32_t i = threadIdx.x; i < 2 * args.size / sizeof(Vec16); i += kFewChannelThreads) memory[i] = {};
  __syncthreads();
}

/// The element that a tap reads for a pixel.
template <class T>
__device__ T element(const char* pixel, uint32_t tap) {
  return *reinterpret_cast<const T*>(pixel + tap);
}

}  // namespace gradus::cuda_detail
