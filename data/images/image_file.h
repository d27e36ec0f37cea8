// PNG and JPEG files as arrays.
#pragma once

#include <string>

#include <gradus/autograd/tensor.h>
#include <gradus/core/io/file.h>

namespace gradus::data {

/// What decode_image accepts unless told otherwise: a hundred megapixels, and files of 256 MiB; of progressive JPEGs as
/// many scans as pass over two thousand megapixels (20 of the largest images; encoders make about 10).
inline constexpr int64_t kMostPixels = 100'000'000, kMostScannedPixels = 2'000'000'000;
inline constexpr uint64_t kMostImageBytes = uint64_t{1} << 28;

/// The image in a PNG or JPEG file as (3, H, W) u8: red, green, blue. Grey becomes three equal channels, alpha is left
/// out, 16 bits become 8; orientation tags are not looked at (all as Pillow's convert("RGB") has it). `name` stands for
/// the file in messages. A file of another kind, a truncated or damaged one (PNG checksums are verified, palette
/// indices and JPEG tables must be there), or more than `most_pixels` pixels are an IoError; the size is checked before
/// anything is allocated for it, also against what the compressed data can hold, and a PNG is unpacked to no more than
/// twice its size. JPEGs are baseline or progressive, of 8 bits: grey, YCbCr, RGB, or CMYK and YCCK with Adobe's
/// marker. A JPEG whose data end within a scan, but with a whole end marker, has grey where they are missing, as in
/// libjpeg.
Array decode_image(io::ByteSpan bytes, const std::string& name, int64_t most_pixels = kMostPixels);
/// The same from a file.
Array read_image(const std::string& path);
/// Bytes 0 … 255 as float32 in [0, 1].
Tensor unit_floats(const Array& bytes);

}  // namespace gradus::data
