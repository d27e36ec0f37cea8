// Groups of some of the ranks: their members, that they do not affect each other, and their failures.
#include <atomic>

#include <gradus/core/ops/ops.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/processes.h>
#include <gradus/tests/distributed/values.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

/// The sum of 2^rank over the group, which tells exactly which ranks took part.
double members(ProcessGroup& group, int world_rank, int64_t count = 1000) {
  const Array x = ops::full({count}, static_cast<double>(1 << world_rank), DType::f32);
  group.all_reduce(x);
  require(x.data<float>()[0] == x.data<float>()[count - 1], "one sum everywhere");
  return x.data<float>()[0];
}

/// The number of a group, which messages about its failures name. Ends the group.
int64_t number_of(ProcessGroup& group) {
  group.abort("to read its number");
  const std::string message = group.status().message;
  const size_t at = message.find("(group ");
  require(at != std::string::npos, message);
  return std::stoll(message.substr(at + 7));
}

}  // namespace

TEST_CASE("sub-groups that overlap do not affect each other", "[sub_groups]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  expect_ranks(transport, 4, [](ProcessGroup& world) {
    const int rank = world.rank();
    // The order of the list does not matter, and the calls of each group are numbered separately.
    const auto low = new_group(shared(world), {2, 0, 1}), high = new_group(shared(world), {1, 2, 3}),
               alone = new_group(shared(world), {3}), all = new_group(shared(world), {0, 1, 2, 3});
    require((low != nullptr) == (rank <= 2) && (high != nullptr) == (rank >= 1) && (alone != nullptr) == (rank == 3),
            "null outside");
    if (low) {
      require(low->rank() == rank && low->size() == 3, "ranks are in ascending order");
      require(low->ranks() == std::vector<int>{0, 1, 2}, "ranks of the world");
      for (int i = 0; i < 3; ++i) require(members(*low, rank) == 7, "low");
    }
    if (high) {
      require(high->rank() == rank - 1 && high->ranks() == std::vector<int>{1, 2, 3}, "numbers of their own");
      require(members(*high, rank, 100'000) == 14, "high");
      const Array x = ops::full({3}, rank, DType::f32);
      high->broadcast(x, 2);
      require(*x.data<float>() == 3, "a root is a rank of the group");
      if (rank == 1) high->send(x, 1);
      if (rank == 2) high->recv(x, 0);
    }
    if (alone) require(members(*alone, rank) == 8, "a group of one");
    require(members(*all, rank) == 15 && members(world, rank) == 15, "all");
    // The list of a group within a group counts the ranks of the outer group.
    if (high) {
      const auto inner = new_group(high, {0, 2});
      require((inner != nullptr) == (rank != 2), "null outside");
      if (inner) require(inner->ranks() == std::vector<int>{1, 3} && members(*inner, rank) == 10, "inner");
    }
    world.barrier();
  });
}

TEST_CASE("a group gets the number after all those that one of its ranks knows", "[sub_groups][processes]") {
  const int ahead = GENERATE(0, 1, 2);  // this rank makes more groups than the others
  Processes processes("tcp", 3, Milliseconds(10'000), [&](ProcessGroup& world, Store&) {
    const auto own = std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(1), 0);
    int64_t newest = 0;
    for (int i = 0; world.rank() == ahead && i < 3; ++i) newest = number_of(*new_group(own, {0}));
    const Array known = ops::full({}, newest, DType::i64);
    world.broadcast(known, ahead);
    newest = *known.data<int64_t>();
    const auto all = new_group(shared(world), {0, 1, 2});
    world.barrier();
    require(number_of(*all) == newest + 1, "one more than the largest");
    require(number_of(*new_group(own, {0})) == newest + 2, "every rank knows it");
    world.barrier();
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.result(rank).error == "");
}

