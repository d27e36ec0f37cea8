#include <gradus/core/platform/file.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

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

/// Makes a system call, unless a fault that a test has installed makes it fail. Restarts it if a signal interrupts it.
template <class Call>
auto system_call(const char* name, const Call& call, size_t* bytes = nullptr) -> decltype(call()) {
  for (;;) {
    const FileFault fault = file_fault.load(std::memory_order_relaxed);
    errno = fault ? fault(name, bytes) : 0;
    const decltype(call()) result = errno ? -1 : call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

int open_file(const std::string& path, int flags, mode_t mode = 0) {
  return system_call("open", [&] { return open(path.c_str(), flags | O_CLOEXEC, mode); });
}
/// Returns false if another process holds the lock. On file systems without locks it returns true.
bool lock_file(int descriptor) {
  return system_call("lock", [&] { return flock(descriptor, LOCK_EX | LOCK_NB); }) == 0 || errno != EWOULDBLOCK;
}
int sync_file(int descriptor) {
  return system_call("sync", [&] { return fsync(descriptor); });
}
/// Ignores errors of close(). In particular it does not retry after EINTR, because the descriptor may already be
/// closed.
void close_file(int descriptor) {
  if (const FileFault fault = file_fault.load(std::memory_order_relaxed)) fault("close", nullptr);
  close(descriptor);
}
void unlink_file(const std::string& path) {
  system_call("unlink", [&] { return unlink(path.c_str()); });
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return '0' <= c && c <= '9'; });
}

/// True for names of temporary files of `target`: target.<process>-<number>.tmp.
bool is_temporary_name(std::string_view name, std::string_view target) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.starts_with(target) || !name.ends_with(kEnd) || name.size() < target.size() + 1 + kEnd.size()) return false;
  const std::string_view middle = name.substr(target.size(), name.size() - target.size() - kEnd.size());
  const size_t dash = middle.find('-');
  return middle[0] == '.' && dash != std::string_view::npos && all_digits(middle.substr(1, dash - 1)) &&
         all_digits(middle.substr(dash + 1));
}

/// The file that open(path, O_CREAT) would write to: `path` with symbolic links resolved.
std::string follow_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as many as the Linux kernel follows
  std::filesystem::path target = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    std::error_code no_link;
    const std::filesystem::path next = std::filesystem::read_symlink(target, no_link);
    if (no_link) return target.string();
    target = target.parent_path() / next;  // only `next` if that is absolute
  }
  errno = ELOOP;
  fail("write", path);
}

/// Gives a new file the owner, group and permissions of `old`. If the group cannot be set, the new group gets only the
/// permissions that everybody has, because the group permissions of `old` were meant for another group.
bool copy_permissions(int descriptor, const struct stat& old) {
  mode_t mode = old.st_mode & 0777;
  if (fchown(descriptor, old.st_uid, old.st_gid) != 0 && fchown(descriptor, static_cast<uid_t>(-1), old.st_gid) != 0)
    mode = (mode & ~mode_t{070}) | (mode & 07) << 3;
  struct stat status;  // file systems without permissions may refuse a mode that the file has already
  return system_call("mode", [&] { return fchmod(descriptor, mode); }) == 0 ||
         (fstat(descriptor, &status) == 0 && (status.st_mode & 0777) == mode);
}

/// Removes the temporary files of `path` whose writers died: no process has locked them. The next AtomicFile of the
/// same name tries again to remove files that cannot be removed now.
void remove_leftovers(const std::string& path) {
  const std::string directory = directory_of(path), target = path.substr(path.rfind('/') + 1);
  if (system_call("list", [] { return 0; }) != 0) return;
  DIR* const entries = opendir(directory.c_str());
  if (!entries) return;
  std::vector<std::string> leftovers;
  while (const dirent* entry = readdir(entries))
    if (is_temporary_name(entry->d_name, target)) leftovers.push_back(directory + "/" + entry->d_name);
  closedir(entries);
  for (const std::string& leftover : leftovers) {
    const int descriptor = open_file(leftover, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) continue;
    if (lock_file(descriptor)) unlink_file(leftover);
    close_file(descriptor);
  }
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  // Non-blocking, so that opening a named pipe does not wait; the pipe is rejected below.
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
  if (const ReadFault fault = read_fault.load(std::memory_order_relaxed)) fault(path_, bytes);
  char* cursor = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, cursor, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path_);
    GRADUS_CHECK(got > 0, IoError, "cannot read '", path_, "': it ends at byte ", offset, ", ", bytes,
                 " bytes too early");
    cursor += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

