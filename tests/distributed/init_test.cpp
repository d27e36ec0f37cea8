// How processes learn their ranks, meet, and are started from one program.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <thread>

#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/elastic/elastic_training.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/processes.h>
#include <gradus/tests/distributed/values.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

/// Sets these variables of launchers, and clears all others, until the end of the scope.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<const char*, const char*>>& variables) {
    clear();
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  ~Environment() { clear(); }

 private:
  static void clear() {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "GRADUS_STORE",
                             "GRADUS_TOKEN_FD",
                             "GRADUS_TOKEN_FILE",
                             "GRADUS_WORKER",
                             "GRADUS_SPARE",
                             "TORCHELASTIC_RESTART_COUNT",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_NTASKS_PER_NODE",
                             "SLURM_STEP_TASKS_PER_NODE",
                             "SLURM_NODEID"})
      unsetenv(name);
  }
};

/// Runs `body` in a copy of this process, which has one thread. Returns the message of its exception, or how the copy
/// ended; "" if it ended normally.
std::string in_a_copy(const std::function<void()>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      [[maybe_unused]] const ssize_t written = write(ends[1], error.what(), std::string(error.what()).size());
    } catch (...) { [[maybe_unused]] const ssize_t written = write(ends[1], "no std::exception", 17); }
    _exit(0);
  }
  close(ends[1]);
  char text[4096];
  const ssize_t got = read(ends[0], text, sizeof text);
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  const std::string error(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return status == 0 ? error : error + " (the copy ended with status " + std::to_string(status) + ")";
}

}  // namespace

