// Functions of the operating system: cores, forks, address space, names of types, the standard error stream.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include <gradus/core/array/array.h>
#include <gradus/core/platform/process.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

/// Runs `body` on a new thread. `body` may change the cores that this thread runs on.
void run_on_thread(const std::function<void()>& body) { std::thread(body).join(); }

/// Calls write_to_stderr(text) with errno = EINTR and the standard error stream sent to `file`. Returns errno after it.
int errno_after_writing(std::string_view text, int file) {
  std::fflush(stderr);
  const int usual = dup(STDERR_FILENO);
  dup2(file, STDERR_FILENO);
  errno = EINTR;
  platform::write_to_stderr(text);
  const int cause = errno;
  dup2(usual, STDERR_FILENO);
  close(usual);
  return cause;
}

template <typename T>
struct Box {};

}  // namespace

TEST_CASE("a type has the name that it has in source code") {
  CHECK(platform::demangled(typeid(int)) == "int");
  CHECK(platform::demangled(typeid(Array)) == "gradus::Array");
  CHECK(platform::demangled(typeid(Box<Array>)) == "(anonymous namespace)::Box<gradus::Array>");
}

TEST_CASE("an unqualified name has nothing in front of it and keeps its template arguments") {
  CHECK(platform::unqualified("gradus::nn::LinearImpl") == "LinearImpl");
  CHECK(platform::unqualified("LinearImpl") == "LinearImpl");
  CHECK(platform::unqualified("::LinearImpl") == "LinearImpl");
  CHECK(platform::unqualified("") == "");
  CHECK(platform::unqualified("a:b") == "a:b");
  CHECK(platform::unqualified("a::b") == "b");
  CHECK(platform::unqualified("a::") == "");
  CHECK(platform::unqualified("a:") == "a:");
  CHECK(platform::unqualified("nn::Map<std::string, std::pair<a::B, c::D>>") ==
        "Map<std::string, std::pair<a::B, c::D>>");
  CHECK(platform::unqualified("nn::Map<std::string>::Entry") == "Entry");
  CHECK(platform::unqualified("(anonymous namespace)::Net") == "Net");
  CHECK(platform::unqualified("make(std::string)::Net") == "Net");
}

#ifdef __linux__
TEST_CASE("a thread runs only on the cores that it is bound to") {
  const int cores = platform::allowed_cores();
  CHECK(cores >= 1);
  int core = -1, after = -1, allowed = -1, allowed_later = -1;
  run_on_thread([&] {
    core = platform::current_core();
    platform::bind_to_cores({core});
    after = platform::current_core();
    allowed = platform::allowed_cores();
    platform::bind_to_cores({});  // restricts nothing
    allowed_later = platform::allowed_cores();
  });
  CHECK(core >= 0);
  CHECK(after == core);
  CHECK(allowed == 1);
  CHECK(allowed_later == 1);
  CHECK(platform::allowed_cores() == cores);  // of another thread
}

TEST_CASE("a thread that leaves its core may run on all of its cores afterwards") {
  const int cores = platform::allowed_cores(), tries = 20;
  int moves = 0;
  run_on_thread([&] {
    for (int i = 0; i < tries; ++i) {
      const int core = platform::current_core();
      platform::leave_core(core);
      moves += platform::current_core() != core;
      if (platform::allowed_cores() != cores) moves = -tries;
    }
  });
  // The system may move the thread back at any time, but rarely does so within a microsecond.
  CHECK(moves >= (cores > 1 ? tries / 2 : 0));

  int core = -1, after = -1, allowed = -1;
  run_on_thread([&] {
    core = platform::current_core();
    platform::bind_to_cores({core});
    for (int left : {core, -1, 1 << 20}) platform::leave_core(left);  // has nowhere to go; the others are no cores
    after = platform::current_core();
    allowed = platform::allowed_cores();
  });
  CHECK(after == core);
  CHECK(allowed == 1);
}
#endif

TEST_CASE("a forked child makes the call that was asked for", "[processes]") {
  static bool is_child = false;
  platform::on_fork([] { is_child = true; });
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) std::_Exit(is_child ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK_FALSE(is_child);
}

TEST_CASE("mapped memory is zero, can be written and is given back") {
  constexpr size_t kBytes = 1 << 20;
  char* const data = platform::map_memory(kBytes);
  REQUIRE(data);
  CHECK(std::all_of(data, data + kBytes, [](char byte) { return byte == 0; }));
  data[0] = data[kBytes - 1] = 1;
  CHECK(msync(data, kBytes, MS_ASYNC) == 0);
  platform::unmap_memory(data, kBytes);
  CHECK(msync(data, kBytes, MS_ASYNC) != 0);  // refuses addresses that are not mapped

  CHECK(platform::map_memory(SIZE_MAX) == nullptr);
  CHECK(platform::map_memory(size_t{1} << 62) == nullptr);
}

TEST_CASE("a machine and a process have names") {
  CHECK(platform::process_id() == getpid());
  char name[256] = {};
  REQUIRE(gethostname(name, sizeof name - 1) == 0);
  CHECK(platform::host_name() == (name[0] ? name : "localhost"));
}

TEST_CASE("text for the standard error stream arrives at once and leaves errno as it was") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(errno_after_writing("a message", ends[1]) == EINTR);
  close(ends[1]);
  char text[16] = {};
  CHECK(read(ends[0], text, sizeof text) == 9);
  CHECK(std::string(text) == "a message");
  CHECK(errno_after_writing("a message", ends[0]) == EINTR);  // this end of the pipe refuses it
  close(ends[0]);
}
