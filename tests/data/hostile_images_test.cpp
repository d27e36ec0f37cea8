// Damaged image files on which stb_image would read uninitialised memory. decode_image must either throw an error or
// return only pixels that the file defines.
#include <gradus/data/images/image_file.h>

#include <cstdlib>
#include <memory>

#include <gradus/tests/data/image_files.h>

using namespace gradus;
using namespace gradus::test;

namespace {

/// Fills free memory and the stack with a value, so that reads of uninitialised memory return it.
void dirty_memory(uint8_t value) {
  std::vector<std::vector<uint8_t>> blocks;
  for (size_t size = 16; size <= size_t{1} << 20; size *= 2)
    for (int i = 0; i < 8; ++i) blocks.emplace_back(size, value);
  volatile uint8_t stack[1 << 16];
  for (volatile uint8_t& byte : stack) byte = value;
}

/// Decodes a file and returns the error message or the pixels as text. Fails if the result depends on the content of
/// uninitialised memory.
std::string decoded(const std::string& file) {
  std::string found[2];
  for (int i = 0; i < 2; ++i) {
    dirty_memory(i == 0 ? 0x55 : 0xaa);
    try {
      const Array image = data::decode_image(bytes_of(file), "test");
      found[i] = "pixels";
      for (const uint8_t value : values_of<uint8_t>(image)) found[i] += " " + std::to_string(value);
    } catch (const IoError& error) { found[i] = error.what(); }
  }
  CHECK(found[0] == found[1]);
  return found[0];
}

/// Returns a PNG of 2 x 1 pixels, which are the indices 0 and `last` of a palette of two colours.
std::string palette_png(int bits, int last, const std::string& palette = "\1\2\3\4\5\6") {
  const std::string row = bits == 8 ? std::string{0, 0, static_cast<char>(last)}
                                    : std::string{0, static_cast<char>(last << (8 - 2 * bits))};
  return png_file(png_header(2, 1, bits, 3) + png_chunk("PLTE", palette) + png_data(row));
}

/// A JPEG of 16 x 16 grey pixels of medium brightness. It has two Huffman tables of one symbol each, and a scan with
/// the bits `data`.
struct GreyJpeg {
  std::string quantization = jpeg_segment(0xDB, '\0' + std::string(64, '\1'));
  std::string means = jpeg_segment(0xC4, '\0' + std::string(1, '\1') + std::string(15, '\0') + '\0');
  std::string others = jpeg_segment(0xC4, '\x10' + std::string(1, '\1') + std::string(15, '\0') + '\0');
  int frame_type = 0xC0;
  std::string frame = '\x08' + big_endian(16, 2) + big_endian(16, 2) + std::string{1, 1, 0x11, 0};
  std::string before_scan, scan_header = std::string{1, 1, 0, 0, 63, 0}, data = std::string(1, '\0');

  std::string file() const {
    return "\xff\xd8" + quantization + jpeg_segment(frame_type, frame) + means + others + before_scan +
           jpeg_segment(0xDA, scan_header) + data + "\xff\xd9";
  }
};

}  // namespace

TEST_CASE("images: an index outside of a PNG's palette is an error", "[data][image]") {
  for (const int bits : {1, 2, 4, 8}) {
    CAPTURE(bits);
    CHECK(decoded(palette_png(bits, 1)) == "pixels 1 4 2 5 3 6");
    if (bits > 1) CHECK_THAT(decoded(palette_png(bits, 3)), contains("pixel (1, 0) has colour 3 of a palette of 2"));
  }
  CHECK_THAT(decoded(palette_png(8, 255)), contains("has colour 255 of a palette of 2"));
  CHECK_THAT(decoded(palette_png(1, 1, "\1\2\3")), contains("has colour 1 of a palette of 1"));
  const std::string all(3 * 256, '\7');
  CHECK(decoded(palette_png(8, 255, all)) == "pixels 7 7 7 7 7 7");
  // This image is interlaced and filtered, and has transparent colours, which decode_image makes opaque.
  CHECK(decoded(png_file(png_header(2, 2, 8, 3, 1) + png_chunk("PLTE", "\1\2\3\4\5\6") + png_chunk("tRNS", "\x40") +
                         png_data(std::string{0, 0, 1, 1, 0, 1, 0}))) == "pixels 1 4 4 1 2 5 5 2 3 6 6 3");
  CHECK_THAT(decoded(png_file(png_header(2, 2, 8, 3, 1) + png_chunk("PLTE", "\1\2\3\4\5\6") +
                              png_data(std::string{0, 0, 0, 1, 0, 1, 2}))),
             contains("has colour 2 of a palette of 2"));
}

