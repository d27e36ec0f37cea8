#include <gradus/core/io/npy.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include <gradus/core/io/array_bytes.h>
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/file_kind.h>

namespace gradus::io {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

struct NpyType {
  std::string_view code;
  DType dtype;
};
constexpr NpyType kNpyTypes[] = {{"f4", DType::f32}, {"f8", DType::f64}, {"f2", DType::f16},    {"i8", DType::i64},
                                 {"i4", DType::i32}, {"u1", DType::u8},  {"b1", DType::boolean}};

struct NpyHeader {
  DType dtype = DType::f32;
  std::endian order = std::endian::little;
  bool fortran_order = false;
  Shape shape;
};

// Parses the header: a Python dictionary with three keys in any order. Accepts the literals that NumPy writes.
class NpyHeaderReader {
 public:
  NpyHeaderReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  NpyHeader read() {
    bool descr = false, order = false, shape = false;
    read_list('{', '}', [&] {
      const std::string_view key = quoted();
      bool* seen = key == "descr" ? &descr : key == "fortran_order" ? &order : key == "shape" ? &shape : nullptr;
      check(seen != nullptr, "unknown header field '", key, "'");
      check(!*seen, "header field '", key, "' appears twice");
      *seen = true;
      expect(':');
      if (seen == &descr) read_dtype();
      if (seen == &order) header_.fortran_order = boolean();
      if (seen == &shape) read_shape();
    });
    skip_spaces();
    check(text_.empty(), "the header continues after its dictionary");
    check(descr && order && shape, "the header needs descr, fortran_order and shape");
    return header_;
  }

 private:
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    GRADUS_CHECK(condition, IoError, "'", file_, "': ", parts...);
  }
  void skip_spaces() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) text_.remove_prefix(1);
  }
  bool accept(char wanted) {
    skip_spaces();
    if (text_.empty() || text_.front() != wanted) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char wanted) { check(accept(wanted), "the header lacks a '", wanted, "'"); }
  // Reads a list whose items are separated by commas; a comma may follow the last item. read_item() reads one item.
  template <class F>
  void read_list(char open, char close, const F& read_item) {
    expect(open);
    for (bool more = true; !accept(close); more = accept(',')) {
      if (!more) expect(close);
      read_item();
    }
  }
  std::string_view quoted() {
    skip_spaces();
    const char quote = !text_.empty() && text_.front() == '"' ? '"' : '\'';
    expect(quote);
    const size_t end = text_.find(quote);
    check(end != text_.npos, "the header has a string without an end");
    const std::string_view inside = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return inside;
  }
  bool boolean() {
    skip_spaces();
    const bool value = text_.starts_with("True");
    check(value || text_.starts_with("False"), "fortran_order is neither True nor False");
    text_.remove_prefix(value ? 4 : 5);
    return value;
  }
  void read_dtype() {
    const std::string_view descr = quoted();
    const std::string_view code = descr.substr(std::min<size_t>(1, descr.size()));
    const auto* known = std::ranges::find(kNpyTypes, code, &NpyType::code);
    const char order = descr.empty() ? '\0' : descr.front();
    const bool known_order =
        order == '<' || order == '>' || (order == '|' && known != std::end(kNpyTypes) && size_of(known->dtype) == 1);
    check(known != std::end(kNpyTypes) && known_order, "dtype '", descr,
          "' is not supported; known are f2 f4 f8 i4 i8 u1 b1 with < or > before");
    header_.dtype = known->dtype;
    header_.order = order == '>' ? std::endian::big : std::endian::little;
  }
  void read_shape() {
    read_list('(', ')', [&] {
      check(header_.shape.size() < kMaxDims, "the array has more than ", kMaxDims, " dimensions");
      header_.shape.push_back(integer());
    });
  }
  int64_t integer() {
    skip_spaces();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    check(error == std::errc() && !text_.starts_with('-'), "the shape has an invalid size");
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    if (text_.starts_with('L')) text_.remove_prefix(1);  // Python 2 wrote (3L, 4L)
    return value;
  }

  std::string_view text_;
  const std::string& file_;
  NpyHeader header_;
};

}  // namespace

