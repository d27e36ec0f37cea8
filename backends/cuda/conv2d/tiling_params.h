// Arguments of the kernels direct, few_channel_mma and direct_wgrad: how their blocks share the work, as planned.
#pragma once

#include <gradus/backends/cuda/device/divisor.h>

namespace gradus::cuda_detail {

/// ConvAlgorithm::direct. A tile is `height` lines of `strips` strips, kStrip neighbouring outputs each.
struct DirectTiling {
  uint32_t image_count = 0;
  uint32_t row_tiles = 0;          // of a thread's rows; one thread for a strip of each
  uint32_t channels = 0;           // of the input that are staged at a time
  uint32_t weight_pitch = 0;       // floats between the weights of one tap and the next
  int top = 0, left = 0;           // output (h, w) reads from input (h + top, w + left) on
  Divisor strips, height, images;  // of a tile, and images whose tiles a block makes
  Divisor columns, bands;          // of tiles in an image
  Divisor quads, lines, staged;    // staged: four inputs at a time, quads a line, lines a channel; `channels`
  bool planes = false;             // columns are innermost in the input: neighbouring threads stage them, else channels
  bool whole_strips = false;       // of the output: strips are whole, aligned and dense
  bool dense_lines = false;        // or lines are, rows innermost
  Divisor strip_rows;              // outputs of a strip, all rows

  /// Where outputs wait to be stored in lines; a pad of one lets neighbouring threads write to different banks.
  GRADUS_HOST_DEVICE uint32_t strip_pitch() const { return strip_rows.divisor + 1; }
};

/// ConvAlgorithm::few_channel_mma: the walk of blocks over the output. x is read in lines of contiguous memory: its
/// rows where channels are innermost, else the rows of each channel. In shared memory zeros are before and behind each
/// line, for padding. Sizes and steps there are in bytes.
struct FewChannelTiling {
  Divisor tiles;                           // of an image
  uint32_t tile_count = 0, tile_rows = 0;  // of all images; rows of y in a tile
  uint32_t out_height = 0;
  Divisor out_width;
  int stride = 0, padding = 0, in_height = 0;          // of rows
  int64_t x_image = 0, x_row = 0, x_plane = 0;         // strides
  Divisor planes;                                      // lines of a row
  Divisor pieces;                                      // that a line is copied in …
  uint32_t piece = 0;                                  // … of so many bytes: 16, 8, 4 or 2
  uint32_t lines = 0, pitch = 0, front = 0;            // lines of a tile, from line to line, zeros before a line
  uint32_t origin = 0, row_step = 0, column_step = 0;  // where the taps of pixel (0, 0) begin, to the next row, column
  uint32_t zeros = 0, size = 0;                        // where the taps of no pixel begin; of one of two buffers
  uint32_t taps = 0;
  Divisor kernel, kernel_width;  // tap -> (c, r, s)
  uint32_t tap_channel = 0, tap_row = 0, tap_column = 0;
};

/// ConvAlgorithm::direct: the walk of blocks over dy. A tile is some rows of one image, or some whole images. Sizes
/// are per group.
struct DirectWgradTiling {
  uint32_t images = 0, tile_images = 0, tiles = 0;  // of a tile; tiles of all images
  Divisor bands;                                    // of an image …
  Divisor band;                                     // … and rows of dy in one
  Divisor quads;                                    // four positions each, of a row
  Divisor lines;                                    // of x that the taps of a band read, of an image's channel
  uint32_t steps = 0, advance[3] = {};  // of a tile; images, rows and quads from a thread's step to its next
  uint32_t rows = 0, channels = 0, taps = 0, columns = 0;  // K, C, C R S, with the bias's column
  uint32_t channel_tiles = 0;                              // blocks that share the channels
  uint32_t out_height = 0, out_width = 0;
  int in_height = 0, padding[2] = {};
  bool interleaved = false;          // channels of x are innermost, and a block takes all of them
  uint32_t line = 0, line_bits = 0;  // elements of a line in memory; 2^line_bits threads copy one
  int64_t line_step = 0;             // from one of its elements to the next
  uint32_t pitch = 0, size = 0;      // of a line and of one of two buffers in shared memory, in floats
  uint32_t dy_image = 0, dy_channel = 0, dy_row = 0, dy_column = 0;  // strides
  Strides4 x;

  struct Tile {
    uint32_t image, row;
  };
  /// No image for a tile beyond the last.
  GRADUS_HOST_DEVICE Tile tile_at(uint32_t index) const {
    if (index >= tiles) return {images, 0};
    const uint32_t image = bands.split(index);
    return {image * tile_images, index * band.divisor};
  }
};

}  // namespace gradus::cuda_detail
