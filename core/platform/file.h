// Files as bytes: reading with a size limit, and writing that leaves either the complete old file or the complete new
// one. Every error is an IoError that names the path and the cause.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradus/core/error.h>

namespace gradus::io {

using Bytes = std::vector<std::byte>;
using ByteSpan = std::span<const std::byte>;

/// Default size limit of read_file: 2 GiB.
inline constexpr uint64_t kReadLimit = uint64_t{1} << 31;

/// A regular file open for reading.
class InputFile : NoCopy {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();

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
class AtomicFile : NoCopy {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();

  void write(const void* data, size_t bytes);
  void commit();

 private:
  std::string path_, target_, temporary_path_;  // target_ is path_ with symbolic links resolved
  int descriptor_ = -1;
};

/// Writes `bytes` as the whole file, through AtomicFile.
void write_file(const std::string& path, ByteSpan bytes);
void write_file(const std::string& path, std::string_view text);

/// A new file that grows by appending. append() hands the text to the operating system, so another process can read it
/// from then on.
class AppendFile : NoCopy {
 public:
  AppendFile() = default;
  ~AppendFile();

  /// Creates the file. Returns false, with nothing done, if there is a file of this name.
  bool create(const std::string& path);
  /// Appends `text` and empties it. If the write fails, `text` keeps the part that was not appended, for the next
  /// attempt.
  void append(std::string& text);

 private:
  std::string path_;
  int descriptor_ = -1;
};

// ---- Faults that tests inject ----

/// Called before each system call of AtomicFile: "open", "lock", "write", "sync", "mode", "rename", "close", "unlink",
/// "list". A result other than 0 is the errno that the call fails with. For "write", `bytes` points to the length,
/// which the function may reduce; for the other calls it is null.
using FileFault = int (*)(const char* call, size_t* bytes);

/// Called before InputFile reads `bytes` bytes; it may wait, like a slow disk, or throw.
using ReadFault = void (*)(const std::string& path, size_t bytes);

/// Null except in tests.
inline std::atomic<FileFault> file_fault{nullptr};
inline std::atomic<ReadFault> read_fault{nullptr};

}  // namespace gradus::io
