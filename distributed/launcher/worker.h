// A rank, or a spare, as its launcher sees it.
#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include <gradus/distributed/launcher/job.h>

namespace gradus::dist {

/// A process that runs the job's program, the group of processes that it leads, and what they print.
class Worker {
 public:
  /// Starts it, in this attempt of the job, counted from 0. Those with the first numbers are this node's ranks, the
  /// others spares.
  Worker(Job& job, int number, int attempt);
  /// Kills what still runs.
  ~Worker() { kill(SIGKILL); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// "rank 3", of several nodes "rank 3 on node 1"; "spare 4"
  std::string name() const;
  int number() const { return number_; }
  void set_rank(int rank) { rank_ = rank; }
  pid_t pid() const { return pid_; }
  bool running() const { return running_; }
  /// Sends a signal to the group, while the process runs.
  void kill(int signal_number) const;
  /// The process has been waited for: ends what it started and left behind.
  void ended();

  /// Where its stdout (0) or stderr (1) comes from, -1 when it has ended.
  int output(int stream) const { return output_[stream].pipe.number(); }
  /// Takes one piece of it, whose lines go to the job's as "[3] …" or "[spare 4] …". False if nothing has come.
  bool read_some(int stream);
  const std::deque<std::string>& last_lines() const { return last_lines_; }
  /// What is missing in its log, as a sentence; "" if nothing is.
  std::string losses() const;

 private:
  struct Output {
    FileDescriptor pipe;
    std::string line;  // that has not ended yet
  };

  void open_log(int attempt);
  void log(std::string_view text);
  void print(int stream);
  /// In the new process: whenever the launcher is killed, from its fork() on, this process ends, and what it starts
  /// ends with its group. The guard must know the group before the program can start anything, so this process tells
  /// it.
  void begin_under_guard(pid_t launcher) const;
  [[noreturn]] void become(int out, int err, int token, int attempt) const;

  Job& job_;
  const int number_;
  std::optional<int> rank_;
  pid_t pid_ = -1;
  bool running_ = false;
  Output output_[2];
  std::deque<std::string> last_lines_;
  std::string log_path_;
  FileDescriptor log_;
  size_t lost_ = 0;  // bytes that are missing in the log
  std::string cause_of_loss_;
};

}  // namespace gradus::dist
