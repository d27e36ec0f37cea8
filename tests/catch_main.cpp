// What every test executable holds beside its tests: the main function for Catch2 (version 3 brings its own), the state
// that each test case starts from, the time that it may take, and what was skipped.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_test_case_info.hpp>
#include <catch2/interfaces/catch_interfaces_config.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using Listener = Catch::EventListenerBase;
#else
#define CATCH_CONFIG_RUNNER
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
using Listener = Catch::TestEventListenerBase;
#endif
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/random.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

namespace {

using namespace gradus;

std::set<std::string> lacking;  // of the running test case

/// Ends the program with a failure if a case runs for too long: a case that waits for something that never comes would
/// otherwise wait as long as whoever started the tests. The limit is GRADUS_TEST_TIMEOUT seconds (0: none); the default
/// depends on the build (tests/CMakeLists.txt).
class Watchdog {
 public:
  Watchdog() {
    const char* wanted = std::getenv("GRADUS_TEST_TIMEOUT");
    seconds_ = wanted != nullptr ? static_cast<unsigned>(std::strtoul(wanted, nullptr, 10)) : GRADUS_TEST_TIMEOUT;
    signal(SIGALRM, [](int) {  // only calls that a signal handler may make
      const ssize_t written = write(STDERR_FILENO, message_.data(), message_.size());
      _exit(written < 0 ? 2 : 1);
    });
  }
  void start(const std::string& name) {
    message_ = "\n'" + name + "' is still running after " + std::to_string(seconds_) +
               " s: the program ends here (GRADUS_TEST_TIMEOUT sets the limit in seconds)\n";
    alarm(seconds_);
  }
  void stop() { alarm(0); }

 private:
  static inline std::string message_;
  unsigned seconds_;
};

/// Cases do not depend on those before them: each starts from the same state, whatever the last one left.
class CaseState : public Listener {
 public:
  using Listener::Listener;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    name_ = info.name;
    watchdog_.start(name_);
    lacking.clear();
    manual_seed(0);
    test::engine().seed(1);
    set_num_threads(threads_), set_thread_runtime(runtime_);
    // Backends are compared in full precision, and cuDNN runs all that it can; what else it does has tests of its own.
    cudnn::set_allow_tf32(false), cudnn::set_small_convolutions(true);
    cudnn::set_deterministic(true), cudnn::set_benchmark(false);
    cudnn::set_workspace_limit(workspace_limit_);
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    watchdog_.stop();
    if (!stats.totals.assertions.allOk()) {
      ++failed_;
    } else if (!lacking.empty()) {
      ++skipped_;
      for (const std::string& what : lacking) std::printf("skipped for want of %s: %s\n", what.c_str(), name_.c_str());
      std::fflush(stdout);  // or processes forked by later cases print it once more
    } else {
      ++passed_;
    }
  }

  /// scripts/test_summary.py reads this line.
  void testRunEnded(const Catch::TestRunStats&) override {
    std::printf("cases: %d passed, %d failed, %d skipped (--order rand --rng-seed %u repeats the order)\n", passed_,
                failed_, skipped_, m_config->rngSeed());
    std::fflush(stdout);
  }

 private:
  const int threads_ = num_threads();
  const ThreadRuntime runtime_ = thread_runtime();
  const size_t workspace_limit_ = cudnn::workspace_limit();
  Watchdog watchdog_;
  std::string name_;
  int passed_ = 0, failed_ = 0, skipped_ = 0;
};

CATCH_REGISTER_LISTENER(CaseState)

#ifdef CATCH_CONFIG_RUNNER
/// Adds "~[.]" to filters that only exclude cases: version 2 takes such a filter, "~slow*", for one that names all
/// other cases, hidden ones too. Filters are separated by commas, and one may go on in the next argument.
void exclude_hidden(std::vector<std::string>& arguments) {
  std::string* first = arguments.data();  // the argument and the position at which the current filter begins
  size_t start = 0;
  bool excludes = false, names = false;
  const auto end_filter = [&] {
    const bool add = excludes && !names;
    if (add) first->insert(start, "~[.]");
    excludes = names = false;
    return size_t{add ? 4u : 0u};
  };
  for (std::string& text : arguments) {
    for (size_t i = 0; i < text.size();) {
      if (text[i] == ',') {
        const size_t added = end_filter();
        i += 1 + (first == &text ? added : 0);
        first = &text, start = i;
        continue;
      }
      if (text[i] == ' ') {
        ++i;
        continue;
      }
      const size_t prefix = text[i] == '~' ? 1 : text.compare(i, 8, "exclude:") == 0 ? 8 : 0;
      (prefix != 0 ? excludes : names) = true;
      i += prefix;
      const char open = i < text.size() ? text[i] : '\0';
      const char* end = open == '[' ? "]" : open == '"' ? "\"" : ",[";
      for (i += open == '[' || open == '"'; i < text.size() && std::strchr(end, text[i]) == nullptr; ++i)
        if (text[i] == '\\') ++i;
      if (open == '[' || open == '"') ++i;
    }
  }
  end_filter();
}
#endif

}  // namespace

#ifdef CATCH_CONFIG_RUNNER
int main(int argc, char* argv[]) {
  Catch::Session session;
  if (const int status = session.applyCommandLine(argc, argv); status != 0) return status;
  exclude_hidden(session.configData().testsOrTags);
  return session.run();
}
#endif

bool gradus::test::skip(const std::string& want) { return lacking.insert(want), true; }

std::mt19937& gradus::test::engine() {
  static std::mt19937 engine(1);
  return engine;
}

std::string Catch::StringMaker<gradus::Array>::convert(const gradus::Array& x) {
  if (!x.defined()) return "undefined";
  return std::string(gradus::name(x.dtype())) + " of shape " + gradus::to_string(x.shape()) + " " +
         Detail::stringify(gradus::test::values(x));
}

std::string Catch::StringMaker<gradus::Tensor>::convert(const gradus::Tensor& x) {
  return x.defined() ? Detail::stringify(x.array()) : "undefined";
}

std::string gradus::test::source_path(const std::string& name) { return std::string(GRADUS_SOURCE_DIR "/") + name; }

// Sanitizers ask for their options here: a failed allocation is for the allocator under test to report.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
// LLVM's OpenMP leaks a few KB of its own where a team grows, from 2 threads to 5, say. What chunks allocate is
// looked at on the pool's threads.
extern "C" const char* __lsan_default_suppressions() { return "leak:libomp.so"; }