TEST_CASE("images: a PNG whose chunks contradict each other is an error", "[data][image]") {
  const std::string palette = png_chunk("PLTE", "\1\2\3"), header = png_header(1, 1, 8, 3);
  const std::string pixel = png_data(std::string(2, '\0'));
  CHECK(decoded(png_file(header + palette + pixel)) == "pixels 1 2 3");
  CHECK_THAT(decoded(png_file(palette + header + pixel)), contains("header IHDR elsewhere"));
  CHECK_THAT(decoded(png_file(header + header + palette + pixel)), contains("header IHDR elsewhere"));
  CHECK_THAT(decoded(png_file(header + pixel)), contains("it has no palette"));
  CHECK_THAT(decoded(png_file(header + pixel + palette)), contains("comes after the pixels"));
  CHECK_THAT(decoded(png_file(header + palette + palette + pixel)), contains("is not the only one"));
  for (const size_t size : {size_t{0}, size_t{4}, size_t{3 * 257}})
    CHECK_THAT(decoded(png_file(header + png_chunk("PLTE", std::string(size, 'x')) + pixel)), contains("a palette of"));
  CHECK_THAT(decoded(png_file(header + palette)), contains("it has no pixels"));
  CHECK_THAT(decoded(png_file(png_chunk("CgBI", "....") + header + palette + pixel)),
             contains("Apple's variant of PNG"));
  CHECK_THAT(decoded(png_file(png_chunk("IHDR", "short") + pixel)), contains("5 bytes instead of 13"));
  // The standard does not allow these combinations of colour type and bits.
  for (const auto& [color, bits] : std::vector<std::pair<int, int>>{
           {0, 3}, {0, 0}, {1, 8}, {2, 1}, {2, 4}, {3, 16}, {4, 4}, {5, 8}, {6, 2}, {7, 8}, {0, 32}})
    CHECK_THAT(decoded(png_file(png_header(1, 1, bits, color) + palette + pixel)), contains("there is no colour type"));
  CHECK_THAT(decoded(png_file(png_header(0, 1, 8, 2) + pixel)), contains("0x1 pixels"));
  CHECK_THAT(decoded(png_file(png_header(0xffffffff, 0xffffffff, 16, 6) + pixel)), contains("4294967295x4294967295"));
}

