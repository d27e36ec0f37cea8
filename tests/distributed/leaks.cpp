// Checks after every test case that this process has the same descriptors and children as before, and that no shared
// memory and no temporary file is left.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include <gradus/core/registry.h>
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // for listeners in Catch2 version 2
#include <gradus/tests/catch.h>
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

namespace {

using namespace gradus;

std::set<std::string> entries_of(const std::string& folder) {
  std::set<std::string> names;
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory)) names.insert(entry->d_name);
  closedir(directory);
  return names;
}

/// Descriptors, children, shared memory and temporary files of this process, as text.
std::set<std::string> belongings() {
  std::set<std::string> found;
  const std::string own = "/proc/self/fd";
  for (const std::string& number : entries_of(own)) {
    char target[256] = {};
    if (readlink((own + "/" + number).c_str(), target, sizeof target - 1) < 0) continue;  // of the folder itself
    found.insert("descriptor " + number + ": " + target);
  }
  for (const std::string& task : entries_of("/proc/self/task")) {
    std::ifstream children("/proc/self/task/" + task + "/children");
    for (std::string pid; children >> pid;) found.insert("process " + pid);
  }
  for (const char* folder : {"/dev/shm", "/tmp"})
    for (const std::string& name : entries_of(folder))
      if (name.find("gradus") != std::string::npos && name.find(std::to_string(getpid())) != std::string::npos)
        found.insert(std::string(folder) + "/" + name);
  return found;
}

class LeakCheck : public Listener {
 public:
  using Listener::Listener;

  void testRunStarting(const Catch::TestRunInfo&) override {
    find_runtime(DeviceType::cuda);  // a driver opens descriptors once, which it keeps
  }

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    name_ = info.name;
    before_ = belongings();
  }

  void testCaseEnded(const Catch::TestCaseStats&) override {
    std::set<std::string> left;
    for (int tries = 0; tries < 100; ++tries) {  // the kernel may take a moment to end processes and threads
      left.clear();
      const std::set<std::string> now = belongings();
      std::set_difference(now.begin(), now.end(), before_.begin(), before_.end(), std::inserter(left, left.end()));
      if (left.empty()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (const std::string& name : left) std::fprintf(stderr, "'%s' leaves %s\n", name_.c_str(), name.c_str());
    [[maybe_unused]] static const int at_the_end = std::atexit([] {  // after the summary
      std::fflush(nullptr);
      _exit(1);
    });
  }

 private:
  std::string name_;
  std::set<std::string> before_;
};

CATCH_REGISTER_LISTENER(LeakCheck)

}  // namespace
