#include <gradus/distributed/launcher/job.h>

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gradus/core/parallel/parallel.h>
#include <gradus/distributed/comm/init.h>

namespace gradus::dist {

size_t write_all(int descriptor, std::string_view text) {
  const size_t size = text.size();
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    pollfd entry = {descriptor, POLLOUT, 0};
    if (written >= 0) text.remove_prefix(static_cast<size_t>(written));
    else if (errno == EAGAIN) poll(&entry, 1, -1);  // another process made the descriptor non-blocking
    else if (errno != EINTR) break;
  }
  return size - text.size();
}

std::shared_ptr<LineWriter> LineWriter::start(int descriptor) {
  const std::shared_ptr<LineWriter> writer(new LineWriter(descriptor));
  GRADUS_CHECK(writer->emptied_, CommError, "no descriptor is left to write output with");
  std::thread([writer] { writer->run(); }).detach();
  return {writer.get(), [writer](LineWriter*) { writer->give_up(""); }};
}

LineWriter::LineWriter(int descriptor) : descriptor_(descriptor), emptied_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void LineWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopped_ || !blocks_.empty(); });
    if (stopped_) return;
    const std::string block = std::move(blocks_.front());
    blocks_.pop_front();
    lock.unlock();
    const size_t written = write_all(descriptor_, block);
    const int error = errno;
    lock.lock();
    if (stopped_) return;
    if (written < block.size()) cause_ = std::strerror(error);
    lost_ += block.size() - written;
    completed_ += block.size();
    waiting_ -= block.size();
    if (waiting_ == 0) eventfd_write(emptied(), 1);
  }
}

void LineWriter::put(std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (stopped_) {
    lost_ += line.size();
    return;
  }
  // A block has at most PIPE_BUF bytes, which a pipe keeps together when other processes write to it too.
  if (blocks_.empty() || blocks_.back().size() + line.size() > PIPE_BUF) blocks_.emplace_back();
  blocks_.back() += line;
  waiting_ += line.size();
  changed_.notify_one();
}

void LineWriter::give_up(std::string_view cause) {
  const std::lock_guard lock(mutex_);
  cause_ = cause;
  lost_ += std::exchange(waiting_, 0);
  blocks_.clear();
  stopped_ = true;
  changed_.notify_one();
}

std::string LineWriter::losses(std::string_view what) const {
  const std::lock_guard lock(mutex_);
  if (lost_ == 0) return "";
  return std::to_string(lost_) + " bytes of " + std::string(what) + " were lost: " + cause_;
}

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

/// Opens the standard descriptors that are closed. Otherwise a pipe could get the number of stdout.
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

constexpr size_t kLastLines = 10;         // how many lines of each worker are kept, to be printed when it fails
constexpr size_t kLongestLine = 1 << 16;  // longer lines are cut into several

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
  guard.emplace();    // first, because its process must not inherit descriptors that are opened below
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
    if (action.sa_handler != SIG_IGN) sigaddset(&blocked, number);  // signals that nohup or "&" ignores stay so
  }
  sigprocmask(SIG_BLOCK, &blocked, &signals_before_);
  signals = FileDescriptor(signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK));
  signal(SIGPIPE, SIG_IGN);  // writing output that has no reader must not end the launcher
}

void Job::open_output() {
  writers[0] = writers[1] = LineWriter::start(STDOUT_FILENO);
  struct stat out = {}, err = {};
  const bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
                    out.st_ino == err.st_ino;
  if (!same) writers[1] = LineWriter::start(STDERR_FILENO);  // one file needs one writer, to keep its lines in order
}

bool Job::is_elastic() const {
  return options.spares > 0 || options.min_processes.value_or(options.processes) < options.processes;
}

std::optional<int> Job::next_signal() {
  signalfd_siginfo info;
  const bool arrived = read(signals.number(), &info, sizeof info) == sizeof info;
  return arrived ? std::optional(static_cast<int>(info.ssi_signo)) : std::nullopt;
}

void Job::restore_signals() const {
  sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  signal(SIGPIPE, SIG_DFL);
}

std::string Job::restart(int number) const {
  return "restart " + std::to_string(number) + " of " + std::to_string(options.max_restarts);
}

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
    // The new process is killed when the launcher ends, together with all processes that it starts. It registers its
    // group with the guard itself, because this must be done before the program can start a process.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);  // the launcher ended before prctl() took effect
    job_.guard->watch(getpid());
    run_program(out_end.number(), err_end.number(), token.number(), attempt);
  }
  setpgid(pid_, pid_);  // the child does this too, because either may run first
  running_ = true;
  for (Output& output : output_) fcntl(output.pipe.number(), F_SETFL, O_NONBLOCK);
}

void Worker::run_program(int out, int err, int token, int attempt) const {
  const LaunchOptions& options = job_.options;
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  const int inherited = dup(token);  // a copy that is not closed on exec, so that the program can read it
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
  // With O_NONBLOCK, opening a pipe that has no reader is an error. Otherwise the launcher would wait for a reader.
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
