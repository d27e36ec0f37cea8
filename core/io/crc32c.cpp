#include <gradus/core/io/crc32c.h>

#include <array>

namespace gradus::io {
namespace {

constexpr size_t kStep = 8;  // bytes per step; the processor can do their table look-ups at the same time

/// [k][byte]: the remainder of a byte followed by k zero bytes, for the polynomial 0x1EDC6F41, bits reversed.
constexpr auto kRemainders = [] {
  std::array<std::array<uint32_t, 256>, kStep> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1 ? 0x82F63B78u : 0u);
    tables[0][byte] = remainder;
  }
  for (size_t k = 1; k < kStep; ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}();

}  // namespace

// Eight bytes per step, after Kounavis and Berry, "A systematic approach to building high performance software-based
// CRC generators", 2005.
uint32_t crc32c(ByteSpan bytes, uint32_t before) {
  uint32_t crc = ~before;
  for (; bytes.size() >= kStep; bytes = bytes.subspan(kStep)) {
    uint32_t remainder = 0;
    for (size_t i = 0; i < kStep; ++i) {
      const uint32_t carried = i < 4 ? crc >> 8 * i & 0xff : 0;
      remainder ^= kRemainders[kStep - 1 - i][static_cast<uint32_t>(bytes[i]) ^ carried];
    }
    crc = remainder;
  }
  for (std::byte byte : bytes) crc = crc >> 8 ^ kRemainders[0][(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

}  // namespace gradus::io
