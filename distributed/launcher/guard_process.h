// Ends the ranks of a launcher that is itself killed.
#pragma once

#include <sys/types.h>

#include <gradus/distributed/comm/tcp/socket.h>

namespace gradus::dist {

/// A process that kills the process groups it watches when this process ends, in whatever way.
class GuardProcess {
 public:
  GuardProcess();
  /// Kills the groups that are still watched.
  ~GuardProcess();
  GuardProcess(const GuardProcess&) = delete;
  GuardProcess& operator=(const GuardProcess&) = delete;

  /// May be called in a child of this process too, before the child calls exec.
  void watch(pid_t group) { tell(group); }
  void forget(pid_t group) { tell(-group); }

 private:
  void tell(pid_t group);

  FileDescriptor pipe_;  // the guard acts when no process has this end any more, because they have closed it or ended
  pid_t pid_ = -1;
};

}  // namespace gradus::dist
