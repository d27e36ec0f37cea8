// Messages between a store and its clients, in network byte order whatever the machine:
//
//   offset  0  magic "GRDS"            4 bytes
//           4  version                 1
//           5  type                    1   what the payload is: store_protocol.h
//           6  CRC-32C, its low half   2   of the header's bytes up to 20 but these: a damaged length is not waited for
//           8  request id              8   a reply carries its request's
//          16  length of the payload   4
//          20  CRC-32C                 4   of these 20 bytes and the payload
//          24  payload
//
// A payload is a sequence of numbers (8 bytes) and strings (4 bytes of length, then the bytes).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <gradus/core/io/file.h>

namespace gradus::dist {

struct Frame {
  static constexpr uint8_t kVersion = 1;
  static constexpr size_t kHeaderBytes = 24;

  uint8_t type = 0;
  uint64_t id = 0;
  io::Bytes payload;

  /// The bytes that travel.
  io::Bytes encode() const;
};

/// Cuts frames out of a stream of bytes that may come in pieces of any size and from anybody. It holds what came, and
/// never reserves what a length only promises.
class FrameReader {
 public:
  explicit FrameReader(uint32_t payload_limit) : payload_limit_(payload_limit) {}

  void set_payload_limit(uint32_t bytes) { payload_limit_ = bytes; }
  void append(io::ByteSpan bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }
  /// The next complete frame, or nothing until more bytes come. Bytes that are no frame are a CommError.
  std::optional<Frame> next();

 private:
  uint32_t payload_limit_;
  io::Bytes buffer_;
};

/// Writes the parts of a payload.
class PayloadWriter {
 public:
  PayloadWriter& number(uint64_t value);
  PayloadWriter& string(std::string_view value);
  PayloadWriter& bytes(io::ByteSpan value);
  io::Bytes take() { return std::move(payload_); }

 private:
  io::Bytes payload_;
};

/// Reads them; a payload that ends too early is a CommError.
class PayloadReader {
 public:
  explicit PayloadReader(io::ByteSpan payload) : rest_(payload) {}

  uint64_t number();
  std::string_view string();
  /// The next `count` bytes.
  io::ByteSpan bytes(size_t count);
  bool at_end() const { return rest_.empty(); }
  /// A payload with bytes left over is a CommError.
  void expect_end() const;

 private:
  io::ByteSpan rest_;
};

}  // namespace gradus::dist
