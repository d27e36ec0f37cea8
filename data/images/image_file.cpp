#include <gradus/data/images/image_file.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include <gradus/autograd/autograd.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/io/file_kind.h>
#include <gradus/core/io/png.h>

namespace {

// Limits for the memory that stb_image allocates on this thread: for a single allocation, and for a buffer that grows.
// Without them, a PNG of a few bytes could decompress to gigabytes.
thread_local size_t allocation_limit = 0, growth_limit = 0;
thread_local bool growth_refused = false;

// Returns zeroed memory, because older releases of stb_image may read Huffman tables that the file does not define.
void* limited_malloc(size_t bytes) { return bytes <= allocation_limit ? std::calloc(bytes, 1) : nullptr; }
void* limited_realloc(void* memory, size_t bytes) {
  growth_refused |= bytes > growth_limit;
  return growth_refused ? nullptr : std::realloc(memory, bytes);
}

}  // namespace

// Doubles the width of a row of chroma values. As in libjpeg, each new value is 3/4 of the nearest old value plus 1/4
// of the neighbour on the other side, alternately rounded down and up. This function replaces the function of the same
// name in stb_image.h, which swaps the weights at the next-to-last value. The function-like macro below renames the
// definition in stb_image.h, because a parenthesis follows the name there. Where stb_image.h takes the function's
// address, no parenthesis follows, so it gets the address of this function.
// NOLINTBEGIN(bugprone-reserved-identifier)
static unsigned char* stbi__resample_row_h_2(unsigned char* out, unsigned char* near, unsigned char*, int w, int) {
  for (int i = 0; i < w; ++i) {
    const int before = near[std::max(i - 1, 0)], after = near[std::min(i + 1, w - 1)];
    out[2 * i] = static_cast<unsigned char>((3 * near[i] + before + 1) / 4);
    out[2 * i + 1] = static_cast<unsigned char>((3 * near[i] + after + 2) / 4);
  }
  return out;
}
#define stbi__resample_row_h_2(out, near, far, w, hs) stb_resample_row_h_2(out, near, far, w, hs)
// NOLINTEND(bugprone-reserved-identifier)

// stb_image (Sean Barrett, public domain) is compiled only here. CMakeLists.txt compiles this file with -fwrapv,
// because damaged JPEGs make the arithmetic of stb_image overflow. At the end of the data, older releases may also
// shift a zero by more than 31 bits, so CMakeLists.txt disables this check of UBSan.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_NO_STDIO
#define STBI_MALLOC(bytes) limited_malloc(bytes)
#define STBI_REALLOC(memory, bytes) limited_realloc(memory, bytes)
#define STBI_FREE(memory) std::free(memory)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image.h>
#pragma GCC diagnostic pop
#undef stbi__resample_row_h_2

namespace gradus::data {
namespace {

// Returns an image (3, H, W). color_of(i) points to the red, green and blue of pixel i.
template <class ColorOf>
Array planes_of(const detail::ImageHeader& header, const ColorOf& color_of) {
  const Array image = Array::empty({3, header.height, header.width}, DType::u8);
  const int64_t count = header.height * header.width;
  uint8_t* const to = image.data<uint8_t>();
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* const color = color_of(i);
    for (int64_t c = 0; c < 3; ++c) to[c * count + i] = color[c];
  }
  return image;
}

}  // namespace

