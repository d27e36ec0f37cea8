#include <gradus/distributed/launcher/launcher.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/comm/tcp_store.h>

namespace gradus::dist {
namespace {

constexpr size_t kLastLines = 10;
constexpr size_t kLongestLine = 1 << 16;  // longer ones are cut into several
/// A rank that is killed is seen by its peers before it is by its parent, and they may have ended by then.
constexpr Milliseconds kUntilFirstIsKnown{100};

/// A pipe from a rank, whose bytes become lines "[rank] …".
struct Output {
  FileDescriptor pipe;
  std::string line;  // that has not ended yet
  FILE* to = stdout;
};

struct Worker {
  int rank = 0, local_rank = 0;
  pid_t pid = -1;
  Output output[2];  // stdout and stderr
  FileDescriptor log;
  std::deque<std::string> last_lines;
  bool running = false;
};

std::string describe(int status) {
  if (WIFEXITED(status)) return "ended with code " + std::to_string(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  std::string text = std::string("was killed by ") + strsignal(number) + " (signal " + std::to_string(number) + ")";
  if (number == SIGKILL) text += ", possibly out of memory";
  return text;
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

class Launch {
 public:
  explicit Launch(const LaunchOptions& options) : options_(options), world_(options.processes * options.nodes) {
    GRADUS_CHECK(options.processes > 0 && options.nodes > 0, ValueError,
                 "a job needs processes: --nproc and --nnodes are ", options.processes, " and ", options.nodes);
    GRADUS_CHECK(0 <= options.node_rank && options.node_rank < options.nodes, ValueError, "node rank ",
                 options.node_rank, " is none of 0 to ", options.nodes - 1);
    GRADUS_CHECK(options.nodes == 1 || options.rendezvous, ValueError,
                 "several nodes meet at an address of the first: --rdzv host:port");
    GRADUS_CHECK(!options.command.empty(), ValueError, "no program to run");
  }

  int run() {
    block_signals();
    token_ = options_.nodes == 1 ? Token::random() : Token::from_environment();
    GRADUS_CHECK(!token_.empty(), ValueError,
                 "several nodes need the same secret: put it into a file (chmod 600) and set GRADUS_TOKEN_FILE on all");
    guard();  // before there is anything that it should not inherit
    address_ = options_.rendezvous.value_or(Address{"127.0.0.1", 0});
    if (options_.node_rank == 0) {
      server_ = std::make_unique<TcpStoreServer>(address_, token_);
      address_ = server_->address();
    }
    for (int local = 0; local < options_.processes; ++local) start(local);
    while (std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.running; })) step();
    for (Worker& worker : workers_)
      for (Output& output : worker.output) drain(worker, output);
    if (failed_) report();
    return failed_ ? code_of(failed_status_) : interrupted_ != 0 ? 128 + interrupted_ : 0;
  }

  ~Launch() {
    for (const Worker& worker : workers_) kill_group(worker, SIGKILL);
    guard_pipe_.reset();
    if (guard_ > 0) waitpid(guard_, nullptr, 0);
  }

 private:
  void block_signals() {
    sigemptyset(&signals_);
    for (int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&signals_, number);
    sigprocmask(SIG_BLOCK, &signals_, &signals_before_);
    signal_pipe_ = FileDescriptor(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
    signal(SIGPIPE, SIG_IGN);  // nobody may read what the ranks print
  }

  /// A process that outlives this one, if need be, by as long as it takes to kill the ranks and what they started.
  void guard() {
    int ends[2];
    GRADUS_CHECK(pipe2(ends, O_CLOEXEC) == 0, CommError, "cannot make a pipe: ", std::strerror(errno));
    guard_pipe_ = FileDescriptor(ends[1]);
    const FileDescriptor read_end(ends[0]);
    guard_ = fork();
    GRADUS_CHECK(guard_ >= 0, CommError, "cannot start a process: ", std::strerror(errno));
    if (guard_ != 0) return;
    guard_pipe_.reset();
    setsid();
    std::vector<pid_t> groups;
    pid_t group = 0;
    while (read(read_end.number(), &group, sizeof group) == sizeof group) {
      if (group > 0) groups.push_back(group);
      else std::erase(groups, -group);
    }
    for (pid_t dead : groups) killpg(dead, SIGKILL);
    _exit(0);
  }

  void tell_guard(pid_t group) {
    [[maybe_unused]] const ssize_t told = write(guard_pipe_.number(), &group, sizeof group);
  }

  void start(int local_rank) {
    Worker& worker = workers_.emplace_back();
    worker.local_rank = local_rank;
    worker.rank = options_.node_rank * options_.processes + local_rank;
    if (!options_.log_directory.empty()) {
      mkdir(options_.log_directory.c_str(), 0777);
      const std::string path = options_.log_directory + "/rank" + std::to_string(worker.rank) + ".log";
      worker.log = FileDescriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      GRADUS_CHECK(worker.log, IoError, "cannot write '", path, "': ", std::strerror(errno));
    }
    int out[2], err[2];
    GRADUS_CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0, CommError, "cannot make pipes for rank ",
                 worker.rank, ": ", std::strerror(errno));
    const FileDescriptor out_end(out[1]), err_end(err[1]);
    worker.output[0] = {FileDescriptor(out[0]), {}, stdout};
    worker.output[1] = {FileDescriptor(err[0]), {}, stderr};
    const FileDescriptor token = token_.to_descriptor();

    worker.pid = fork();
    GRADUS_CHECK(worker.pid >= 0, CommError, "cannot start rank ", worker.rank, ": ", std::strerror(errno));
    if (worker.pid == 0) become(worker, out_end.number(), err_end.number(), token.number());
    setpgid(worker.pid, worker.pid);  // the child does so too: whoever comes first
    worker.running = true;
    tell_guard(worker.pid);
    for (Output& output : worker.output) fcntl(output.pipe.number(), F_SETFL, O_NONBLOCK);
  }

  [[noreturn]] void become(const Worker& worker, int out, int err, int token) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    const int inherited = dup(token);  // without close-on-exec
    set_job_environment({worker.rank, world_, worker.local_rank, options_.processes, address_}, inherited);
    setenv("OMP_NUM_THREADS", std::to_string(std::max(1, cores() / options_.processes)).c_str(), 0);
    sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
    signal(SIGPIPE, SIG_DFL);
    std::vector<char*> arguments;
    for (const std::string& argument : options_.command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    const std::string message = "cannot run '" + options_.command[0] + "': " + std::strerror(errno) + "\n";
    write_all(STDERR_FILENO, message);
    _exit(errno == ENOENT ? 127 : 126);
  }

  /// Waits for output, the end of a rank or a signal, and deals with it.
  void step() {
    std::vector<pollfd> entries = {{signal_pipe_.number(), POLLIN, 0}};
    for (const Worker& worker : workers_)
      for (const Output& output : worker.output) entries.push_back({output.pipe.number(), POLLIN, 0});
    const std::optional<Deadline>& next = first_known_at_ ? first_known_at_ : kill_at_;
    const int timeout = next ? next->poll_timeout() : -1;
    poll(entries.data(), entries.size(), timeout);
    for (Worker& worker : workers_)
      for (Output& output : worker.output) drain(worker, output);
    signalfd_siginfo info;
    while (read(signal_pipe_.number(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      for (const Worker& worker : workers_) kill_group(worker, number);
      if (number == SIGUSR1 || number == SIGUSR2) continue;
      interrupted_ = number;
      if (!kill_at_) kill_at_.emplace(options_.grace);
    }
    collect();
    if (first_known_at_ && first_known_at_->passed()) {
      first_known_at_.reset();
      for (const Worker& worker : workers_) kill_group(worker, SIGTERM);
      if (!kill_at_) kill_at_.emplace(options_.grace);
    }
    if (kill_at_ && kill_at_->passed())
      for (const Worker& worker : workers_) kill_group(worker, SIGKILL);
  }

  void collect() {
    for (Worker& worker : workers_) {
      int status = 0;
      if (!worker.running || waitpid(worker.pid, &status, WNOHANG) != worker.pid) continue;
      worker.running = false;
      killpg(worker.pid, SIGKILL);  // what it started and left behind
      tell_guard(-worker.pid);
      if (code_of(status) == 0 || interrupted_ != 0) continue;
      const bool explains = first_known_at_ && WIFSIGNALED(status) && !WIFSIGNALED(failed_status_);
      if (failed_ && !explains) continue;
      failed_ = &worker;
      failed_status_ = status;
      if (!first_known_at_) first_known_at_.emplace(kUntilFirstIsKnown);
    }
  }

  static void kill_group(const Worker& worker, int number) {
    if (worker.running) killpg(worker.pid, number);
  }

  void drain(Worker& worker, Output& output) {
    char chunk[1 << 14];
    while (output.pipe) {
      const ssize_t got = read(output.pipe.number(), chunk, sizeof chunk);
      if (got < 0) {
        if (errno == EINTR) continue;
        return;
      }
      if (got == 0) {
        output.pipe.reset();
        if (!output.line.empty()) print(worker, output);
        return;
      }
      if (worker.log) write_all(worker.log.number(), {chunk, static_cast<size_t>(got)});
      for (char c : std::string_view(chunk, static_cast<size_t>(got))) {
        if (c != '\n') output.line.push_back(c);
        if (c == '\n' || output.line.size() >= kLongestLine) print(worker, output);
      }
    }
  }

  static void print(Worker& worker, Output& output) {
    const std::string line = "[" + std::to_string(worker.rank) + "] " + output.line + "\n";
    write_all(fileno(output.to), line);
    worker.last_lines.push_back(std::move(output.line));
    if (worker.last_lines.size() > kLastLines) worker.last_lines.pop_front();
    output.line.clear();
  }

  void report() const {
    std::string text = "gradus-run: rank " + std::to_string(failed_->rank) + " " + describe(failed_status_) +
                       "; the others were ended. Its last lines:\n";
    for (const std::string& line : failed_->last_lines) text += "  " + line + "\n";
    write_all(STDERR_FILENO, text);
  }

  const LaunchOptions& options_;
  const int world_;
  Token token_;
  Address address_;
  std::unique_ptr<TcpStoreServer> server_;
  std::deque<Worker> workers_;  // their addresses stay
  sigset_t signals_, signals_before_;
  FileDescriptor signal_pipe_, guard_pipe_;
  pid_t guard_ = -1;
  std::optional<Deadline> first_known_at_, kill_at_;
  const Worker* failed_ = nullptr;
  int failed_status_ = 0, interrupted_ = 0;
};

}  // namespace

int launch(const LaunchOptions& options) { return Launch(options).run(); }

}  // namespace gradus::dist
