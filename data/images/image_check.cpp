#include <gradus/data/images/image_file.h>

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include <gradus/core/formulas/integers.h>
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/gzip.h>

namespace gradus::data::detail {

// ---- PNG ----

namespace {

constexpr size_t kSignatureBytes = 8, kAroundData = 12;  // kAroundData: bytes for a chunk's length, type, checksum
constexpr int kPaletteColor = 3;

/// A PNG file consists of a signature and chunks. A chunk has a length, a type, data, and the CRC-32 of type and data.
/// https://www.w3.org/TR/png-3/#5DataRep
struct Chunk {
  io::ByteSpan all, data;
  bool is(const char* type) const { return std::memcmp(&all[4], type, 4) == 0; }
};

Chunk chunk_at(io::ByteSpan bytes, size_t at, const std::string& name) {
  const size_t rest = bytes.size() - at;
  const size_t length = rest < kAroundData ? 0 : io::read_big_endian<uint32_t>(&bytes[at]);
  GRADUS_CHECK(length + kAroundData <= rest, IoError, "'", name, "' is a truncated PNG file");
  return {bytes.subspan(at, length + kAroundData), bytes.subspan(at + 8, length)};
}

/// Number of values per pixel; 0 if the standard (table 8) does not allow values of `bits` bits for this colour type.
int channels_of(int color, int bits) {
  constexpr int kChannels[] = {1, 0, 3, 1, 2, 0, 4};  // by colour type
  const int channels = color < 7 ? kChannels[color] : 0;
  const bool is_packed = channels == 1 && (bits == 1 || bits == 2 || bits == 4);
  return is_packed || bits == 8 || (bits == 16 && color != kPaletteColor) ? channels : 0;
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
      header.bits = static_cast<int>(chunk.data[8]);
      color = static_cast<int>(chunk.data[9]);
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
      packed_bytes += std::ssize(chunk.data);
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
    if (chunk.is("IHDR")) grey[kSignatureBytes + 8 + 9] = std::byte{0};  // sets the colour type to grey
    if (chunk.is("IEND")) return grey;
  }
}

// ---- JPEG ----
//
// A JPEG file is a sequence of segments: FF, a type, and usually a length and data. The header of a scan (SOS) is
// followed by its compressed bits, in which FF 00 encodes a byte FF, and FF D0 … FF D7 restart the decoder.
// https://www.w3.org/Graphics/JPEG/itu-t81.pdf, annex B

namespace {

class JpegChecker {
 public:
  JpegChecker(io::ByteSpan bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  ImageHeader check() {
    at_ = 2;
    for (uint8_t type = marker(); type != kEnd; type = marker()) {
      if (type == 0x01 || is_restart(type)) continue;
      const io::ByteSpan data = segment();
      if (is_frame(type)) read_frame(type, data);
      else if (type == 0xC4) read_huffman_tables(data);
      else if (type == 0xDB) read_quantization_tables(data);
      else if (type == 0xEE) has_adobe_ |= data.size() >= 12 && std::memcmp(data.data(), "Adobe", 5) == 0;
      else if (type == 0xDD && data.size() == 2) restart_interval_ = io::read_big_endian<uint16_t>(&data[0]);
      else if (type == 0xDA) read_scan(data);
    }
    damaged(!components_.empty(), "it has no frame");
    int64_t blocks = 0;
    for (const Component& component : components_) {
      damaged(component.has_data, "there are no data for component ", component.id);
      blocks += component.columns * component.rows;
    }
    // Each block begins with a code of at least one bit, so fewer bits than blocks mean that data are missing.
    // stb_image would replace them by zeros.
    damaged(blocks <= 8 * scanned_bytes_, "its ", scanned_bytes_, " bytes of data cannot hold ", header_.width, "x",
            header_.height, " pixels");
    GRADUS_CHECK(components_.size() != 4 || has_adobe_, IoError, "'", name_,
                 "' is a JPEG of four components that does not say what they are; save it again as RGB");
    header_.channels = static_cast<int>(components_.size());
    return header_;
  }

 private:
  static constexpr uint8_t kEnd = 0xD9;

  struct Component {
    int id = 0, h = 0, v = 0, table = 0;
    int64_t columns = 0, rows = 0;  // number of blocks of 8x8 values
    bool has_data = false;
  };

  static bool is_restart(uint8_t type) { return type >= 0xD0 && type <= 0xD7; }
  static bool is_frame(uint8_t type) {  // C0 … CF, except C4, C8 and CC, which are other segments
    return type >= 0xC0 && type <= 0xCF && type != 0xC4 && type != 0xC8 && type != 0xCC;
  }
  template <class... What>
  void damaged(bool fine, const What&... what) const {
    GRADUS_CHECK(fine, IoError, "'", name_, "' is a damaged JPEG file: ", what...);
  }
  uint8_t byte(size_t i) const { return static_cast<uint8_t>(bytes_[i]); }
  void need(size_t count) const {
    GRADUS_CHECK(bytes_.size() - at_ >= count, IoError, "'", name_, "' is a truncated JPEG file");
  }

  uint8_t marker() {
    for (;; ++at_) {
      need(2);
      damaged(byte(at_) == 0xFF, "byte ", at_, " is not a marker");
      if (byte(at_ + 1) != 0xFF) break;  // FF FF: the first FF is padding
    }
    at_ += 2;
    return byte(at_ - 1);
  }
  io::ByteSpan segment() {
    need(2);
    const size_t length = io::read_big_endian<uint16_t>(&bytes_[at_]);
    damaged(length >= 2, "a marker of length ", length);
    need(length);
    at_ += length;
    return bytes_.subspan(at_ - length + 2, length - 2);
  }

  void read_frame(uint8_t type, io::ByteSpan data) {
    GRADUS_CHECK(type <= 0xC2, IoError, "'", name_, "' is a JPEG of a rare kind (",
                 type >= 0xC9   ? "arithmetic coding"
                 : type == 0xC3 ? "lossless"
                                : "hierarchical",
                 "), which is not read; save it again as an ordinary JPEG or as PNG");
    damaged(components_.empty(), "it has two frames");
    damaged(data.size() >= 6 && data.size() == 6 + 3 * static_cast<size_t>(data[5]), "its frame has ", data.size(),
            " bytes");
    header_.bits = static_cast<int>(data[0]);
    GRADUS_CHECK(header_.bits == 8, IoError, "'", name_, "' is a JPEG of ", header_.bits,
                 " bits for each sample; 8 bits are read");
    header_.height = io::read_big_endian<uint16_t>(&data[1]);
    header_.width = io::read_big_endian<uint16_t>(&data[3]);
    damaged(header_.width > 0 && header_.height > 0, "it has ", header_.width, "x", header_.height, " pixels");
    is_progressive_ = type == 0xC2;
    int most_h = 1, most_v = 1;
    for (size_t i = 6; i < data.size(); i += 3) {
      const int factors = static_cast<int>(data[i + 1]);
      const Component next{static_cast<int>(data[i]), factors >> 4, factors & 15, static_cast<int>(data[i + 2])};
      const auto twin = std::ranges::find(components_, next.id, &Component::id);
      damaged(twin == components_.end(), "it has two components ", next.id);
      damaged(next.h >= 1 && next.h <= 4 && next.v >= 1 && next.v <= 4 && next.table <= 3, "component ", next.id,
              " has sampling factors ", next.h, "x", next.v, " and table ", next.table);
      most_h = std::max(most_h, next.h);
      most_v = std::max(most_v, next.v);
      components_.push_back(next);
    }
    GRADUS_CHECK(components_.size() == 1 || components_.size() == 3 || components_.size() == 4, IoError, "'", name_,
                 "' is a JPEG of ", components_.size(), " components; 1, 3 and 4 are read");
    mcu_columns_ = ceil_div(header_.width, 8 * most_h);
    mcu_rows_ = ceil_div(header_.height, 8 * most_v);
    for (Component& component : components_) {
      GRADUS_CHECK(most_h % component.h == 0 && most_v % component.v == 0, IoError, "'", name_,
                   "' is a JPEG whose component ", component.id,
                   " has a fractional size, which is not read; save it again");
      component.columns = ceil_div(ceil_div(header_.width * component.h, most_h), 8);
      component.rows = ceil_div(ceil_div(header_.height * component.v, most_v), 8);
    }
  }

  // A table consists of a byte with its class (0 for DC coefficients, 1 for AC coefficients) and its number, 16 bytes
  // with the number of codes of each length 1 … 16, and a symbol for each code. More than 256 symbols are rejected,
  // because older releases of stb_image would write beyond their arrays.
  void read_huffman_tables(io::ByteSpan tables) {
    while (tables.size() >= 17) {
      size_t symbols = 0;
      for (size_t length = 1; length <= 16; ++length) symbols += static_cast<size_t>(tables[length]);
      damaged(symbols <= 256 && 17 + symbols <= tables.size(), "a Huffman table of ", symbols, " symbols");
      const int kind = static_cast<int>(tables[0]) >> 4, number = static_cast<int>(tables[0]) & 15;
      damaged(kind <= 1 && number <= 3, "a Huffman table of kind ", kind, " and number ", number);
      huffman_tables_[kind] |= 1u << number;
      tables = tables.subspan(17 + symbols);
    }
    damaged(tables.empty(), "half a Huffman table");
  }

  void read_quantization_tables(io::ByteSpan tables) {
    while (!tables.empty()) {
      const int number = static_cast<int>(tables[0]) & 15;
      const size_t size = static_cast<int>(tables[0]) >> 4 ? 129 : 65;
      damaged(number <= 3 && size <= tables.size(), "an incomplete quantization table");
      quantization_tables_ |= 1u << number;
      tables = tables.subspan(size);
    }
  }

  void read_scan(io::ByteSpan data) {
    damaged(!components_.empty(), "a scan comes before the frame");
    const size_t count = data.empty() ? 0 : static_cast<size_t>(data[0]);
    damaged(count >= 1 && count <= 4 && data.size() == 4 + 2 * count, "a scan whose header has ", data.size(),
            " bytes");
    const int first = static_cast<int>(data[1 + 2 * count]), bits = static_cast<int>(data[3 + 2 * count]);
    const bool has_means = first == 0, refines = bits >> 4 != 0;
    const bool has_others = !is_progressive_ || first > 0;
    int64_t units = mcu_columns_ * mcu_rows_;
    for (size_t i = 0; i < count; ++i) {
      const int id = static_cast<int>(data[1 + 2 * i]), tables = static_cast<int>(data[2 + 2 * i]);
      const auto component = std::ranges::find(components_, id, &Component::id);
      damaged(component != components_.end(), "a scan of component ", id, ", which the frame does not have");
      if (count == 1) units = component->columns * component->rows;
      damaged(quantization_tables_ >> component->table & 1, "there is no quantization table ", component->table);
      damaged(!has_means || refines || huffman_tables_[0] >> (tables >> 4) & 1, "there is no Huffman table ",
              tables >> 4, " for mean values");
      damaged(!has_others || huffman_tables_[1] >> (tables & 15) & 1, "there is no Huffman table ", tables & 15);
      component->has_data |= has_means;
    }
    ++header_.scans;
    const size_t begin = at_;
    int64_t restarts = 0;
    for (;; ++at_) {
      need(2);
      if (byte(at_) != 0xFF || byte(at_ + 1) == 0) continue;
      if (!is_restart(byte(at_ + 1))) break;
      ++restarts;
    }
    scanned_bytes_ += static_cast<int64_t>(at_ - begin);
    // If a restart marker is missing, stb_image would leave the rest of the image grey without an error.
    damaged(restart_interval_ == 0 || restarts >= (units - 1) / restart_interval_, "a scan has ", restarts,
            " restart markers instead of ", restart_interval_ == 0 ? 0 : (units - 1) / restart_interval_);
  }

  const io::ByteSpan bytes_;
  const std::string& name_;
  size_t at_ = 0;
  ImageHeader header_;
  std::vector<Component> components_;
  bool is_progressive_ = false, has_adobe_ = false;
  uint32_t huffman_tables_[2] = {}, quantization_tables_ = 0;  // bit i: table i is defined; [0]: DC, [1]: AC
  int64_t mcu_columns_ = 0, mcu_rows_ = 0, restart_interval_ = 0, scanned_bytes_ = 0;
};

}  // namespace

ImageHeader check_jpeg(io::ByteSpan bytes, const std::string& name) { return JpegChecker(bytes, name).check(); }

}  // namespace gradus::data::detail