Bytes InputFile::start(size_t bytes) const {
  Bytes start(static_cast<size_t>(std::min<uint64_t>(bytes, size_)));
  read_at(0, start.data(), start.size());
  return start;
}

Bytes read_file(const std::string& path, uint64_t limit) {
  const InputFile file(path);
  GRADUS_CHECK(file.size() <= limit, IoError, "'", path, "' has ", file.size(), " bytes; at most ", limit,
               " are accepted");
  Bytes bytes(file.size());
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(follow_links(path)) {
  static std::atomic<unsigned> counter{0};
  struct stat status;
  const bool replaces = stat(path.c_str(), &status) == 0;
  GRADUS_CHECK(!replaces || S_ISREG(status.st_mode), IoError, "cannot write '", path, "': it is not a regular file");
  remove_leftovers(target_);
  for (;;) {
    temporary_path_ = target_ + "." + std::to_string(getpid()) + "-" + std::to_string(counter++) + ".tmp";
    descriptor_ = open_file(temporary_path_, O_WRONLY | O_CREAT | O_EXCL, replaces ? 0600 : 0666);
    if (descriptor_ < 0 && errno == EEXIST) continue;
    if (descriptor_ < 0) fail("write", path);
    // The lock shows that the writer is alive. Before the file was locked, another process may have removed it as a
    // leftover.
    if (lock_file(descriptor_) && fstat(descriptor_, &status) == 0 && status.st_nlink > 0) return;
    unlink_file(temporary_path_);
    close_file(descriptor_);
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_path_.empty()) unlink_file(temporary_path_);
  if (descriptor_ >= 0) close_file(descriptor_);
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* cursor = static_cast<const char*>(data);
  while (bytes > 0) {
    size_t wanted = bytes;
    const ssize_t put = system_call(
        "write", [&] { return ::write(descriptor_, cursor, wanted); }, &wanted);
    if (put == 0) errno = ENOSPC;  // write() sets no error here; this is the closest one
    if (put <= 0) fail("write", path_);
    cursor += put, bytes -= static_cast<size_t>(put);
  }
}

void AtomicFile::commit() {
  struct stat old;
  if (stat(target_.c_str(), &old) == 0 && !copy_permissions(descriptor_, old)) fail("write", path_);
  if (sync_file(descriptor_) != 0) fail("write", path_);
  // Renamed while the lock is held, so that no process removes the file as a leftover.
  if (system_call("rename", [&] { return rename(temporary_path_.c_str(), target_.c_str()); }) != 0)
    fail("write", path_);
  temporary_path_.clear();
  close_file(std::exchange(descriptor_, -1));  // the flush has already reported any write error
  // The new name is on disk only after the directory is flushed. Some file systems cannot flush directories and return
  // EINVAL.
  const std::string directory = directory_of(target_);
  const int descriptor = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) fail("flush directory", directory);
  const bool flushed = sync_file(descriptor) == 0 || errno == EINVAL;
  const int cause = errno;
  close_file(descriptor);
  errno = cause;
  if (!flushed) fail("flush directory", directory);
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool AppendFile::create(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0 && errno != EEXIST) fail("write", path);
  if (descriptor < 0) return false;
  path_ = path, descriptor_ = descriptor;
  return true;
}

void AppendFile::append(std::string& text) {
  while (!text.empty()) {
    const ssize_t put = ::write(descriptor_, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail("write", path_);
    text.erase(0, static_cast<size_t>(put));
  }
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
