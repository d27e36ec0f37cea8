#include <gradus/core/io/safetensors.h>

#include <algorithm>
#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include <gradus/core/io/array_bytes.h>
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/file_kind.h>

namespace gradus::io {
namespace {

struct DTypeCode {
  const char* code;
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
    if (depth_ == 2) unexpected("an object");
    if (depth_ == 1 && !in_metadata_) {
      header_->entries.emplace_back().name = name_;
      seen_ = 0;
    }
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && !in_metadata_)
      GRADUS_CHECK(seen_ == (kDType | kShape | kOffsets), IoError, where(),
                   "needs exactly dtype, shape and data_offsets");
    if (depth_ == 2) in_metadata_ = false;
    --depth_;
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == 1) {
      GRADUS_CHECK(names_.insert(text).second, IoError, "'", file_, "': the name '", text, "' appears twice");
      in_metadata_ = text == "__metadata__";
      name_ = text;
    } else if (in_metadata_) {
      GRADUS_CHECK(!header_->metadata.count(text), IoError, "'", file_, "': metadata has '", text, "' twice");
      metadata_key_ = text;
    } else {
      field_ = text == "dtype" ? kDType : text == "shape" ? kShape : text == "data_offsets" ? kOffsets : 0;
      GRADUS_CHECK(field_ != 0, IoError, where(), "has the unknown field '", text, "'");
      GRADUS_CHECK(!(seen_ & field_), IoError, where(), "has the field '", text, "' twice");
      seen_ |= field_;
      numbers_ = 0;
    }
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      header_->metadata.emplace(metadata_key_, text);
      return true;
    }
    if (depth_ != 2 || field_ != kDType || in_array_) unexpected("a string");
    for (const DTypeCode& known : kDTypeCodes) {
      if (text != known.code) continue;
      entry().dtype = known.dtype;
      return true;
    }
    GRADUS_FAIL(IoError, where(), "has dtype '", text, "'; known are F32 F64 F16 BF16 I64 I32 U8 BOOL");
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_ || field_ == kDType) unexpected("a list");
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    GRADUS_CHECK(field_ == kShape || numbers_ == 2, IoError, where(), "has ", numbers_, " data_offsets instead of 2");
    in_array_ = false;
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (!in_array_) unexpected("a number");
    if (field_ == kShape) {
      GRADUS_CHECK(numbers_ < kMaxDims, IoError, where(), "has more than ", kMaxDims, " dimensions");
      GRADUS_CHECK(value <= INT64_MAX, IoError, where(), "has the size ", value);
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

  SafetensorsEntry& entry() { return header_->entries.back(); }
  std::string where() const { return "'" + file_ + "': tensor '" + name_ + "' "; }
  [[noreturn]] void unexpected(const char* what) const {
    if (depth_ == 0) GRADUS_FAIL(IoError, "'", file_, "': the header is not a JSON object");
    GRADUS_FAIL(IoError, "'", file_, "': the header has ", what, " under '", name_, "', where it is not allowed");
  }

  const std::string& file_;
  SafetensorsHeader* header_;
  std::set<std::string> names_;
  std::string name_, metadata_key_;
  int depth_ = 0, field_ = 0, seen_ = 0, numbers_ = 0;
  bool in_metadata_ = false, in_array_ = false;
};

