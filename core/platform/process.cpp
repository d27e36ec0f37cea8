#include <gradus/core/platform/process.h>

#include <cxxabi.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <thread>

namespace gradus::platform {

#ifdef __linux__
int allowed_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int current_core() { return sched_getcpu(); }

// Asks the scheduler for any allowed core except `core`, then for all allowed cores again, which lets the thread stay
// where it has moved. The first request fails, and changes nothing, if there is no other core.
void leave_core(int core) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(core, &others);
  sched_setaffinity(0, sizeof others, &others);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

// The system refuses an empty set.
void bind_to_cores(const std::vector<int>& cores) {
  cpu_set_t set = {};
  for (int core : cores) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}
#else
int allowed_cores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }
int current_core() { return -1; }
void leave_core(int) {}
void bind_to_cores(const std::vector<int>&) {}
#endif

void on_fork(void (*in_child)()) { pthread_atfork(nullptr, nullptr, in_child); }

char* map_memory(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<char*>(data);
}

void unmap_memory(void* data, size_t bytes) { munmap(data, bytes); }

std::string demangled(const std::type_info& type) {
  int status = 0;
  char* const text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type.name();
  std::free(text);
  return name;
}

std::string unqualified(const std::string& name) {
  size_t start = 0, depth = 0;
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    if (name[i] == '<' || name[i] == '(') ++depth;
    if (name[i] == '>' || name[i] == ')') --depth;
    if (depth == 0 && name[i] == ':' && name[i + 1] == ':') start = i + 2;
  }
  return name.substr(start);
}

int process_id() { return getpid(); }

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "localhost";
}

void write_to_stderr(std::string_view text) {
  const int cause = errno;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  errno = cause;
}

}  // namespace gradus::platform
