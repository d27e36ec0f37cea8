#include <gradus/distributed/launcher/job.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/process_group.h>

namespace gradus::dist {
namespace {

/// The children of this process.
std::set<pid_t> children() {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    std::string line;
    if (pid <= 0 || !std::getline(std::ifstream(entry.path() / "stat"), line)) continue;
    pid_t parent = 0;  // in "pid (name) state parent …", where the name may contain anything
    if (std::sscanf(line.c_str() + line.rfind(')') + 1, " %*c %d", &parent) == 1 && parent == getpid())
      found.insert(pid);
  }
  return found;
}

/// Opens standard descriptors that are closed. Otherwise a pipe could get such a number and be mistaken for stdout.
void reserve_standard_descriptors() {
  int number = 0;
  while (number <= STDERR_FILENO)
    GRADUS_CHECK((number = open("/dev/null", O_RDWR)) >= 0, IoError, "cannot open /dev/null");
  close(number);
}

/// Throws a ValueError unless the value of an option is between `least` and `most`.
void check_range(const char* option, int64_t value, int64_t least, int64_t most, const char* explanation = "") {
  GRADUS_CHECK(least <= value && value <= most, ValueError, option, " is ", value, ", not ", least, " to ", most,
               explanation);
}

void check_options(const LaunchOptions& options) {
  GRADUS_CHECK(options.processes > 0 && options.nodes > 0, ValueError,
               "a job needs processes: --nproc and --nnodes are ", options.processes, " and ", options.nodes);
  GRADUS_CHECK(options.max_restarts >= 0, ValueError, "--max-restarts is ", options.max_restarts, ", not 0 or more");
  GRADUS_CHECK(options.spares >= 0, ValueError, "--spares is ", options.spares, ", not 0 or more");
  check_range("--nproc", options.processes, 1, kMaxRanksOfHost, ", the largest number of processes on a machine");
  check_range("--spares", options.spares, 0, kMaxRanksOfHost - options.processes,
              ", which with --nproc is the largest number of processes on a machine");
  check_range("--min-nproc", options.min_processes.value_or(options.processes), 1, options.processes,
              ", the value of --nproc");
  check_range("--nnodes", options.nodes, 1, kMaxRanks / options.processes,
              ", with which a job has the largest number of ranks");
  check_range("--grace", options.grace.count(), 0, kLongestWait.count(), ", in milliseconds");
  check_range("--node-rank", options.node_rank, 0, options.nodes - 1);
  GRADUS_CHECK(options.nodes == 1 || options.rendezvous, ValueError,
               "several nodes need an address at which to meet: --rdzv host:port");
  GRADUS_CHECK(options.nodes == 1 || options.rendezvous->port != 0, ValueError,
               "several nodes need a port that all of them know: --rdzv ", options.rendezvous->str(), " has port 0");
  GRADUS_CHECK(options.nodes == 1 || (options.spares == 0 && !options.min_processes), ValueError,
               "--spares and --min-nproc are for jobs on one machine, but --nnodes is ", options.nodes);
  GRADUS_CHECK(!options.command.empty(), ValueError, "no program to run");
}

/// Makes sure that there are enough descriptors for two pipes from each process, and its log.
void reserve_descriptors(const LaunchOptions& options) {
  constexpr size_t kOwn = 64;
  const auto processes = static_cast<size_t>(options.processes) + static_cast<size_t>(options.spares);
  const size_t needed = kOwn + processes * (options.log_directory.empty() ? 2 : 3);
  GRADUS_CHECK(may_have_descriptors(needed), CommError, "the output of ", processes, " processes takes ", needed,
               " descriptors, and this process may have ", descriptor_limit(), " (ulimit -n)");
}

}  // namespace

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

Orphans::Orphans() : others_(children()) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool Orphans::kill_all() const {
  std::set<pid_t> orphans = children();
  for (pid_t other : others_) orphans.erase(other);
  for (pid_t orphan : orphans) kill(orphan, SIGKILL);
  return !orphans.empty();
}

Job::Job(const LaunchOptions& options) : options(options) {
  check_options(options);
  reserve_descriptors(options);
  reserve_standard_descriptors();
  block_signals();
  token = options.nodes == 1 ? Token::random() : Token::from_environment();
  GRADUS_CHECK(!token.empty(), ValueError,
               "several nodes need the same secret: put it into a file (chmod 600) and set GRADUS_TOKEN_FILE on each");
  guard.emplace();    // before there are descriptors that it must not inherit
  orphans.emplace();  // before ranks are started, which may leave orphans
  address = options.rendezvous.value_or(Address{"127.0.0.1", 0});
  if (options.node_rank == 0) {
    server = std::make_unique<TcpStoreServer>(address, token);
    address = server->address();
  }
  open_output();
}

void Job::block_signals() {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  signal(SIGCHLD, SIG_DFL);  // if it were ignored, there would be no exit statuses
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction action;
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&blocked, number);  // nohup and "&" of shells ignore some signals
  }
  sigprocmask(SIG_BLOCK, &blocked, &signals_before_);
  signals = FileDescriptor(signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK));
  signal(SIGPIPE, SIG_IGN);  // the output of ranks may have no reader
}

void Job::open_output() {
  writers[0] = writers[1] = std::make_shared<LineWriter>(STDOUT_FILENO);
  struct stat out = {}, err = {};
  const bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
                    out.st_ino == err.st_ino;
  if (!same) writers[1] = std::make_shared<LineWriter>(STDERR_FILENO);  // a single writer keeps lines in order
}

bool Job::is_elastic() const {
  return options.spares > 0 || options.min_processes.value_or(options.processes) < options.processes;
}

std::optional<int> Job::next_signal() {
  signalfd_siginfo info;
  if (read(signals.number(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void Job::restore_signals() const {
  sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  signal(SIGPIPE, SIG_DFL);
}

std::string Job::restart(int number) const {
  return "restart " + std::to_string(number) + " of " + std::to_string(options.max_restarts);
}

}  // namespace gradus::dist