Array decode_image(io::ByteSpan bytes, const std::string& name, int64_t most_pixels) {
  GRADUS_CHECK(bytes.size() <= kMostImageBytes, IoError, "'", name, "' has ", bytes.size(),
               " bytes; images have at most ", kMostImageBytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const bool is_png = text.starts_with("\x89PNG\r\n\x1a\n");
  GRADUS_CHECK(is_png || text.starts_with("\xff\xd8\xff"), IoError, "'", name, "' is neither a PNG nor a JPEG file",
               io::described(bytes));
  const detail::ImageHeader header = is_png ? detail::check_png(bytes, name) : detail::check_jpeg(bytes, name);
  const int64_t pixels = header.width * header.height;
  GRADUS_CHECK(pixels <= most_pixels, IoError, "'", name, "' has a size of ", header.width, "x", header.height,
               " pixels; at most ", most_pixels, " pixels are read");
  // Each scan of a progressive JPEG costs time for all pixels, even if it contains almost no data.
  GRADUS_CHECK(header.scans <= kMostScannedPixels / pixels, IoError, "'", name, "' has ", header.scans, " scans of ",
               header.width, "x", header.height, " pixels; at most ", kMostScannedPixels / pixels,
               " scans of this size are read");
  // This is enough for each buffer of a valid file. Blocks of a JPEG may extend beyond the image's border by fewer than
  // 64 pixels, and 32 bytes for each pixel are more than any buffer needs.
  const size_t columns = static_cast<size_t>(header.width), rows = static_cast<size_t>(header.height);
  allocation_limit = (size_t{1} << 20) + 32 * (columns + 64) * (rows + 64);
  // The buffers that grow hold the compressed data of a PNG, or its decompressed rows, each of which begins with a
  // filter byte. stb_image doubles such a buffer when it is full, hence the factor of 2.
  const size_t row_bits = columns * static_cast<size_t>(header.channels * header.bits);
  const size_t rows_bytes = (std::max(row_bits / 8, columns) + 1) * rows;
  growth_limit = (size_t{1} << 20) + 2 * std::max(rows_bytes, bytes.size());
  growth_refused = false;

  const bool has_palette = !header.palette.empty();
  const io::Bytes indices = has_palette ? detail::png_of_indices(bytes) : io::Bytes();
  const io::ByteSpan file = has_palette ? io::ByteSpan(indices) : bytes;
  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> decoded(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(file.data()), static_cast<int>(file.size()), &width,
                            &height, &channels, has_palette ? 1 : 3),
      stbi_image_free);
  GRADUS_CHECK(!growth_refused, IoError, "'", name, "' is a damaged PNG file: it unpacks to far more than the ",
               rows_bytes, " bytes of ", header.width, "x", header.height, " pixels");
  GRADUS_CHECK(decoded && width == header.width && height == header.height, IoError, "cannot decode '", name,
               "': ", stbi_failure_reason() ? stbi_failure_reason() : "unknown reason");
  const uint8_t* const values = decoded.get();
  if (!has_palette) return planes_of(header, [&](int64_t i) { return values + 3 * i; });
  // stb_image has decoded the palette's indices as grey values, and scaled them from the header's bits to 0 … 255.
  const int step = header.bits < 8 ? 255 / ((1 << header.bits) - 1) : 1;
  const size_t colors = header.palette.size() / 3;
  return planes_of(header, [&](int64_t i) {
    const size_t index = static_cast<size_t>(values[i] / step);
    GRADUS_CHECK(index < colors, IoError, "'", name, "' is a damaged PNG file: pixel (", i % header.width, ", ",
                 i / header.width, ") has colour ", index, " of a palette of ", colors);
    return reinterpret_cast<const uint8_t*>(&header.palette[3 * index]);
  });
}

Array read_image(const std::string& path) { return decode_image(io::read_file(path, kMostImageBytes), path); }

Tensor unit_floats(const Array& bytes) {
  const Array floats = Array::empty(bytes.shape());
  std::transform(bytes.data<uint8_t>(), bytes.data<uint8_t>() + bytes.numel(), floats.data<float>(),
                 [](uint8_t value) { return static_cast<float>(value) / 255.0f; });
  return Tensor(floats);
}

Tensor make_grid(const Tensor& images, int64_t nrow, int64_t padding, double pad_value) {
  const OpContext context("make_grid");
  GRADUS_CHECK(images.dim() == 3 || images.dim() == 4, ShapeError, "takes images (N, C, H, W) or (N, H, W), not ",
               images.sizes());
  GRADUS_CHECK(images.numel() > 0 && nrow > 0 && padding >= 0, ValueError, "needs an image, nrow of at least 1 and ",
               "padding of at least 0: images ", images.sizes(), ", nrow ", nrow, ", padding ", padding);
  const Tensor all = images.dim() == 4 ? images.detach() : images.detach().unsqueeze(1);
  const int64_t count = all.size(0), columns = std::min(nrow, count);
  const int64_t height = all.size(2) + padding, width = all.size(3) + padding;
  const Tensor grid = full({all.size(1), ceil_div(count, columns) * height + padding, columns * width + padding},
                           pad_value, all.options());
  for (int64_t i = 0; i < count; ++i)
    grid.narrow(1, i / columns * height + padding, all.size(2))
        .narrow(2, i % columns * width + padding, all.size(3))
        .copy_(all[i]);
  return grid;
}

io::Bytes encode_image(const Tensor& image) {
  const OpContext context("encode_image");
  GRADUS_CHECK(image.dim() == 2 || (image.dim() == 3 && image.size(0) <= 4 && image.size(0) != 2), ShapeError,
               "takes an image (H, W) or (C, H, W) of 1, 3 or 4 channels, not ", image.sizes());
  GRADUS_CHECK(image.dtype() == kByte || image.is_floating_point(), DTypeError, "takes bytes or floating-point values ",
               "from 0 to 1, not ", name(image.dtype()));
  Tensor pixels = image.detach().to(kCPU);
  if (pixels.is_floating_point()) pixels = (pixels.to(kFloat) * 255).round().clamp(0, 255).to(kByte);
  if (pixels.dim() == 2) pixels = pixels.unsqueeze(0);
  pixels = pixels.permute({1, 2, 0}).contiguous();
  const std::span bytes(static_cast<const std::byte*>(pixels.data_ptr()), static_cast<size_t>(pixels.numel()));
  return io::encode_png(bytes, pixels.size(0), pixels.size(1), pixels.size(2));
}

void save_image(const Tensor& images, const std::string& path, int64_t nrow, int64_t padding, double pad_value) {
  io::write_file(path, encode_image(images.dim() == 4 ? make_grid(images, nrow, padding, pad_value) : images));
}

}  // namespace gradus::data
