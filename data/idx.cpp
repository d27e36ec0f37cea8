#include <gradus/data/idx.h>

#include <cstring>

#include <gradus/core/io/byte_order.h>

namespace gradus::data {
namespace {

DType dtype_of_code(int code, const std::string& name) {
  switch (code) {
    case 0x08: return DType::u8;
    case 0x0C: return DType::i32;
    case 0x0D: return DType::f32;
    case 0x0E: return DType::f64;
  }
  GRADUS_FAIL(IoError, "'", name, "' has IDX element type ", code,
              "; known are 8 (unsigned byte), 12 (int32), 13 (float32) and 14 (float64)");
}

}  // namespace

Array parse_idx(io::ByteSpan bytes, const std::string& name) {
  GRADUS_CHECK(bytes.size() >= 4 && bytes[0] == std::byte{0} && bytes[1] == std::byte{0}, IoError, "'", name,
               "' is not an IDX file: it does not begin with two zero bytes and a type");
  const DType dtype = dtype_of_code(static_cast<int>(bytes[2]), name);
  const int ndim = static_cast<int>(bytes[3]);
  GRADUS_CHECK(ndim <= kMaxDims, IoError, "'", name, "' has ", ndim, " dimensions, at most ", kMaxDims,
               " are supported");
  const size_t header_bytes = 4 + 4 * static_cast<size_t>(ndim);
  GRADUS_CHECK(bytes.size() >= header_bytes, IoError, "'", name, "' is truncated in its header");

  Shape shape;
  uint64_t data_bytes = size_of(dtype);
  bool empty = false, overflow = false;
  for (int i = 0; i < ndim; ++i) {
    const uint32_t size = io::read_big_endian<uint32_t>(&bytes[4 + 4 * static_cast<size_t>(i)]);
    shape.push_back(size);
    empty |= size == 0;
    overflow |= size != 0 && __builtin_mul_overflow(data_bytes, size, &data_bytes);
  }
  GRADUS_CHECK(!overflow && data_bytes <= INT64_MAX, IoError, "'", name, "': shape ", shape,
               " is too large for this machine");
  if (empty) data_bytes = 0;
  GRADUS_CHECK(data_bytes == bytes.size() - header_bytes, IoError, "'", name, "': shape ", shape, " of ", dtype,
               " needs ", data_bytes, " bytes of data, the file has ", bytes.size() - header_bytes);

  const Array array = Array::empty(shape, dtype);
  if (data_bytes > 0) std::memcpy(array.data(), bytes.data() + header_bytes, data_bytes);
  io::convert_byte_order(array.data(), static_cast<size_t>(array.numel()), size_of(dtype), std::endian::big);
  return array;
}

Array read_idx(const std::string& path) { return parse_idx(io::read_file_or_gzip(path), path); }

}  // namespace gradus::data
