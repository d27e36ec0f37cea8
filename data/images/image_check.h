// Checks the structure of PNG and JPEG files before image_file.cpp passes them to stb_image, which trusts its input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gradus/core/platform/file.h>

namespace gradus::data::detail {

/// The header of a PNG or JPEG file whose structure has been checked.
struct ImageHeader {
  int64_t width = 0, height = 0;  ///< in pixels
  int channels = 0;               ///< values per pixel in the file: 1 for grey, 3 for RGB, …
  int bits = 8;                   ///< bits per value
  int64_t scans = 0;              ///< number of scans of a JPEG; a progressive JPEG has several
  io::Bytes palette;              ///< red, green and blue of each colour of a palette PNG; otherwise empty
};

/// Checks the chunks of a PNG file: their order and checksums, that the combination of colour type and bit depth is
/// known, the palette, and that the compressed data are large enough for the number of pixels. Throws an IoError if the
/// file is damaged. Messages call it `name`.
ImageHeader check_png(io::ByteSpan bytes, const std::string& name);
/// Converts a palette PNG that check_png has accepted to a grey PNG whose grey values are the palette indices. Only the
/// colour type in the header changes; the header's checksum is not updated, and is then wrong.
io::Bytes png_of_indices(io::ByteSpan bytes);

/// Checks the segments of a JPEG file: it has one frame of a supported kind, defines tables before a scan uses them,
/// has a scan for every component, all restart markers, and at least one bit of data for each block. Throws an IoError
/// if the file is damaged. Messages call it `name`.
ImageHeader check_jpeg(io::ByteSpan bytes, const std::string& name);

}  // namespace gradus::data::detail
