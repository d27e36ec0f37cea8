// What ends the ranks of a launcher that is killed itself.
#pragma once

#include <sys/types.h>

#include <gradus/distributed/comm/socket.h>

namespace gradus::dist {

/// A process that outlives this one, if need be, by as long as it takes to kill the process groups that it watches.
class GuardProcess {
 public:
  GuardProcess();
  /// Kills what is still watched.
  ~GuardProcess();
  GuardProcess(const GuardProcess&) = delete;
  GuardProcess& operator=(const GuardProcess&) = delete;

  /// May be called in a child of this process too, before it calls exec.
  void watch(pid_t group) { tell(group); }
  void forget(pid_t group) { tell(-group); }

 private:
  void tell(pid_t group);

  FileDescriptor pipe_;  // the guard acts when this end is closed, by whatever ends the processes that have it
  pid_t pid_ = -1;
};

}  // namespace gradus::dist