TEST_CASE("images: a PNG with too few bytes of pixels is an error", "[data][image][processes]") {
  const auto rows = [](int bits, int color, size_t bytes, int interlace = 0) {
    return decoded(png_file(png_header(5, 4, bits, color, interlace) + png_chunk("PLTE", "\1\2\3\4\5\6") +
                            png_data(std::string(bytes, '\0'))));
  };
  for (const auto& [color, channels] : std::vector<std::pair<int, int>>{{0, 1}, {2, 3}, {3, 1}, {4, 2}, {6, 4}})
    for (const int bits : {8, 16}) {
      if (color == 3 && bits == 16) continue;
      CAPTURE(color, bits);
      const size_t whole = 4 * (1 + static_cast<size_t>(5 * channels * bits / 8));
      CHECK_THAT(rows(bits, color, whole), contains("pixels "));
      for (const size_t missing : {size_t{1}, whole / 2, whole - 1})
        CHECK_THAT(rows(bits, color, whole - missing), contains("'test'"));
      CHECK_THAT(rows(bits, color, whole, 1),
                 contains("'test'"));  // each part of an interlaced row has a filter byte
    }
  // An interlaced image with one bit per pixel.
  CHECK_THAT(rows(1, 0, 4 * 2), contains("pixels "));
  CHECK_THAT(rows(1, 0, 4 * 2 - 1), contains("'test'"));
  CHECK_THAT(rows(1, 0, 3, 1), contains("'test'"));
  // These images have an unknown filter, data that cannot be decompressed, and data that decompress to fewer bytes than
  // the image needs.
  CHECK_THAT(decoded(png_file(png_header(1, 1, 8, 0) + png_data(std::string{9, 0}))), contains("'test'"));
  CHECK_THAT(decoded(png_file(png_header(1, 1, 8, 0) + png_chunk("IDAT", "no zlib"))), contains("'test'"));
  const std::string cut = png_data(std::string(21, '\1')).substr(8, 6);
  CHECK_THAT(decoded(png_file(png_header(5, 3, 8, 0) + png_chunk("IDAT", cut))), contains("'test'"));
  // Headers of huge images with a few bytes of data are rejected before memory is allocated.
  for (const uint32_t side : {9000u, 60000u}) {
    const std::string bomb = png_file(png_header(side, side, 8, 2) + png_data(std::string(100, '\0')));
    CHECK_THROWS_WITH(data::decode_image(bytes_of(bomb), "test"), contains("cannot hold"));
    CHECK(peak_memory_of([&] { data::decode_image(bytes_of(bomb), "test"); }) < 16);
  }
}

TEST_CASE("images: a JPEG may use only tables that it has defined", "[data][image]") {
  CHECK_THAT(decoded(GreyJpeg().file()), contains("pixels 128 128"));
  const auto with = [](auto change) {
    GreyJpeg jpeg;
    change(jpeg);
    return decoded(jpeg.file());
  };
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.quantization.clear(); }), contains("no quantization table 0"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.quantization = jpeg_segment(0xDB, "\1short"); }),
             contains("an incomplete quantization"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.means.clear(); }), contains("no Huffman table 0 for mean values"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.others.clear(); }), contains("no Huffman table 0"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.scan_header[2] = 0x11; }), contains("no Huffman table 1"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.scan_header[1] = 2; }),
             contains("component 2, which the frame does not have"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.data.clear(); }), contains("0 bytes of data cannot hold 16x16"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.before_scan = jpeg_segment(0xC0, jpeg.frame); }), contains("two frames"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.frame[0] = 12; }), contains("12 bits"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.frame[7] = 0x51; }), contains("sampling factors 5x1"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.frame += "\2\x11"; }), contains("its frame has"));
  for (const auto& [type, word] : std::vector<std::pair<int, const char*>>{
           {0xC3, "lossless"}, {0xC5, "hierarchical"}, {0xC9, "arithmetic"}, {0xCA, "arithmetic"}})
    CHECK_THAT(with([type = type](GreyJpeg& jpeg) { jpeg.frame_type = type; }), contains(word));
  // These files have a scan for only one of three components, a component twice, and components whose size is not a
  // whole number of pixels.
  const auto colors = [&](const std::string& components, const std::string& scan) {
    return with([&](GreyJpeg& jpeg) {
      jpeg.frame = jpeg.frame.substr(0, 5) + static_cast<char>(components.size() / 3) + components;
      jpeg.scan_header = scan;
      jpeg.data = std::string(4, '\0');
    });
  };
  const std::string all = std::string{3, 1, 0, 2, 0, 3, 0, 0, 63, 0};
  CHECK_THAT(colors(std::string{1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0}, all), contains("pixels 128"));
  CHECK_THAT(colors(std::string{1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0}, std::string{1, 1, 0, 0, 63, 0}),
             contains("no data for component 2"));
  CHECK_THAT(colors(std::string{1, 0x11, 0, 1, 0x11, 0, 3, 0x11, 0}, all), contains("two components 1"));
  CHECK_THAT(colors(std::string{1, 0x31, 0, 2, 0x21, 0, 3, 0x11, 0}, all), contains("fractional size"));
  CHECK_THAT(colors(std::string{1, 0x11, 0, 2, 0x11, 0}, std::string{2, 1, 0, 2, 0, 0, 63, 0}),
             contains("2 components"));
  CHECK_THAT(colors(std::string{1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 4, 0x11, 0},
                    std::string{4, 1, 0, 2, 0, 3, 0, 4, 0, 0, 63, 0}),
             contains("does not say what they are"));
}

