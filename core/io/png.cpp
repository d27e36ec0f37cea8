#include <gradus/core/io/png.h>

#include <zlib.h>

#include <string_view>

#include <gradus/core/io/byte_order.h>

namespace gradus::io {
namespace {

void append(Bytes& out, ByteSpan bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }
void append(Bytes& out, std::string_view text) { append(out, std::as_bytes(std::span(text))); }

/// Numbers in PNG files are big-endian.
void append(Bytes& out, uint32_t number) {
  std::byte bytes[4];
  write_big_endian(number, bytes);
  append(out, bytes);
}

/// Appends a chunk: length, type, data, and the checksum of type and data.
void append_chunk(Bytes& out, std::string_view type, ByteSpan data) {
  append(out, static_cast<uint32_t>(data.size()));
  const size_t begin = out.size();
  append(out, type);
  append(out, data);
  const auto* const summed = reinterpret_cast<const Bytef*>(&out[begin]);
  append(out, static_cast<uint32_t>(crc32(0, summed, static_cast<uInt>(out.size() - begin))));
}

}  // namespace

Bytes encode_png(ByteSpan pixels, int64_t height, int64_t width, int64_t channels) {
  constexpr int64_t kMost = 1 << 16;  // limit for height and width, so that all sizes fit in 32 bits
  GRADUS_CHECK(channels >= 1 && channels <= 4, ValueError, "a PNG has 1 to 4 channels, not ", channels);
  GRADUS_CHECK(height > 0 && width > 0 && height <= kMost && width <= kMost && height * width * channels < 1 << 30,
               ValueError, "a PNG of ", height, " rows of ", width, " pixels cannot be written");
  const size_t row = static_cast<size_t>(width * channels), rows = static_cast<size_t>(height);
  GRADUS_CHECK(pixels.size() == row * rows, ValueError, height, " rows of ", width, " pixels with ", channels,
               " channels have ", row * rows, " bytes, got ", pixels.size());

  Bytes lines;  // a byte before each row names its filter; 0 is none
  lines.reserve((row + 1) * rows);
  for (size_t i = 0; i < rows; ++i) {
    lines.push_back(std::byte{0});
    append(lines, pixels.subspan(i * row, row));
  }
  uLongf packed_size = compressBound(static_cast<uLong>(lines.size()));
  Bytes packed(packed_size);
  GRADUS_CHECK(compress(reinterpret_cast<Bytef*>(packed.data()), &packed_size,
                        reinterpret_cast<const Bytef*>(lines.data()), static_cast<uLong>(lines.size())) == Z_OK,
               IoError, "zlib cannot compress the picture");

  Bytes header;
  append(header, static_cast<uint32_t>(width));
  append(header, static_cast<uint32_t>(height));
  constexpr uint8_t kColorTypes[] = {0, 4, 2, 6};  // PNG's codes for 1, 2, 3 and 4 channels
  append(header, std::as_bytes(std::span<const uint8_t>({8, kColorTypes[channels - 1], 0, 0, 0})));

  Bytes file;
  append(file, "\x89PNG\r\n\x1a\n");
  append_chunk(file, "IHDR", header);
  append_chunk(file, "IDAT", ByteSpan(packed).first(packed_size));
  append_chunk(file, "IEND", {});
  return file;
}

}  // namespace gradus::io
