// Reads PNG and JPEG files as arrays, and writes tensors as PNG files: one image, or many in a grid.
#pragma once

#include <cstdint>
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

// Writing, with the names of torchvision.utils.

/// Arranges images (N, C, H, W) or (N, H, W) in rows of `nrow`, with `padding` pixels of `pad_value` around each, to
/// one image (C, …, …) of the same type. No images, nrow below 1 or negative padding are a ValueError, other shapes a
/// ShapeError.
Tensor make_grid(const Tensor& images, int64_t nrow = 8, int64_t padding = 2, double pad_value = 0);

/// Encodes an image as PNG: (C, H, W) with C = 1 (grey), 3 (red, green, blue) or 4 (with alpha), or (H, W), grey. Bytes
/// are used unchanged; floating-point values in [0, 1] are clamped, multiplied by 255 and rounded. Other shapes are a
/// ShapeError, other types a DTypeError.
io::Bytes encode_image(const Tensor& image);

/// Writes a PNG file, of the grid of make_grid for several images (N, C, H, W). If this fails, an existing file remains
/// intact.
void save_image(const Tensor& images, const std::string& path, int64_t nrow = 8, int64_t padding = 2,
                double pad_value = 0);

}  // namespace gradus::data
