// Writing protocol buffers: only the wire types that event files and ONNX models need.
// Format: https://protobuf.dev/programming-guides/encoding.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::io {

/// One message, written field by field. Bytes are little-endian on every machine.
class ProtobufMessage {
 public:
  ProtobufMessage& integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtobufMessage& number(int field, double value) {
    key(field, 1);
    fixed(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  ProtobufMessage& number(int field, float value) {
    key(field, 5);
    fixed(std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  ProtobufMessage& text(int field, std::string_view bytes) {
    key(field, 2);
    varint(bytes.size());
    bytes_.append(bytes);
    return *this;
  }
  ProtobufMessage& message(int field, const ProtobufMessage& inner) { return text(field, inner.bytes_); }
  /// A packed repeated field.
  ProtobufMessage& numbers(int field, const std::vector<double>& values) {
    key(field, 2);
    varint(8 * values.size());
    for (double value : values) fixed(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int wire_type) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  void fixed(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_.push_back(static_cast<char>(value >> 8 * i));
  }
  std::string bytes_;
};

}  // namespace gradus::io
