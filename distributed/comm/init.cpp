#include <gradus/distributed/comm/init.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>

#include <gradus/core/io/parse_number.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/distributed/comm/shm/shm_group.h>
#include <gradus/distributed/comm/tcp/tcp_group.h>

namespace gradus::dist {
namespace {

/// The value of a variable, if it is set. Throws a ValueError unless it is a number from `least` to `most`.
std::optional<int> number_in(const char* variable, int least = 0, int most = std::numeric_limits<int>::max()) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::optional<int> value = io::parse_number<int>(text);
  GRADUS_CHECK(value && least <= *value && *value <= most, ValueError, "the variable ", variable, " is '", text,
               "', not a number from ", least, " to ", most);
  return value;
}

int required_number(const char* variable, const char* other, int least = 0,
                    int most = std::numeric_limits<int>::max()) {
  const std::optional<int> value = number_in(variable, least, most);
  GRADUS_CHECK(value, ValueError, "the variable ", variable, " is not set, but ", other, " is");
  return *value;
}

/// Names of the environment variables in which one launcher describes a process.
struct Launcher {
  const char *rank, *size, *local_rank, *local_size;
  const char* local_sizes = "";  // the variable with a list of the numbers of ranks on all nodes, if there is one
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"},
};

/// Number of ranks on node number `node` according to a list of Slurm: "2(x3),1" is 2 on each of three nodes, then 1.
/// Nothing if the list has another form or ends before that node.
std::optional<int> ranks_on_node(std::string_view list, int node) {
  const auto take = [&](std::string_view text) {
    const bool found = list.starts_with(text);
    if (found) list.remove_prefix(text.size());
    return found;
  };
  const auto take_count = [&](int* count) {
    const auto [rest, error] = std::from_chars(list.data(), list.data() + list.size(), *count);
    list.remove_prefix(static_cast<size_t>(rest - list.data()));
    return error == std::errc() && 0 < *count && *count <= kMaxRanks;
  };
  do {
    int ranks = 0, nodes = 1;
    if (!take_count(&ranks) || (take("(x") && !(take_count(&nodes) && take(")")))) return std::nullopt;
    if ((node -= nodes) < 0) return ranks;
  } while (take(","));
  return std::nullopt;
}

/// For a rank whose launcher sets no LOCAL_RANK: returns true if the rank is assumed to be alone on its machine. In a
/// PyTorchJob each rank has its own machine (a pod). If the variables were set by hand on one machine, the ranks meet
/// at a loopback address.
bool is_alone(const JobEnvironment& job) { return job.store && !is_loopback(job.store->host); }

/// Number of groups of all ranks that this process has made. It is part of the keys under which a group meets, because
/// the store still holds the keys of earlier groups.
std::atomic<int> worlds = 0;

std::string own_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

/// Selects the thread pool instead of OpenMP if the ranks on this machine have more threads than there are cores.
/// OpenMP is slow then, because all its threads wait for each other in every kernel.
void share_cores(const JobEnvironment& job) {
  const int64_t ranks = job.local_world_size;
  if (ranks > 1 && ranks * num_threads() > num_cores()) set_thread_runtime(ThreadRuntime::pool);
}

}  // namespace

