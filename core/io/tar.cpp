#include <gradus/core/io/tar.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include <gradus/core/io/file_kind.h>
#include <gradus/core/io/parse_number.h>

namespace gradus::io {
namespace {

// An archive is a sequence of blocks: a header, then the file's bytes padded with zeros. Two blocks of zeros end it.
constexpr size_t kBlock = 512;
constexpr uint64_t kMostRecordBytes = uint64_t{1} << 20;  // for a long name or pax records

struct Field {
  size_t offset, size;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUser{108, 8}, kGroup{116, 8}, kSize{124, 12}, kTime{136, 12},
    kChecksum{148, 8}, kType{156, 1}, kMagic{257, 8}, kPrefix{345, 155};

std::string_view as_text(ByteSpan bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
std::string_view up_to_nul(std::string_view text) { return text.substr(0, text.find('\0')); }

/// The sum of the header's bytes, with the checksum field counted as spaces.
uint64_t checksum_of(std::string_view block) {
  const auto add = [](uint64_t sum, char c) { return sum + static_cast<unsigned char>(c); };
  const std::string filled = std::string(block).replace(kChecksum.offset, kChecksum.size, kChecksum.size, ' ');
  return std::accumulate(filled.begin(), filled.end(), uint64_t{0}, add);
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != name.npos) return false;
  const std::string inside = "/" + std::string(name) + "/";
  return inside.find("/../") == inside.npos;
}

}  // namespace

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

uint64_t TarReader::number(std::string_view digits, int base) const {
  const std::optional<uint64_t> value = parse_number<uint64_t>(digits, base);
  check(value.has_value(), "'", digits, "' is no ", base == 8 ? "octal " : "", "number in a tar header");
  return *value;
}

// A number in octal digits between spaces or zeros or, if the first bit is set, big-endian in the remaining bits.
uint64_t TarReader::field_number(std::string_view field) const {
  if (static_cast<unsigned char>(field[0]) < 0x80) {
    field = up_to_nul(field);
    field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
    field = field.substr(0, field.find(' '));
    return field.empty() ? 0 : number(field, 8);
  }
  check(field[0] == '\x80', "a negative or far too large number in a tar header");
  uint64_t value = 0;
  for (const char c : field.substr(1)) {
    check(value >> 55 == 0, "a number of more than 63 bits in a tar header");
    value = value << 8 | static_cast<unsigned char>(c);
  }
  return value;
}

// Parses records such as "27 path=a/very/long/name\n"; the number at the beginning is the length of the record in
// bytes.
void TarReader::read_pax(std::string_view records, Extended& extended) const {
  while (!records.empty()) {
    const size_t begin = std::min(records.find(' '), records.size() - 1) + 1, equals = records.find('=');
    const uint64_t length = number(records.substr(0, begin - 1), 10);
    check(begin <= equals && equals < length && length <= records.size() && records[length - 1] == '\n',
          "a damaged pax record in the archive");
    const std::string_view key = records.substr(begin, equals - begin);
    const std::string_view value = records.substr(equals + 1, length - equals - 2);
    check(!key.starts_with("GNU.sparse"), "sparse files in archives are not supported");
    if (key == "path") extended.name = value;
    if (key == "size") extended.size = number(value, 10);
    records.remove_prefix(length);
  }
}

std::optional<TarFile> TarReader::next() {
  TarFile file;
  Extended extended;
  for (file.offset = offset_;;) {
    const Bytes bytes = read(kBlock, kBlock);
    const std::string_view block = as_text(bytes);
    const auto field = [&](const Field& f) { return block.substr(f.offset, f.size); };
    offset_ -= kBlock;  // so that messages name the header's first byte, and next() at the end can be repeated
    if (block.find_first_not_of('\0') == block.npos) return std::nullopt;
    const std::string_view sum = field(kChecksum);
    const bool has_sum = sum.find_first_of("01234567") != sum.npos &&
                         sum.find_first_not_of(std::string_view("01234567 \0", 10)) == sum.npos;
    const std::string kind = offset_ == 0 && !has_sum ? described(bytes) : "";
    check(kind.empty(), "this is not a tar archive", kind);
    check(field_number(field(kChecksum)) == checksum_of(block), "the checksum of a tar header is wrong");
    const uint64_t size = field_number(field(kSize));
    offset_ += kBlock;
    const char type = field(kType)[0];
    check(type != 'S', "sparse files in archives are not supported");
    // Extension headers describe the next file or, for 'g', all following files.
    if (type == 'L' || type == 'K' || type == 'x' || type == 'g') {
      const Bytes header = read(size, kMostRecordBytes);
      if (type == 'L') extended.name = up_to_nul(as_text(header));
      if (type == 'x') read_pax(as_text(header), extended);
      continue;
    }
    if (type < '1' || type > '6') {  // '1' to '6' are links, devices, folders and pipes, which have no data
      const bool has_prefix = field(kMagic).starts_with(std::string_view("ustar\0", 6)) && field(kPrefix)[0] != '\0';
      const std::string prefix = has_prefix ? std::string(up_to_nul(field(kPrefix))) + "/" : "";
      file.name = extended.name.value_or(prefix + std::string(up_to_nul(field(kName))));
      check(is_safe_name(file.name), "a file in an archive cannot be called '", file.name, "'");
      file.data = read(extended.size.value_or(size), kMostTarFileBytes);
      if (type == '0' || type == '\0' || type == '7') return file;
    }
    extended = {};
    file.offset = offset_;
  }
}

void TarWriter::write_entry(char type, std::string_view name, ByteSpan data) {
  char block[kBlock] = {};
  const auto put = [&](const Field& field, std::string_view text) {
    std::memcpy(block + field.offset, text.data(), std::min(text.size(), field.size));
  };
  const auto put_octal = [&](const Field& field, uint64_t value) {  // ends with a NUL
    std::snprintf(block + field.offset, field.size, "%0*llo", static_cast<int>(field.size) - 1,
                  static_cast<unsigned long long>(value));
  };
  put(kName, name);
  put_octal(kMode, 0644);
  for (const Field& field : {kUser, kGroup, kTime}) put_octal(field, 0);
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
