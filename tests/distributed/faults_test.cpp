// Ranks that are processes, and what the survivors say when one of them is killed, stopped or cut off.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gradus/core/ops/creation.h>
#include <gradus/distributed/comm/tcp_store.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/ranks.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;
using std::chrono::steady_clock;

namespace {

/// Processes of this test: they reach each other by a store that the test serves.
class Processes {
 public:
  Processes(const std::string& kind, int size, Milliseconds timeout,
            const std::function<void(ProcessGroup&, Store&)>& body) {
    const Token token = Token::random();
    server_ = std::make_unique<TcpStoreServer>(Address{"127.0.0.1", 0}, token);
    store_ = std::make_unique<TcpStore>(server_->address(), token);
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) run(kind, rank, size, timeout, token, body);
      pids_.push_back(pid);
    }
  }
  ~Processes() {
    for (pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  Store& store() { return *store_; }
  void signal(int rank, int number) const { kill(pids_[static_cast<size_t>(rank)], number); }
  /// What a rank threw, "" if nothing: "failure rank time message"
  std::string result(int rank) { return store_->get("result/" + std::to_string(rank), Milliseconds(20'000)); }

 private:
  [[noreturn]] void run(const std::string& kind, int rank, int size, Milliseconds timeout, const Token& token,
                        const std::function<void(ProcessGroup&, Store&)>& body) {
    std::string result;
    TcpStore store(server_->address(), token);
    try {
      std::unique_ptr<ProcessGroup> group;
      if (kind == "shm") group = std::make_unique<ShmGroup>(store, rank, size, ShmOptions{timeout});
      else group = std::make_unique<TcpGroup>(store, rank, size, TcpOptions{.token = token, .timeout = timeout});
      try {
        body(*group, store);
      } catch (const CollectiveError& error) {
        result = std::to_string(static_cast<int>(error.status().failure)) + " " + std::to_string(error.status().rank) +
                 " " + error.what();
      }
      store.set("result/" + std::to_string(rank), result);
    } catch (const std::exception& error) { store.set("result/" + std::to_string(rank), error.what()); }
    _exit(0);
  }

  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<TcpStore> store_;
  std::vector<pid_t> pids_;
};

std::string prefix(CommFailure failure, int rank) {
  return std::to_string(static_cast<int>(failure)) + " " + std::to_string(rank) + " ";
}

/// Collectives of many sizes, for ever.
void reduce_without_end(ProcessGroup& group, Store& store) {
  Array x = ops::full({100'000}, 1.0, DType::f32);
  for (int64_t i = 0;; ++i) {
    group.all_reduce(x.slice(0, 0, i % 3 == 0 ? 100'000 : 1 + i % 5000), ReduceKind::avg);
    if (i == 20) store.add("running", 1);
  }
}

void wait_until_running(Store& store, int ranks) {
  while (store.add("running", 0) < ranks) std::this_thread::sleep_for(Milliseconds(1));
}

}  // namespace

TEST_CASE("a rank that is killed in a collective is named by all survivors within a second", "[faults][processes]") {
  const auto kind = GENERATE(as<std::string>(), "tcp", "shm");
  const int ranks = GENERATE(2, 4), victim = GENERATE(0, 1), delay = GENERATE(0, 3, 11);
  CAPTURE(kind, ranks, victim, delay);
  Processes processes(kind, ranks, Milliseconds(30'000), reduce_without_end);
  wait_until_running(processes.store(), ranks);
  std::this_thread::sleep_for(Milliseconds(delay));
  const auto begin = steady_clock::now();
  processes.signal(victim, SIGKILL);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == victim) continue;
    const std::string result = processes.result(rank);
    CHECK(result.rfind(prefix(CommFailure::peer_lost, victim), 0) == 0);
    CHECK_THAT(result, contains("rank " + std::to_string(victim) + " was lost"));
  }
  CHECK(steady_clock::now() - begin < std::chrono::seconds(1));
}

TEST_CASE("a rank that is stopped past the deadline is named, and waited for when it is not", "[faults][processes]") {
  const auto kind = GENERATE(as<std::string>(), "tcp", "shm");
  CAPTURE(kind);
  constexpr int kRanks = 3, kVictim = 1;
  SECTION("past the deadline") {
    Processes processes(kind, kRanks, Milliseconds(400), reduce_without_end);
    wait_until_running(processes.store(), kRanks);
    processes.signal(kVictim, SIGSTOP);
    for (int rank : {0, 2}) CHECK(processes.result(rank).rfind(prefix(CommFailure::timeout, kVictim), 0) == 0);
  }
  SECTION("for a while") {
    Processes processes(kind, kRanks, Milliseconds(20'000), [](ProcessGroup& group, Store& store) {
      Array x = ops::full({50'000}, 1.0, DType::f32);
      for (int i = 0; i < 300; ++i) {
        group.all_reduce(x, ReduceKind::avg);
        if (i == 20) store.add("running", 1);
      }
      if (x.data<float>()[49'999] != 1.0f) throw CollectiveError({CommFailure::aborted, 0, "a wrong sum"});
    });
    wait_until_running(processes.store(), kRanks);
    processes.signal(kVictim, SIGSTOP);
    std::this_thread::sleep_for(Milliseconds(300));
    processes.signal(kVictim, SIGCONT);
    for (int rank = 0; rank < kRanks; ++rank) CHECK(processes.result(rank).empty());
  }
}
