#include <gradus/core/io/crc32c.h>

#include <array>

namespace gradus::io {
namespace {

/// Remainders of all bytes by the polynomial 0x1EDC6F41, bits reversed.
constexpr std::array<uint32_t, 256> kRemainders = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1 ? 0x82F63B78u : 0u);
    table[byte] = remainder;
  }
  return table;
}();

}  // namespace

uint32_t crc32c(ByteSpan bytes, uint32_t before) {
  uint32_t crc = ~before;
  for (std::byte byte : bytes) crc = crc >> 8 ^ kRemainders[(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

}  // namespace gradus::io
