// The weights' gradient of 3x3 and 5x5 kernels whose taps meet few channels or few filters: the walk of blocks over dy,
// which conv2d_weight_sliding.cu makes. A tile is some rows of one image, or some whole images.
#pragma once

#include <gradus/backends/cuda/conv2d/conv2d_weight.cuh>

namespace gradus::cuda_detail {

/// The walk as a kernel argument. Sizes are per group.
struct SlidingWalk {
  uint32_t images, tile_images, tiles, parts;  // tiles of all images, blocks that share them
  Divisor bands;                               // of an image …
  Divisor band;                                // … and rows of dy in one
  Divisor quads;                               // four positions each, of a row
  Divisor lines;                               // of x that the taps of a band meet, of an image's channel
  uint32_t steps, advance[3];                  // of a tile; images, rows and quads from a thread's step to its next
  uint32_t rows, channels, taps, columns;      // K, C, C R S, with the bias's column
  uint32_t channel_tiles;                      // blocks that share the channels
  uint32_t side;                               // R and S
  uint32_t out_height, out_width;
  int in_height, padding[2];
  bool interleaved;                                  // channels of x lie innermost, and a block takes all of them
  uint32_t line, line_bits;                          // elements of a line in memory; 2^line_bits threads copy one
  int64_t line_step;                                 // from one of its elements to the next
  uint32_t pitch, size;                              // of a line and of a buffer in shared memory, in floats
  uint32_t dy_image, dy_channel, dy_row, dy_column;  // strides
  Strides4 x;

  struct Tile {
    uint32_t image, row;
  };
  /// No image for a tile beyond the last.
  __device__ Tile tile_at(uint32_t index) const {
    if (index >= tiles) return {images, 0};
    const uint32_t image = bands.split(index);
    return {image * tile_images, index * band.divisor};
  }
};

}  // namespace gradus::cuda_detail