// Position of a dtype in kDTypeCodes, which is the order of tensors in files of the reference implementation.
int safetensors_rank(DType dtype) {
  const auto* known = std::find_if(std::begin(kDTypeCodes), std::end(kDTypeCodes),
                                   [&](const DTypeCode& code) { return code.dtype == dtype; });
  return static_cast<int>(known - std::begin(kDTypeCodes));
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
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const auto& a, const auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
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

// Length of the header, from the first bytes of a file of `file_bytes` bytes.
uint64_t header_length(ByteSpan start, uint64_t file_bytes, const std::string& name) {
  const bool has_header = start.size() > kPrefixBytes && start[kPrefixBytes] == std::byte{'{'};
  const std::string kind = has_header ? "" : described(start);
  GRADUS_CHECK(kind.empty(), IoError, "'", name, "' is not a safetensors file", kind);
  GRADUS_CHECK(file_bytes >= kPrefixBytes, IoError, "'", name, "' is not a safetensors file: it has ", file_bytes,
               " bytes, fewer than the 8 of the header's length");
  const uint64_t length = read_little_endian<uint64_t>(start.data());
  GRADUS_CHECK(length <= kMostHeaderBytes, IoError, "'", name, "' is not a safetensors file: it announces a header of ",
               length, " bytes, at most ", kMostHeaderBytes, " are accepted");
  GRADUS_CHECK(length <= file_bytes - kPrefixBytes, IoError, "'", name, "' is truncated: the header has ", length,
               " bytes, the file ", file_bytes);
  return length;
}

// The tensors of a checked header; read(offset, to, bytes) reads their data.
template <class Read>
std::map<std::string, Array> read_tensors(const SafetensorsHeader& header, const std::string& name, const Read& read) {
  std::map<std::string, Array> tensors;
  for (const SafetensorsEntry& entry : header.entries) {
    const Array array = Array::empty(entry.shape, entry.dtype);
    read(entry.begin, array.data(), array.nbytes());
    convert_byte_order(array.data(), static_cast<size_t>(array.numel()), size_of(entry.dtype), std::endian::little);
    check_booleans(array, "'" + name + "': tensor '" + entry.name + "'");
    tensors.emplace(entry.name, array);
  }
  return tensors;
}

struct OpenSafetensors {
  InputFile file;
  uint64_t data_begin = 0;
  SafetensorsHeader header;

  explicit OpenSafetensors(const std::string& path) : file(path) {
    std::string json(header_length(file.start(kFileKindBytes), file.size(), path), '\0');
    file.read_at(kPrefixBytes, json.data(), json.size());
    data_begin = kPrefixBytes + json.size();
    header = parse_safetensors_header(json, file.size() - data_begin, path);
  }
};

/// Calls write(data, bytes) for each piece of the file in order.
template <class Write>
void write_safetensors(const std::vector<std::pair<std::string, Array>>& tensors, const Metadata& metadata,
                       const Write& write) {
  std::vector<const std::pair<std::string, Array>*> order;
  for (const auto& tensor : tensors) {
    GRADUS_CHECK(tensor.first != "__metadata__", ValueError, "a tensor cannot be named '__metadata__'");
    GRADUS_CHECK(tensor.second.defined(), ValueError, "tensor '", tensor.first, "' is undefined");
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    const int rank_a = safetensors_rank(a->second.dtype()), rank_b = safetensors_rank(b->second.dtype());
    return rank_a != rank_b ? rank_a < rank_b : a->first < b->first;
  });

  std::vector<SafetensorsEntry> entries;
  std::map<std::string, int> names;
  uint64_t offset = 0;
  for (const auto* tensor : order) {
    const auto& [name, array] = *tensor;
    GRADUS_CHECK(++names[name] == 1, ValueError, "two tensors are named '", name, "'");
    entries.push_back({name, array.dtype(), array.shape(), offset, offset + array.nbytes()});
    offset += array.nbytes();
  }
  const std::string header = write_safetensors_header(entries, metadata);
  std::byte prefix[kPrefixBytes];
  write_little_endian<uint64_t>(header.size(), prefix);

  write(prefix, kPrefixBytes);
  write(header.data(), header.size());
  for (const auto* tensor : order) {
    Array array = contiguous_on_cpu(tensor->second);
    if constexpr (std::endian::native != std::endian::little) {
      const Array swapped = Array::empty(array.shape(), array.dtype());
      if (array.nbytes() > 0) std::memcpy(swapped.data(), array.data(), array.nbytes());
      convert_byte_order(swapped.data(), static_cast<size_t>(swapped.numel()), size_of(swapped.dtype()),
                         std::endian::little);
      array = swapped;
    }
    write(array.data(), array.nbytes());
  }
}

}  // namespace

Safetensors load_safetensors_with_metadata(const std::string& path) {
  OpenSafetensors open(path);
  return {read_tensors(
              open.header, path,
              [&](uint64_t offset, void* to, size_t bytes) { open.file.read_at(open.data_begin + offset, to, bytes); }),
          std::move(open.header.metadata)};
}

std::map<std::string, Array> load_safetensors(const std::string& path) {
  return load_safetensors_with_metadata(path).tensors;
}

SafetensorsHeader read_safetensors_header(const std::string& path) { return OpenSafetensors(path).header; }

Metadata load_safetensors_metadata(const std::string& path) { return read_safetensors_header(path).metadata; }

Safetensors parse_safetensors(ByteSpan bytes, const std::string& name) {
  const uint64_t length = header_length(bytes.first(std::min(bytes.size(), kFileKindBytes)), bytes.size(), name);
  const std::string_view json(reinterpret_cast<const char*>(bytes.data() + kPrefixBytes), length);
  const ByteSpan data = bytes.subspan(kPrefixBytes + length);
  SafetensorsHeader header = parse_safetensors_header(json, data.size(), name);
  return {read_tensors(header, name,
                       [&](uint64_t offset, void* to, size_t count) {
                         if (count > 0) std::memcpy(to, data.data() + offset, count);
                       }),
          std::move(header.metadata)};
}

void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& tensors,
                      const Metadata& metadata) {
  AtomicFile file(path);
  write_safetensors(tensors, metadata, [&](const void* data, size_t bytes) { file.write(data, bytes); });
  file.commit();
}

std::vector<std::byte> format_safetensors(const std::vector<std::pair<std::string, Array>>& tensors,
                                          const Metadata& metadata) {
  std::vector<std::byte> file;
  write_safetensors(tensors, metadata, [&](const void* data, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    file.insert(file.end(), begin, begin + bytes);
  });
  return file;
}

}  // namespace gradus::io
