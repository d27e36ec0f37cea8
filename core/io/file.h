// Files as bytes: reading with a limit, gzip, and writing that leaves the old file or the new one, never half of
// either. Every error is an IoError that names the path and the cause.
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

/// What read_file accepts unless told otherwise: 2 GiB.
inline constexpr uint64_t kReadLimit = uint64_t{1} << 31;

/// Bytes that one byte of deflate's (gzip, PNG) can unpack to: a code of one bit for 258 bytes, and one for their
/// distance.
inline constexpr int kMostDeflateRatio = 1032;

/// A regular file open for reading.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Bytes in the file when it was opened.
  uint64_t size() const { return size_; }
  /// Fills `to` with the bytes from `offset` on; a file that ends before that is an IoError.
  void read_at(uint64_t offset, void* to, size_t bytes) const;
  /// The first `bytes` bytes, or all of a shorter file.
  Bytes start(size_t bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// The whole file, which may have at most `limit` bytes.
Bytes read_file(const std::string& path, uint64_t limit = kReadLimit);

/// True if `bytes` begin as gzip (RFC 1952) does.
bool is_gzip(ByteSpan bytes);

/// Decompresses a gzip file, all its members, as far as is asked for: the reader of a format whose header tells a size
/// decompresses no more than that. `bytes` must stay there; `name` stands for the file in messages.
class GzipReader {
 public:
  GzipReader(ByteSpan bytes, std::string name);
  /// Fills `to` with the next bytes and returns their number: fewer than `bytes` where the data end, checksums
  /// verified.
  size_t read(void* to, size_t bytes);
  /// What the data unpack to, in bytes modulo 2^32, as the end of the file says without being verified. None where the
  /// file may have several members: then it is the size of the last one.
  std::optional<uint32_t> size_in_trailer() const;

 private:
  ByteSpan bytes_;
  std::string name_;
  size_t consumed_ = 0;
  bool ended_ = false;
  std::unique_ptr<z_stream_s, void (*)(z_stream_s*)> stream_;
};

/// A file that appears under its name only when complete. Bytes go to a temporary file in the same directory,
/// <name>.<process>-<number>.tmp; commit() flushes it to disk, renames it and flushes the directory. Without commit()
/// the temporary file is removed. One that a process left behind when it was killed is removed by the next AtomicFile
/// of the same name: writers hold a lock on theirs.
///
/// A symbolic link is followed: the file that it names is replaced, or made where it is missing, and the link stays.
/// What is there and no regular file (a directory, device or pipe) is an IoError, and stays. The new file has the
/// permissions of the one that it replaces, and its owner and group where the process may set them; other hard links
/// keep the old one.
///
/// When commit() fails, the old file is there; only when flushing the directory fails, the last step, it is the new
/// one, which a power cut may still undo.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void commit();

 private:
  std::string path_, target_, temporary_path_;  // target_ is path_ with symbolic links followed
  int descriptor_ = -1;
};

/// Writes `bytes` as the whole file, by way of AtomicFile.
void write_file(const std::string& path, ByteSpan bytes);
void write_file(const std::string& path, std::string_view text);

}  // namespace gradus::io
