// parallel_for on OpenMP's threads: which calls OpenMP's threads compute, and which ones the pool computes instead. The
// behaviour that both share is tested in parallel_test.cpp, which also runs with OpenMP's threads (the CTest case
// test_core_with_openmp_threads).
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <gradus/core/parallel/parallel.h>
#include <gradus/tests/catch.h>

extern "C" int omp_in_parallel() __attribute__((weak));  // of OpenMP's runtime; null without one

namespace thread_runtime_test {

using namespace gradus;
using namespace gradus::test;
using namespace std::chrono_literals;

/// True if OpenMP's threads compute all chunks of a call.
bool runs_on_openmp() {
  std::atomic<int> chunks{0}, elsewhere{0};
  parallel_for(8, 1, [&](int64_t, int64_t) {
    ++chunks;
    if (!omp_in_parallel || !omp_in_parallel()) ++elsewhere;
  });
  CHECK(chunks == 8);
  CHECK((elsewhere == 0 || elsewhere == 8));
  return elsewhere == 0;
}

/// Like the function above, with retries: on a busy machine an OpenMP thread is sometimes late, and then the pool
/// serves calls for up to a second.
bool runs_on_openmp_soon() {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!runs_on_openmp()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

bool use_openmp(int threads) {
  set_num_threads(threads);
  if (has_openmp()) set_thread_runtime(ThreadRuntime::openmp);
  return has_openmp() || !skip("OpenMP");
}

/// Forks a child that runs `body`, kills it after 20 s, and returns its exit status.
int status_of_copy(bool (*body)()) {
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    std::_Exit(body() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

int cores_of(pid_t process) {
  cpu_set_t cores;
  REQUIRE(sched_getaffinity(process, sizeof cores, &cores) == 0);
  return CPU_COUNT(&cores);
}

TEST_CASE("the pool is used unless the environment asks for OpenMP") {
  const char* wanted = std::getenv("GRADUS_THREAD_RUNTIME");
  CHECK(std::string(name(thread_runtime())) == (wanted ? wanted : "pool"));
  set_thread_runtime(ThreadRuntime::pool);
  set_num_threads(2);
  CHECK_FALSE(runs_on_openmp());
}

TEST_CASE("a build without OpenMP says so") {
  if (has_openmp()) return;
  CHECK_THROWS_WITH(set_thread_runtime(ThreadRuntime::openmp), contains("-DGRADUS_OPENMP=ON"));
  CHECK(thread_runtime() == ThreadRuntime::pool);
}

TEST_CASE("OpenMP's threads compute, at most the configured number") {
  if (!use_openmp(2)) return;
  for (int threads : {4, 2, 3}) {
    set_num_threads(threads);
    REQUIRE(runs_on_openmp_soon());
    std::mutex mutex;
    std::set<std::thread::id> seen;
    parallel_for(1000, 1, [&](int64_t, int64_t) {
      std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    CHECK(seen.size() <= static_cast<size_t>(threads));
  }
  set_num_threads(1);
  CHECK_FALSE(runs_on_openmp());
  set_num_threads(2);
  const SerialGuard serial;
  CHECK_FALSE(runs_on_openmp());
}

TEST_CASE("OpenMP's threads compute the same chunks as the pool, in as many slots as threads, and pass on errors") {
  if (!use_openmp(3)) return;
  using Chunk = std::pair<int64_t, int64_t>;
  bool on_openmp = false;
  while (!on_openmp) {
    REQUIRE(runs_on_openmp_soon());
    std::mutex mutex;
    std::set<Chunk> chunks;
    std::atomic<int> calls{0}, wrong{0}, elsewhere{0};
    parallel_for(10, 3, [&](int64_t begin, int64_t end, int slot) {
      const std::lock_guard lock(mutex);
      chunks.emplace(begin, end);
      ++calls, wrong += slot < 0 || slot >= 3, elsewhere += !omp_in_parallel();
    });
    CHECK(chunks == std::set<Chunk>{{0, 3}, {3, 6}, {6, 9}, {9, 10}});
    CHECK(calls == 4);
    CHECK(wrong == 0);
    on_openmp = elsewhere == 0;
  }
  const auto fail = [] {
    parallel_for(10, 3, [](int64_t begin, int64_t) {
      if (begin == 6) throw std::runtime_error("third chunk");
    });
  };
  CHECK_THROWS_WITH(fail(), "third chunk");
  CHECK(runs_on_openmp_soon());
}

TEST_CASE("of several concurrent callers one uses OpenMP's threads and the others the pool") {
  if (!use_openmp(2)) return;
  REQUIRE(runs_on_openmp_soon());
  std::atomic<bool> begun{false}, second_done{false}, first_on_openmp{true};
  std::thread first([&] {
    parallel_for(2, 1, [&](int64_t, int64_t) {
      if (!omp_in_parallel()) first_on_openmp = false;
      begun = true;
      while (!second_done) std::this_thread::yield();
    });
  });
  while (!begun) std::this_thread::yield();
  const bool second_on_openmp = runs_on_openmp();
  second_done = true;
  first.join();
  CHECK_FALSE((first_on_openmp && second_on_openmp));
}

TEST_CASE("after an OpenMP thread was late, the pool serves calls for a while") {
  if (!use_openmp(2)) return;
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> stalled = false;
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!stalled && std::chrono::steady_clock::now() < end)
    parallel_for(2, 1, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() == caller) return std::this_thread::sleep_for(1ms);
      if (!omp_in_parallel()) return;
      stalled = true;
      std::this_thread::sleep_for(200ms);  // as if its core were given to another process
    });
  REQUIRE(stalled);
  CHECK_FALSE(runs_on_openmp());
  CHECK(runs_on_openmp_soon());
}

TEST_CASE("a child that is forked after OpenMP's threads have started computes with the pool") {
  if (!use_openmp(4)) return;
  REQUIRE(runs_on_openmp_soon());
  CHECK(status_of_copy([] {
          for (int i = 0; i < 100; ++i)
            if (runs_on_openmp()) return false;
          return true;
        }) == 0);
  CHECK(runs_on_openmp_soon());
}

TEST_CASE("an unknown runtime in the environment is an error that names the variable", "[threads]") {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  FILE* const output = popen(("GRADUS_THREAD_RUNTIME=fibers '" + program + "' 2>&1").c_str(), "r");
  REQUIRE(output != nullptr);
  std::string said;
  for (int c; (c = std::fgetc(output)) != EOF;) said += static_cast<char>(c);
  CHECK(pclose(output) != 0);
  CHECK_THAT(said, contains("GRADUS_THREAD_RUNTIME is 'fibers', neither pool nor openmp"));
}

// Runs with OMP_PROC_BIND set and in a separate process, because OpenMP's runtime may bind threads when it is loaded.
TEST_CASE("OpenMP binds the threads of a team, and none before the first team", "[.bound]") {
  const int cores = cores_of(getppid());
  CHECK(num_cores() == cores);
  CHECK(cores_of(0) == cores);
  set_num_threads(2);
  set_thread_runtime(ThreadRuntime::pool);
  CHECK_FALSE(runs_on_openmp());
  CHECK(cores_of(0) == cores);
  if (!use_openmp(2)) return;
  std::atomic<bool> bound = false, unbound = false;  // set when a thread of a team is bound, or is not
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!bound && !unbound &&
         std::chrono::steady_clock::now() < end) {  // on a busy machine the pool also serves calls
    parallel_for(8, 1, [&](int64_t, int64_t) {
      if (omp_in_parallel()) (cores_of(0) == 1 ? bound : unbound) = true;
    });
    std::this_thread::sleep_for(10ms);
  }
  CHECK(bound);
  CHECK_FALSE(unbound);
}

}  // namespace thread_runtime_test
