// A rank or a spare, as the launcher sees it.
#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include <gradus/distributed/launcher/job.h>

namespace gradus::dist {

/// A process that runs the job's program, the process group that it leads, and their output.
class Worker {
 public:
  /// Starts the process, in this attempt of the job, counted from 0. The first numbers are this node's ranks, the
  /// others are spares.
  Worker(Job& job, int number, int attempt);
  /// Kills the process group if it still runs.
  ~Worker() { kill(SIGKILL); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// "rank 3"; with several nodes "rank 3 on node 1"; "spare 4"
  std::string name() const;
  int number() const { return number_; }
  void set_rank(int rank) { rank_ = rank; }
  pid_t pid() const { return pid_; }
  bool running() const { return running_; }
  /// Sends a signal to the process group while the process runs.
  void kill(int signal_number) const;
  /// Call this when the process has been waited for. Ends the processes that it started and left behind.
  void ended();

  /// The descriptor from which its stdout (0) or stderr (1) is read; -1 once that has ended.
  int output(int stream) const { return output_[stream].pipe.number(); }
  /// Reads one piece of it and prints complete lines as "[3] …" or "[spare 4] …". Returns false if there was nothing.
  bool read_some(int stream);
  const std::deque<std::string>& last_lines() const { return last_lines_; }
  /// A sentence that says what is missing in its log; "" if nothing is.
  std::string losses() const;

 private:
  struct Output {
    FileDescriptor pipe;
    std::string line;  // the beginning of a line that has not ended yet
  };

  void open_log(int attempt);
  void log(std::string_view text);
  void print(int stream);
  /// Called in the new process. Makes sure that this process ends whenever the launcher is killed after its fork(), and
  /// that the processes it starts end with its group. This process tells the guard about the group itself, because the
  /// guard must know it before the program can start any process.
  void begin_under_guard(pid_t launcher) const;
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
