// Linked into the test programs of tests/mutation. GRADUS_MUTANT=17 brings mutant 17 to life. GRADUS_MUTANT_TRACE=FILE
// leaves all of them dead and appends one line for each test case to FILE: seconds, whether it passed, the numbers of
// the mutants that it reached, and its name. Programs that a test case starts count as part of it.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // version 2: listeners
#include <gradus/tests/catch.h>
#include <gradus/tests/mutation/switch.h>
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

namespace gradus::mutation {

int alive = 0;
static unsigned char of_this_process[kMaxMutants];
unsigned char* reached = of_this_process;

}  // namespace gradus::mutation

namespace {

using namespace gradus::mutation;

const char* trace_file = nullptr;

// Before all other initialisation, which may reach mutants. Forked processes record into the same memory, and so do
// programs that this one starts: GRADUS_MUTANT_REACHED names the file that holds it.
__attribute__((constructor(101))) void read_environment() {
  if (const char* number = std::getenv("GRADUS_MUTANT")) alive = std::atoi(number);
  trace_file = std::getenv("GRADUS_MUTANT_TRACE");
  if (trace_file != nullptr) {
    setenv("GRADUS_MUTANT_REACHED", (std::string(trace_file) + ".reached").c_str(), 1);
    unsetenv("GRADUS_MUTANT_TRACE");  // the lines of this program's own cases are enough; the string itself remains
  }
  const char* memory = std::getenv("GRADUS_MUTANT_REACHED");
  if (memory == nullptr) return;
  alive = -1;
  const int file = open(memory, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, kMaxMutants) != 0) return;
  void* shared = mmap(nullptr, kMaxMutants, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared != MAP_FAILED) reached = static_cast<unsigned char*>(shared);
  close(file);
}

class Trace : public Listener {
 public:
  using Listener::Listener;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    name_ = info.name;
    if (trace_file != nullptr) std::memset(reached, 0, kMaxMutants);
    start_ = std::chrono::steady_clock::now();
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (trace_file == nullptr) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    if (std::FILE* file = std::fopen(trace_file, "a")) {
      std::fprintf(file, "%.3f\t%d\t", seconds.count(), stats.totals.assertions.allOk());
      for (int id = 1; id < kMaxMutants; ++id)
        if (reached[id] != 0) std::fprintf(file, "%d ", id);
      std::fprintf(file, "\t%s\n", name_.c_str());
      std::fclose(file);
    }
  }

 private:
  std::string name_;
  std::chrono::steady_clock::time_point start_;
};

CATCH_REGISTER_LISTENER(Trace)

}  // namespace
