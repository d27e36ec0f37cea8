// Faults during training: the faults of collectives again, in backward passes that average gradients.
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/fault_proxy.h>
#include <gradus/tests/distributed/processes.h>
#include <gradus/tests/distributed/training.h>
#include <gradus/tests/distributed/values.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;
using Kind = WireFault::Kind;

namespace {

constexpr int kForEver = 1 << 30;

/// Trains without end. Rank 0 saves the net after each step.
auto train_and_save(const std::string& path) {
  return [path](ProcessGroup& group, Store& store) {
    set_num_threads(1);
    train(group, kForEver, [&](int step, Net& net) {
      if (group.rank() == 0) training::Checkpoint().add("model", *net).value("step", step).save(path);
      if (step == 5) store.add("running", 1);
    });
  };
}

/// Whether the checkpoint is complete, some steps old and finite.
bool is_intact(const std::string& path) {
  Net net;
  int step = 0;
  training::Checkpoint().add("model", *net).value("step", step).load(path);
  bool finite = step >= 5;
  for (const Tensor& parameter : net->parameters()) finite = finite && parameter.isfinite().all().item<bool>();
  return finite;
}

}  // namespace

TEST_CASE("training: a rank that is killed is named by all survivors, and the checkpoint stays intact",
          "[faults][processes]") {
  const auto kind = GENERATE(as<std::string>(), "tcp", "shm");
  const int ranks = GENERATE(2, 3), victim = GENERATE(0, 1);
  const uint64_t point = GENERATE(1, 2, 3);
  const std::chrono::microseconds delay(philox(point, static_cast<uint64_t>(ranks), 0).word[0] % 12'000);
  CAPTURE(kind, ranks, victim, delay.count());
  const TemporaryDirectory folder;
  const std::string path = folder.file("run.safetensors");
  Processes processes(kind, ranks, Milliseconds(30'000), train_and_save(path));
  processes.wait_until_running();
  std::this_thread::sleep_for(delay);
  processes.signal(victim, SIGKILL);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == victim) continue;
    const RankResult result = processes.result(rank);
    CHECK(result.status.failure == CommFailure::peer_lost);
    CHECK(result.status.rank == victim);
    CHECK_THAT(result.error, contains("rank " + std::to_string(victim) + " was lost"));
  }
  CHECK(is_intact(path));
}

TEST_CASE("training: a rank that is stopped past the deadline is named", "[faults][processes]") {
  const auto kind = GENERATE(as<std::string>(), "tcp", "shm");
  CAPTURE(kind);
  const TemporaryDirectory folder;
  const std::string path = folder.file("run.safetensors");
  Processes processes(kind, 3, Milliseconds(2000), train_and_save(path));
  processes.wait_until_running();
  processes.signal(1, SIGSTOP);
  for (const int rank : {0, 2}) {
    const RankResult result = processes.result(rank);
    CHECK(result.status.failure == CommFailure::timeout);
    CHECK(result.status.rank == 1);
    CHECK_THAT(result.error, contains("waited 2000 ms for rank 1"));
  }
  CHECK(is_intact(path));
}

TEST_CASE("training: a rank that makes a different call during a step is an error on all ranks", "[faults]") {
  const auto kind = GENERATE(as<std::string>(), "local", "tcp", "shm");
  CAPTURE(kind);
  const auto results = run_ranks(kind, 3, [](ProcessGroup& group) {
    train(group, 10, [&](int step, Net& net) {
      if (group.rank() != 2 || step != 3) return;
      net->twice->weight.register_hook([&](const Tensor&) -> Tensor {
        group.all_reduce(ones({3}).array());
        return {};
      });
    });
  });
  for (const RankResult& result : results) {
    CHECK(result.status.failure == CommFailure::mismatch);
    CHECK_THAT(result.error, contains("sum of 3 float32") && contains("avg of"));
  }
}

TEST_CASE("training: a rank that skips a pass is named when the deadline of the others passes", "[faults]") {
  const auto kind = GENERATE(as<std::string>(), "local", "tcp", "shm");
  CAPTURE(kind);
  std::atomic<bool> failed = false;
  const auto results = run_ranks(kind, 2,
                                 [&](ProcessGroup& group) {
                                   struct Tell {
                                     std::atomic<bool>& failed;
                                     ~Tell() { failed = true; }
                                   };
                                   if (group.rank() == 1) {
                                     train(group, 9);
                                     while (!failed) std::this_thread::sleep_for(Milliseconds(1));
                                   } else {
                                     const Tell tell{failed};
                                     train(group, 10);
                                   }
                                 },
                                 {.timeout = Milliseconds(300)});
  CHECK(results[0].status.failure == CommFailure::timeout);
  CHECK(results[0].status.rank == 1);
  CHECK_THAT(results[0].error, contains("waited 300 ms for rank 1"));
}

TEST_CASE("training: connections that are reset, bits that flip, bytes that are lost", "[faults]") {
  const Kind kind = GENERATE(Kind::reset, Kind::half_close, Kind::flip, Kind::swallow);
  const auto after = GENERATE(as<size_t>(), 3000, 20'003);
  CAPTURE(static_cast<int>(kind), after);
  const WireFault fault{.kind = kind, .from = 2, .after = after, .bit = 3};
  const Outcome outcome = run_through_proxy(3, fault, [](ProcessGroup& group) { train(group, kForEver); },
                                            {.timeout = Milliseconds(1000), .checksum = true});
  CHECK(outcome.struck);
  for (const RankResult& rank : outcome.ranks) {
    CHECK(rank.status.failure == (kind == Kind::swallow ? CommFailure::timeout : CommFailure::peer_lost));
    CHECK((rank.status.rank == 0 || rank.status.rank == 2));
    if (kind == Kind::swallow) CHECK_THAT(rank.error, contains("waited 1000 ms for rank"));
  }
}

TEST_CASE("training: ranks that are late, crash or lose messages", "[faults]") {
  using Fault = LocalFault::Kind;
  const Fault kind = GENERATE(Fault::delay, Fault::drop, Fault::crash, Fault::mismatch);
  CAPTURE(static_cast<int>(kind));
  const LocalFault fault{.rank = 1, .sequence = 30, .kind = kind, .delay = Milliseconds(50)};
  const auto results =
      run_ranks("local", 3, [](ProcessGroup& group) { train(group, 10); }, {.timeout = Milliseconds(500)}, {fault});
  for (size_t rank = 0; rank < 3; ++rank) {
    const CommFailure found = results[rank].status.failure;
    switch (kind) {
      case Fault::delay: CHECK(results[rank].error == ""); break;
      case Fault::drop:  // noticed at the deadline, or by the message that came instead
        CHECK((found == CommFailure::timeout || found == CommFailure::mismatch));
        break;
      case Fault::crash: CHECK(!results[rank].error.empty()); break;
      case Fault::mismatch: CHECK(found == CommFailure::mismatch); break;
    }
  }
}
