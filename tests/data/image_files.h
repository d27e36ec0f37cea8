// Functions for tests that make parts of PNG and JPEG files, to build files that no encoder would write.
#pragma once

#include <gradus/tests/io/io_test.h>

namespace gradus::test {

/// Returns `value` as `size` bytes, the most significant byte first.
inline std::string big_endian(uint64_t value, int size) {
  std::string bytes;
  for (int i = size - 1; i >= 0; --i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

inline const std::string kPngSignature = "\x89PNG\r\n\x1a\n";

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(data.size(), 4) + body + big_endian(sum, 4);
}
inline std::string png_header(uint32_t width, uint32_t height, int bits, int color, int interlace = 0) {
  return png_chunk(
      "IHDR", big_endian(width, 4) + big_endian(height, 4) +
                  std::string{static_cast<char>(bits), static_cast<char>(color), 0, 0, static_cast<char>(interlace)});
}
/// Returns an IDAT chunk with these rows. Each row must begin with its filter type.
inline std::string png_data(const std::string& rows) {
  std::string packed(compressBound(rows.size()), '\0');
  uLongf size = packed.size();
  REQUIRE(compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
                   rows.size()) == Z_OK);
  packed.resize(size);
  return png_chunk("IDAT", packed);
}
inline std::string png_file(const std::string& chunks) { return kPngSignature + chunks + png_chunk("IEND", ""); }

inline std::string jpeg_segment(int type, const std::string& data) {
  return "\xff" + std::string(1, static_cast<char>(type)) + big_endian(data.size() + 2, 2) + data;
}

}  // namespace gradus::test
