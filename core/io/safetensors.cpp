#include <gradus/core/io/safetensors.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include <gradus/core/io/array_bytes.h>
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/file_kind.h>
#include <gradus/core/ops/ops.h>

namespace gradus::io {
namespace {

struct DTypeCode {
  std::string_view code;
  DType dtype;
};
// Widest dtype first, the order of the reference implementation.
constexpr DTypeCode kDTypeCodes[] = {{"I64", DType::i64}, {"F64", DType::f64},     {"F32", DType::f32},
                                     {"I32", DType::i32}, {"BF16", DType::bf16},   {"F16", DType::f16},
                                     {"U8", DType::u8},   {"BOOL", DType::boolean}};

// Parses a header. The JSON parser calls one of its methods for each token. The grammar is small: an object of objects,
// with strings and lists of integers. There is no JSON tree, because it would keep only one of two members of the same
// name; this class detects repeated names.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& file, SafetensorsHeader* header) : file_(file), header_(header) {}

  bool start_object(size_t) override {
    if (depth_ > 1) unexpected("an object");
    if (depth_ == 1 && !in_metadata()) {
      header_->entries.emplace_back().name = name_;
      seen_ = 0;
    }
    ++depth_;
    return true;
  }
  bool end_object() override {
    const bool is_complete = depth_ == 1 || in_metadata() || seen_ == (kDType | kShape | kOffsets);
    check(is_complete, "needs exactly dtype, shape and data_offsets");
    --depth_;
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == 1) {
      GRADUS_CHECK(names_.insert(text).second, IoError, "'", file_, "': the name '", text, "' appears twice");
      name_ = text;
    } else if (in_metadata()) {
      GRADUS_CHECK(!header_->metadata.count(text), IoError, "'", file_, "': metadata has '", text, "' twice");
      metadata_key_ = text;
    } else {
      field_ = text == "dtype" ? kDType : text == "shape" ? kShape : text == "data_offsets" ? kOffsets : 0;
      check(field_ != 0, "has the unknown field '", text, "'");
      check(!(seen_ & field_), "has the field '", text, "' twice");
      seen_ |= field_;
      numbers_ = 0;
    }
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata()) {
      header_->metadata.emplace(metadata_key_, text);
      return true;
    }
    if (depth_ != 2 || field_ != kDType) unexpected("a string");
    const auto* known = std::ranges::find(kDTypeCodes, text, &DTypeCode::code);
    GRADUS_CHECK(known != std::end(kDTypeCodes), IoError, where(), "has dtype '", text,
                 "'; known are F32 F64 F16 BF16 I64 I32 U8 BOOL");
    entry().dtype = known->dtype;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata() || field_ == kDType) unexpected("a list");
    ++depth_;
    return true;
  }
  bool end_array() override {
    check(field_ == kShape || numbers_ == 2, "has ", numbers_, " data_offsets instead of 2");
    --depth_;
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (depth_ != 3) unexpected("a number");
    if (field_ == kShape) {
      check(numbers_ < kMaxDims, "has more than ", kMaxDims, " dimensions");
      check(value <= INT64_MAX, "has the size ", value);
      entry().shape.push_back(static_cast<int64_t>(value));
    } else if (numbers_ < 2) {
      (numbers_ == 0 ? entry().begin : entry().end) = value;
    }
    ++numbers_;
    return true;
  }
  bool number_integer(int64_t) override { unexpected("a negative number"); }
  bool number_float(double, const std::string&) override { unexpected("a number that is not a 64-bit integer"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool null() override { unexpected("null"); }
  bool binary(nlohmann::json::binary_t&) override { unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    GRADUS_FAIL(IoError, "'", file_, "': the header is not JSON at its byte ", position);
  }

 private:
  static constexpr int kDType = 1, kShape = 2, kOffsets = 4;

  bool in_metadata() const { return name_ == "__metadata__"; }
  SafetensorsEntry& entry() { return header_->entries.back(); }
  std::string where() const { return "'" + file_ + "': tensor '" + name_ + "' "; }
  // Throws an error that names the current tensor unless `condition` holds.
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    GRADUS_CHECK(condition, IoError, where(), parts...);
  }
  [[noreturn]] void unexpected(const char* what) const {
    if (depth_ == 0) GRADUS_FAIL(IoError, "'", file_, "': the header is not a JSON object");
    GRADUS_FAIL(IoError, "'", file_, "': the header has ", what, " under '", name_, "', where it is not allowed");
  }

  const std::string& file_;
  SafetensorsHeader* header_;
  std::set<std::string> names_;
  std::string name_, metadata_key_;
  int depth_ = 0;  // 1 in the header, 2 in a tensor or the metadata, 3 in a list
  int field_ = 0, seen_ = 0, numbers_ = 0;
};

