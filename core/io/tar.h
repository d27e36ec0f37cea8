// Tar archives, read and written file by file: ustar and pax (POSIX.1-2017, utility pax, "pax Interchange Format" and
// "ustar Interchange Format"), and GNU tar's extensions for long names and large sizes.
#pragma once

#include <functional>
#include <optional>

#include <gradus/core/platform/file.h>

namespace gradus::io {

/// Maximum size of a file in an archive: 256 MiB.
inline constexpr uint64_t kMostTarFileBytes = uint64_t{1} << 28;

/// A regular file in an archive.
struct TarFile {
  std::string name;
  uint64_t offset = 0;  ///< position of the file's first header in the archive; a TarReader may start there
  Bytes data;
};

/// Reads an archive from its beginning, or from the first header of any of its files on. Links, directories and devices
/// are skipped. Throws an IoError that names the archive and the byte for a truncated or damaged archive, a sparse
/// file, a file of more than kMostTarFileBytes, and a name that leads out of the folder where the archive is unpacked.
class TarReader {
 public:
  /// Fills `to` with the `bytes` bytes at `offset`, or throws.
  using ReadAt = std::function<void(uint64_t offset, void* to, size_t bytes)>;

  /// `archive` identifies the archive, which has `size` bytes, in messages.
  TarReader(ReadAt read_at, uint64_t size, std::string archive, uint64_t offset = 0)
      : read_at_(std::move(read_at)), size_(size), offset_(offset), archive_(std::move(archive)) {}

  /// The next file; empty at the end.
  std::optional<TarFile> next();
  /// Offset of the next file's headers, or of the end of the archive.
  uint64_t offset() const { return offset_; }

 private:
  struct Extended {  // name and size of the next file, if extension headers give them
    std::optional<std::string> name;
    std::optional<uint64_t> size;
  };
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const;
  Bytes read(uint64_t bytes, uint64_t most);
  uint64_t number(std::string_view digits, int base) const;
  uint64_t field_number(std::string_view field) const;
  void read_pax(std::string_view records, Extended& extended) const;

  ReadAt read_at_;
  uint64_t size_, offset_;
  std::string archive_;
};

/// Writes an archive that appears under its name when commit() is called (AtomicFile).
class TarWriter {
 public:
  explicit TarWriter(const std::string& path) : file_(path) {}
  /// Throws a ValueError for a name that TarReader would reject and for more than kMostTarFileBytes.
  void add(const std::string& name, ByteSpan data);
  void add(const std::string& name, std::string_view text) { add(name, std::as_bytes(std::span<const char>(text))); }
  void commit();

 private:
  void write_entry(char type, std::string_view name, ByteSpan data);

  AtomicFile file_;
};

}  // namespace gradus::io
