// The format of messages between a store and its clients. Numbers are in network byte order on every machine.
//
//   offset  0  magic "GRDS"            4 bytes
//           4  version                 1
//           5  type                    1   what the payload is: store.h
//           6  CRC-32C, its low half   2   of bytes 0-5 and 8-19, so that a damaged length is found before it is used
//           8  request id              8   a reply has the id of its request
//          16  length of the payload   4
//          20  CRC-32C                 4   of these 20 bytes and the payload
//          24  payload
//
// A payload is a sequence of numbers (8 bytes) and strings (4 bytes of length, then the bytes).
#pragma once

#include <optional>
#include <string_view>

#include <gradus/core/platform/file.h>

namespace gradus::dist {

struct Frame {
  static constexpr uint8_t kVersion = 1;
  static constexpr size_t kHeaderBytes = 24;

  uint8_t type = 0;
  uint64_t id = 0;
  io::Bytes payload;

  /// The frame as it is sent.
  io::Bytes encode() const;
};

/// Extracts frames from a stream of bytes that arrive in pieces of any size and may come from an untrusted sender. It
/// buffers only bytes that have arrived and never reserves memory for an announced length.
class FrameReader {
 public:
  explicit FrameReader(uint32_t payload_limit) : payload_limit_(payload_limit) {}

  void set_payload_limit(uint32_t bytes) { payload_limit_ = bytes; }
  void append(io::ByteSpan bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }
  /// Returns the next frame, or nothing if it has not arrived completely. Throws a CommError if the bytes are not a
  /// frame, if its version or a checksum is wrong, or if its payload exceeds the limit.
  std::optional<Frame> next();

 private:
  uint32_t payload_limit_;
  io::Bytes buffer_;
};

/// Writes a payload part by part.
class PayloadWriter {
 public:
  PayloadWriter& number(uint64_t value);
  PayloadWriter& string(std::string_view value);
  PayloadWriter& bytes(io::ByteSpan value);
  io::Bytes take() { return std::move(payload_); }

 private:
  io::Bytes payload_;
};

/// Reads a payload part by part. Throws a CommError if the payload ends too early.
class PayloadReader {
 public:
  explicit PayloadReader(io::ByteSpan payload) : rest_(payload) {}

  uint64_t number();
  std::string_view string();
  /// The next `count` bytes.
  io::ByteSpan bytes(size_t count);
  bool at_end() const { return rest_.empty(); }
  /// Throws a CommError if bytes are left over.
  void expect_end() const;

 private:
  io::ByteSpan rest_;
};

}  // namespace gradus::dist