JobEnvironment job_environment() {
  JobEnvironment job;
  if (const char* store = std::getenv("GRADUS_STORE")) {
    try {
      job.store = Address::parse(store);
    } catch (const ValueError& error) { GRADUS_FAIL(ValueError, "the variable GRADUS_STORE: ", error.what()); }
    job.restarts = number_in("TORCHELASTIC_RESTART_COUNT").value_or(0);
  } else if (const char* host = std::getenv("MASTER_ADDR")) {
    GRADUS_CHECK(*host != '\0', ValueError, "the variable MASTER_ADDR is empty: it names the machine of rank 0");
    const int port = required_number("MASTER_PORT", "MASTER_ADDR", 1, 65535);
    job.store = Address{host, static_cast<uint16_t>(port)};
  }
  job.worker = number_in("GRADUS_WORKER");
  job.spare = job.worker && std::getenv("GRADUS_SPARE") != nullptr;
  if (job.spare) {
    job.rank = job.local_rank = -1;
    job.world_size = required_number("WORLD_SIZE", "GRADUS_SPARE", 1, kMaxRanks);
    job.local_world_size = required_number("LOCAL_WORLD_SIZE", "GRADUS_SPARE", 1, kMaxRanks);
    return job;
  }
  const auto launcher = std::ranges::find_if(
      kLaunchers, [](const char* rank) { return std::getenv(rank); }, &Launcher::rank);
  if (launcher != std::end(kLaunchers)) {
    job.rank = *number_in(launcher->rank);
    job.world_size = required_number(launcher->size, launcher->rank, 1, kMaxRanks);
    GRADUS_CHECK(job.rank < job.world_size, ValueError, launcher->rank, " is ", job.rank, ", but ", launcher->size,
                 " is ", job.world_size);
    const std::optional<int> local_rank = number_in(launcher->local_rank);
    job.local_rank = local_rank.value_or(is_alone(job) ? 0 : job.rank);
    const char* list = std::getenv(launcher->local_sizes);
    std::optional<int> local_size = list ? ranks_on_node(list, number_in("SLURM_NODEID").value_or(0)) : std::nullopt;
    if (!local_size) local_size = number_in(launcher->local_size, 1);
    job.local_world_size = local_size.value_or(is_alone(job) ? 1 : job.world_size);
    // Slurm's number of tasks on each node is a limit, which may exceed the number of all tasks.
    const bool is_exact = *launcher->local_sizes == '\0';
    GRADUS_CHECK(!is_exact || job.local_world_size <= job.world_size, ValueError, launcher->local_size, " is ",
                 job.local_world_size, ", but ", launcher->size, " is ", job.world_size);
    job.local_world_size = std::min(job.local_world_size, job.world_size);
    const bool by_local_size = local_size && is_exact;
    const int ranks_here = by_local_size ? *local_size : job.world_size;
    GRADUS_CHECK(job.local_rank < ranks_here, ValueError, launcher->local_rank, " is ", job.local_rank, ", but ",
                 by_local_size ? launcher->local_size : launcher->size, " is ", ranks_here);
  } else if (std::getenv("WORLD_SIZE") != nullptr) required_number("RANK", "WORLD_SIZE");
  job.serves = job.store && std::getenv("GRADUS_STORE") == nullptr && job.rank == 0;
  return job;
}

void set_job_environment(const JobEnvironment& job, int token) {
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  // Variables that are not set below must not be inherited either, because a launcher or spawn() may run in a rank.
  for (const char* name : {"RANK", "LOCAL_RANK", "GROUP_RANK", "GRADUS_WORKER", "GRADUS_SPARE"}) unsetenv(name);
  if (job.worker) set("GRADUS_WORKER", std::to_string(*job.worker));
  if (job.spare) {
    set("GRADUS_SPARE", "1");
  } else {
    set("RANK", std::to_string(job.rank));
    set("LOCAL_RANK", std::to_string(job.local_rank));
    set("GROUP_RANK", std::to_string(job.rank / job.local_world_size));
  }
  set("WORLD_SIZE", std::to_string(job.world_size));
  set("LOCAL_WORLD_SIZE", std::to_string(job.local_world_size));
  set("MASTER_ADDR", job.store->host);
  set("MASTER_PORT", std::to_string(job.store->port));
  set("GRADUS_STORE", job.store->str());
  set("GRADUS_TOKEN_FD", std::to_string(token));
}

std::unique_ptr<ProcessGroup> make_group(const std::shared_ptr<Store>& store, const JobEnvironment& job,
                                         const InitOptions& options) {
  check_ranks(job.rank, job.world_size);
  share_cores(job);
  const int rank = job.rank, size = job.world_size;
  std::string backend = options.backend;
  const auto all_agree = [&](const std::string& what, const std::string& own) {
    return std::ranges::count(values_of_ranks(*store, what, own, rank, size, options.timeout), own) == size;
  };
  if (backend == "auto") backend = all_agree("host", host_identity()) ? "shm" : "tcp";
  if (backend == "shm") return std::make_unique<ShmGroup>(store, rank, size, ShmOptions{options.timeout});
  if (backend == "tcp") {
    const bool is_local = !job.store || is_loopback(job.store->host);
    TcpOptions tcp;
    tcp.host = !options.host.empty() ? options.host : is_local ? "127.0.0.1" : own_name();
    tcp.token = Token::from_environment();
    tcp.timeout = options.timeout;
    tcp.checksum = options.checksum;
    const bool has_cuda = find_runtime(DeviceType::cuda) != nullptr;
    tcp.two_lanes = all_agree("cuda", has_cuda ? "yes" : "no") && has_cuda;
    return std::make_unique<TcpGroup>(store, rank, size, tcp);
  }
  GRADUS_CHECK(backend != "mpi", ValueError,
               "the ranks of the backend 'mpi' are those that mpirun started, and no others can ",
               "replace them: take tcp, shm, nccl or auto");
  GRADUS_CHECK(backend == "nccl", ValueError, "there is no communication backend '", backend,
               "': tcp, shm, nccl, mpi or auto");
  NcclOptions nccl;
  nccl.timeout = options.timeout;
  nccl.device = options.device.value_or(job.local_rank);
  nccl.debug = std::getenv("GRADUS_NCCL_DEBUG") != nullptr;
  return make_nccl_group(store, rank, size, nccl);
}

