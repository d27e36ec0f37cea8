// Decompression of gzip files (RFC 1952).
#pragma once

#include <memory>
#include <optional>

#include <gradus/core/platform/file.h>

struct z_stream_s;  // from zlib.h

namespace gradus::io {

/// Maximum number of bytes that one byte of deflate data (gzip, PNG) can expand to: one bit codes a length of 258 bytes
/// and one bit their distance.
inline constexpr int kMostDeflateRatio = 1032;

/// True if `bytes` begins with a gzip header (RFC 1952).
bool is_gzip(ByteSpan bytes);

/// Decompresses a gzip file with all its members. Each read() decompresses only the requested bytes. A caller that
/// learns the size of the content from its first bytes therefore need not decompress more than that, even if a
/// malicious file would expand much further. `bytes` must outlive the reader; `name` identifies the file in messages.
class GzipReader {
 public:
  GzipReader(ByteSpan bytes, std::string name);
  /// Fills `to` with the next bytes and returns their number, which is less than `bytes` only at the end of the data,
  /// after its checksums were verified.
  size_t read(void* to, size_t bytes);
  /// Decompressed size in bytes modulo 2^32, as stated at the end of the file (not verified). Empty if the file may
  /// have several members, because the end of the file then states only the size of the last one.
  std::optional<uint32_t> size_in_trailer() const;

 private:
  ByteSpan bytes_;
  std::string name_;
  size_t consumed_ = 0;
  bool ended_ = false;
  std::unique_ptr<z_stream_s, void (*)(z_stream_s*)> stream_;
};

}  // namespace gradus::io
