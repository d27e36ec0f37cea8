#include <gradus/distributed/launcher/guard_process.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include <gradus/core/error.h>

namespace gradus::dist {

GuardProcess::GuardProcess() {
  int ends[2];
  GRADUS_CHECK(pipe2(ends, O_CLOEXEC) == 0, CommError, "cannot make a pipe: ", std::strerror(errno));
  pipe_ = FileDescriptor(ends[1]);
  const FileDescriptor read_end(ends[0]);
  pid_ = fork();
  GRADUS_CHECK(pid_ >= 0, CommError, "cannot start a process: ", std::strerror(errno));
  // Both processes do this, because either may run first. Signals to the launcher's group then do not reach the guard.
  setpgid(pid_, pid_);
  if (pid_ != 0) return;
  pipe_.reset();
  std::vector<pid_t> groups;
  pid_t group = 0;
  while (read(read_end.number(), &group, sizeof group) == sizeof group) {
    if (group > 0) groups.push_back(group);
    else std::erase(groups, -group);
  }
  for (pid_t left : groups) killpg(left, SIGKILL);
  _exit(0);
}

GuardProcess::~GuardProcess() {
  pipe_.reset();
  waitpid(pid_, nullptr, 0);
}

void GuardProcess::tell(pid_t group) {
  [[maybe_unused]] const ssize_t told = write(pipe_.number(), &group, sizeof group);
}

}  // namespace gradus::dist
