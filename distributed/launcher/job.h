// What all attempts of a job share.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <set>
#include <string>

#include <gradus/distributed/comm/store/tcp_store.h>
#include <gradus/distributed/comm/tcp/socket.h>
#include <gradus/distributed/comm/tcp/token.h>
#include <gradus/distributed/launcher/launcher.h>
#include <gradus/distributed/launcher/line_writer.h>

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

/// The processes that a job starts in sessions of their own (setsid) and leaves behind. After the construction of this
/// object, such a process becomes a child of this one, not of init, when its parent ends (PR_SET_CHILD_SUBREAPER).
class Orphans {
 public:
  /// Children that this process has already, from the program that called exec, do not count.
  Orphans();

  /// Call this when any child of this process has been waited for, because its number may soon be reused.
  void forget(pid_t child) { others_.erase(child); }
  /// Kills the orphans. Returns false if there are none. When they have died, their children become orphans too.
  bool kill_all() const;

 private:
  std::set<pid_t> others_;
};

/// The launcher's process: its signals, its output, the job's store, and the cleanup after ranks.
struct Job {
  explicit Job(const LaunchOptions& options);

  /// The next pending signal, or none. The descriptor `signals` is readable while there is one.
  std::optional<int> next_signal();
  /// Called in a process that is about to become a rank: restores the signal settings that the launcher was given.
  void restore_signals() const;

  void say(const std::string& text) { writers[1]->put("gradus-run: " + text + "\n"); }
  /// Whether the job survives the loss of a worker.
  bool is_elastic() const;
  /// "restart 1 of 3"
  std::string restart(int number) const;

  const LaunchOptions& options;
  FileDescriptor signals;
  int interrupted = 0, interruptions = 0;  // the last signal that asked the job to end, and the number of such signals
  std::optional<GuardProcess> guard;
  std::optional<Orphans> orphans;
  Token token;
  Address address;
  std::unique_ptr<TcpStoreServer> server;
  std::shared_ptr<LineWriter> writers[2];  // stdout and stderr

 private:
  void block_signals();
  void open_output();

  sigset_t signals_before_;
};

}  // namespace gradus::dist
