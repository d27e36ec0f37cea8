// What all attempts of a job share (Job), and the processes that an attempt starts (Worker).
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <set>

#include <gradus/distributed/comm/store/store.h>
#include <gradus/distributed/launcher/launcher.h>

namespace gradus::dist {

/// Writes lines to a descriptor on a separate thread, so that put() never waits for a slow reader. The descriptor is
/// not made non-blocking, because it would become so for all processes that share it, such as the user's shell.
class LineWriter {
 public:
  /// Starts the thread. The thread shares ownership of the object, because it may be in a write that never returns.
  /// When the last returned pointer is destroyed, the thread ends and drops lines that are not written yet.
  static std::shared_ptr<LineWriter> start(int descriptor);

  /// Never waits. The caller should not call it while full() is true.
  void put(std::string_view line);
  bool full() const { return waiting() >= (1 << 20); }
  /// Number of bytes that are not written yet.
  size_t waiting() const { return read(waiting_); }
  /// Number of bytes that were written or lost. It stops growing if the output is not read any more.
  size_t completed() const { return read(completed_); }
  /// An eventfd(2) that becomes readable when no bytes are waiting any more.
  int emptied() const { return emptied_.number(); }

  /// Drops the waiting lines and all later ones, because of `cause`.
  void give_up(std::string_view cause);
  /// "<number> bytes of <what> were lost: <cause>"; "" if none were.
  std::string losses(std::string_view what) const;

 private:
  explicit LineWriter(int descriptor);
  void run();
  size_t read(const size_t& counter) const {
    const std::lock_guard lock(mutex_);
    return counter;
  }

  const int descriptor_;
  const FileDescriptor emptied_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> blocks_;  // what is not written yet; each block consists of whole lines
  size_t waiting_ = 0, completed_ = 0, lost_ = 0;
  std::string cause_;  // why bytes were lost
  bool stopped_ = false;
};

/// Writes all of `text`, however long that takes. Returns the number of bytes that were written, which is smaller than
/// the length of the text after an error. The error is in errno.
size_t write_all(int descriptor, std::string_view text);

/// A process that kills the process groups it watches as soon as this process has ended, even if this process was
/// killed.
class GuardProcess {
 public:
  GuardProcess();
  /// Kills the groups that are still watched.
  ~GuardProcess();

  /// May also be called in a child of this process, before the child calls exec.
  void watch(pid_t group) { tell(group); }
  void forget(pid_t group) { tell(-group); }

 private:
  void tell(pid_t group);

  FileDescriptor pipe_;  // the writing end; the guard kills the groups when no process has it open any more
  pid_t pid_ = -1;
};

/// The processes that ranks start in new sessions (setsid) and leave behind. While this object exists, such a process
/// becomes a child of the launcher, not of init, when its parent ends (PR_SET_CHILD_SUBREAPER).
class Orphans {
 public:
  /// Children that the launcher has already do not count as orphans. It may have them from a program that has become
  /// the launcher by exec.
  Orphans();

  /// Call this when a child of the launcher has been waited for, because its process number may be reused.
  void forget(pid_t child) { others_.erase(child); }
  /// Kills the orphans. Returns false if there are none. When an orphan has died, its children become orphans too.
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
  /// Describes a restart for messages, for example "restart 1 of 3".
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

/// A process that runs the job's program, with the process group that it leads and their output.
class Worker {
 public:
  /// Starts the process in attempt number `attempt` of the job, counted from 0. `number` counts the workers of this
  /// node: first its ranks, then the spares.
  Worker(Job& job, int number, int attempt);
  /// Kills the process group if it still runs.
  ~Worker() { kill(SIGKILL); }

  /// The name for messages: "rank 3", with several nodes "rank 3 on node 1", or "spare 4".
  std::string name() const;
  int number() const { return number_; }
  void set_rank(int rank) { rank_ = rank; }
  pid_t pid() const { return pid_; }
  bool running() const { return running_; }
  /// Sends a signal to the process group while the process runs.
  void kill(int signal_number) const;
  /// Call this when the process has been waited for. Kills the other processes of its group.
  void ended();

  /// The descriptor from which the process's stdout (0) or stderr (1) is read; -1 once that stream has ended.
  int output(int stream) const { return output_[stream].pipe.number(); }
  /// Reads what the process has written to stdout (0) or stderr (1), up to the size of one read, and prints complete
  /// lines as "[3] …" or "[spare 4] …". Returns false if there was nothing to read.
  bool read_some(int stream);
  const std::deque<std::string>& last_lines() const { return last_lines_; }
  /// Says how many bytes are missing in its log, and why; "" if none are.
  std::string losses() const;

 private:
  struct Output {
    FileDescriptor pipe;
    std::string line;  // output since the last end of a line
  };

  void open_log(int attempt);
  void log(std::string_view text);
  void print(int stream);
  /// Called in the new process.
  [[noreturn]] void run_program(int out, int err, int token, int attempt) const;

  Job& job_;
  const int number_;
  std::optional<int> rank_;
  pid_t pid_ = -1;
  bool running_ = false;
  Output output_[2];
  std::deque<std::string> last_lines_;
  std::string log_path_;
  FileDescriptor log_;
  size_t lost_ = 0;  // number of bytes that are missing in the log
  std::string cause_of_loss_;
};

}  // namespace gradus::dist
