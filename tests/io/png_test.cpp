// PNG and CRC-32C against their specifications.
#include <zlib.h>

#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>
#include <gradus/core/io/png.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;

TEST_CASE("CRC-32C gives the check values of RFC 3720", "[io]") {
  CHECK(io::crc32c(bytes_of("123456789")) == 0xE3069283u);
  CHECK(io::crc32c(bytes_of(std::string(32, '\0'))) == 0x8A9136AAu);
  CHECK(io::crc32c(bytes_of(std::string(32, '\xff'))) == 0x62A8AB43u);
  CHECK(io::crc32c({}) == 0);
}

TEST_CASE("a CRC-32C can be continued after any prefix", "[io]") {
  const std::string text = "123456789 and more than twice the eight bytes that are taken at once";
  const io::ByteSpan span = bytes_of(text);
  const uint32_t whole = io::crc32c(span);
  for (size_t cut = 0; cut <= span.size(); ++cut)
    CHECK(io::crc32c(span.subspan(cut), io::crc32c(span.first(cut))) == whole);
  uint32_t by_bytes = 0;
  for (size_t i = 0; i < span.size(); ++i) by_bytes = io::crc32c(span.subspan(i, 1), by_bytes);
  CHECK(by_bytes == whole);
}

TEST_CASE("a PNG holds its pixels", "[io]") {
  const int channels = GENERATE(1, 2, 3, 4);
  const int height = 3, width = 5;
  io::Bytes pixels;
  for (int i = 0; i < height * width * channels; ++i) pixels.push_back(static_cast<std::byte>(37 * i + 1));
  const io::Bytes png = io::encode_png(pixels, height, width, channels);
  const std::string text(reinterpret_cast<const char*>(png.data()), png.size());
  REQUIRE(text.substr(0, 8) == "\x89PNG\r\n\x1a\n");

  std::string types, packed;
  for (size_t at = 8; at < png.size();) {
    const uint32_t length = io::read_big_endian<uint32_t>(png.data() + at);
    REQUIRE(at + 12 + length <= png.size());
    const std::string type = text.substr(at + 4, 4);
    types += type + " ";
    const uint32_t sum = io::read_big_endian<uint32_t>(png.data() + at + 8 + length);
    CHECK(sum == crc32(0, reinterpret_cast<const Bytef*>(png.data() + at + 4), length + 4));
    if (type == "IHDR") {
      CHECK(io::read_big_endian<uint32_t>(png.data() + at + 8) == width);
      CHECK(io::read_big_endian<uint32_t>(png.data() + at + 12) == height);
      CHECK(text.substr(at + 16, 2) == std::string{8, "\0\4\2\6"[channels - 1]});
    }
    if (type == "IDAT") packed += text.substr(at + 8, length);
    at += 12 + length;
  }
  CHECK(types == "IHDR IDAT IEND ");
  std::string lines(height * (1 + width * channels), '?');
  uLongf size = lines.size();
  REQUIRE(uncompress(reinterpret_cast<Bytef*>(lines.data()), &size, reinterpret_cast<const Bytef*>(packed.data()),
                     packed.size()) == Z_OK);
  REQUIRE(size == lines.size());
  for (int i = 0; i < height; ++i) {
    const std::string line = lines.substr(i * (1 + width * channels), 1 + width * channels);
    CHECK(line[0] == 0);
    CHECK(line.substr(1) ==
          std::string(reinterpret_cast<const char*>(pixels.data()) + i * width * channels, width * channels));
  }
}

TEST_CASE("invalid pictures are rejected", "[io]") {
  const io::Bytes pixels(12);
  CHECK_THROWS_WITH(io::encode_png(pixels, 2, 2, 5), contains("1 to 4 channels"));
  CHECK_THROWS_WITH(io::encode_png(pixels, 0, 2, 1), contains("0 rows"));
  CHECK_THROWS_WITH(io::encode_png(pixels, 2, 2, 1), contains("got 12"));
  CHECK_THROWS_AS(io::encode_png(pixels, int64_t{1} << 40, int64_t{1} << 40, 1), ValueError);

  CHECK_THROWS_WITH(io::encode_png(pixels, 2, 0, 1), contains("rows of 0 pixels"));
  CHECK_THROWS_WITH(io::encode_png(pixels, -2, 2, 1), contains("-2 rows"));
  CHECK_THROWS_WITH(io::encode_png(pixels, 2, 2, 0), contains("1 to 4 channels, not 0"));
  // At most 2^30 bytes of pixels, whatever they are.
  CHECK_THROWS_WITH(io::encode_png(pixels, 65536, 16384, 1), contains("of 65536 rows of 16384 pixels cannot be"));
  CHECK_THROWS_WITH(io::encode_png(pixels, 65536, 16383, 1), contains("have 1073676288 bytes, got 12"));
  CHECK_THROWS_WITH(io::encode_png(pixels, 16384, 16384, 4), contains("cannot be written"));
  CHECK_THROWS_WITH(io::encode_png(pixels, 16383, 16384, 4), contains("have 1073676288 bytes, got 12"));
  const io::Bytes line(65536), longer(65537);  // the longest that is accepted, and one pixel more
  CHECK_NOTHROW(io::encode_png(line, 65536, 1, 1));
  CHECK_NOTHROW(io::encode_png(line, 1, 65536, 1));
  CHECK_THROWS_WITH(io::encode_png(longer, 65537, 1, 1), contains("65537 rows"));
  CHECK_THROWS_WITH(io::encode_png(longer, 1, 65537, 1), contains("65537 pixels"));
}