Array parse_npy(ByteSpan bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  GRADUS_CHECK(text.substr(0, kNpyMagic.size()) == kNpyMagic && bytes.size() >= 10, IoError, "'", name,
               "' is not an npy file: it does not begin with \\x93NUMPY and a version", described(bytes));
  const int version = static_cast<int>(bytes[6]);
  GRADUS_CHECK(version >= 1 && version <= 3, IoError, "'", name, "' has npy version ", version,
               "; known are 1, 2 and 3");
  const size_t length_bytes = version == 1 ? 2 : 4;
  GRADUS_CHECK(bytes.size() >= 8 + length_bytes, IoError, "'", name, "' is truncated in its header");
  const uint64_t length =
      version == 1 ? read_little_endian<uint16_t>(&bytes[8]) : read_little_endian<uint32_t>(&bytes[8]);
  const size_t begin = 8 + length_bytes;
  GRADUS_CHECK(length <= bytes.size() - begin, IoError, "'", name, "' is truncated: the header has ", length,
               " bytes, the file ", bytes.size());

  const NpyHeader header = NpyHeaderReader(text.substr(begin, length), name).read();
  const ByteSpan data = bytes.subspan(begin + length);
  const std::optional<uint64_t> wanted = byte_count(header.shape, header.dtype);
  GRADUS_CHECK(wanted, IoError, "'", name, "': shape ", header.shape, " is too large for this machine");
  GRADUS_CHECK(*wanted == data.size(), IoError, "'", name, "': shape ", header.shape, " of ", header.dtype, " needs ",
               *wanted, " bytes of data, the file has ", data.size());

  Shape in_memory = header.shape;
  if (header.fortran_order) std::ranges::reverse(in_memory);
  const Array array = Array::empty(in_memory, header.dtype);
  std::ranges::copy(data, static_cast<std::byte*>(array.data()));
  convert_byte_order(array.data(), static_cast<size_t>(array.numel()), size_of(header.dtype), header.order);
  check_booleans(array, "'" + name + "'");
  if (!header.fortran_order) return array;
  Dims axes;
  for (int axis = array.ndim() - 1; axis >= 0; --axis) axes.push_back(axis);
  return array.permute(axes);
}

Bytes encode_npy(const Array& array) {
  GRADUS_CHECK(array.dtype() != DType::bf16, DTypeError,
               "npy has no bfloat16: convert to float32, or save as safetensors");
  const auto* known = std::ranges::find(kNpyTypes, array.dtype(), &NpyType::dtype);
  std::string header = std::string("{'descr': '") + (size_of(array.dtype()) == 1 ? '|' : '<') +
                       std::string(known->code) + "', 'fortran_order': False, 'shape': " + to_string(array.shape()) +
                       ", }";
  constexpr size_t kBeforeHeader = 10, kAlignment = 64;
  header.append(kAlignment - (kBeforeHeader + header.size() + 1) % kAlignment, ' ').append("\n");

  const Array host = contiguous_on_cpu(array);
  Bytes bytes(kBeforeHeader + header.size() + host.nbytes());
  std::memcpy(bytes.data(), kNpyMagic.data(), kNpyMagic.size());
  bytes[6] = std::byte{1};  // version 1.0
  write_little_endian(static_cast<uint16_t>(header.size()), bytes.data() + 8);
  std::memcpy(bytes.data() + kBeforeHeader, header.data(), header.size());
  std::byte* const elements = bytes.data() + kBeforeHeader + header.size();
  std::copy_n(static_cast<const std::byte*>(host.data()), host.nbytes(), elements);
  convert_byte_order(elements, static_cast<size_t>(host.numel()), size_of(host.dtype()), std::endian::little);
  return bytes;
}

}  // namespace gradus::io
