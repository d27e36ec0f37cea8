#include <gradus/core/io/file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace gradus::io {
namespace {

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

[[noreturn]] void fail(const char* what, const std::string& path) {
  const std::string cause = std::strerror(errno);
  GRADUS_FAIL(IoError, "cannot ", what, " '", path, "': ", cause);
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  // Non-blocking, so that a named pipe is refused below instead of waited for.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail("open", path);
  struct stat status;
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    GRADUS_FAIL(IoError, "cannot read '", path, "': it is not a regular file");
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::~InputFile() { close(descriptor_); }

void InputFile::read_at(uint64_t offset, void* to, size_t bytes) const {
  char* cursor = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, cursor, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path_);
    GRADUS_CHECK(got > 0, IoError, "cannot read '", path_, "': it ends at byte ", offset, ", ", bytes,
                 " bytes too early");
    cursor += got, offset += static_cast<uint64_t>(got), bytes -= static_cast<size_t>(got);
  }
}

Bytes read_file(const std::string& path, uint64_t limit) {
  const InputFile file(path);
  GRADUS_CHECK(file.size() <= limit, IoError, "'", path, "' has ", file.size(), " bytes; at most ", limit,
               " are accepted");
  Bytes bytes(file.size());
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

Bytes read_file_or_gzip(const std::string& path, uint64_t limit) {
  Bytes bytes = read_file(path, limit);
  return is_gzip(bytes) ? gunzip(bytes, path, limit) : bytes;
}

bool is_gzip(ByteSpan bytes) { return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b}; }

Bytes gunzip(ByteSpan bytes, const std::string& name, uint64_t limit) {
  GRADUS_CHECK(is_gzip(bytes), IoError, "'", name, "' is not a gzip file");
  constexpr int kGzipOnly = 16;  // zlib's flag beside the size of the window
  z_stream stream = {};
  GRADUS_CHECK(inflateInit2(&stream, MAX_WBITS + kGzipOnly) == Z_OK, IoError, "cannot set up zlib for '", name, "'");
  struct Cleanup {
    z_stream* stream;
    ~Cleanup() { inflateEnd(stream); }
  } cleanup{&stream};

  Bytes out;
  size_t filled = 0, consumed = 0;
  while (true) {
    if (filled == out.size()) {
      const uint64_t wanted = std::max<uint64_t>({uint64_t{4} * bytes.size(), uint64_t{2} * filled, 4096});
      out.resize(static_cast<size_t>(std::min(wanted, limit + 1)));
    }
    constexpr size_t kMost = size_t{1} << 30;  // zlib counts in 32 bits
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data() + consumed));
    stream.avail_in = static_cast<uInt>(std::min(bytes.size() - consumed, kMost));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    stream.avail_out = static_cast<uInt>(std::min(out.size() - filled, kMost));
    const uInt in = stream.avail_in, room = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    consumed += in - stream.avail_in;
    filled += room - stream.avail_out;
    GRADUS_CHECK(filled <= limit, IoError, "'", name, "' decompresses to more than the ", limit,
                 " bytes that are accepted");
    if (status == Z_STREAM_END) {
      if (consumed == bytes.size()) break;
      // Another member may follow; its header is checked as the first one's was.
      GRADUS_CHECK(is_gzip(bytes.subspan(consumed)) && inflateReset(&stream) == Z_OK, IoError, "'", name, "' has ",
                   bytes.size() - consumed, " bytes after its gzip data");
      continue;
    }
    const bool going_on = status == Z_OK || status == Z_BUF_ERROR;
    GRADUS_CHECK(!going_on || consumed < bytes.size() || stream.avail_out == 0, IoError, "'", name,
                 "' is truncated: its gzip data ends after ", filled, " decompressed bytes");
    GRADUS_CHECK(going_on, IoError, "'", name, "' has bad gzip data after ", filled,
                 " bytes: ", stream.msg ? stream.msg : "zlib error");
  }
  out.resize(filled);
  return out;
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  static std::atomic<unsigned> counter{0};
  do {  // a name that nobody else uses
    temporary_path_ = path + "." + std::to_string(getpid()) + "-" + std::to_string(counter++) + ".tmp";
    descriptor_ = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail("write", path);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* cursor = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(descriptor_, cursor, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write", path_);
    cursor += put, bytes -= static_cast<size_t>(put);
  }
}

void AtomicFile::commit() {
  if (fsync(descriptor_) != 0) fail("write", path_);
  const int closed = close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail("write", path_);
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) fail("write", path_);
  temporary_path_.clear();
  // The new name is on disk once the directory is. Some file systems cannot flush directories and say EINVAL.
  const std::string directory = directory_of(path_);
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("flush directory", directory);
  const bool flushed = fsync(descriptor) == 0 || errno == EINVAL;
  const int cause = errno;
  close(descriptor);
  errno = cause;
  if (!flushed) fail("flush directory", directory);
}

void write_file(const std::string& path, ByteSpan bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

void write_file(const std::string& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span<const char>(text)));
}

}  // namespace gradus::io