TEST_CASE("the variables of four launchers", "[init]") {
  {
    const Environment none({});
    const JobEnvironment job = job_environment();
    CHECK((job.rank == 0 && job.world_size == 1 && !job.store && !job.serves));
  }
  {
    const Environment torchrun({{"RANK", "5"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "node0"},
                                {"MASTER_PORT", "29500"},
                                {"TORCHELASTIC_RESTART_COUNT", "1"}});  // of this node; other nodes may differ
    const JobEnvironment job = job_environment();
    CHECK(job.restarts == 0);
    CHECK((job.rank == 5 && job.world_size == 8 && job.local_rank == 1 && job.local_world_size == 4));
    CHECK((job.store->str() == "node0:29500" && !job.serves));
  }
  {
    const Environment gradus_run({{"RANK", "0"},
                                  {"WORLD_SIZE", "2"},
                                  {"MASTER_ADDR", "a"},
                                  {"MASTER_PORT", "1"},
                                  {"GRADUS_STORE", "[::1]:77"},
                                  {"TORCHELASTIC_RESTART_COUNT", "2"}});
    const JobEnvironment job = job_environment();
    CHECK(job.restarts == 2);
    CHECK((job.store->str() == "[::1]:77" && !job.serves && job.local_world_size == 2));
  }
  {
    const Environment open_mpi({{"OMPI_COMM_WORLD_RANK", "0"},
                                {"OMPI_COMM_WORLD_SIZE", "3"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                                {"MASTER_ADDR", "::1"},
                                {"MASTER_PORT", "29500"}});
    const JobEnvironment job = job_environment();
    CHECK((job.world_size == 3 && job.local_world_size == 3 && job.store->str() == "[::1]:29500" && job.serves));
  }
  {
    const Environment slurm({{"SLURM_PROCID", "2"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_LOCALID", "0"},
                             {"MASTER_ADDR", "n"},
                             {"MASTER_PORT", "1"}});
    const JobEnvironment job = job_environment();
    CHECK((job.rank == 2 && job.world_size == 4 && job.local_rank == 0));
  }
}

TEST_CASE("variables of srun: the number of ranks on each node is a list", "[init]") {
  const auto on_node = [](const char* node, const char* list, const char* per_node = nullptr) {
    std::vector<std::pair<const char*, const char*>> variables = {{"SLURM_PROCID", "6"},
                                                                  {"SLURM_NTASKS", "9"},
                                                                  {"SLURM_LOCALID", "1"},
                                                                  {"SLURM_NODEID", node},
                                                                  {"SLURM_STEP_TASKS_PER_NODE", list}};
    if (per_node) variables.push_back({"SLURM_NTASKS_PER_NODE", per_node});
    const Environment srun(variables);
    const JobEnvironment job = job_environment();
    CHECK((job.rank == 6 && job.world_size == 9 && job.local_rank == 1 && !job.store && !job.serves));
    return job.local_world_size;
  };
  CHECK(on_node("0", "2(x3),1(x2),1") == 2);
  CHECK(on_node("2", "2(x3),1(x2),1") == 2);
  CHECK(on_node("3", "2(x3),1(x2),1") == 1);
  CHECK(on_node("1", "4,5") == 5);
  CHECK(on_node("0", "9") == 9);
  CHECK(on_node("5", "4,5", "3") == 3);  // the list is of other nodes, so the number that was requested counts
  CHECK(on_node("0", "many") == 9);
}

TEST_CASE("variables of a PyTorchJob of Kubernetes: a rank is alone in its pod", "[init]") {
  for (const char* rank : {"0", "2"}) {
    const Environment pod({{"RANK", rank},
                           {"WORLD_SIZE", "3"},
                           {"MASTER_ADDR", "my-program-master-0"},
                           {"MASTER_PORT", "23456"},
                           {"PYTHONUNBUFFERED", "1"}});
    const JobEnvironment job = job_environment();
    CHECK((job.rank == std::atoi(rank) && job.world_size == 3 && job.local_rank == 0 && job.local_world_size == 1));
    CHECK((job.store->str() == "my-program-master-0:23456" && job.serves == (job.rank == 0)));
  }
  const Environment by_hand({{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  CHECK((job_environment().local_rank == 2 && job_environment().local_world_size == 3));
}

TEST_CASE("variables that are missing or wrong are named", "[init]") {
  const auto message = [](const std::vector<std::pair<const char*, const char*>>& variables) {
    const Environment environment(variables);
    try {
      job_environment();
    } catch (const ValueError& error) { return std::string(error.what()); }
    return std::string();
  };
  CHECK_THAT(message({{"RANK", "0"}}), contains("WORLD_SIZE is not set, but RANK is"));
  for (const char* text : {"x", "", "-1", "1.0", " 1", "1 ", "0x1", "99999999999"}) {
    const auto expected = contains("is '" + std::string(text) + "', not a number from ");
    CHECK_THAT(message({{"RANK", text}, {"WORLD_SIZE", "1"}}), contains("variable RANK") && expected);
    CHECK_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", text}}), contains("variable WORLD_SIZE") && expected);
    CHECK_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", text}}),
               contains("variable LOCAL_RANK") && expected);
    CHECK_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_WORLD_SIZE", text}}),
               contains("variable LOCAL_WORLD_SIZE") && expected);
    CHECK_THAT(message({{"MASTER_ADDR", "a"}, {"MASTER_PORT", text}}), contains("variable MASTER_PORT") && expected);
    CHECK_THAT(message({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", text}}), contains("variable SLURM_NTASKS") && expected);
    CHECK_THAT(message({{"GRADUS_STORE", "a:1"}, {"TORCHELASTIC_RESTART_COUNT", text}}),
               contains("variable TORCHELASTIC_RESTART_COUNT") && expected);
  }
  for (const char* size : {"0", "65537", "2147483647"})
    CHECK_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", size}}), contains("not a number from 1 to 65536"));
  CHECK_THAT(message({{"WORLD_SIZE", "2"}}), contains("RANK is not set, but WORLD_SIZE is"));
  CHECK_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}),
             contains("LOCAL_RANK is 2, but LOCAL_WORLD_SIZE is 2"));
  CHECK_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}),
             contains("LOCAL_RANK is 2, but WORLD_SIZE is 2"));
  CHECK_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}}),
             contains("LOCAL_WORLD_SIZE is 3, but WORLD_SIZE is 2"));
  CHECK_THAT(message({{"MASTER_ADDR", ""}, {"MASTER_PORT", "1"}}), contains("variable MASTER_ADDR is empty"));
  for (const char* store : {"", "a", "a:", ":1", "a:x", "a:65536"})
    CHECK_THAT(message({{"GRADUS_STORE", store}}), contains("the variable GRADUS_STORE: '" + std::string(store) + "'"));
  CHECK_THAT(message({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), contains("RANK is 2, but WORLD_SIZE is 2"));
  CHECK_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}), contains("MASTER_PORT is not set"));
  CHECK_THAT(message({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "65536"}}),
             contains("MASTER_PORT is '65536', not a number from 1 to 65535"));
  const Environment no_place({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  CHECK(!job_environment().store);
  CHECK_THROWS_WITH(init_process_group(),
                    contains("there are 2 ranks, but they cannot meet: start them with gradus-run"));
}

TEST_CASE("an error about the place of a job's store names the variables that set it", "[init]") {
  const auto message = [](const char* rank, const char* host, uint16_t port) {
    const std::string port_text = std::to_string(port);
    const Environment environment(
        {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", host}, {"MASTER_PORT", port_text.c_str()}});
    try {
      init_process_group({.timeout = Milliseconds(50)});
    } catch (const CommError& error) { return std::string(error.what()); }
    return std::string();
  };
  CHECK_THAT(message("0", "no-such-host.invalid", 1),
             contains("rank 0 cannot serve the store of the job, which MASTER_ADDR and MASTER_PORT place at "
                      "no-such-host.invalid:1: the name 'no-such-host.invalid' does not resolve to an address: "));
  CHECK_THAT(message("1", "no-such-host.invalid", 1),
             contains("rank 1 did not reach the store") && contains("does not resolve to an address: "));
  CHECK_THAT(message("0", "192.0.2.1", 29500), contains("this machine does not have that address"));  // see RFC 5737
  const Listener taken({"127.0.0.1", 0});
  CHECK_THAT(message("0", "127.0.0.1", taken.port()), contains("cannot serve") && contains("is taken"));
  CHECK_THAT(message("1", "127.0.0.1", find_free_port()), contains("did not reach") && contains("cannot connect to"));
  for (const auto& [variable, value] : {std::pair{"GRADUS_TOKEN_FD", "99999"}, std::pair{"GRADUS_TOKEN_FILE", ""}}) {
    const Environment environment(std::vector<std::pair<const char*, const char*>>{{variable, value}});
    CHECK_THROWS_WITH(init_process_group(), contains("the variable " + std::string(variable) + ": cannot "));
  }
}

TEST_CASE("a token is read from a descriptor, any number of times, or else from a file", "[init]") {
  const Token token = Token::random(), other = Token::random();
  const FileDescriptor descriptor = token.to_descriptor();
  const std::string number = std::to_string(descriptor.number());
  const TemporaryDirectory folder;
  const std::string path = folder.file("token");
  io::write_file(path, std::string_view(other.hex()));
  chmod(path.c_str(), 0600);
  const auto read = [&](const std::vector<std::pair<const char*, const char*>>& variables) {
    const Environment environment(variables);
    return Token::from_environment();
  };
  for (int i = 0; i < 2; ++i) {
    CHECK(read({{"GRADUS_TOKEN_FD", number.c_str()}}).hex() == token.hex());
    CHECK(read({{"GRADUS_TOKEN_FD", number.c_str()}, {"GRADUS_TOKEN_FILE", path.c_str()}}).hex() == token.hex());
    CHECK(read({{"GRADUS_TOKEN_FILE", path.c_str()}}).hex() == other.hex());
    CHECK(read({}).empty());
  }
  CHECK(Token().hex() == std::string(64, '0'));
  for (const char* text : {"", "-1", "x", "1x", "99999999999"})
    CHECK_THROWS_WITH(read({{"GRADUS_TOKEN_FD", text}}),
                      "GRADUS_TOKEN_FD is '" + std::string(text) + "', not the number of a descriptor");

  const std::string hex = token.hex();
  for (const auto& [text, is_token] : {std::pair{hex, true},
                                       {hex + "\n", true},
                                       {hex + "\n\n", false},
                                       {hex + "0", false},
                                       {hex + " ", false},
                                       {"\n" + hex, false},
                                       {hex.substr(1), false},
                                       {hex.substr(1) + "\n", false},
                                       {hex.substr(1) + "g", false},
                                       {"-" + hex.substr(1), false},
                                       {std::string("\n"), false},
                                       {std::string(), false}}) {
    CAPTURE(text);
    io::write_file(path, std::string_view(text));
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const std::string source = "descriptor " + std::to_string(file.number());
    if (is_token) CHECK(Token::from_descriptor(file.number()).hex() == hex);
    else
      CHECK_THROWS_WITH(Token::from_descriptor(file.number()),
                        source + " does not hold a token: 64 hexadecimal digits");
  }
  CHECK_THROWS_WITH(Token::from_descriptor(-1),
                    contains("cannot read a token from descriptor -1: Bad file descriptor"));
}

TEST_CASE("every backend refuses a group of too many ranks at once", "[init]") {
  HashStore store;
  const auto shared_store = std::make_shared<HashStore>();
  for (const int size : {INT_MAX, kMaxRanks + 1, 0, -1}) {
    CAPTURE(size);
    const auto refused = contains("a group has 1 to 65536 ranks, not " + std::to_string(size));
    CHECK_THROWS_WITH(TcpGroup(store, 0, size), refused);
    CHECK_THROWS_WITH(ShmGroup(store, 0, size), refused);
    CHECK_THROWS_WITH(LocalWorld(size), refused);
    JobEnvironment job;
    job.world_size = job.local_world_size = size;
    for (const char* backend : {"auto", "tcp", "shm"})
      CHECK_THROWS_WITH(make_group(shared_store, job, {.backend = backend}), refused);
    if (size > 0) CHECK_THROWS_WITH(spawn([](int) {}, size), contains("1 to 1024 are possible"));
  }
  CHECK_THROWS_WITH(ShmGroup(store, 0, kMaxRanksOfHost + 1), contains("at most 1024 ranks share memory"));
  CHECK_THROWS_WITH(TcpGroup(store, 2, 2), contains("rank 2 is not one of the ranks 0 to 1"));
  CHECK_THROWS_WITH(TcpGroup(store, -1, 2), contains("rank -1 is not one of"));
  FewDescriptors few(64, 64, [] {
    HashStore store;
    try {
      TcpGroup(store, 0, 60);
    } catch (const CommError& error) {
      require(std::string(error.what()).find("takes 177 descriptors") != std::string::npos, error.what());
      return;
    }
    throw std::runtime_error("nobody was refused");
  });
  CHECK(few.succeeds());
  CHECK(LocalWorld(kMaxRanks).size() == kMaxRanks);  // its memory grows only with messages
}

TEST_CASE("one process without a launcher is a group of one", "[init]") {
  const Environment none({});
  for (const char* backend : {"auto", "tcp", "shm"}) {
    const auto group = init_process_group({.backend = backend});
    CHECK((group->rank() == 0 && group->size() == 1));
    group->barrier();
  }
  CHECK_THROWS_WITH(init_process_group({.backend = "gloo"}), contains("no communication backend 'gloo'"));
  // An elastic job, whose groups meet through its store.
  CHECK_THROWS_WITH(make_group(std::make_shared<HashStore>(), {}, {.backend = "mpi"}), contains("that mpirun started"));
  if (nccl_version() == 0)
    CHECK_THROWS_WITH(init_process_group({.backend = "nccl"}), contains("this build has no NCCL: install it"));
  if (!has_mpi())
    CHECK_THROWS_WITH(init_process_group({.backend = "mpi"}), contains("this build has no MPI: install it"));
}

TEST_CASE("one process without a launcher is an elastic place whose group makes no connections", "[init]") {
  const Environment none({});
  ElasticPlace place = ElasticPlace::from_environment({});
  CHECK(place.worker == 0);
  CHECK(place.local_rank == 0);
  CHECK(!place.survives_losses);
  CHECK(place.membership.latest().str() == Members::first(1, 0, 1).str());
  const GroupPtr group = place.connect(Members::first(1, 0, 1), 0, std::nullopt);
  CHECK((group->rank() == 0 && group->size() == 1));
  CHECK(group->backend() == "local");
}

namespace {

/// An elastic job, in its third restart, that has lost the workers 1 and 3 of four.
struct ElasticJob {
  TcpStoreServer server{{"127.0.0.1", 0}};
  std::shared_ptr<TcpStore> store = std::make_shared<TcpStore>(server.address());
  Membership membership{std::make_shared<PrefixStore>(Membership::prefix(3), store)};
  Members members = Members::first(4, 0, 2).without(1, "").without(3, "");

  ElasticJob() { membership.begin(Members::first(4, 0, 2)); }
  /// The places of the workers 0 and 2.
  std::vector<ElasticPlace> places(const InitOptions& options) const {
    const std::string address = server.address().str();
    std::vector<ElasticPlace> all;
    for (const char* worker : {"0", "2"}) {
      const Environment of_worker({{"GRADUS_STORE", address.c_str()},
                                   {"GRADUS_WORKER", worker},
                                   {"TORCHELASTIC_RESTART_COUNT", "3"},
                                   {"RANK", worker},
                                   {"WORLD_SIZE", "4"},
                                   {"LOCAL_RANK", worker},
                                   {"LOCAL_WORLD_SIZE", "4"}});
      all.push_back(ElasticPlace::from_environment(options));
    }
    return all;
  }
};

}  // namespace

TEST_CASE("workers of an elastic job meet at its store as the ranks of a list", "[init]") {
  ElasticJob job;
  const auto backend = GENERATE(as<std::string>(), "tcp", "shm");
  const Milliseconds timeout(60'000);
  std::vector<ElasticPlace> places = job.places({.backend = backend, .timeout = timeout});
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(places[rank].worker == static_cast<int>(2 * rank));
    CHECK(places[rank].survives_losses);
    CHECK_FALSE(places[rank].local_rank);
    CHECK(places[rank].membership.latest().str() == job.membership.latest().str());
  }
  const ThreadRuntime before = thread_runtime();               // ranks on one machine may select the pool
  for (const int64_t generation : {int64_t{2}, int64_t{3}}) {  // the second group meets at other keys
    job.members.generation = generation;
    std::vector<std::string> errors(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        try {
          const GroupPtr group = places[static_cast<size_t>(rank)].connect(job.members, rank, std::nullopt);
          require(group->rank() == rank && group->size() == 2, "the rank");
          require(group->backend() == backend, "the backend");
          require(group->timeout() == timeout, "the timeout of collectives");
          const Array x = contribution<float>(rank, 5);
          group->all_reduce(x);
          require(equals<float>(x, 0, 5, [](int64_t i) { return reduced(ReduceKind::sum, 2, i); }), "the sum");
        } catch (const std::exception& error) { errors[static_cast<size_t>(rank)] = error.what(); }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(errors == std::vector<std::string>(2));
    const std::string key = Membership::prefix(3) + "/group/" + std::to_string(generation);
    CHECK(job.store->check({key + (backend == "tcp" ? "/address/0" : "/shm/0")}));
  }
  set_thread_runtime(before);
}

TEST_CASE("a worker of an elastic job waits no longer than its timeout for the others to connect", "[init]") {
  const ElasticJob job;
  const auto backend = GENERATE(as<std::string>(), "tcp", "shm");
  const ThreadRuntime before = thread_runtime();
  const ElasticPlace place = job.places({.backend = backend, .timeout = Milliseconds(100)})[0];
  CHECK_THROWS_WITH(place.connect(job.members, 0, std::nullopt), contains(" within 100 ms"));
  set_thread_runtime(before);
}

TEST_CASE("spawn runs a function in several processes, which meet", "[init][processes]") {
  const Environment none({});
  const std::string error = in_a_copy([] {
    for (const char* backend : {"auto", "tcp"})
      spawn(
          [&](int rank) {
            const auto group = init_process_group({.backend = backend});
            if (group->rank() != rank || group->size() != 3) throw std::runtime_error("a wrong rank");
            if (group->backend() != (backend == std::string("auto") ? "shm" : "tcp"))
              throw std::runtime_error("a wrong backend");
            Array x = Array::empty({1}, DType::f32);
            *x.data<float>() = static_cast<float>(rank + 1);
            group->all_reduce(x);
            if (*x.data<float>() != 6) throw std::runtime_error("a wrong sum");
          },
          3);
  });
  CHECK(error == "");
}

TEST_CASE("ranks with more threads than the machine has cores use the pool", "[init][processes]") {
  if (!has_openmp() && skip("OpenMP")) return;
  const Environment none({});
  const std::string error = in_a_copy([] {
    spawn(
        [](int) {
          for (const int threads : {num_cores(), 1}) {
            set_num_threads(threads);
            set_thread_runtime(ThreadRuntime::openmp);
            const auto group = init_process_group({.backend = "shm"});
            const bool fits = 2 * threads <= num_cores();
            if (thread_runtime() != (fits ? ThreadRuntime::openmp : ThreadRuntime::pool))
              throw std::runtime_error("the wrong runtime with " + std::to_string(threads) + " threads");
          }
        },
        2);
  });
  CHECK(error == "");
}

TEST_CASE("one job makes several groups of all ranks, one after the other and at the same time", "[init][processes]") {
  const Environment none({});
  const std::string error = in_a_copy([] {
    spawn(
        [](int rank) {
          std::vector<std::shared_ptr<ProcessGroup>> groups;
          for (const char* backend : {"tcp", "shm", "tcp", "shm"}) {
            groups.push_back(init_process_group({.backend = backend}));
            init_process_group({.backend = backend})->barrier();
          }
          for (const auto& group : groups) {
            Array x = Array::empty({1}, DType::f32);
            *x.data<float>() = static_cast<float>(rank + 1);
            group->all_reduce(x);
            if (*x.data<float>() != 3) throw std::runtime_error("a wrong sum");
          }
        },
        2);
  });
  CHECK(error == "");
}

TEST_CASE("exceptions, exits and output of a process of spawn do not affect its parent", "[init][processes]") {
  const Environment none({});
  static std::FILE* notes = nullptr;  // notes of all processes about the points they have passed
  notes = std::tmpfile();
  const auto note = [](char who) { [[maybe_unused]] const auto written = write(fileno(notes), &who, 1); };
  CHECK_THAT(in_a_copy([&] {
               try {
                 spawn([](int rank) { throw rank; }, 1);
               } catch (int) { note('c'); }  // would be the child in the parent's program
             }),
             contains("rank 0: threw something that is not a std::exception"));
  CHECK_THAT(in_a_copy([&] {
               std::atexit([] { [[maybe_unused]] const auto written = write(fileno(notes), "h", 1); });
               spawn([](int) { std::exit(3); }, 1);
             }),
             contains("rank 0 ended with code 3"));
  CHECK(in_a_copy([&] {
          std::ios::sync_with_stdio(false);  // gives std::cout a separate buffer
          dup2(fileno(notes), STDOUT_FILENO);
          std::cout << "1";
          spawn([](int) { std::cout << "2"; }, 1);
          std::cout << "3" << std::flush;
        }) == "");
  char text[16] = {};
  CHECK(pread(fileno(notes), text, sizeof text - 1, 0) >= 0);
  CHECK(std::string(text) == "123");
  std::fclose(notes);
}

TEST_CASE("spawn names the first process that failed, and refuses to run if there are threads", "[init][processes]") {
  const Environment none({});
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THAT(in_a_copy([] {
               spawn(
                   [](int rank) {
                     if (rank == 1) throw std::runtime_error("what went wrong");
                     sleep(1000);
                   },
                   3);
             }),
             contains("rank 1: what went wrong"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));  // the others end when asked to
  CHECK_THAT(in_a_copy([] {
               spawn(
                   [](int rank) {
                     if (rank == 0) raise(SIGKILL);
                   },
                   2);
             }),
             contains("rank 0 was killed: Killed"));
  CHECK_THAT(in_a_copy([] { spawn([](int) { _exit(4); }, 1); }), contains("rank 0 ended with code 4"));
  CHECK_THAT(in_a_copy([] {
               std::thread other([] { sleep(30); });
               other.detach();
               spawn([](int) {}, 1);
             }),
             contains("has 2 threads already"));
  CHECK(in_a_copy([] {  // spawn() waits for a thread that is about to end
          std::thread other([] { usleep(50'000); });
          other.detach();
          spawn([](int) {}, 1);
        }) == "");
  CHECK_THAT(in_a_copy([] { spawn([](int) {}, 0); }), contains("0 processes"));
}
