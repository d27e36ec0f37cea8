// CRC-32C (Castagnoli), the checksum of TFRecord files: RFC 3720, appendix B.4.
#pragma once

#include <cstdint>

#include <gradus/core/io/file.h>

namespace gradus::io {

uint32_t crc32c(ByteSpan bytes);

}  // namespace gradus::io
