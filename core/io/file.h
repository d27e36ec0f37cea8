// Files as bytes: reading with a size limit, gzip, and writing that leaves either the complete old file or the complete
// new one. Every error is an IoError that names the path and the cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gradus/core/error.h>

struct z_stream_s;  // zlib's

namespace gradus::io {

using Bytes = std::vector<std::byte>;
using ByteSpan = std::span<const std::byte>;

/// Default size limit of read_file: 2 GiB.
inline constexpr uint64_t kReadLimit = uint64_t{1} << 31;

/// Maximum number of bytes that one byte of deflate data (gzip, PNG) can expand to: one bit codes a length of 258 bytes
/// and one bit their distance.
inline constexpr int kMostDeflateRatio = 1032;

/// A regular file open for reading.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Size of the file in bytes when it was opened.
  uint64_t size() const { return size_; }
  /// Fills `to` with the bytes from `offset` on. Throws an IoError if the file ends before that.
  void read_at(uint64_t offset, void* to, size_t bytes) const;
  /// The first `bytes` bytes, or the whole file if it is shorter.
  Bytes start(size_t bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// Reads the whole file. Throws an IoError if it has more than `limit` bytes.
Bytes read_file(const std::string& path, uint64_t limit = kReadLimit);

/// True if `bytes` begins with a gzip header (RFC 1952).
bool is_gzip(ByteSpan bytes);

/// Decompresses a gzip file with all its members, only as far as requested: the reader of a format whose header states
/// a size decompresses no more than that. `bytes` must outlive the reader; `name` identifies the file in messages.
class GzipReader {
 public:
  GzipReader(ByteSpan bytes, std::string name);
  /// Fills `to` with the next bytes and returns their number, which is less than `bytes` only at the end of the data,
  /// after its checksums were verified.
  size_t read(void* to, size_t bytes);
  /// Decompressed size in bytes modulo 2^32, as stated at the end of the file (not verified). Empty if the file may
  /// have several members, since it is then the size of the last one.
  std::optional<uint32_t> size_in_trailer() const;

 private:
  ByteSpan bytes_;
  std::string name_;
  size_t consumed_ = 0;
  bool ended_ = false;
  std::unique_ptr<z_stream_s, void (*)(z_stream_s*)> stream_;
};

/// A file that appears under its name only when complete. Bytes are written to a temporary file in the same directory,
/// <name>.<process>-<number>.tmp; commit() flushes it to disk, renames it and flushes the directory. Without commit()
/// the temporary file is removed. A temporary file of a killed process is removed by the next AtomicFile of the same
/// name, which recognises it by the missing lock of its writer.
///
/// Symbolic links are followed: the file that the link names is replaced or created, and the link stays. If the path is
/// something other than a regular file (a directory, device or pipe), an IoError is thrown and nothing changes. The new
/// file has the permissions of the one that it replaces, and its owner and group if the process may set them. Other
/// hard links keep the old file.
///
/// If commit() fails, the old file is in place, with one exception: if the last step, flushing the directory, fails,
/// the new file is in place, but a power failure may still undo that.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void commit();

 private:
  std::string path_, target_, temporary_path_;  // target_ is path_ with symbolic links resolved
  int descriptor_ = -1;
};

/// Writes `bytes` as the whole file, through AtomicFile.
void write_file(const std::string& path, ByteSpan bytes);
void write_file(const std::string& path, std::string_view text);

}  // namespace gradus::io