TEST_CASE("images: a JPEG with missing restart markers is an error", "[data][image]") {
  GreyJpeg jpeg;  // 4 blocks with a restart after each
  jpeg.before_scan = jpeg_segment(0xDD, big_endian(1, 2));
  const std::string block(1, '\x3f');  // two codes 0, then bits 1 to the end
  jpeg.data = block + "\xff\xd0" + block + "\xff\xd1" + block + "\xff\xd2" + block;
  CHECK_THAT(decoded(jpeg.file()), contains("pixels 128 128"));
  jpeg.data = block + "\xff\xd0" + block;
  CHECK_THAT(decoded(jpeg.file()), contains("1 restart markers instead of 3"));
}

TEST_CASE("images: files of other formats are rejected, and the format is named", "[data][image]") {
  using namespace std::string_literals;
  for (const auto& [start, name] :
       std::vector<std::pair<std::string, const char*>>{{"GIF89a", "a GIF image"},
                                                        {"BM\x46\0\0\0\0\0\0\0\x36\0\0\0"s, "a BMP image"},
                                                        {"8BPS\0\1"s, "a Photoshop image"},
                                                        {"P6\n2 2\n255\n", "a Netpbm image"},
                                                        {"II*\0\x08\0\0\0"s, "a TIFF image"},
                                                        {"RIFF\x1a\0\0\0WEBPVP8 "s, "a WebP image"},
                                                        {"#?RADIANCE\n", "a Radiance HDR image"},
                                                        {"\0\0\0\x1c"
                                                         "ftypavif"s,
                                                         "an AVIF image"},
                                                        {"\0\0\0\x18"
                                                         "ftypheic"s,
                                                         "a HEIF image"},
                                                        {"\x1f\x8b\x08"s, "compressed by gzip"},
                                                        {"<!DOCTYPE html>", "a web page"}}) {
    CAPTURE(name);
    CHECK_THAT(decoded(start), contains("'test' is neither a PNG nor a JPEG file; it is " + std::string(name)));
  }
  // A TGA file has no signature, so the message cannot name its format.
  CHECK_THAT(decoded("\0\0\2\0\0\0\0\0\0\0\0\0\1\0\1\0\x18\0abc"s), contains("neither a PNG nor a JPEG file"));
}

