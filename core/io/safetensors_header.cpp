#include <gradus/core/io/safetensors_header.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

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

// Receives the JSON while it is parsed. The grammar is small: an object of objects, with strings and lists of integers.
// Repeated names are detected here; a parsed JSON tree would have dropped them.
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

// Number of bytes of a tensor; false if it does not fit in 64 bits. Sizes beside a zero must fit too, since they become
// strides.
bool byte_count(const SafetensorsEntry& entry, uint64_t* bytes) {
  int64_t product = static_cast<int64_t>(size_of(entry.dtype));
  bool empty = false;
  for (int64_t size : entry.shape) {
    empty |= size == 0;
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) return false;
  }
  *bytes = empty ? 0 : static_cast<uint64_t>(product);
  return true;
}

}  // namespace

int safetensors_rank(DType dtype) {
  const auto* known = std::find_if(std::begin(kDTypeCodes), std::end(kDTypeCodes),
                                   [&](const DTypeCode& code) { return code.dtype == dtype; });
  return static_cast<int>(known - std::begin(kDTypeCodes));
}

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& file) {
  GRADUS_CHECK(!json.empty() && json.front() == '{', IoError, "'", file,
               "' is not a safetensors file: no '{' at byte 8");
  const size_t nul = json.find('\0');  // the JSON parser would stop there
  GRADUS_CHECK(nul == json.npos, IoError, "'", file, "': the header has a NUL at its byte ", nul);
  SafetensorsHeader header;
  HeaderReader reader(file, &header);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);

  // A tensor without elements is between its neighbours: it sorts before one that begins at the same byte.
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const auto& a, const auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  uint64_t covered = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    const std::string where = "'" + file + "': tensor '" + entry.name + "' ";
    GRADUS_CHECK(entry.begin <= entry.end && entry.end <= data_bytes, IoError, where, "has data_offsets [", entry.begin,
                 ", ", entry.end, "] in ", data_bytes, " bytes of data");
    uint64_t bytes = 0;
    GRADUS_CHECK(byte_count(entry, &bytes), IoError, where, "of shape ", entry.shape, " is too large for this machine");
    GRADUS_CHECK(bytes == entry.end - entry.begin, IoError, where, "of shape ", entry.shape, " and ", entry.dtype,
                 " has ", bytes, " bytes, but its data_offsets span ", entry.end - entry.begin);
    GRADUS_CHECK(entry.begin == covered, IoError, where, "begins at byte ", entry.begin,
                 ", but the tensors before it end at ", covered);
    covered = entry.end;
  }
  GRADUS_CHECK(covered == data_bytes, IoError, "'", file, "' has ", data_bytes - covered,
               " bytes that belong to no tensor");
  return header;
}

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

}  // namespace gradus::io
