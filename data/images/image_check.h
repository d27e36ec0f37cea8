// Reads and checks the structure of PNG and JPEG files, which stb_image trusts. Used only by image_file.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gradus/core/platform/file.h>

namespace gradus::data::detail {

/// The header of a PNG or JPEG file whose structure has been checked.
struct ImageHeader {
  int64_t width = 0, height = 0;  ///< in pixels
  int channels = 0;               ///< samples per pixel in the file
  int bits = 8;                   ///< bits per sample
  int64_t scans = 0;              ///< number of scans of a JPEG; several if it is progressive
  io::Bytes palette;              ///< red, green and blue of each colour of a palette PNG, else empty
};

/// Checks the chunks of a PNG file: order, checksums, a known combination of colour type and bit depth, the palette,
/// and that the compressed data can contain as many pixels as the header states. Throws an IoError if the file is
/// damaged.
ImageHeader check_png(io::ByteSpan bytes, const std::string& name);
/// Converts a palette PNG that check_png accepted to one whose grey values are the palette indices: the header gets
/// another colour type, the compressed data remain. The header's checksum is not updated.
io::Bytes png_of_indices(io::ByteSpan bytes);

/// Checks the segments of a JPEG file: one frame of a supported kind, tables that are defined before a scan uses them,
/// scans for every component, restart markers, and at least one bit for each block. Throws an IoError if the file is
/// damaged.
ImageHeader check_jpeg(io::ByteSpan bytes, const std::string& name);

}  // namespace gradus::data::detail
