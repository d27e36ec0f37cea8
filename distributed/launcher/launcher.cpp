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
#include <gradus/distributed/launcher/guard_process.h>
#include <gradus/distributed/launcher/line_writer.h>
#include <gradus/distributed/launcher/nodes.h>
#include <gradus/distributed/launcher/orphans.h>

namespace gradus::dist {
namespace {

constexpr size_t kLastLines = 10;
constexpr size_t kLongestLine = 1 << 16;  // longer ones are cut into several
/// A rank that is killed is seen by its peers before it is by its parent, and they may have ended by then.
constexpr Milliseconds kUntilFirstIsKnown{100};
/// Of killed processes that are not gone (in a call of the kernel that does not end), and of output that nobody takes.
constexpr Milliseconds kUntilGivenUp{5000};

/// A pipe from a rank, whose bytes become lines "[rank] …".
struct Output {
  FileDescriptor pipe;
  std::string line;  // that has not ended yet
};

struct Worker {
  int rank = 0, local_rank = 0;
  pid_t pid = -1;
  Output output[2];  // stdout and stderr
  std::string log_path;
  FileDescriptor log;
  size_t lost = 0;  // bytes that are missing in the log
  std::string cause_of_loss;
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

/// Not by itself: abort() is also how the uncaught exception of a rank that misses another ends.
bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT; }

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
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
    reserve_standard_descriptors();
    block_signals();
    token_ = options_.nodes == 1 ? Token::random() : Token::from_environment();
    GRADUS_CHECK(!token_.empty(), ValueError,
                 "several nodes need the same secret: put it into a file (chmod 600) and set GRADUS_TOKEN_FILE on all");
    guard_.emplace();    // before there is anything that it should not inherit
    orphans_.emplace();  // ranks that are started from here on may leave some
    address_ = options_.rendezvous.value_or(Address{"127.0.0.1", 0});
    if (options_.node_rank == 0) {
      server_ = std::make_unique<TcpStoreServer>(address_, token_);
      address_ = server_->address();
    }
    for (int local = 0; local < options_.processes; ++local) start(local);
    open_output();
    if (options_.nodes > 1) nodes_ = std::make_unique<Nodes>(options_.node_rank, options_.nodes, address_, token_);
    while (std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.running; })) step();
    for (const Deadline deadline(kUntilGivenUp); orphans_->kill_all() && !deadline.passed();) step(deadline.left());
    const Outcome outcome = agree();
    flush();
    if (failed_) report();
    tell_losses();
    flush();
    return outcome.code;
  }

  ~Launch() {
    for (const Worker& worker : workers_) kill_group(worker, SIGKILL);
    guard_.reset();
  }

 private:
  /// One that is closed would be given to a pipe, and then be taken for stdout.
  static void reserve_standard_descriptors() {
    int number = 0;
    while (number <= STDERR_FILENO)
      GRADUS_CHECK((number = open("/dev/null", O_RDWR)) >= 0, IoError, "cannot open /dev/null");
    close(number);
  }

  void block_signals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);  // whoever ignored it would get no statuses
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
      struct sigaction action;
      sigaction(number, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&signals_, number);  // nohup and "&" of shells ignore some
    }
    sigprocmask(SIG_BLOCK, &signals_, &signals_before_);
    signal_pipe_ = FileDescriptor(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
    signal(SIGPIPE, SIG_IGN);  // nobody may read what the ranks print
  }

  void open_output() {
    writers_[0] = writers_[1] = std::make_shared<LineWriter>(STDOUT_FILENO);
    struct stat out = {}, err = {};
    const bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
                      out.st_ino == err.st_ino;
    if (!same) writers_[1] = std::make_shared<LineWriter>(STDERR_FILENO);  // else lines stay whole and in order
  }

  void start(int local_rank) {
    Worker& worker = workers_.emplace_back();
    worker.local_rank = local_rank;
    worker.rank = options_.node_rank * options_.processes + local_rank;
    if (!options_.log_directory.empty()) {
      mkdir(options_.log_directory.c_str(), 0777);
      worker.log_path = options_.log_directory + "/rank" + std::to_string(worker.rank) + ".log";
      // O_NONBLOCK: a pipe by that name that nobody reads is an error.
      worker.log =
          FileDescriptor(open(worker.log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
      GRADUS_CHECK(worker.log, IoError, "cannot write '", worker.log_path, "': ", std::strerror(errno));
    }
    int out[2], err[2];
    GRADUS_CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0, CommError, "cannot make pipes for rank ",
                 worker.rank, ": ", std::strerror(errno));
    const FileDescriptor out_end(out[1]), err_end(err[1]);
    worker.output[0] = {FileDescriptor(out[0]), {}};
    worker.output[1] = {FileDescriptor(err[0]), {}};
    const FileDescriptor token = token_.to_descriptor();

    worker.pid = fork();
    GRADUS_CHECK(worker.pid >= 0, CommError, "cannot start rank ", worker.rank, ": ", std::strerror(errno));
    if (worker.pid == 0) become(worker, out_end.number(), err_end.number(), token.number());
    setpgid(worker.pid, worker.pid);  // the child does so too: whoever comes first
    worker.running = true;
    guard_->watch(worker.pid);
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
    const int error = errno;
    write_all(STDERR_FILENO, "cannot run '" + options_.command[0] + "': " + std::strerror(error) + "\n");
    _exit(error == ENOENT ? 127 : 126);
  }

  /// Waits for output, the end of a rank, a signal or news of other nodes, at most for `at_most`, and deals with it.
  void step(Milliseconds at_most = std::chrono::hours(1)) {
    std::vector<pollfd> entries = {{signal_pipe_.number(), POLLIN, 0}, {nodes_ ? nodes_->changed() : -1, POLLIN, 0}};
    for (const auto& writer : writers_) entries.push_back({writer->emptied(), POLLIN, 0});
    for (const Worker& worker : workers_)
      for (int i : {0, 1}) entries.push_back({writers_[i]->full() ? -1 : worker.output[i].pipe.number(), POLLIN, 0});
    const std::optional<Deadline>& next = first_known_at_ ? first_known_at_ : kill_at_;
    poll(entries.data(), entries.size(), static_cast<int>((next ? std::min(at_most, next->left()) : at_most).count()));
    for (const auto& writer : writers_) writer->acknowledge();
    read_output();
    read_signals();
    collect();
    if (nodes_) listen();
    if (first_known_at_ && first_known_at_->passed()) {
      first_known_at_.reset();
      announce();
      end_ranks();
    }
    if (kill_at_ && kill_at_->passed()) {
      kill_at_.reset();
      for (const Worker& worker : workers_) kill_group(worker, SIGKILL);
    }
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signal_pipe_.number(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      for (const Worker& worker : workers_) kill_group(worker, number);
      if (number == SIGUSR1 || number == SIGUSR2) continue;
      interrupted_ = number;
      ++interruptions_;
      if (!kill_at_) kill_at_.emplace(options_.grace);
      announce();
    }
  }

  void end_ranks() {
    for (const Worker& worker : workers_) kill_group(worker, SIGTERM);
    if (!kill_at_) kill_at_.emplace(options_.grace);
  }

  void collect() {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      orphans_->forget(pid);
      const auto worker =
          std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.running && w.pid == pid; });
      if (worker != workers_.end()) ended(*worker, status);
    }
  }

  void ended(Worker& worker, int status) {
    worker.running = false;
    killpg(worker.pid, SIGKILL);  // what it started and left behind
    guard_->forget(worker.pid);
    if (code_of(status) == 0 || interrupted_ != 0 || ended_by_others_) return;
    const bool explains = first_known_at_ && was_killed(status) && !was_killed(failed_status_);
    if (failed_ && !explains) return;
    failed_ = &worker;
    failed_status_ = status;
    if (was_killed(status)) announce();  // those on other nodes that miss it come later
    if (!first_known_at_) first_known_at_.emplace(kUntilFirstIsKnown);
  }

  static void kill_group(const Worker& worker, int number) {
    if (worker.running) killpg(worker.pid, number);
  }

  /// How this node's part of the job ended, or is about to.
  Outcome own_outcome() const {
    if (failed_) return {code_of(failed_status_), name(*failed_) + " " + describe(failed_status_)};
    if (interrupted_ == 0) return {};
    return {128 + interrupted_, "node " + std::to_string(options_.node_rank) + " was asked to end: " +
                                    strsignal(interrupted_) + " (signal " + std::to_string(interrupted_) + ")"};
  }

  void announce() {
    if (nodes_) nodes_->ended(own_outcome());
  }

  /// When the job has failed elsewhere, it ends here.
  void listen() {
    nodes_->acknowledge();
    if (ended_by_others_ || !nodes_->outcome() || nodes_->outcome()->code == 0) return;
    ended_by_others_ = true;
    end_ranks();
  }

  /// Of the job: of all nodes, unless somebody is asking for the second time that it ends.
  Outcome agree() {
    if (!nodes_) return own_outcome();
    announce();
    while (!nodes_->finished() && interruptions_ < 2) step();
    const Outcome own = own_outcome(), outcome = nodes_->outcome().value_or(own);
    if (outcome.cause != own.cause) say("the job failed: " + outcome.cause);
    return outcome;
  }

  /// One piece of what each rank has written: none keeps the others, or a signal, waiting. While nobody takes it, ranks
  /// are not read, so that their own writes wait.
  void read_output() {
    const bool full[] = {writers_[0]->full(), writers_[1]->full()};
    something_read_ = false;
    for (Worker& worker : workers_)
      for (int i : {0, 1})
        if (!full[i]) read_some(worker, i);
  }

  void read_some(Worker& worker, int which) {
    Output& output = worker.output[which];
    char chunk[1 << 14];
    const ssize_t got = output.pipe ? read(output.pipe.number(), chunk, sizeof chunk) : -1;
    if (got < 0) return;  // nothing there now
    something_read_ = true;
    if (got == 0) {
      output.pipe.reset();
      if (!output.line.empty()) print(worker, which);
      return;
    }
    const std::string_view text(chunk, static_cast<size_t>(got));
    log(worker, text);
    for (char c : text) {
      if (c != '\n') output.line.push_back(c);
      if (c == '\n' || output.line.size() >= kLongestLine) print(worker, which);
    }
  }

  static void log(Worker& worker, std::string_view text) {
    if (!worker.log) return;
    const ssize_t written = write(worker.log.number(), text.data(), text.size());
    if (written == static_cast<ssize_t>(text.size())) return;
    worker.lost += text.size() - static_cast<size_t>(std::max<ssize_t>(written, 0));
    worker.cause_of_loss = written < 0 ? std::strerror(errno) : "the file is full";
  }

  void print(Worker& worker, int which) {
    std::string& line = worker.output[which].line;
    writers_[which]->put("[" + std::to_string(worker.rank) + "] " + line + "\n");
    worker.last_lines.push_back(std::exchange(line, {}));
    if (worker.last_lines.size() > kLastLines) worker.last_lines.pop_front();
  }

  void say(const std::string& text) { writers_[1]->put("gradus-run: " + text + "\n"); }

  std::string name(const Worker& worker) const {
    const std::string node = options_.nodes > 1 ? " on node " + std::to_string(options_.node_rank) : "";
    return "rank " + std::to_string(worker.rank) + node;
  }

  void report() {
    std::string text = own_outcome().cause + "; the others were ended. Its last lines:";
    for (const std::string& line : failed_->last_lines) text += "\n  " + line;
    say(text);
  }

  void tell_losses() {
    for (const Worker& worker : workers_)
      if (worker.lost > 0)
        say("of the output of " + name(worker) + " in '" + worker.log_path + "' " + std::to_string(worker.lost) +
            " bytes were lost: " + worker.cause_of_loss);
    if (const std::string losses = writers_[0]->losses(); !losses.empty()) say("of stdout " + losses);
  }

  /// Reads and writes the rest of the output, but drops what nobody takes for a while, or until somebody asks to end.
  void flush() {
    const auto waiting = [&] { return writers_[0]->waiting() + writers_[1]->waiting(); };
    int interruptions = interruptions_;
    size_t gone = 0;
    Deadline patience(kUntilGivenUp);
    something_read_ = true;
    while (something_read_ || waiting() > 0) {
      step(something_read_ ? Milliseconds(0) : patience.left());
      const bool interrupted = std::exchange(interruptions, interruptions_) < interruptions_;
      const size_t before = std::exchange(gone, writers_[0]->gone() + writers_[1]->gone());
      if (gone > before && !interrupted) patience = Deadline(kUntilGivenUp);
      if (!patience.passed() && !interrupted) continue;
      if (waiting() == 0) return;
      for (const auto& writer : writers_)
        if (writer->waiting() > 0) writer->give_up("nobody took them");
      patience = Deadline(kUntilGivenUp);
      something_read_ = true;  // the ranks' pipes, which were not read while nobody took anything
    }
  }

  const LaunchOptions& options_;
  const int world_;
  Token token_;
  Address address_;
  std::unique_ptr<TcpStoreServer> server_;
  std::deque<Worker> workers_;  // their addresses stay
  sigset_t signals_, signals_before_;
  FileDescriptor signal_pipe_;
  std::optional<GuardProcess> guard_;
  std::optional<Orphans> orphans_;
  std::shared_ptr<LineWriter> writers_[2];  // stdout and stderr
  std::unique_ptr<Nodes> nodes_;
  std::optional<Deadline> first_known_at_, kill_at_;
  const Worker* failed_ = nullptr;
  int failed_status_ = 0, interrupted_ = 0, interruptions_ = 0;
  bool ended_by_others_ = false, something_read_ = false;
};

}  // namespace

int launch(const LaunchOptions& options) { return Launch(options).run(); }

}  // namespace gradus::dist
