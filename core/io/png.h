// Writing PNG files, for pages and logs that show numbers as pictures. Format: W3C, "Portable Network Graphics", 2003.
#pragma once

#include <cstdint>

#include <gradus/core/platform/file.h>

namespace gradus::io {

/// Returns a PNG file of `height` rows of `width` pixels with `channels` bytes each, row by row: 1 grey, 2 grey and
/// alpha, 3 RGB, 4 RGB and alpha. Throws a ValueError for other numbers of channels, no pixels, or too few bytes.
Bytes encode_png(ByteSpan pixels, int64_t height, int64_t width, int64_t channels);

}  // namespace gradus::io