GroupPtr init_process_group(const InitOptions& options) {
  const JobEnvironment environment = job_environment();
  GRADUS_CHECK(!environment.spare, CommError,
               "this process is a spare of gradus-run --spares, and has no rank to form a group with: let the program "
               "train with dist::ElasticTraining, or start it without --spares");
  if (options.backend == "mpi") {
    share_cores(environment);
    GroupPtr group = make_mpi_group(options.timeout);
    GRADUS_CHECK(
        group->size() > 1 || environment.world_size == 1, CommError, "the launcher started ", environment.world_size,
        " ranks, but MPI knows of this process alone: start the program with mpirun, or ", "with srun --mpi=pmix");
    return group;
  }
  GRADUS_CHECK(environment.store || environment.world_size == 1, ValueError, "there are ", environment.world_size,
               " ranks, but they cannot meet: start them with gradus-run, set MASTER_ADDR and MASTER_PORT, or, under ",
               "mpirun, take the backend 'mpi'");
  const Token token = Token::from_environment();
  Address address = environment.store.value_or(Address{"127.0.0.1", 0});
  const char* const where = std::getenv("GRADUS_STORE") ? "GRADUS_STORE" : "MASTER_ADDR and MASTER_PORT";
  std::shared_ptr<TcpStoreServer> server;
  std::shared_ptr<Store> store;
  try {
    if (environment.serves || !environment.store) {
      server = std::make_shared<TcpStoreServer>(address, token);
      address = server->address();
    }
    store = std::make_shared<TcpStore>(address, token, options.timeout);
  } catch (const CommError& error) {
    if (!environment.store) throw;
    GRADUS_FAIL(CommError, "rank ", environment.rank, environment.serves ? " cannot serve" : " did not reach",
                " the store of the job, which ", where, " place at ", environment.store->str(), ": ", error.what());
  }
  store = std::make_shared<PrefixStore>(
      "attempt/" + std::to_string(environment.restarts) + "/world/" + std::to_string(worlds++), std::move(store));
  return keep_for(make_group(store, environment, options), server);
}

namespace {

/// Number of threads of this process. The kernel lists a joined thread for a moment longer, so a count above one is
/// repeated for up to a second.
int64_t threads_of_this_process() {
  const auto count = [] {
    std::error_code error;
    const std::filesystem::directory_iterator tasks("/proc/self/task", error);
    return error ? 1 : std::ranges::distance(tasks, std::filesystem::directory_iterator());
  };
  const Deadline deadline(Milliseconds(1000));
  while (count() > 1 && !deadline.passed()) std::this_thread::sleep_for(Milliseconds(1));
  return count();
}

/// A process of spawn(). If it throws, it writes the message of the exception to the pipe.
struct Child {
  pid_t pid = -1;
  FileDescriptor pipe;
  std::string error;
};

/// Reads what has arrived through the pipe. Returns true, once, when the process has closed its end of the pipe.
bool has_ended(Child& child) {
  char text[4096];
  const ssize_t got = read(child.pipe.number(), text, sizeof text);
  if (got > 0) child.error.append(text, static_cast<size_t>(got));
  if (got != 0) return false;
  child.pipe.reset();
  return true;
}

/// How long processes may take to end after SIGTERM.
constexpr Milliseconds kGrace{5000};

/// The processes of one spawn(). The destructor kills those that still run, so that none is left when spawn() throws.
struct Children {
  std::vector<Child> all;

