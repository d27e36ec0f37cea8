// Memory that several processes of one host and one user map.
#pragma once

#include <atomic>
#include <memory>

#include <gradus/distributed/comm/tcp/socket.h>

namespace gradus::dist {

/// Shared memory without a name in any file system. The kernel frees it when the last process that maps it has ended,
/// even if that process was killed.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// Makes memory that is filled with zeros.
  static SharedMemory create(size_t bytes);
  /// Maps memory that another process has created, by its path(). Throws a CommError if this process cannot access it.
  static SharedMemory open(const std::string& path, size_t bytes);

  std::byte* data() const { return data_.get(); }
  /// The path by which other processes can open the memory while this object exists.
  std::string path() const;

 private:
  SharedMemory(FileDescriptor descriptor, size_t bytes);

  FileDescriptor descriptor_;
  std::shared_ptr<std::byte> data_;  // its deleter unmaps the memory
};

/// Sleeps until futex_wake(word), but at most `timeout`. Returns at once if `word` does not hold `value`, and may
/// return early.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t value, Milliseconds timeout);
/// Wakes all processes that sleep on `word`.
void futex_wake(const std::atomic<uint32_t>& word);

/// A string that is equal in processes that can share memory: on the same machine, started since the same boot, in the
/// same PID namespace and as the same user.
std::string host_identity();

/// Finds out whether a process has ended. The kernel may give the number of an ended process to a new process; a
/// ProcessWatch does not confuse the two.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  explicit ProcessWatch(int pid);
  bool has_ended() const;

 private:
  FileDescriptor descriptor_;  // from pidfd_open(2); empty if the kernel lacks it
  int pid_ = 0;
};

}  // namespace gradus::dist
