#include <gradus/distributed/comm/frame.h>

#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>

namespace gradus::dist {
namespace {

constexpr uint32_t kMagic = 0x47524453;  // "GRDS"
constexpr size_t kHeaderChecksumAt = 6, kChecksumAt = 20;

uint16_t header_checksum(io::ByteSpan header) {
  const uint32_t before = io::crc32c(header.first(kHeaderChecksumAt));
  return static_cast<uint16_t>(
      io::crc32c(header.subspan(kHeaderChecksumAt + 2, kChecksumAt - kHeaderChecksumAt - 2), before));
}

uint32_t checksum(io::ByteSpan header, io::ByteSpan payload) {
  return io::crc32c(payload, io::crc32c(header.first(kChecksumAt)));
}

}  // namespace

io::Bytes Frame::encode() const {
  io::Bytes bytes(kHeaderBytes);
  io::write_big_endian(kMagic, &bytes[0]);
  io::write_big_endian(kVersion, &bytes[4]);
  io::write_big_endian(type, &bytes[5]);
  io::write_big_endian(id, &bytes[8]);
  io::write_big_endian(static_cast<uint32_t>(payload.size()), &bytes[16]);
  io::write_big_endian(header_checksum(bytes), &bytes[kHeaderChecksumAt]);
  io::write_big_endian(checksum(bytes, payload), &bytes[kChecksumAt]);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

std::optional<Frame> FrameReader::next() {
  if (buffer_.size() < Frame::kHeaderBytes) return std::nullopt;
  const std::byte* header = buffer_.data();
  GRADUS_CHECK(io::read_big_endian<uint32_t>(header) == kMagic, CommError,
               "the bytes that arrived are not a frame of gradus");
  const auto version = io::read_big_endian<uint8_t>(header + 4);
  GRADUS_CHECK(version == Frame::kVersion, CommError, "the other side speaks version ", version,
               " of the protocol, this one ", Frame::kVersion);
  GRADUS_CHECK(io::read_big_endian<uint16_t>(header + kHeaderChecksumAt) == header_checksum({header, kChecksumAt}),
               CommError, "the header of a frame arrived damaged: its checksum differs");
  const auto length = io::read_big_endian<uint32_t>(header + 16);
  GRADUS_CHECK(length <= payload_limit_, CommError, "a frame announces ", length, " bytes; at most ", payload_limit_,
               " are accepted");
  const size_t whole = Frame::kHeaderBytes + length;
  if (buffer_.size() < whole) return std::nullopt;

  const io::ByteSpan payload(header + Frame::kHeaderBytes, length);
  GRADUS_CHECK(io::read_big_endian<uint32_t>(header + kChecksumAt) == checksum({header, kChecksumAt}, payload),
               CommError, "a frame arrived damaged: its checksum differs");
  Frame frame{io::read_big_endian<uint8_t>(header + 5), io::read_big_endian<uint64_t>(header + 8),
              io::Bytes(payload.begin(), payload.end())};
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(whole));
  return frame;
}

PayloadWriter& PayloadWriter::number(uint64_t value) {
  std::byte bytes[8];
  io::write_big_endian(value, bytes);
  return this->bytes(bytes);
}

PayloadWriter& PayloadWriter::string(std::string_view value) {
  std::byte length[4];
  io::write_big_endian(static_cast<uint32_t>(value.size()), length);
  return bytes(length).bytes(std::as_bytes(std::span(value)));
}

PayloadWriter& PayloadWriter::bytes(io::ByteSpan value) {
  payload_.insert(payload_.end(), value.begin(), value.end());
  return *this;
}

uint64_t PayloadReader::number() { return io::read_big_endian<uint64_t>(bytes(8).data()); }

std::string_view PayloadReader::string() {
  const io::ByteSpan value = bytes(io::read_big_endian<uint32_t>(bytes(4).data()));
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

io::ByteSpan PayloadReader::bytes(size_t count) {
  GRADUS_CHECK(count <= rest_.size(), CommError, "a message ends ", count - rest_.size(), " bytes too early");
  const io::ByteSpan value = rest_.first(count);
  rest_ = rest_.subspan(count);
  return value;
}

void PayloadReader::expect_end() const {
  GRADUS_CHECK(rest_.empty(), CommError, "a message has ", rest_.size(), " bytes too many");
}

}  // namespace gradus::dist
