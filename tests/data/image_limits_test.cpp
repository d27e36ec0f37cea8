// Tests small image files whose decoding would take gigabytes of memory or minutes. decode_image rejects them.
#include <gradus/data/images/image_file.h>
#include <gradus/tests/compare.h>
#include <gradus/tests/data/image_files.h>

using namespace gradus;
using namespace gradus::test;

namespace {

/// Returns a black RGB PNG with 8 bits. Its compressed data contain `rows_bytes` bytes, which may be more than the
/// image needs.
std::string black_png(uint32_t width, uint32_t height, size_t rows_bytes, int interlace = 0) {
  return png_file(png_header(width, height, 8, 2, interlace) + png_data(std::string(rows_bytes, '\0')));
}

// A Huffman table with one symbol, whose code is the bit 0.
std::string jpeg_table(int place, int symbol) {
  return jpeg_segment(
      0xC4, big_endian(static_cast<uint64_t>(place), 1) + '\1' + std::string(15, '\0') + static_cast<char>(symbol));
}

// Returns the start of a grey JPEG. `type` is C0 for a sequential and C2 for a progressive JPEG.
std::string jpeg_head(int type, int width, int height) {
  return "\xff\xd8" + jpeg_segment(0xDB, '\0' + std::string(64, '\1')) +
         jpeg_segment(type, '\10' + big_endian(static_cast<uint64_t>(height), 2) +
                                big_endian(static_cast<uint64_t>(width), 2) + std::string{1, 1, 0x11, 0});
}

/// Returns a grey progressive JPEG with `scans` scans after the scan of the DC coefficients. Each of these scans
/// changes nothing, which takes only a few bits for 32,767 blocks.
std::string progressive_jpeg(int width, int height, int scans) {
  const auto scan = [&](int first, int last, int bits, const std::string& data) {
    return jpeg_segment(
               0xDA, std::string{1, 1, 0, static_cast<char>(first), static_cast<char>(last), static_cast<char>(bits)}) +
           data;
  };
  const int64_t blocks = int64_t{(width + 7) / 8} * ((height + 7) / 8);
  // A run of 2^14 + (2^14 - 1) blocks takes 15 bits: the code, which is the bit 0, and 14 set bits.
  std::string bits, runs;
  for (int64_t done = 0; done < blocks; done += 32767) bits += '0' + std::string(14, '1');
  bits.resize((bits.size() + 7) / 8 * 8, '1');
  for (size_t i = 0; i < bits.size(); i += 8) {
    runs.push_back(static_cast<char>(std::stoi(bits.substr(i, 8), nullptr, 2)));
    if (runs.back() == '\xff') runs.push_back('\0');
  }
  std::string file = jpeg_head(0xC2, width, height) + jpeg_table(0x00, 0) + jpeg_table(0x10, 0xE0);
  file += scan(0, 0, 0, std::string(static_cast<size_t>(blocks + 7) / 8, '\0'));
  file += scan(1, 63, 0x01, runs);
  for (int i = 1; i < scans; ++i) file += scan(1, 63, 0x10, runs);  // refines the same bit again and again
  return file + "\xff\xd9";
}

}  // namespace

TEST_CASE("images: a PNG that decompresses to far more than its pixels is rejected", "[data][image][processes]") {
  const auto decode = [](const std::string& file) { return data::decode_image(bytes_of(file), "test"); };
  constexpr uint32_t kSide = 2000;
  constexpr size_t kRows = size_t{kSide} * (1 + 3 * kSide);      // 12 MB
  const std::string bomb = black_png(kSide, kSide, 10 * kRows);  // the file has 120 KB
  CHECK_THROWS_WITH(decode(bomb), contains("more than the 12002000 bytes of 2000x2000 pixels"));
  CHECK(peak_memory_of([&] { decode(bomb); }) < 64);
  // A valid file has a filter byte for each row in addition to the pixels. Some files also have zeros at the end of
  // their data.
  CHECK(decode(black_png(kSide, kSide, kRows)).shape() == Shape{3, kSide, kSide});
  CHECK(decode(black_png(kSide, kSide, kRows + kRows / 4)).shape() == Shape{3, kSide, kSide});
  CHECK(decode(black_png(9, 5, 3 * 45 + 12, 1)).shape() == Shape{3, 5, 9});
  CHECK_THROWS_WITH(decode(black_png(9, 5, 100)), contains("not enough pixels"));
}

TEST_CASE("images: a PNG may be one row or one column of many pixels", "[data][image]") {
  constexpr uint32_t kMany = 500'000;
  const auto shape = [](uint32_t width, uint32_t height, size_t bytes) {
    return data::decode_image(bytes_of(black_png(width, height, bytes)), "test").shape();
  };
  CHECK(shape(kMany, 1, 1 + 3 * kMany) == Shape{3, 1, kMany});
  CHECK(shape(1, kMany, 4 * kMany) == Shape{3, kMany, 1});
}

TEST_CASE("images: the number of scans of a JPEG is limited by its size", "[data][image]") {
  const Array image = data::decode_image(bytes_of(progressive_jpeg(100, 60, 200)), "test");
  CHECK(image.shape() == Shape{3, 60, 100});
  CHECK(image.data<uint8_t>()[0] == 128);
  const std::string bomb = progressive_jpeg(10'000, 10'000, 60);  // 200 KB of DC coefficients, 150 bytes a scan
  CHECK_THROWS_WITH(data::decode_image(bytes_of(bomb), "test"),
                    contains("has 61 scans of 10000x10000 pixels; at most 20"));
}

TEST_CASE("images: a JPEG with a restart after every block is read completely", "[data][image]") {
  constexpr int kBlocks = 20;  // more than 8, after which the restart markers D0 … D7 repeat
  std::string file = jpeg_head(0xC0, 8 * kBlocks, 8) + jpeg_table(0x00, 0) + jpeg_table(0x10, 0) +
                     jpeg_segment(0xDD, big_endian(1, 2)) + jpeg_segment(0xDA, std::string{1, 1, 0, 0, 63, 0});
  for (int i = 0; i < kBlocks; ++i) {
    file += '\x3f';  // one bit for an unchanged DC value, one bit that ends the block, and six bits that fill the byte
    if (i + 1 < kBlocks) file += '\xff', file += static_cast<char>(0xD0 + i % 8);
  }
  file += "\xff\xd9";
  const Array image = data::decode_image(bytes_of(file), "test");
  CHECK(image.shape() == Shape{3, 8, 8 * kBlocks});
  CHECK(values(image) == std::vector<double>(3 * 64 * kBlocks, 128));
  CHECK_THROWS_WITH(data::decode_image(bytes_of(file.substr(0, file.size() - 2)), "test"), contains("truncated"));
}
