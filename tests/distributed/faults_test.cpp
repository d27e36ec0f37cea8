// Ranks that are processes, and the errors of the survivors when one of them is killed, stopped or cut off.
#include <gradus/core/ops/ops.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/processes.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

/// Repeats collectives of several kinds and sizes without end.
void communicate_without_end(ProcessGroup& group, Store& store) {
  const int64_t ranks = group.size();
  const Array x = ops::full({100'000}, 1.0, DType::f32), all = Array::empty({100'000 * ranks}, DType::f32);
  for (int64_t i = 0;; ++i) {
    const int64_t count = i % 3 == 0 ? 100'000 : 1 + i % 5000;
    const Array some = x.slice(0, 0, count), parts = all.slice(0, 0, count * ranks);
    group.all_reduce(some, ReduceKind::avg);
    if (i % 4 == 1) group.broadcast(some, static_cast<int>(i / 4 % ranks));
    if (i % 4 == 2) group.all_gather(some, parts);
    if (i % 4 == 3) group.reduce_scatter(parts, some, ReduceKind::max);
    if (i == 20) store.add("running", 1);
  }
}

}  // namespace

TEST_CASE("a rank that is killed in a collective is named by all survivors", "[faults][processes]") {
  const auto kind = GENERATE(as<std::string>(), "tcp", "shm");
  const int ranks = GENERATE(2, 4), victim = GENERATE(0, 1);
  const uint64_t point = GENERATE(1, 2, 3);
  const std::chrono::microseconds delay(philox(point, static_cast<uint64_t>(ranks), 0).word[0] % 12'000);
  CAPTURE(kind, ranks, victim, delay.count());
  Processes processes(kind, ranks, Milliseconds(30'000), communicate_without_end);
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
}

TEST_CASE("a test does not wait for ranks that ended before they ran", "[faults][processes]") {
  Processes processes("tcp", 2, Milliseconds(30'000),
                      [](ProcessGroup&, Store&) { throw std::runtime_error("no work"); });
  CHECK_THROWS_WITH(processes.wait_until_running(),
                    contains("a rank ended before all ranks ran") && contains("no work"));
}

TEST_CASE("a rank that is stopped past the deadline is named, and awaited if it continues before",
          "[faults][processes]") {
  const auto kind = GENERATE(as<std::string>(), "tcp", "shm");
  CAPTURE(kind);
  constexpr int kRanks = 3, kVictim = 1;
  SECTION("past the deadline") {
    Processes processes(kind, kRanks, Milliseconds(2000), communicate_without_end);
    processes.wait_until_running();
    processes.signal(kVictim, SIGSTOP);
    for (int rank : {0, 2}) {
      const RankResult result = processes.result(rank);
      CHECK(result.status.failure == CommFailure::timeout);
      CHECK(result.status.rank == kVictim);
      CHECK_THAT(result.error, contains("waited 2000 ms for rank 1"));
    }
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
    processes.wait_until_running();
    processes.signal(kVictim, SIGSTOP);
    std::this_thread::sleep_for(Milliseconds(300));
    processes.signal(kVictim, SIGCONT);
    for (int rank = 0; rank < kRanks; ++rank) CHECK(processes.result(rank).error == "");
  }
}
