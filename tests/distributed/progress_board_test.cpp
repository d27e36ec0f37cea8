// What ranks tell each other through a store.
#include <thread>

#include <gradus/distributed/comm/store/progress_board.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

Descriptor call(uint64_t sequence, uint64_t count = 10) {
  return {.sequence = sequence, .kind = CollectiveKind::all_reduce, .dtype = DType::f32, .count = count};
}

/// The failure that `body` throws.
template <class F>
CommStatus failure_of(F&& body) {
  try {
    body();
  } catch (const CollectiveError& error) { return error.status(); }
  return {};
}

/// Polls the board as a rank's watchdog does, until the end of the scope.
class Watchdog {
 public:
  Watchdog(ProgressBoard& board, uint64_t reached)
      : thread_([this, &board, reached] {
          for (; !stop_; std::this_thread::sleep_for(Milliseconds(2))) board.look(reached);
        }) {}
  ~Watchdog() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("ranks that do not arrive at a board are named", "[progress_board]") {
  const auto store = std::make_shared<HashStore>();
  ProgressBoard zero(store, 0, 3), two(store, 2, 3);
  std::string message;
  std::thread other([&] {
    try {
      two.meet("b", Deadline(Milliseconds(50)));
    } catch (const CommError& error) { message = error.what(); }
  });
  CHECK_THROWS_WITH(zero.meet("a", Deadline(Milliseconds(50))), contains("rank 0 waited 50 ms for these ranks"));
  other.join();
  CHECK_THAT(message, contains("did not arrive: 1"));
  ProgressBoard one(store, 1, 3);
  CHECK(one.meet("c", Deadline(Milliseconds(50))) == "a");

  for (int missing : {2, 1, 0}) {
    const auto empty = std::make_shared<HashStore>();
    for (int rank = 0; rank < 3; ++rank)
      if (rank != missing)
        CHECK_THROWS_WITH(ProgressBoard(empty, rank, 3).meet("a", Deadline(Milliseconds(1))),
                          contains("did not arrive: ") && contains(std::to_string(missing)));
  }
}

TEST_CASE("a board tells which ranks have not reached a call", "[progress_board]") {
  const auto store = std::make_shared<HashStore>();
  ProgressBoard zero(store, 0, 4), one(store, 1, 4), two(store, 2, 4), three(store, 3, 4);
  for (ProgressBoard* board : {&zero, &one, &two}) board->note(call(1));
  zero.note(call(2));
  one.note(call(2));
  const Watchdog of_one(one, 1), of_two(two, 1);  // their devices are still at the first call; rank 3 does not answer
  CHECK(zero.missing(call(2), 2) == std::vector<int>{1, 2, 3});
  CHECK(zero.missing(call(1), 2) == std::vector<int>{3});
  three.leave();
  const CommStatus left = failure_of([&] { zero.missing(call(2), 2); });
  CHECK(left.failure == CommFailure::peer_lost);
  CHECK(left.rank == 3);
}

TEST_CASE("a board finds a different call with the same number", "[progress_board]") {
  const auto store = std::make_shared<HashStore>();
  ProgressBoard zero(store, 0, 2), one(store, 1, 2);
  for (uint64_t i = 1; i <= 100; ++i) {  // more calls than an answer contains
    zero.note(call(i));
    one.note(call(i, i >= 99 ? 11 : 10));
  }
  const Watchdog of_one(one, 99);
  CHECK(zero.missing(call(98), 98).empty());
  const CommStatus status = failure_of([&] { zero.missing(call(99), 99); });
  CHECK(status.failure == CommFailure::mismatch);
  CHECK_THAT(status.message, contains("rank 1 called all_reduce #99 (sum of 11 float32), rank 0 called all_reduce #99 "
                                      "(sum of 10 float32)"));
  CHECK(failure_of([&] { zero.missing(call(100), 100); }).failure == CommFailure::mismatch);  // the latest call
}

TEST_CASE("calls are compared before they are launched", "[progress_board]") {
  const auto store = std::make_shared<HashStore>();
  ProgressBoard zero(store, 0, 2), one(store, 1, 2);
  const Deadline deadline(Milliseconds(5000));
  CommStatus of_one;
  std::thread other([&] {
    for (uint64_t i = 1; i <= 20; ++i) one.compare("call", call(i), {0}, deadline);
    of_one = failure_of([&] { one.compare("call", call(21, 11), {0}, deadline); });
  });
  for (uint64_t i = 1; i <= 20; ++i) zero.compare("call", call(i), {1}, deadline);
  CHECK(store->num_keys() <= 4);  // old keys are removed
  const CommStatus status = failure_of([&] { zero.compare("call", call(21), {1}, deadline); });
  other.join();
  CHECK(of_one.failure == CommFailure::mismatch);
  CHECK_THAT(status.message, contains("rank 1 called all_reduce #21 (sum of 11 float32), rank 0 called"));

  const CommStatus late = failure_of([&] { zero.compare("call", call(22), {1}, Deadline(Milliseconds(20))); });
  CHECK(late.failure == CommFailure::timeout);
  CHECK_THAT(late.message, contains("waited 20 ms for rank 1"));
}

TEST_CASE("a call is compared with that of each other rank", "[progress_board]") {
  const auto store = std::make_shared<HashStore>();
  for (const int odd : {1, 2, 3}) {
    const std::string scope = "call " + std::to_string(odd);
    for (int rank = 1; rank < 4; ++rank)
      ProgressBoard(store, rank, 4).compare(scope, call(1, rank == odd ? 11 : 10), {}, Deadline(Milliseconds(1000)));
    ProgressBoard zero(store, 0, 4);
    const CommStatus status = failure_of([&] {
      zero.compare(scope, call(1), {1, 2, 3}, Deadline(Milliseconds(1000)));
    });
    CHECK(status.failure == CommFailure::mismatch);
    CHECK(status.rank == odd);
    CHECK_NOTHROW(zero.compare(scope, call(1, 11), {odd}, Deadline(Milliseconds(1000))));
  }
}

TEST_CASE("all ranks see the first failure on a board", "[progress_board]") {
  const auto store = std::make_shared<HashStore>();
  ProgressBoard zero(store, 0, 2), one(store, 1, 2);
  CHECK(zero.look(0).ok());
  CHECK(zero.announce({CommFailure::timeout, 1, "first"}).message == "first");
  CHECK(one.announce({CommFailure::aborted, 0, "second"}).message == "first");
  const CommStatus seen = one.look(0);
  CHECK((seen.failure == CommFailure::timeout && seen.rank == 1 && seen.message == "first"));
  CHECK(failure_of([&] { one.compare("call", call(1), {0}, Deadline(Milliseconds(5000))); }).message == "first");
}