// Position of a dtype in kDTypeCodes, which is the order of tensors in files of the reference implementation.
int safetensors_rank(DType dtype) {
  return static_cast<int>(std::ranges::find(kDTypeCodes, dtype, &DTypeCode::dtype) - std::begin(kDTypeCodes));
}

// Parses and checks a header: dtypes must be known, sizes must match the shapes, and offsets must cover `data_bytes`
// bytes exactly once.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& file) {
  GRADUS_CHECK(!json.empty() && json.front() == '{', IoError, "'", file,
               "' is not a safetensors file: no '{' at byte 8");
  const size_t nul = json.find('\0');  // the JSON parser would stop at a NUL
  GRADUS_CHECK(nul == json.npos, IoError, "'", file, "': the header has a NUL at its byte ", nul);
  SafetensorsHeader header;
  HeaderReader reader(file, &header);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);

  // A tensor without elements begins and ends at the same byte. It comes before the tensor that begins at that byte.
  std::ranges::stable_sort(header.entries, [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t covered = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    const std::string where = "'" + file + "': tensor '" + entry.name + "' ";
    GRADUS_CHECK(entry.begin <= entry.end && entry.end <= data_bytes, IoError, where, "has data_offsets [", entry.begin,
                 ", ", entry.end, "] in ", data_bytes, " bytes of data");
    const std::optional<uint64_t> bytes = byte_count(entry.shape, entry.dtype);
    GRADUS_CHECK(bytes, IoError, where, "of shape ", entry.shape, " is too large for this machine");
    GRADUS_CHECK(*bytes == entry.end - entry.begin, IoError, where, "of shape ", entry.shape, " and ", entry.dtype,
                 " has ", *bytes, " bytes, but its data_offsets span ", entry.end - entry.begin);
    GRADUS_CHECK(entry.begin == covered, IoError, where, "begins at byte ", entry.begin,
                 ", but the tensors before it end at ", covered);
    covered = entry.end;
  }
  GRADUS_CHECK(covered == data_bytes, IoError, "'", file, "' has ", data_bytes - covered,
               " bytes that belong to no tensor");
  return header;
}

