// What the kernels of Winograd convolutions (winograd_kernel.h) offer, one set for tiles of 2x2 results and one for
// 4x4. A tile of m x m results reads n x n pixels, n = m + 2, and its transform has n * n elements, `positions`.
// Kernels go through rows of neighbouring tiles with vectors of channels; where a position's matrix (tiles, channels)
// is, is the caller's choice. Nothing in here generates code.
#pragma once

#include <cstdint>

namespace gradus::openmp_detail {

constexpr int kMostWinogradPixels = 6;  // n

/// A row of tiles read from an image: to[position * position_step + tile * tile_step + c] for c < channels, filled up
/// with zeros to whole vectors.
struct WinogradInputArgs {
  int64_t tiles, channels;
  const float* rows[kMostWinogradPixels];  ///< the n rows of the image that the tiles read; null: outside
  int64_t pixel_step, columns;             ///< between neighbouring pixels of a row, and how many it has
  int64_t padding;                         ///< columns that the first tile reads before column 0
  float* to;
  int64_t tile_step, position_step;
};

/// A row of tiles of results from their transforms: y[row * row_step + column * pixel_step + k] for k < channels, row <
/// rows (at most m), column < columns (at most m * tiles), plus bias (null: none), then max(., 0) if asked.
struct WinogradOutputArgs {
  int64_t tiles, channels;
  const float* from;
  int64_t tile_step, position_step;
  float* to;
  int64_t rows, columns, row_step, pixel_step;
  const float* bias;
  bool relu;
};

/// The weights of `channels` input channels and tile_columns (of Kernels) filters: tap t of channel c starts at taps +
/// c * 9 * tile_columns + t * tap_step, its transform at to + position * position_step + c * tile_columns.
struct WinogradWeightArgs {
  int64_t channels;
  const float* taps;
  int64_t tap_step;
  float* to;
  int64_t position_step;
};

struct WinogradKernels {
  void (*input)(const WinogradInputArgs&);
  void (*output)(const WinogradOutputArgs&);
  void (*weights)(const WinogradWeightArgs&);
};

}  // namespace gradus::openmp_detail
