// Damaged image files on which stb_image would read uninitialised memory. decode_image must either throw an error or
// return only pixels that the file defines.
#include <gradus/data/images/image_file.h>
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
