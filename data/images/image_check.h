// What PNG and JPEG files say about themselves, and all that stb_image takes on trust. Internal to image_file.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gradus/core/io/file.h>

namespace gradus::data::detail {

/// The header of a PNG or JPEG file whose structure has been checked.
struct ImageHeader {
  int64_t width = 0, height = 0;  ///< in pixels
  int channels = 0;               ///< samples of a pixel in the file
  int bits = 8;                   ///< of a sample
  int64_t scans = 0;              ///< of a JPEG; a progressive one has several
  io::Bytes palette;              ///< red, green and blue of each colour of a PNG whose pixels are indices; else empty
};

/// Checks the chunks of a PNG file: order, checksums, a known combination of colour type and bits, the palette, and
/// that the compressed data can hold as many pixels as the header announces. What is wrong is an IoError.
ImageHeader check_png(io::ByteSpan bytes, const std::string& name);
/// The PNG whose grey values are the palette's indices in `bytes`, a PNG that check_png accepted: its header, with
/// another colour type, and its compressed data. The header's checksum stays that of the original.
io::Bytes png_of_indices(io::ByteSpan bytes);

/// Checks the segments of a JPEG file: one frame of a kind that is read, tables that are there before a scan uses them,
/// scans for every component, restart markers, and as many bits as there are blocks. What is wrong is an IoError.
ImageHeader check_jpeg(io::ByteSpan bytes, const std::string& name);

}  // namespace gradus::data::detail
