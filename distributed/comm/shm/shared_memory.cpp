#include <gradus/distributed/comm/shm/shared_memory.h>

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>

namespace gradus::dist {

SharedMemory::SharedMemory(FileDescriptor descriptor, size_t bytes) : descriptor_(std::move(descriptor)) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.number(), 0);
  GRADUS_CHECK(data != MAP_FAILED, CommError, "cannot map ", bytes, " bytes of shared memory: ", std::strerror(errno));
  data_.reset(static_cast<std::byte*>(data), [bytes](std::byte* mapped) { munmap(mapped, bytes); });
  madvise(data, bytes, MADV_HUGEPAGE);  // fewer page faults and TLB misses, if the kernel supports it
}

SharedMemory SharedMemory::create(size_t bytes) {
  FileDescriptor descriptor(memfd_create("gradus", MFD_CLOEXEC));
  GRADUS_CHECK(descriptor && ftruncate(descriptor.number(), static_cast<off_t>(bytes)) == 0, CommError, "cannot make ",
               bytes, " bytes of shared memory: ", std::strerror(errno));
  return {std::move(descriptor), bytes};
}

SharedMemory SharedMemory::open(const std::string& path, size_t bytes) {
  FileDescriptor descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  GRADUS_CHECK(descriptor, CommError, "cannot open the shared memory ", path, ": ", std::strerror(errno));
  struct stat status;
  GRADUS_CHECK(fstat(descriptor.number(), &status) == 0 && static_cast<size_t>(status.st_size) == bytes, CommError,
               "the shared memory ", path, " does not have ", bytes, " bytes");
  return {std::move(descriptor), bytes};
}

std::string SharedMemory::path() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(descriptor_.number());
}

void futex_wait(const std::atomic<uint32_t>& word, uint32_t value, Milliseconds timeout) {
  static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);
  const auto ns = std::chrono::nanoseconds(timeout).count();
  const timespec time = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void futex_wake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char processes[64] = {};
  if (readlink("/proc/self/ns/pid", processes, sizeof processes - 1) < 0) processes[0] = '\0';
  return boot + " " + processes + " " + std::to_string(geteuid());
}

ProcessWatch::ProcessWatch(int pid) : descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))), pid_(pid) {}

bool ProcessWatch::has_ended() const {
  if (!descriptor_) return kill(pid_, 0) != 0 && errno == ESRCH;
  pollfd entry = {descriptor_.number(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace gradus::dist
