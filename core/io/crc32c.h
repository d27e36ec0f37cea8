// CRC-32C (Castagnoli), the checksum of TFRecord files and of messages between processes: RFC 3720, appendix B.4.
#pragma once

#include <cstdint>

#include <gradus/core/platform/file.h>

namespace gradus::io {

/// Checksum of `bytes`, continued from `before`, the checksum of the preceding bytes: crc32c(b, crc32c(a)) is the
/// checksum of a followed by b.
uint32_t crc32c(ByteSpan bytes, uint32_t before = 0);

}  // namespace gradus::io
