// What every test executable holds beside its tests: Catch2's main function (version 3 brings its own), the state that
// each test case starts from, and what was skipped.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_test_case_info.hpp>
#include <catch2/interfaces/catch_interfaces_config.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using Listener = Catch::EventListenerBase;
#else
#define CATCH_CONFIG_MAIN
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
using Listener = Catch::TestEventListenerBase;
#endif
#include <cstdio>
#include <set>

#include <gradus/core/cudnn.h>
#include <gradus/core/parallel.h>
#include <gradus/core/random.h>
#include <gradus/tests/catch.h>

namespace {

using namespace gradus;

std::set<std::string> lacking;  // of the running test case

/// Cases do not depend on those before them: each starts from the same state, whatever the last one left.
class CaseState : public Listener {
 public:
  using Listener::Listener;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    name_ = info.name;
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
  std::string name_;
  int passed_ = 0, failed_ = 0, skipped_ = 0;
};

CATCH_REGISTER_LISTENER(CaseState)

}  // namespace

bool gradus::test::skip(const std::string& want) { return lacking.insert(want), true; }

std::mt19937& gradus::test::engine() {
  static std::mt19937 engine(1);
  return engine;
}

std::string gradus::test::source_path(const std::string& name) { return std::string(GRADUS_SOURCE_DIR "/") + name; }

// Sanitizers ask for their options here: a failed allocation is for the allocator under test to report.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
// LLVM's OpenMP leaks a few KB of its own where a team grows, from 2 threads to 5, say. What chunks allocate is
// looked at on the pool's threads.
extern "C" const char* __lsan_default_suppressions() { return "leak:libomp.so"; }