TEST_CASE("images: each number in a PNG's header has limits", "[data][image]") {
  const auto header = [](uint32_t width, uint32_t height, int bits = 8, int color = 0, const std::string& data = "x") {
    return decoded(png_file(png_header(width, height, bits, color) + png_chunk("IDAT", data)));
  };
  CHECK_THAT(header(0, 1), contains("it has 0x1 pixels"));
  CHECK_THAT(header(1, 0), contains("it has 1x0 pixels"));
  CHECK_THAT(header(0x80000000, 1), contains("it has 2147483648x1 pixels"));
  CHECK_THAT(header(1, 0x80000000), contains("it has 1x2147483648 pixels"));
  CHECK_THAT(header(0x7fffffff, 1), contains("cannot hold 2147483647x1 pixels"));
  CHECK_THAT(header(1, 0x7fffffff), contains("cannot hold 1x2147483647 pixels"));
  CHECK_THAT(decoded(png_file(png_chunk("IHDR", std::string(14, '\1')))), contains("14 bytes instead of 13"));
  // One byte of data holds at most 1032 bytes of pixels. The data may be in several chunks.
  for (const auto& [bits, color, channels] : {std::tuple{1, 0, 1}, {8, 0, 1}, {8, 2, 3}, {16, 4, 2}, {16, 6, 4}}) {
    const size_t least = 2 * static_cast<size_t>(bits * channels);
    CAPTURE(bits, color);
    const std::string few(least - 1, 'x');
    CHECK_THAT(header(8 * 1032, 2, bits, color, few),
               contains("its " + std::to_string(least - 1) + " bytes of data cannot hold 8256x2 pixels"));
    for (const std::string& chunks : {png_chunk("IDAT", few + "x"), png_chunk("IDAT", few) + png_chunk("IDAT", "x")})
      CHECK_THAT(decoded(png_file(png_header(8 * 1032, 2, bits, color) + chunks)), contains("cannot decode 'test'"));
  }
  // A palette of 1 to 256 colours, which an image in true colour may have, too.
  const std::string pixel = png_data(std::string(4, '\0'));
  for (const size_t colors : {1, 256})
    CHECK(decoded(png_file(png_header(1, 1, 8, 2) + png_chunk("PLTE", std::string(3 * colors, 'x')) + pixel)) ==
          "pixels 0 0 0");
  CHECK_THAT(decoded(png_file(png_header(1, 1, 8, 2) + png_chunk("PLTE", std::string(3 * 257, 'x')) + pixel)),
             contains("a palette of 771 bytes"));
  // An unknown chunk is skipped; its checksum must be right all the same.
  const std::string unknown = png_chunk("teXt", "abc");
  CHECK(decoded(png_file(png_header(1, 1, 8, 2) + unknown + pixel)) == "pixels 0 0 0");
  CHECK_THAT(decoded(png_file(png_header(1, 1, 8, 2) + unknown.substr(0, 8) + "abd" + unknown.substr(11) + pixel)),
             contains("a checksum is wrong"));
  for (const size_t bytes : {1, 8, 11})
    CHECK_THAT(decoded(kPngSignature + png_header(1, 1, 8, 2) + unknown.substr(0, bytes)),
               contains("is a truncated PNG file"));
}

TEST_CASE("images: a bomb in a PNG is recognised by its number of rows and columns", "[data][image]") {
  const auto bomb = [](uint32_t width, uint32_t height, int bits, int color) {
    return decoded(png_file(png_header(width, height, bits, color) + png_data(std::string(size_t{4} << 20, '\0'))));
  };
  CHECK_THAT(bomb(30, 2000, 8, 2), contains("far more than the 182000 bytes of 30x2000 pixels"));
  CHECK_THAT(bomb(2000, 30, 8, 2), contains("far more than the 180030 bytes of 2000x30 pixels"));
  CHECK_THAT(bomb(2000, 30, 16, 4), contains("far more than the 240030 bytes of 2000x30 pixels"));
  CHECK_THAT(bomb(2000, 30, 1, 0), contains("far more than the 60030 bytes of 2000x30 pixels"));
}

TEST_CASE("images: files of more than 256 MiB are not read", "[data][image]") {
  const std::unique_ptr<void, void (*)(void*)> zeros(std::calloc(data::kMostImageBytes + 1, 1), std::free);
  const auto decode = [&](size_t bytes) {
    return data::decode_image({static_cast<const std::byte*>(zeros.get()), bytes}, "test");
  };
  CHECK_THROWS_WITH(decode(data::kMostImageBytes), contains("neither a PNG nor a JPEG file"));
  CHECK_THROWS_WITH(decode(data::kMostImageBytes + 1), contains("'test' has 268435457 bytes; images have at most"));
}