// Formats the header of `entries`, padded with spaces so that the data begins at a multiple of 8.
std::string write_safetensors_header(const std::vector<SafetensorsEntry>& entries, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const SafetensorsEntry& entry : entries)
    header[entry.name] = {{"dtype", kDTypeCodes[safetensors_rank(entry.dtype)].code},
                          {"shape", entry.shape.vec()},
                          {"data_offsets", {entry.begin, entry.end}}};
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {
    GRADUS_FAIL(ValueError, "a name or metadata text is not UTF-8: ", error.what());
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

constexpr uint64_t kPrefixBytes = 8;
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the reference implementation's limit

// A file whose header has been read and checked. read(offset, to, bytes) reads its bytes.
struct OpenSafetensors {
  using Read = std::function<void(uint64_t offset, void* to, size_t bytes)>;

  std::string name;
  Read read;
  uint64_t data_begin = 0;
  SafetensorsHeader header;

  OpenSafetensors(const std::string& name_, uint64_t file_bytes, const Read& read_) : name(name_), read(read_) {
    Bytes start(std::min<uint64_t>(file_bytes, kFileKindBytes));
    read(0, start.data(), start.size());
    const bool has_header = start.size() > kPrefixBytes && start[kPrefixBytes] == std::byte{'{'};
    const std::string kind = has_header ? "" : described(start);
    GRADUS_CHECK(kind.empty(), IoError, "'", name, "' is not a safetensors file", kind);
    GRADUS_CHECK(file_bytes >= kPrefixBytes, IoError, "'", name, "' is not a safetensors file: it has ", file_bytes,
                 " bytes, fewer than the 8 of the header's length");
    const uint64_t length = read_little_endian<uint64_t>(start.data());
    GRADUS_CHECK(length <= kMostHeaderBytes, IoError, "'", name,
                 "' is not a safetensors file: it announces a header of ", length, " bytes, at most ", kMostHeaderBytes,
                 " are accepted");
    GRADUS_CHECK(length <= file_bytes - kPrefixBytes, IoError, "'", name, "' is truncated: the header has ", length,
                 " bytes, the file ", file_bytes);
    std::string json(length, '\0');
    read(kPrefixBytes, json.data(), length);
    data_begin = kPrefixBytes + length;
    header = parse_safetensors_header(json, file_bytes - data_begin, name);
  }

  Safetensors load() {
    Safetensors file{{}, std::move(header.metadata)};
    for (const SafetensorsEntry& entry : header.entries) {
      const Array array = Array::empty(entry.shape, entry.dtype);
      read(data_begin + entry.begin, array.data(), array.nbytes());
      convert_byte_order(array.data(), static_cast<size_t>(array.numel()), size_of(entry.dtype), std::endian::little);
      check_booleans(array, "'" + name + "': tensor '" + entry.name + "'");
      file.tensors.emplace(entry.name, array);
    }
    return file;
  }
};

OpenSafetensors open_file(const std::string& path) {
  const auto file = std::make_shared<InputFile>(path);
  return {path, file->size(), [file](uint64_t offset, void* to, size_t bytes) { file->read_at(offset, to, bytes); }};
}

/// Calls write(data, bytes) for each piece of the file in order.
template <class Write>
void write_safetensors(const NamedArrays& tensors, const Metadata& metadata, const Write& write) {
  for (const auto& [name, array] : tensors) {
    GRADUS_CHECK(name != "__metadata__", ValueError, "a tensor cannot be named '__metadata__'");
    GRADUS_CHECK(array.defined(), ValueError, "tensor '", name, "' is undefined");
  }
  auto order = tensors;
  std::ranges::sort(order, {}, [](const auto& tensor) {
    return std::pair<int, const std::string&>(safetensors_rank(tensor.second.dtype()), tensor.first);
  });

  std::vector<SafetensorsEntry> entries;
  std::set<std::string_view> names;
  uint64_t offset = 0;
  for (const auto& [name, array] : order) {
    GRADUS_CHECK(names.insert(name).second, ValueError, "two tensors are named '", name, "'");
    entries.push_back({name, array.dtype(), array.shape(), offset, offset + array.nbytes()});
    offset += array.nbytes();
  }
  const std::string header = write_safetensors_header(entries, metadata);
  std::byte prefix[kPrefixBytes];
  write_little_endian<uint64_t>(header.size(), prefix);

  write(prefix, kPrefixBytes);
  write(header.data(), header.size());
  for (const auto& tensor : order) {
    Array array = contiguous_on_cpu(tensor.second);
    if constexpr (std::endian::native != std::endian::little) array = ops::clone(array);
    convert_byte_order(array.data(), static_cast<size_t>(array.numel()), size_of(array.dtype()), std::endian::little);
    write(array.data(), array.nbytes());
  }
}

}  // namespace

Safetensors load_safetensors_with_metadata(const std::string& path) { return open_file(path).load(); }

SafetensorsHeader read_safetensors_header(const std::string& path) { return open_file(path).header; }

Safetensors parse_safetensors(ByteSpan bytes, const std::string& name) {
  const auto read = [bytes](uint64_t offset, void* to, size_t count) {
    std::ranges::copy(bytes.subspan(offset, count), static_cast<std::byte*>(to));
  };
  return OpenSafetensors(name, bytes.size(), read).load();
}

void save_safetensors(const std::string& path, const NamedArrays& tensors, const Metadata& metadata) {
  AtomicFile file(path);
  write_safetensors(tensors, metadata, [&](const void* data, size_t bytes) { file.write(data, bytes); });
  file.commit();
}

Bytes format_safetensors(const NamedArrays& tensors, const Metadata& metadata) {
  Bytes file;
  write_safetensors(tensors, metadata, [&](const void* data, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    file.insert(file.end(), begin, begin + bytes);
  });
  return file;
}

}  // namespace gradus::io
