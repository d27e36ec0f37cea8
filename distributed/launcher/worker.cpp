#include <gradus/distributed/launcher/worker.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <gradus/core/error.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/distributed/comm/init.h>

namespace gradus::dist {
namespace {

constexpr size_t kLastLines = 10;
constexpr size_t kLongestLine = 1 << 16;  // longer ones are cut into several

}  // namespace

Worker::Worker(Job& job, int number, int attempt) : job_(job), number_(number) {
  if (number < job.options.processes) rank_ = job.options.node_rank * job.options.processes + number;
  if (!job.options.log_directory.empty()) open_log(attempt);
  int out[2], err[2];
  GRADUS_CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0, CommError, "cannot make pipes for ", name(),
               ": ", std::strerror(errno));
  const FileDescriptor out_end(out[1]), err_end(err[1]);
  output_[0].pipe = FileDescriptor(out[0]);
  output_[1].pipe = FileDescriptor(err[0]);
  const FileDescriptor token = job.token.to_descriptor();

  const pid_t launcher = getpid();
  pid_ = fork();
  GRADUS_CHECK(pid_ >= 0, CommError, "cannot start ", name(), ": ", std::strerror(errno));
  if (pid_ == 0) {
    begin_under_guard(launcher);
    run_program(out_end.number(), err_end.number(), token.number(), attempt);
  }
  setpgid(pid_, pid_);  // the child does this too, because either may run first
  running_ = true;
  for (Output& output : output_) fcntl(output.pipe.number(), F_SETFL, O_NONBLOCK);
}

void Worker::begin_under_guard(pid_t launcher) const {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // the launcher ended before the line above
  job_.guard->watch(getpid());
}

void Worker::run_program(int out, int err, int token, int attempt) const {
  const LaunchOptions& options = job_.options;
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  const int inherited = dup(token);  // without close-on-exec
  JobEnvironment environment{rank_.value_or(-1), options.processes * options.nodes, rank_ ? number_ : -1,
                             options.processes, job_.address};
  if (job_.is_elastic()) environment.worker = number_;
  environment.spare = !rank_;
  set_job_environment(environment, inherited);
  setenv("TORCHELASTIC_RESTART_COUNT", std::to_string(attempt).c_str(), 1);
  setenv("TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts).c_str(), 1);
  setenv("OMP_NUM_THREADS", std::to_string(std::max(1, num_cores() / options.processes)).c_str(), 0);
  job_.restore_signals();
  std::vector<char*> arguments;
  for (const std::string& argument : options.command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  write_all(STDERR_FILENO, "cannot run '" + options.command[0] + "': " + std::strerror(error) + "\n");
  _exit(error == ENOENT ? 127 : 126);
}

std::string Worker::name() const {
  if (!rank_) return "spare " + std::to_string(number_);
  const std::string node = job_.options.nodes > 1 ? " on node " + std::to_string(job_.options.node_rank) : "";
  return "rank " + std::to_string(*rank_) + node;
}

void Worker::kill(int signal_number) const {
  if (running_) killpg(pid_, signal_number);
}

void Worker::ended() {
  kill(SIGKILL);
  running_ = false;
  job_.guard->forget(pid_);
}

bool Worker::read_some(int stream) {
  Output& output = output_[stream];
  char chunk[1 << 14];
  const ssize_t got = output.pipe ? read(output.pipe.number(), chunk, sizeof chunk) : -1;
  if (got < 0) return false;
  if (got == 0) {
    output.pipe.reset();
    if (!output.line.empty()) print(stream);
    return true;
  }
  const std::string_view text(chunk, static_cast<size_t>(got));
  log(text);
  for (char c : text) {
    if (c != '\n') output.line.push_back(c);
    if (c == '\n' || output.line.size() >= kLongestLine) print(stream);
  }
  return true;
}

void Worker::print(int stream) {
  std::string& line = output_[stream].line;
  job_.writers[stream]->put("[" + (rank_ ? std::to_string(*rank_) : name()) + "] " + line + "\n");
  last_lines_.push_back(std::exchange(line, {}));
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
}

/// Opens the log file, which all attempts share.
void Worker::open_log(int attempt) {
  const std::string& directory = job_.options.log_directory;
  mkdir(directory.c_str(), 0777);
  log_path_ = directory + (rank_ ? "/rank" + std::to_string(*rank_) : "/spare" + std::to_string(number_)) + ".log";
  // With O_NONBLOCK, opening a pipe without a reader is an error.
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | (attempt == 0 ? O_TRUNC : O_APPEND);
  log_ = FileDescriptor(open(log_path_.c_str(), flags, 0666));
  GRADUS_CHECK(log_, IoError, "cannot write '", log_path_, "': ", std::strerror(errno));
  if (attempt > 0) log("gradus-run: " + job_.restart(attempt) + "\n");
}

void Worker::log(std::string_view text) {
  if (!log_) return;
  const ssize_t written = write(log_.number(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  lost_ += text.size() - static_cast<size_t>(std::max<ssize_t>(written, 0));
  cause_of_loss_ = written < 0 ? std::strerror(errno) : "the file is full";
}

std::string Worker::losses() const {
  if (lost_ == 0) return "";
  return std::to_string(lost_) + " bytes of the output of " + name() + " in '" + log_path_ +
         "' were lost: " + cause_of_loss_;
}

}  // namespace gradus::dist