TEST_CASE("images: each number in a JPEG's segments has limits", "[data][image]") {
  const auto with = [](auto change) {
    GreyJpeg jpeg;
    change(jpeg);
    return decoded(jpeg.file());
  };
  const auto before_scan = [&](const std::string& segment) {
    return with([&](GreyJpeg& jpeg) { jpeg.before_scan = segment; });
  };
  const std::string fine = "pixels 128 128";
  // Segments that mean nothing here, and padding.
  for (const std::string& skipped :
       {jpeg_segment(0xFE, "a comment"), jpeg_segment(0xFE, ""), jpeg_segment(0xE0, "JFIF"),
        jpeg_segment(0xEE, "Adobe"), std::string("\xff\xff\xff"), jpeg_segment(0xC4, ""), jpeg_segment(0xDB, ""),
        jpeg_segment(0xDD, big_endian(0, 2))})
    CHECK_THAT(before_scan(skipped), contains(fine));
  // Markers without a length and reserved segments, which only stb_image refuses.
  for (const std::string& skipped : {std::string("\xff\x01"), std::string("\xff\xd0\xff\xd7"),
                                     jpeg_segment(0xC8, "reserved"), jpeg_segment(0xCC, "conditioning")})
    CHECK_THAT(before_scan(skipped), contains("cannot decode 'test': unknown marker"));
  CHECK_THAT(before_scan("x"), contains("is not a marker"));
  CHECK_THAT(before_scan(std::string("\xff\xfe\0\1", 4)), contains("a marker of length 1"));
  CHECK_THAT(before_scan("\xff\xfe\xff\xff"), contains("is a truncated JPEG file"));

  // Huffman tables: a class of 0 or 1, a number from 0 to 3, and 16 counts with as many symbols.
  const auto huffman = [](int place, int codes, size_t symbols) {
    return std::string(1, static_cast<char>(place)) + std::string(14, '\0') + static_cast<char>(codes - codes / 2) +
           static_cast<char>(codes / 2) + std::string(symbols, '\0');
  };
  for (const int place : {0x03, 0x13}) {
    CHECK_THAT(before_scan(jpeg_segment(0xC4, huffman(place, 2, 2))), contains(fine));
    CHECK_THAT(before_scan(jpeg_segment(0xC4, huffman(place, 2, 2) + huffman(place, 256, 256))), contains(fine));
  }
  CHECK_THAT(before_scan(jpeg_segment(0xC4, huffman(2, 257, 257))), contains("a Huffman table of 257 symbols"));
  CHECK_THAT(before_scan(jpeg_segment(0xC4, huffman(2, 3, 2))), contains("a Huffman table of 3 symbols"));
  CHECK_THAT(before_scan(jpeg_segment(0xC4, huffman(4, 2, 2))), contains("of kind 0 and number 4"));
  CHECK_THAT(before_scan(jpeg_segment(0xC4, huffman(0x20, 2, 2))), contains("of kind 2 and number 0"));
  CHECK_THAT(before_scan(jpeg_segment(0xC4, huffman(2, 2, 2) + std::string(16, '\0'))),
             contains("half a Huffman table"));

  // Quantization tables: a number from 0 to 3, and 64 values of one byte or two.
  const auto quantization = [](int place, size_t bytes) {
    return std::string(1, static_cast<char>(place)) + std::string(bytes, '\1');
  };
  for (const std::string& tables :
       {quantization(3, 64), quantization(0x13, 128), quantization(0, 64) + quantization(1, 64)})
    CHECK_THAT(before_scan(jpeg_segment(0xDB, tables)), contains(fine));
  for (const std::string& tables :
       {quantization(4, 64), quantization(3, 63), quantization(0x13, 127), quantization(0, 64) + quantization(1, 63)})
    CHECK_THAT(before_scan(jpeg_segment(0xDB, tables)), contains("an incomplete quantization table"));

  // Frames.
  const auto frame = [&](size_t at, int value) {
    return with([&](GreyJpeg& jpeg) { jpeg.frame[at] = static_cast<char>(value); });
  };
  for (const auto& [height, width] : {std::pair{0, 16}, {16, 0}})
    CHECK_THAT(with([&, h = height, w = width](GreyJpeg& jpeg) {
                 jpeg.frame[2] = static_cast<char>(h), jpeg.frame[4] = static_cast<char>(w);
               }),
               contains("it has " + std::to_string(width) + "x" + std::to_string(height) + " pixels"));
  for (const int factors : {0x11, 0x14, 0x41, 0x44}) CHECK_THAT(frame(7, factors), contains(fine));
  for (const int factors : {0x01, 0x10, 0x51, 0x15})
    CHECK_THAT(frame(7, factors), contains("component 1 has sampling factors " + std::to_string(factors >> 4) + "x" +
                                           std::to_string(factors & 15) + " and table 0"));
  CHECK_THAT(frame(8, 3), contains("there is no quantization table 3"));
  CHECK_THAT(frame(8, 4), contains("sampling factors 1x1 and table 4"));
  CHECK_THAT(frame(5, 0), contains("its frame has 9 bytes"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.frame = jpeg.frame.substr(0, 5) + '\0'; }),
             contains("a JPEG of 0 components; 1, 3 and 4 are read"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.frame = jpeg.frame.substr(0, 5); }), contains("its frame has 5 bytes"));
  for (const int type : {0xC0, 0xC1}) CHECK_THAT(with([&](GreyJpeg& jpeg) { jpeg.frame_type = type; }), contains(fine));
  for (const auto& [types, kind] : {std::pair{std::vector{0xC3}, "(lossless)"},
                                    {std::vector{0xC5, 0xC6, 0xC7}, "(hierarchical)"},
                                    {std::vector{0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}, "(arithmetic coding)"}})
    for (const int type : types) CHECK_THAT(with([&](GreyJpeg& jpeg) { jpeg.frame_type = type; }), contains(kind));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.frame_type = 0xFE; }), contains("a scan comes before the frame"));
  CHECK_THAT(decoded("\xff\xd8\xff\xd9"), contains("it has no frame"));

  // Scans.
  for (const std::string& header :
       {std::string(), std::string{0, 0, 63, 0}, std::string{1, 1, 0, 0, 63}, std::string{1, 1, 0, 0, 63, 0, 0},
        std::string{2, 1, 0, 0, 63, 0}, std::string{5, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 63, 0}})
    CHECK_THAT(with([&](GreyJpeg& jpeg) { jpeg.scan_header = header; }),
               contains("a scan whose header has " + std::to_string(header.size()) + " bytes"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.scan_header[2] = 0x01; }), contains("there is no Huffman table 1"));
  CHECK_THAT(with([](GreyJpeg& jpeg) { jpeg.scan_header[2] = 0x10; }), contains("no Huffman table 1 for mean values"));
  // Each block has at least one bit: 9 blocks need two bytes.
  const auto of_blocks = [&](int height, int width, size_t bytes) {
    return with([&](GreyJpeg& jpeg) {
      jpeg.frame[2] = static_cast<char>(height), jpeg.frame[4] = static_cast<char>(width);
      jpeg.data = std::string(bytes, '\0');
    });
  };
  CHECK_THAT(of_blocks(24, 17, 1), contains("its 1 bytes of data cannot hold 17x24 pixels"));
  CHECK_THAT(of_blocks(17, 24, 1), contains("its 1 bytes of data cannot hold 24x17 pixels"));
  CHECK_THAT(of_blocks(24, 24, 3), contains(fine));
  CHECK_THAT(of_blocks(32, 16, 1), !contains("cannot hold"));
}

