// Memory that several processes of one host and user map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/socket.h>

namespace gradus::dist {

/// Has no name in any file system, so nothing of it is left when its last process ends, however that ends.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// Zeros.
  static SharedMemory create(size_t bytes);
  /// What another process created, by its path(). A CommError where this process cannot reach it.
  static SharedMemory open(const std::string& path, size_t bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Where other processes find it while this object lives.
  std::string path() const;

 private:
  SharedMemory(FileDescriptor descriptor, size_t bytes);

  FileDescriptor descriptor_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Sleeps until `word` is woken, if it still holds `value`; not longer than `timeout`. May return early.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t value, Milliseconds timeout);
/// Wakes all processes that sleep on `word`.
void futex_wake(const std::atomic<uint32_t>& word);

/// What processes have in common if they can share memory: the same boot of the same machine, the same processes in
/// sight, the same user.
std::string host_identity();

/// A process, as opposed to a later one of the same number.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  explicit ProcessWatch(int pid);
  bool has_ended() const;

 private:
  FileDescriptor descriptor_;  // pidfd_open(2), or none where the kernel lacks it
  int pid_ = 0;
};

}  // namespace gradus::dist
