// Reads PNG and JPEG files as arrays.
#pragma once

#include <string>

#include <gradus/autograd/tensor.h>
#include <gradus/core/platform/file.h>

namespace gradus::data {

/// Default limits of decode_image: a hundred megapixels, and files of 256 MiB. The scans of a progressive JPEG may
/// process at most two thousand megapixels in total, which is 20 scans of the largest images; encoders make about 10.
inline constexpr int64_t kMostPixels = 100'000'000, kMostScannedPixels = 2'000'000'000;
inline constexpr uint64_t kMostImageBytes = uint64_t{1} << 28;

/// Decodes a PNG or JPEG file to (3, H, W) u8: red, green, blue. Grey becomes three equal channels, alpha is dropped,
/// 16 bits become 8, and orientation tags are ignored, as in Pillow's convert("RGB"). `name` names the file in
/// messages.
///
/// Throws an IoError for another kind of file, for a truncated or damaged file (PNG checksums are verified, and palette
/// indices and JPEG tables must be valid), and for more than `most_pixels` pixels. The size is checked before memory is
/// allocated, also against the amount of compressed data, and a PNG is decompressed to at most twice its size. JPEGs
/// may be baseline or progressive with 8 bits: grey, YCbCr, RGB, or CMYK and YCCK with Adobe's marker. If the data of a
/// JPEG end within a scan but the end marker is intact, the missing part is grey, as in libjpeg.
Array decode_image(io::ByteSpan bytes, const std::string& name, int64_t most_pixels = kMostPixels);
/// Reads and decodes a file.
Array read_image(const std::string& path);
/// Converts bytes 0 … 255 to float32 in [0, 1].
Tensor unit_floats(const Array& bytes);

}  // namespace gradus::data