TEST_CASE("images: a scan of a progressive JPEG needs only the tables that it uses", "[data][image]") {
  const auto scan = [](int tables, int first, int last, int bits, int data = 0) {
    return jpeg_segment(0xDA, std::string{1, 1, static_cast<char>(tables), static_cast<char>(first),
                                          static_cast<char>(last), static_cast<char>(bits)}) +
           static_cast<char>(data);
  };
  const auto with = [&](const std::string& scans) {
    GreyJpeg jpeg;
    jpeg.frame_type = 0xC2;
    const std::string file = jpeg.file();
    return decoded(file.substr(0, file.find("\xff\xda")) + scans + "\xff\xd9");
  };
  // Scans of the mean values, of a further bit of the mean values, and of other coefficients.
  const std::string means = scan(0x03, 0, 0, 0x01), refined = scan(0x33, 0, 0, 0x10), others = scan(0x30, 1, 63, 0x00);
  CHECK_THAT(with(means), contains("pixels 128 128"));
  CHECK_THAT(with(means + refined), contains("pixels 128 128"));
  CHECK_THAT(with(means + refined + others), contains("pixels 128 128"));
  CHECK_THAT(with(scan(0x30, 0, 0, 0x01)), contains("no Huffman table 3 for mean values"));
  CHECK_THAT(with(means + scan(0x03, 1, 63, 0)), contains("there is no Huffman table 3"));
  CHECK_THAT(with(others), contains("there are no data for component 1"));
}

