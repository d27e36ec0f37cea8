// Reads PNG and JPEG files as arrays. Writes tensors as PNG files: a single image, or many images in a grid.
#pragma once

#include <cstdint>
#include <string>

#include <gradus/autograd/tensor.h>
#include <gradus/core/platform/file.h>

namespace gradus::data {

/// Limits of decode_image: 100 megapixels (a default) and files of 256 MiB. Each scan of a progressive JPEG processes
/// all pixels; the limit for all scans of an image together is 2,000 megapixels, which allows 20 scans of the largest
/// images. Encoders usually write about 10 scans.
inline constexpr int64_t kMostPixels = 100'000'000, kMostScannedPixels = 2'000'000'000;
inline constexpr uint64_t kMostImageBytes = uint64_t{1} << 28;

/// Decodes a PNG or JPEG file to (3, H, W) u8: red, green, blue. As Pillow's convert("RGB"), makes three equal channels
/// of a grey image, drops alpha, converts 16 bits to 8, and ignores orientation tags. Messages call the file `name`.
///
/// Throws an IoError for another kind of file, for a truncated or damaged file (PNG checksums, palette indices and JPEG
/// tables are checked), and for more than `most_pixels` pixels. Before it allocates memory for the pixels, checks that
/// the compressed data are large enough for them; decompresses a PNG to at most twice the size that its header implies.
/// JPEGs may be baseline or progressive with 8 bits: grey, YCbCr, RGB, or CMYK and YCCK with Adobe's marker. If the
/// data of a JPEG end within a scan but the end marker is intact, the missing part is grey, as in libjpeg.
Array decode_image(io::ByteSpan bytes, const std::string& name, int64_t most_pixels = kMostPixels);
/// Reads and decodes a file.
Array read_image(const std::string& path);
/// Converts bytes 0 … 255 to float32 in [0, 1].
Tensor unit_floats(const Array& bytes);

// Functions for writing, with the names of torchvision.utils.

/// Arranges images (N, C, H, W) or (N, H, W) in rows of `nrow` images, with `padding` pixels of `pad_value` around each
/// image. Returns one image (C, …, …) of the same type. No images, an nrow below 1 and a negative padding are a
/// ValueError, other shapes a ShapeError.
Tensor make_grid(const Tensor& images, int64_t nrow = 8, int64_t padding = 2, double pad_value = 0);

/// Encodes an image as PNG. Its shape is (H, W) for grey, or (C, H, W) with C = 1 (grey), 3 (red, green, blue) or 4
/// (with alpha). Bytes are used unchanged; floating-point values are multiplied by 255, rounded and clamped to 0 … 255.
/// Other shapes are a ShapeError, other types a DTypeError.
io::Bytes encode_image(const Tensor& image);

/// Writes a PNG file of an image or, for several images (N, C, H, W), of their make_grid. If this fails, an existing
/// file remains intact.
void save_image(const Tensor& images, const std::string& path, int64_t nrow = 8, int64_t padding = 2,
                double pad_value = 0);

namespace detail {
// image_check.cpp checks the structure of PNG and JPEG files before image_file.cpp passes them to stb_image, which
// trusts its input.

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
/// colour type in the header changes; the header's checksum, which stb_image does not check, is then wrong.
io::Bytes png_of_indices(io::ByteSpan bytes);

/// Checks the segments of a JPEG file: it has one frame of a supported kind, defines tables before a scan uses them,
/// has a scan for every component, all restart markers, and at least one bit of data for each block. Throws an IoError
/// if the file is damaged. Messages call it `name`.
ImageHeader check_jpeg(io::ByteSpan bytes, const std::string& name);

}  // namespace detail
}  // namespace gradus::data
