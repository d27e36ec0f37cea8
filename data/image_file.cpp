#include <gradus/data/image_file.h>

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <gradus/core/io/byte_order.h>

namespace {

// What stb_image may allocate at once on this thread, and to what a buffer may grow: a few bytes of PNG can unpack to
// gigabytes.
thread_local size_t allocation_limit = 0, growth_limit = 0;
thread_local bool growth_refused = false;

// Zeroed: older releases of stb_image decode with the Huffman tables that a file does not have.
void* limited_malloc(size_t bytes) { return bytes <= allocation_limit ? std::calloc(bytes, 1) : nullptr; }
void* limited_realloc(void* memory, size_t bytes) {
  growth_refused |= bytes > growth_limit;
  return growth_refused ? nullptr : std::realloc(memory, bytes);
}

}  // namespace

// stb_image (Sean Barrett, public domain), compiled here alone. CMakeLists.txt gives this file -fwrapv: damaged JPEGs
// make its arithmetic overflow. It may also shift by more than 31: older releases do, a zero, where the data ran out.
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

namespace gradus::data {
namespace {

uint8_t byte_at(io::ByteSpan bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }

bool starts_with(io::ByteSpan bytes, std::string_view start) {
  return bytes.size() >= start.size() && std::memcmp(bytes.data(), start.data(), start.size()) == 0;
}

// A PNG file is a signature and chunks: length, type, data, CRC-32 of type and data; the last is IEND.
// https://www.w3.org/TR/png-3/#5DataRep
void check_png(io::ByteSpan bytes, const std::string& name) {
  for (size_t at = 8;;) {
    const size_t rest = bytes.size() - at;
    GRADUS_CHECK(rest >= 12, IoError, "'", name, "' is a truncated PNG file");
    const uint32_t length = io::read_big_endian<uint32_t>(&bytes[at]);
    GRADUS_CHECK(length <= rest - 12, IoError, "'", name, "' is a truncated PNG file");
    const auto* type = reinterpret_cast<const Bytef*>(&bytes[at + 4]);
    GRADUS_CHECK(crc32(0, type, length + 4) == io::read_big_endian<uint32_t>(&bytes[at + 8 + length]), IoError, "'",
                 name, "' is a damaged PNG file: a checksum is wrong");
    if (std::memcmp(type, "IEND", 4) == 0) return;
    at += 12 + length;
  }
}

// Huffman tables: a byte with their number, how many codes there are of each length 1 … 16, and a symbol for each code.
// There are at most 256 symbols; older releases of stb_image write beyond their arrays when there are more.
void check_huffman_tables(io::ByteSpan tables, const std::string& name) {
  while (tables.size() >= 17) {
    size_t symbols = 0;
    for (size_t length = 1; length <= 16; ++length) symbols += byte_at(tables, length);
    GRADUS_CHECK(symbols <= 256 && 17 + symbols <= tables.size(), IoError, "'", name,
                 "' is a damaged JPEG file: a Huffman table of ", symbols, " symbols");
    tables = tables.subspan(17 + symbols);
  }
  GRADUS_CHECK(tables.empty(), IoError, "'", name, "' is a damaged JPEG file: half a Huffman table");
}

// A JPEG file is a row of markers, FF and a type, most with a length and data; behind SOS (DA) comes data in which FF
// 00 is a byte FF and D0 … D7 restart the decoder. The last marker is EOI (D9). stb_image would fill what is missing
// with grey. Returns the number of scans. https://www.w3.org/Graphics/JPEG/itu-t81.pdf, B.1
int64_t check_jpeg(io::ByteSpan bytes, const std::string& name) {
  size_t at = 2;
  int64_t scans = 0;
  const auto need = [&](size_t count) {
    GRADUS_CHECK(bytes.size() - at >= count, IoError, "'", name, "' is a truncated JPEG file");
  };
  for (;;) {
    need(2);
    GRADUS_CHECK(byte_at(bytes, at) == 0xFF, IoError, "'", name, "' is a damaged JPEG file: byte ", at,
                 " is no marker");
    const uint8_t type = byte_at(bytes, at + 1);
    if (type == 0xFF) {  // padding
      ++at;
      continue;
    }
    at += 2;
    if (type == 0xD9) return scans;
    if (type == 0x01 || (type >= 0xD0 && type <= 0xD7)) continue;
    need(2);
    const size_t length = io::read_big_endian<uint16_t>(&bytes[at]);
    GRADUS_CHECK(length >= 2, IoError, "'", name, "' is a damaged JPEG file: a marker of length ", length);
    need(length);
    if (type == 0xC4) check_huffman_tables(bytes.subspan(at + 2, length - 2), name);
    at += length;
    if (type != 0xDA) continue;
    ++scans;
    for (;; ++at) {
      need(2);
      const uint8_t next = byte_at(bytes, at + 1);
      if (byte_at(bytes, at) == 0xFF && next != 0 && !(next >= 0xD0 && next <= 0xD7)) break;
    }
  }
}

// Pixels (H, W, 3) as (3, H, W).
Array planes_of(const uint8_t* pixels, int64_t height, int64_t width) {
  const Array image = Array::empty({3, height, width}, DType::u8);
  const int64_t count = height * width;
  uint8_t* to = image.data<uint8_t>();
  for (int64_t i = 0; i < count; ++i)
    for (int64_t c = 0; c < 3; ++c) to[c * count + i] = pixels[3 * i + c];
  return image;
}

}  // namespace

Array decode_image(io::ByteSpan bytes, const std::string& name, int64_t most_pixels) {
  GRADUS_CHECK(bytes.size() <= kMostImageBytes, IoError, "'", name, "' has ", bytes.size(),
               " bytes; images have at most ", kMostImageBytes);
  int64_t scans = 0;
  if (starts_with(bytes, "\x89PNG\r\n\x1a\n")) check_png(bytes, name);
  else if (starts_with(bytes, "\xff\xd8\xff")) scans = check_jpeg(bytes, name);
  else GRADUS_FAIL(IoError, "'", name, "' is neither a PNG nor a JPEG file");

  const auto* data = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int size = static_cast<int>(bytes.size());
  const auto reason = [] { return stbi_failure_reason() ? stbi_failure_reason() : "unknown reason"; };
  int width = 0, height = 0, channels = 0;
  allocation_limit = growth_limit = size_t{1} << 20;
  growth_refused = false;
  GRADUS_CHECK(stbi_info_from_memory(data, size, &width, &height, &channels) && width > 0 && height > 0, IoError,
               "cannot decode '", name, "': ", reason());
  GRADUS_CHECK(int64_t{width} * height <= most_pixels, IoError, "'", name, "' says that it is ", width, "x", height,
               " pixels large; at most ", most_pixels, " pixels are read");
  // Each scan of a progressive JPEG passes over all pixels, with next to no data where nothing changes.
  GRADUS_CHECK(scans <= kMostScannedPixels / (int64_t{width} * height), IoError, "'", name, "' has ", scans,
               " scans of ", width, "x", height, " pixels; at most ", kMostScannedPixels / (int64_t{width} * height),
               " scans of so many pixels are read");
  // Enough for every buffer of an honest file: 16 bits in four channels, twice, and blocks that stand over the border.
  allocation_limit += size_t{32} * (static_cast<size_t>(width) + 64) * (static_cast<size_t>(height) + 64);
  // What grows, by doubling, are the compressed data of a PNG and its unpacked rows, each after a byte for its filter.
  const size_t sample_bytes = stbi_is_16_bit_from_memory(data, size) ? 2 : 1;
  const size_t rows_bytes =
      (static_cast<size_t>(width) * static_cast<size_t>(channels) * sample_bytes + 1) * static_cast<size_t>(height);
  growth_limit += 2 * std::max(rows_bytes, bytes.size());
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(data, size, &width, &height, &channels, 3), stbi_image_free);
  GRADUS_CHECK(!growth_refused, IoError, "'", name, "' is a damaged PNG file: it unpacks to far more than the ",
               rows_bytes, " bytes of ", width, "x", height, " pixels");
  GRADUS_CHECK(pixels, IoError, "cannot decode '", name, "': ", reason());
  return planes_of(pixels.get(), height, width);
}

Array read_image(const std::string& path) { return decode_image(io::read_file(path, kMostImageBytes), path); }

Tensor unit_floats(const Array& bytes) {
  const Array floats = Array::empty(bytes.shape());
  std::transform(bytes.data<uint8_t>(), bytes.data<uint8_t>() + bytes.numel(), floats.data<float>(),
                 [](uint8_t value) { return static_cast<float>(value) / 255.0f; });
  return Tensor(floats);
}

}  // namespace gradus::data