TEST_CASE("images: the number of restart markers of a JPEG follows from its blocks", "[data][image]") {
  struct Component {
    int id, factors;
  };
  const auto missing = [](int width, int height, const std::vector<Component>& components, const std::string& scan_ids,
                          uint64_t interval) {
    GreyJpeg jpeg;
    jpeg.frame = '\x08' + big_endian(static_cast<uint64_t>(height), 2) + big_endian(static_cast<uint64_t>(width), 2) +
                 static_cast<char>(components.size());
    for (const Component& c : components)
      jpeg.frame += std::string{static_cast<char>(c.id), static_cast<char>(c.factors), 0};
    jpeg.scan_header = std::string(1, static_cast<char>(scan_ids.size()));
    for (const char id : scan_ids) jpeg.scan_header += std::string{id, 0};
    jpeg.scan_header += std::string{0, 63, 0};
    jpeg.before_scan = jpeg_segment(0xDD, big_endian(interval, 2));
    const std::string message = decoded(jpeg.file());
    const size_t at = message.find("a scan has 0 restart markers instead of ");
    return at == std::string::npos ? 0 : std::stoi(message.substr(at + 40));
  };
  const std::vector<Component> grey = {{1, 0x11}};
  CHECK(missing(17, 33, grey, "\1", 1) == 3 * 5 - 1);
  CHECK(missing(24, 40, grey, "\1", 1) == 3 * 5 - 1);
  CHECK(missing(24, 40, grey, "\1", 4) == 3);
  CHECK(missing(24, 40, grey, "\1", 14) == 1);
  CHECK(missing(24, 40, grey, "\1", 15) == 0);
  CHECK(missing(24, 40, grey, "\1", 0) == 0);
  // Blocks of several components are interleaved in units; a scan of one component has only its own blocks.
  struct Sampling {
    int factors, units, first_blocks, second_blocks;
  };
  for (const auto& [factors, units, first_blocks, second_blocks] : {Sampling{0x11, 6 * 4, 6 * 4, 6 * 4},
                                                                    {0x21, 3 * 4, 6 * 4, 3 * 4},
                                                                    {0x12, 6 * 2, 6 * 4, 6 * 2},
                                                                    {0x22, 3 * 2, 6 * 4, 3 * 2},
                                                                    {0x41, 2 * 4, 6 * 4, 2 * 4}}) {
    CAPTURE(factors);
    const std::vector<Component> colors = {{1, factors}, {2, 0x11}, {3, 0x11}};
    CHECK(missing(41, 25, colors, "\1\2\3", 1) == units - 1);
    CHECK(missing(41, 25, colors, "\1\2", 1) == units - 1);
    CHECK(missing(41, 25, colors, "\1", 1) == first_blocks - 1);
    CHECK(missing(41, 25, colors, "\2", 1) == second_blocks - 1);
  }
}
