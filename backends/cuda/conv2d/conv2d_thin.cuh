// Convolutions of few input channels by half types on tensor cores, what their kernels share: the walk of blocks over
// the output and the input in shared memory. So few channels make no depth that lies contiguous: all taps (c, r, s) of
// a pixel together are one depth of at most 64, and a warp gathers its fragments element by element from rows of x that
// the block has copied. y channels-last and dense, a block's tile some whole rows of it. While a tile is computed, the
// rows of x for the next are under way.
#pragma once

#include <gradus/backends/cuda/conv2d/conv2d_weight.cuh>

namespace gradus::cuda_detail {

inline constexpr int kThinThreads = 32 * kThinWarps;
inline constexpr int kThinStep = 16;  // pixels that a warp takes at a time

/// Begins to copy kBytes to shared memory, zeros where not inside.
template <int kBytes>
__device__ void cp_async(void* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "n"(kBytes), "r"(inside ? kBytes : 0));
#endif
}

/// The walk as a kernel argument.
struct ThinWalk : ThinTiling {
  /// A tile: its first pixel of y, and how many there are.
  struct Tile {
    uint32_t image, row, first, count;
  };
  __device__ Tile tile_at(uint32_t index) const {
    Tile tile;
    tile.row = index;
    tile.image = tiles.split(tile.row);
    tile.row *= tile_rows;
    tile.first = (tile.image * out_height + tile.row) * out_width.divisor;
    tile.count = min(tile_rows, out_height - tile.row) * out_width.divisor;
    return tile;
  }
  /// Where the taps of a pixel of the tile begin.
  __device__ uint32_t pixel_at(uint32_t pixel, const Tile& tile) const {
    uint32_t column = pixel;
    const uint32_t row = out_width.split(column);
    return pixel < tile.count ? origin + row * row_step + column * column_step : zeros;
  }
  /// A tap's distance from there. Beyond the last, that of the first.
  __device__ uint32_t tap_at(uint32_t index) const {
    if (index >= taps) return 0;
    uint32_t s = index;
    const uint32_t c = kernel.split(s), r = kernel_width.split(s);
    return c * tap_channel + r * tap_row + s * tap_column;
  }
  /// Begins to copy the lines of a tile; finish_copies() waits for them.
  template <class T>
  __device__ void copy_lines(const Tile& tile, const T* x, char* buffer) const {
    const int first_row = static_cast<int>(tile.row) * stride - padding;
    x += tile.image * x_image;
    for (uint32_t i = threadIdx.x; i < lines * pieces.divisor; i += kThinThreads) {
      uint32_t at = i;
      const uint32_t line = pieces.split(at);
      uint32_t plane = line;
      const int row = first_row + static_cast<int>(planes.split(plane));
      const bool inside = within(row, in_height);
      const T* const from = inside ? x + row * x_row + plane * x_plane + at * (piece / sizeof(T)) : x;
      char* const to = buffer + line * pitch + front + at * piece;
      switch (piece) {
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
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  __syncthreads();
}

/// Both buffers as they are before the first copy: zero.
__device__ inline void clear_buffers(const ThinWalk& walk, Vec16* memory) {
  for (uint32_t i = threadIdx.x; i < 2 * walk.size / sizeof(Vec16); i += kThinThreads) memory[i] = {};
  __syncthreads();
}

template <class T>
__device__ uint32_t pair(T low, T high) {
  return static_cast<uint32_t>(low.bits) | static_cast<uint32_t>(high.bits) << 16;
}

/// The element of a pixel that a tap meets.
template <class T>
__device__ T element(const char* pixel, uint32_t tap) {
  return *reinterpret_cast<const T*>(pixel + tap);
}

}  // namespace gradus::cuda_detail