TEST_CASE("a sub-group outlives the handle of its parent group", "[sub_groups]") {
  const auto world = std::make_shared<LocalWorld>(1);
  std::shared_ptr<ProcessGroup> group = std::make_shared<LocalGroup>(world, 0);
  const auto inner = new_group(group, {0}, Milliseconds(1234));
  require(inner->timeout() == Milliseconds(1234), "a deadline of its own");
  group->set_timeout(Milliseconds(987));
  CHECK(new_group(group, {0})->timeout() == Milliseconds(987));
  CHECK(inner->timeout() == Milliseconds(1234));
  group.reset();
  CHECK(members(*inner, 0) == 1);
}

TEST_CASE("errors about lists of ranks", "[sub_groups]") {
  const auto group = std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(1), 0);
  CHECK_THROWS_WITH(new_group(group, {}), contains("[new_group] the list of ranks is empty"));
  CHECK_THROWS_WITH(new_group(group, {1}), contains("[new_group] rank 1 is not one of the ranks 0 to 0"));
  CHECK_THROWS_WITH(new_group(group, {-1}), contains("rank -1 is not one of the ranks"));
  CHECK_THROWS_WITH(new_group(group, {0, 0}), contains("rank 0 is listed twice"));

  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int other = GENERATE(1, 2);  // the rank that has another list
  const auto results = run_ranks(transport, 3, [other](ProcessGroup& world) {
    bool failed = false;
    try {
      new_group(shared(world), world.rank() == other ? std::vector{0, 1} : std::vector{0, 2});
    } catch (const CollectiveError& error) {
      failed = error.status().failure == CommFailure::mismatch;
      const std::string cause =
          "rank 0 called new_group({0, 2}), rank " + std::to_string(other) + " called new_group({0, 1})";
      require(std::string(error.what()).find(cause) != std::string::npos, error.what());
    }
    require(failed, "ranks that disagree");
    require(members(world, world.rank()) == 7, "all know, so the group goes on");
  });
  for (const RankResult& result : results) CHECK(result.error == "");
}

TEST_CASE("a rank that does not take part in a new group is named", "[sub_groups]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  std::atomic<int> ended = 0;
  const auto results = run_ranks(transport, 3,
                                 [&](ProcessGroup& world) {
                                   world.set_timeout(Milliseconds(200));
                                   if (world.rank() == 1) {
                                     while (ended < 2) std::this_thread::sleep_for(Milliseconds(1));
                                     return;
                                   }
                                   try {
                                     new_group(shared(world), {0, 2});
                                   } catch (...) {
                                     ++ended;
                                     throw;
                                   }
                                 },
                                 {.timeout = Milliseconds(5000)});
  CHECK(results[1].error.empty());
  for (size_t rank : {0, 2}) {
    CHECK(results[rank].status.failure == CommFailure::timeout);
    CHECK(results[rank].status.rank == 1);
  }
}

TEST_CASE("a failure of a sub-group names its ranks, ends it, and does not affect the other groups", "[sub_groups]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  expect_ranks(transport, 4, [](ProcessGroup& world) {
    const int rank = world.rank();
    const auto group = new_group(shared(world), {1, 3}, Milliseconds(200));
    if (group) {
      if (rank == 3) std::this_thread::sleep_for(Milliseconds(600));
      std::string messages[3];  // of consecutive calls; the first call of rank 3 may still succeed
      for (std::string& message : messages) try {
          group->all_reduce(ops::full({10}, 1, DType::f32));
        } catch (const CollectiveError& error) {
          require(error.status().failure == CommFailure::timeout && error.status().rank == 1, "a rank of the group");
          message = error.what();
        }
      for (const std::string& message : {messages[1], messages[2]})
        require(message.find("waited 200 ms for rank 1") != std::string::npos &&
                    message.find("its ranks are the ranks 1, 3)") != std::string::npos,
                "the message: " + message);
      require(!group->status().ok(), "the group has ended");
    }
    require(world.status().ok() && members(world, rank) == 15, "the world goes on");
  });
}
