#include <gradus/distributed/launcher/orphans.h>

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace gradus::dist {
namespace {

/// The children of this process.
std::set<pid_t> children() {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    std::string line;
    if (pid <= 0 || !std::getline(std::ifstream(entry.path() / "stat"), line)) continue;
    pid_t parent = 0;  // in "pid (name) state parent …", where the name may contain anything
    if (std::sscanf(line.c_str() + line.rfind(')') + 1, " %*c %d", &parent) == 1 && parent == getpid())
      found.insert(pid);
  }
  return found;
}

}  // namespace

Orphans::Orphans() : others_(children()) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool Orphans::kill_all() const {
  std::set<pid_t> orphans = children();
  for (pid_t other : others_) orphans.erase(other);
  for (pid_t orphan : orphans) kill(orphan, SIGKILL);
  return !orphans.empty();
}

}  // namespace gradus::dist