  ~Children() {
    end(SIGKILL);
    for (const Child& child : all)
      if (child.pipe && child.pid > 0) waitpid(child.pid, nullptr, 0);
  }
  void end(int signal_number) const {
    for (const Child& child : all)
      if (child.pipe && child.pid > 0) kill(child.pid, signal_number);
  }
};

/// Flushes all output. Otherwise a forked copy of this process would print it again, or _exit() would lose it.
void flush_output() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

/// Ends a copy of this process without the exit handlers and static destructors of its parent.
[[noreturn]] void end_copy(int code, void* = nullptr) {
  flush_output();
  _exit(code);
}

/// Forks a copy of this process in which SIGTERM has its default effect from the first moment on, even if this process
/// has installed a handler. spawn() ends the other ranks by SIGTERM when a rank has failed.
pid_t fork_without_handler() {
  sigset_t terminate, before;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  sigprocmask(SIG_BLOCK, &terminate, &before);
  const pid_t pid = fork();
  if (pid == 0) signal(SIGTERM, SIG_DFL);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return pid;
}

/// Runs fn(rank) in the forked copy and ends it. No exception may leave this function, because the copy would then go
/// on with the parent's program.
[[noreturn]] void run_child(const std::function<void(int)>& fn, int rank, int size, const Address& store, int token,
                            int error_pipe) noexcept {
  on_exit(end_copy, nullptr);  // if fn calls exit(), this handler runs first and ends the process
  int code = 1;
  const auto report = [&](const char* error) {
    [[maybe_unused]] const ssize_t written = write(error_pipe, error, std::strlen(error));
  };
  try {
    set_job_environment({rank, size, rank, size, store}, token);
    fn(rank);
    code = 0;
  } catch (const std::exception& error) { report(error.what()); } catch (...) {
    report("threw something that is not a std::exception");
  }
  end_copy(code);
}

}  // namespace

void spawn(const std::function<void(int rank)>& fn, int size) {
  const OpContext context("spawn");
  GRADUS_CHECK(0 < size && size <= kMaxRanksOfHost, ValueError, size, " processes: 1 to ", kMaxRanksOfHost,
               " are possible");
  const int64_t threads = threads_of_this_process();
  GRADUS_CHECK(
      threads == 1, CommError, "this process has ", threads,
      " threads already, and a copy of it would have one of them: call spawn() before tensors are computed with or a "
      "device is used, or start the program with gradus-run");
  flush_output();
  const Token token = Token::random();
  // The server has a thread, so it starts after the children have been forked.
  const uint16_t port = find_free_port();
  const FileDescriptor token_file = token.to_descriptor();
  const pid_t parent = getpid();
  Children children;
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    GRADUS_CHECK(pipe2(ends, O_CLOEXEC) == 0, CommError, "no descriptors are left for rank ", rank);
    const FileDescriptor write_end(ends[1]);
    Child& child = children.all.emplace_back();
    child.pipe = FileDescriptor(ends[0]);
    child.pid = fork_without_handler();
    GRADUS_CHECK(child.pid >= 0, CommError, "cannot start rank ", rank, ": ", std::strerror(errno));
    if (child.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // the parent ended before prctl() took effect
      run_child(fn, rank, size, {"127.0.0.1", port}, token_file.number(), write_end.number());
    }
  }
  const TcpStoreServer server({"127.0.0.1", port}, token);

  std::string first;
  std::optional<Deadline> kill_at;
  for (int running = size; running > 0;) {
    std::vector<pollfd> entries;
    for (const Child& child : children.all) entries.push_back({child.pipe.number(), POLLIN, 0});
    poll(entries.data(), entries.size(), kill_at ? kill_at->poll_timeout() : -1);
    if (kill_at && kill_at->passed()) children.end(SIGKILL);
    for (int rank = 0; rank < size; ++rank) {
      Child& child = children.all[static_cast<size_t>(rank)];
      if (entries[static_cast<size_t>(rank)].revents == 0 || !has_ended(child)) continue;
      --running;
      int status = 0;
      waitpid(child.pid, &status, 0);
      if (status == 0 || !first.empty()) continue;
      first = "rank " + std::to_string(rank) +
              (!child.error.empty()  ? ": " + child.error
               : WIFSIGNALED(status) ? std::string(" was killed: ") + strsignal(WTERMSIG(status))
                                     : " ended with code " + std::to_string(WEXITSTATUS(status)));
      children.end(SIGTERM);
      kill_at.emplace(kGrace);
    }
  }
  GRADUS_CHECK(first.empty(), CommError, first);
}

}  // namespace gradus::dist
