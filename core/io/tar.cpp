#include <gradus/core/io/tar.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <numeric>

namespace gradus::io {
namespace {

// An archive is a row of blocks: a header, then the file's bytes filled up with zeros; two blocks of zeros are the end.
constexpr size_t kBlock = 512;
constexpr uint64_t kMostHeaderBytes = uint64_t{1} << 20;  // of a long name or pax records

struct Field {
  size_t offset, size;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUser{108, 8}, kGroup{116, 8}, kSize{124, 12}, kTime{136, 12},
    kChecksum{148, 8}, kType{156, 1}, kMagic{257, 8}, kPrefix{345, 155};

std::string_view as_text(ByteSpan bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
std::string_view up_to_nul(std::string_view text) { return text.substr(0, text.find('\0')); }

/// The sum of the header's bytes, those of the checksum taken for spaces.
uint64_t checksum_of(std::string_view block) {
  const auto add = [](uint64_t sum, char c) { return sum + static_cast<unsigned char>(c); };
  const std::string_view own = block.substr(kChecksum.offset, kChecksum.size);
  return std::accumulate(block.begin(), block.end(), uint64_t{0}, add) -
         std::accumulate(own.begin(), own.end(), uint64_t{0}, add) + kChecksum.size * ' ';
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != name.npos) return false;
  const std::string inside = "/" + std::string(name) + "/";
  return inside.find("/../") == inside.npos;
}

}  // namespace

struct TarReader::Header {
  char type = '0';
  std::string name;
  uint64_t size = 0;
  bool has_name = false, has_size = false;  // from an extended header
};

template <class... Parts>
void TarReader::check(bool condition, const Parts&... parts) const {
  GRADUS_CHECK(condition, IoError, "'", archive_, "', byte ", offset_, ": ", parts...);
}

Bytes TarReader::read(uint64_t bytes, uint64_t most) {
  check(bytes <= most, "a file of ", bytes, " bytes in the archive; at most ", most, " are accepted");
  check(offset_ <= size_ && bytes <= size_ - offset_, "the archive is truncated: ", bytes,
        " bytes are missing from here on, it has ", size_);
  Bytes data(bytes);
  if (bytes > 0) read_at_(offset_, data.data(), bytes);
  offset_ += (bytes + kBlock - 1) / kBlock * kBlock;
  return data;
}

// Octal digits between spaces or zeros; or, where the first bit is set, the rest as a big-endian number.
uint64_t TarReader::number(std::string_view field) const {
  uint64_t value = 0;
  if (static_cast<unsigned char>(field[0]) >= 0x80) {
    check(field[0] == '\x80', "a negative or far too large number in a tar header");
    for (const char c : field.substr(1)) {
      check(value >> 55 == 0, "a number of more than 63 bits in a tar header");
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  field = up_to_nul(field);
  field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
  field = field.substr(0, field.find(' '));
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 8);
  check(field.empty() || (error == std::errc() && end == field.data() + field.size()), "'", field,
        "' is no octal number in a tar header");
  return value;
}

// Records "27 path=a/very/long/name\n", which begin with their own length.
void TarReader::read_pax(std::string_view records, Header& header) const {
  while (!records.empty()) {
    size_t length = 0;
    const auto digits = std::from_chars(records.data(), records.data() + records.size(), length);
    const size_t begin = static_cast<size_t>(digits.ptr - records.data()) + 1, equals = records.find('=');
    check(digits.ec == std::errc() && length <= records.size() && begin <= equals && equals < length &&
              records[begin - 1] == ' ' && records[length - 1] == '\n',
          "a damaged pax record in the archive");
    const std::string_view key = records.substr(begin, equals - begin);
    const std::string_view value = records.substr(equals + 1, length - equals - 2);
    check(!key.starts_with("GNU.sparse"), "sparse files in archives are not supported");
    if (key == "path") header.name = value, header.has_name = true;
    if (key == "size") {
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), header.size);
      check(parsed.ec == std::errc() && parsed.ptr == value.data() + value.size(), "'", value,
            "' is no size of a file");
      header.has_size = true;
    }
    records.remove_prefix(length);
  }
}

// The header of a file, with what the extended headers before it say; none at the end.
std::optional<TarReader::Header> TarReader::next_header() {
  Header header;
  for (;;) {
    const Bytes bytes = read(kBlock, kBlock);
    const std::string_view block = as_text(bytes);
    const auto field = [&](const Field& f) { return block.substr(f.offset, f.size); };
    offset_ -= kBlock;  // for messages, and to find the end again
    if (block.find_first_not_of('\0') == block.npos) return std::nullopt;
    check(number(field(kChecksum)) == checksum_of(block), "the checksum of a tar header is wrong");
    const uint64_t size = number(field(kSize));
    offset_ += kBlock;
    header.type = field(kType)[0];
    switch (header.type) {
      case 'L': header.name = up_to_nul(as_text(read(size, kMostHeaderBytes))), header.has_name = true; break;
      case 'x': read_pax(as_text(read(size, kMostHeaderBytes)), header); break;
      case 'K':
      case 'g': read(size, kMostHeaderBytes); break;
      default:
        if (!header.has_size) header.size = size;
        if (header.has_name) return header;
        header.name = up_to_nul(field(kName));
        const std::string_view prefix = up_to_nul(field(kPrefix));
        if (field(kMagic).starts_with(std::string_view("ustar\0", 6)) && !prefix.empty())
          header.name = std::string(prefix) + "/" + header.name;
        return header;
    }
  }
}

std::optional<TarFile> TarReader::next() {
  for (;;) {
    TarFile file;
    file.offset = offset_;
    const std::optional<Header> header = next_header();
    if (!header) return std::nullopt;
    check(header->type != 'S', "sparse files in archives are not supported");
    if (header->type >= '1' && header->type <= '6') continue;  // links, devices, folders, pipes: they have no data
    check(is_safe_name(header->name), "a file in an archive cannot be called '", header->name, "'");
    file.name = header->name;
    file.data = read(header->size, kMostTarFileBytes);
    if (header->type == '0' || header->type == '\0' || header->type == '7') return file;
  }
}

void TarWriter::write_entry(char type, std::string_view name, ByteSpan data) {
  char block[kBlock] = {};
  const auto put = [&](const Field& field, std::string_view text) {
    std::memcpy(block + field.offset, text.data(), std::min(text.size(), field.size));
  };
  const auto put_octal = [&](const Field& field, uint64_t value) {  // ends with a zero byte
    std::snprintf(block + field.offset, field.size, "%0*llo", static_cast<int>(field.size) - 1,
                  static_cast<unsigned long long>(value));
  };
  put(kName, name);
  put_octal(kMode, 0644), put_octal(kUser, 0), put_octal(kGroup, 0), put_octal(kTime, 0);
  put_octal(kSize, data.size());
  block[kType.offset] = type;
  put(kMagic, std::string_view("ustar\00000", 8));
  put_octal(kChecksum, checksum_of({block, kBlock}));
  file_.write(block, kBlock);
  file_.write(data.data(), data.size());
  const char zeros[kBlock] = {};
  file_.write(zeros, (kBlock - data.size() % kBlock) % kBlock);
}

void TarWriter::add(const std::string& name, ByteSpan data) {
  GRADUS_CHECK(is_safe_name(name), ValueError, "a file in an archive cannot be called '", name, "'");
  GRADUS_CHECK(data.size() <= kMostTarFileBytes, ValueError, "'", name, "' has ", data.size(), " bytes; at most ",
               kMostTarFileBytes, " fit into an archive that TarReader takes");
  if (name.size() > kName.size) {
    const std::string record = " path=" + name + "\n";
    size_t length = record.size();
    while (length != record.size() + std::to_string(length).size())
      length = record.size() + std::to_string(length).size();
    const std::string text = std::to_string(length) + record;
    write_entry('x', "pax", std::as_bytes(std::span<const char>(text)));
  }
  write_entry('0', name, data);
}

void TarWriter::commit() {
  const char zeros[2 * kBlock] = {};
  file_.write(zeros, sizeof(zeros));
  file_.commit();
}

}  // namespace gradus::io
