#include <zlib.h>

#include <algorithm>
#include <cstring>

#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/gzip.h>
#include <gradus/data/images/image_check.h>

namespace gradus::data::detail {
namespace {

constexpr size_t kSignatureBytes = 8, kAroundData = 12;  // of a chunk: length, type and checksum
constexpr int kPaletteColor = 3;

/// A PNG file consists of a signature and chunks: length, type, data, and the CRC-32 of type and data.
/// https://www.w3.org/TR/png-3/#5DataRep
struct Chunk {
  io::ByteSpan all, data;
  bool is(const char* type) const { return std::memcmp(&all[4], type, 4) == 0; }
};

Chunk chunk_at(io::ByteSpan bytes, size_t at, const std::string& name) {
  const size_t rest = bytes.size() - at;
  GRADUS_CHECK(rest >= kAroundData, IoError, "'", name, "' is a truncated PNG file");
  const uint32_t length = io::read_big_endian<uint32_t>(&bytes[at]);
  GRADUS_CHECK(length <= rest - kAroundData, IoError, "'", name, "' is a truncated PNG file");
  return {bytes.subspan(at, length + kAroundData), bytes.subspan(at + 8, length)};
}

/// Number of samples per pixel; 0 if the standard (table 8) does not allow samples of `bits` bits for this colour type.
int channels_of(int color, int bits) {
  const bool power_of_two = bits == 1 || bits == 2 || bits == 4 || bits == 8 || bits == 16;
  switch (color) {
    case 0: return power_of_two ? 1 : 0;
    case kPaletteColor: return power_of_two && bits <= 8 ? 1 : 0;
    case 2: return bits == 8 || bits == 16 ? 3 : 0;
    case 4: return bits == 8 || bits == 16 ? 2 : 0;
    case 6: return bits == 8 || bits == 16 ? 4 : 0;
  }
  return 0;
}

}  // namespace

ImageHeader check_png(io::ByteSpan bytes, const std::string& name) {
  const auto damaged = [&](bool fine, const auto&... what) {
    GRADUS_CHECK(fine, IoError, "'", name, "' is a damaged PNG file: ", what...);
  };
  ImageHeader header;
  int color = -1;
  int64_t packed_bytes = 0;
  bool has_palette = false;
  for (size_t at = kSignatureBytes;;) {
    const Chunk chunk = chunk_at(bytes, at, name);
    const auto* summed = reinterpret_cast<const Bytef*>(&chunk.all[4]);
    damaged(crc32(0, summed, static_cast<uInt>(chunk.data.size() + 4)) ==
                io::read_big_endian<uint32_t>(&chunk.all[chunk.all.size() - 4]),
            "a checksum is wrong");
    GRADUS_CHECK(!chunk.is("CgBI"), IoError, "'", name,
                 "' is in Apple's variant of PNG (CgBI), which is not supported; save it again as PNG");
    damaged(chunk.is("IHDR") == (color < 0), "it has its header IHDR elsewhere than at its beginning");
    if (chunk.is("IHDR")) {
      damaged(chunk.data.size() == 13, "its header has ", chunk.data.size(), " bytes instead of 13");
      header.width = io::read_big_endian<uint32_t>(&chunk.data[0]);
      header.height = io::read_big_endian<uint32_t>(&chunk.data[4]);
      header.bits = static_cast<int>(chunk.data[8]), color = static_cast<int>(chunk.data[9]);
      header.channels = channels_of(color, header.bits);
      damaged(header.width > 0 && header.height > 0 && std::max(header.width, header.height) <= INT32_MAX, "it has ",
              header.width, "x", header.height, " pixels");
      damaged(header.channels > 0, "there is no colour type ", color, " of ", header.bits, " bits");
    } else if (chunk.is("PLTE")) {
      damaged(!has_palette && packed_bytes == 0, "its palette is not the only one, or comes after the pixels");
      damaged(!chunk.data.empty() && chunk.data.size() % 3 == 0 && chunk.data.size() <= 3 * 256, "a palette of ",
              chunk.data.size(), " bytes");
      has_palette = true;
      if (color == kPaletteColor) header.palette.assign(chunk.data.begin(), chunk.data.end());
    } else if (chunk.is("IDAT")) {
      packed_bytes += static_cast<int64_t>(chunk.data.size());
    } else if (chunk.is("IEND")) {
      break;
    }
    at += chunk.all.size();
  }
  damaged(has_palette || color != kPaletteColor, "its pixels are indices, but it has no palette");
  damaged(packed_bytes > 0, "it has no pixels");
  constexpr int64_t kRatio = io::kMostDeflateRatio;
  const int64_t least = header.width * header.height / (8 * kRatio) * header.bits * header.channels;
  damaged(least <= packed_bytes, "its ", packed_bytes, " bytes of data cannot hold ", header.width, "x", header.height,
          " pixels");
  return header;
}

io::Bytes png_of_indices(io::ByteSpan bytes) {
  io::Bytes grey(bytes.begin(), bytes.begin() + kSignatureBytes);
  for (size_t at = kSignatureBytes;;) {
    const Chunk chunk = chunk_at(bytes, at, "");
    at += chunk.all.size();
    if (!chunk.is("IHDR") && !chunk.is("IDAT") && !chunk.is("IEND")) continue;
    grey.insert(grey.end(), chunk.all.begin(), chunk.all.end());
    if (chunk.is("IHDR")) grey[kSignatureBytes + 8 + 9] = std::byte{0};  // the colour type
    if (chunk.is("IEND")) return grey;
  }
}

}  // namespace gradus::data::detail
