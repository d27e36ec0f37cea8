// How the chunks of a parallel_for call are distributed, and when callers work without helpers. One thread plays all
// threads of a call here, so that the order of its chunks is known; parallel_test.cpp runs calls on real threads.
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gradus/core/parallel/parallel_call.h>
#include <gradus/tests/catch.h>

namespace parallel_call_test {

using namespace gradus;
using namespace gradus::detail;
using namespace std::chrono_literals;

/// Opens a call of chunks of 3 elements and returns their numbers in the order in which thread `self` computes them.
std::vector<int64_t> order_of(Call& call, int64_t chunks, int threads, int self) {
  std::vector<int64_t> order;
  int wrong = 0;
  const int64_t count = 3 * chunks - 1;
  const auto body = [&](int64_t begin, int64_t end, int slot) {
    order.push_back(begin / 3);
    wrong += begin % 3 != 0 || end != std::min(begin + 3, count) || slot != self;
  };
  const RangeFunction function(body);
  call.open(chunks, count, 3, threads, function);
  CHECK(call.join(threads) == 0);  // is none of the threads
  CHECK(call.join(self) == call.units());
  CHECK(call.join(self) == 0);
  CHECK_FALSE(call.wait());
  CHECK(call.take_error() == nullptr);
  CHECK(wrong == 0);
  return order;
}

TEST_CASE("units are taken from the front or the back of a range, for the call that it belongs to") {
  for (const uint32_t generation : {1u, 0x80000000u, 0xffffffffu}) {
    Stretch stretch;
    stretch.fill(generation, 2, 6);
    CHECK(stretch.take(generation - 1, true) == -1);
    CHECK(stretch.take(generation + 1, false) == -1);
    CHECK(stretch.take(generation, true) == 2);
    CHECK(stretch.take(generation, false) == 5);
    CHECK(stretch.take(generation, false) == 4);
    CHECK(stretch.take(generation, true) == 3);
    CHECK(stretch.take(generation, true) == -1);
    CHECK(stretch.take(generation, false) == -1);
    stretch.fill(generation, 0, 0xffff);
    CHECK(stretch.take(generation, false) == 0xfffe);
    CHECK(stretch.take(generation, true) == 0);
  }
}

TEST_CASE("a thread computes its own range from the front, then those of the next threads from the back") {
  const auto call = std::make_unique<Call>();
  using Order = std::vector<int64_t>;
  CHECK(order_of(*call, 10, 2, 0) == Order{0, 1, 2, 3, 4, 9, 8, 7, 6, 5});
  CHECK(order_of(*call, 10, 2, 1) == Order{5, 6, 7, 8, 9, 4, 3, 2, 1, 0});
  CHECK(order_of(*call, 10, 3, 0) == Order{0, 1, 2, 3, 6, 5, 4, 9, 8, 7});
  CHECK(order_of(*call, 10, 3, 1) == Order{4, 5, 6, 9, 8, 7, 3, 2, 1, 0});
  CHECK(order_of(*call, 10, 3, 2) == Order{7, 8, 9, 3, 2, 1, 0, 6, 5, 4});
  CHECK(order_of(*call, 2, 3, 2) == Order{0, 1});
}

TEST_CASE("of many chunks, a unit is a few consecutive ones, 64 units for each thread") {
  const auto call = std::make_unique<Call>();
  for (const int64_t chunks : {127, 128, 129, 1000}) {
    std::vector<int64_t> order = order_of(*call, chunks, 2, 0);
    CHECK(call->units() == std::min<int64_t>(chunks, 128));
    CHECK(order[1] == 1);
    std::sort(order.begin(), order.end());
    REQUIRE(order.size() == static_cast<size_t>(chunks));
    for (int64_t i = 0; i < chunks; ++i) CHECK(order[static_cast<size_t>(i)] == i);
  }
}

TEST_CASE("a call has one owner, and no units once it is closed or used for another") {
  const auto call = std::make_unique<Call>();
  CHECK(call->join(0) == 0);
  CHECK(call->claim());
  CHECK_FALSE(call->claim());
  call->release();
  CHECK(call->claim());

  int calls = 0;
  const auto body = [&](int64_t, int64_t, int) { ++calls; };
  const RangeFunction function(body);
  call->open(1, 1, 1, 1, function);
  CHECK(call->join(0) == 1);
  CHECK_FALSE(call->wait());  // closes the call
  CHECK(call->join(0) == 0);
  call->open(4, 4, 1, 2, function);
  CHECK(call->join(1) == 4);
  CHECK(calls == 5);
}

TEST_CASE("after an exception the remaining chunks are skipped, and the first exception is kept") {
  const auto call = std::make_unique<Call>();
  std::vector<int64_t> begun;
  const auto body = [&](int64_t begin, int64_t, int) {
    begun.push_back(begin);
    if (begin == 2) throw std::runtime_error("chunk 2");
  };
  const RangeFunction function(body);
  call->open(6, 6, 1, 1, function);
  CHECK(call->join(0) == 6);
  CHECK_FALSE(call->wait());
  CHECK(begun == std::vector<int64_t>{0, 1, 2});
  const std::exception_ptr error = call->take_error();
  REQUIRE(error != nullptr);
  CHECK_THROWS_WITH(std::rethrow_exception(error), "chunk 2");
  CHECK(call->take_error() == nullptr);
  CHECK(order_of(*call, 4, 1, 0).size() == 4);
}

TEST_CASE("a caller waits for the chunks that helpers have begun") {
  const auto call = std::make_unique<Call>();
  std::atomic<int> done{0}, begun{0};
  const auto body = [&](int64_t, int64_t, int slot) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
    if (slot == 1) std::this_thread::sleep_for(5ms);  // longer than the caller spins
    ++done;
  };
  const RangeFunction function(body);
  call->open(2, 2, 1, 2, function);
  int helped = 0;
  std::thread helper([&] { helped = call->join(1); });
  CHECK(call->join(0) == 1);
  call->wait();
  CHECK(done == 2);
  helper.join();
  CHECK(helped == 1);
}

TEST_CASE("a thread spins until a condition holds, for a limited time") {
  int asked = 0;
  CHECK(spin([&] { return ++asked == 1; }));
  CHECK(asked == 1);
  CHECK(spin([&] { return ++asked == 40; }));
  asked = 0;
  const Clock::time_point start = Clock::now();
  CHECK_FALSE(spin([&] { return ++asked < 0; }));
  CHECK(asked > 64);
  CHECK(Clock::now() - start >= kSpin);
}

constexpr Clock::time_point kStart{1h};

/// Accounts for a call of 100 units of which the caller computed 50 in 10 us each, so that helpers saved 500 us.
void save_500_us(Helpfulness& helpfulness, Clock::time_point now = kStart) {
  helpfulness.settle(100, 50, now, now + 500us, now + 500us);
}

/// Checks that callers pause up to `end`, exclusive.
void check_pause(const Helpfulness& helpfulness, Clock::time_point end) {
  CHECK(helpfulness.pausing(end - 1ns));
  CHECK_FALSE(helpfulness.pausing(end));
}

TEST_CASE("callers work without helpers for four times the time that these have lost") {
  Helpfulness helpfulness;
  CHECK_FALSE(helpfulness.pausing(kStart));
  helpfulness.lost(3ms, kStart);
  CHECK(helpfulness.pausing(kStart));
  check_pause(helpfulness, kStart + 12ms);
  helpfulness.lost(5ms, kStart + 4ms);  // a loss within a pause does not prolong it
  check_pause(helpfulness, kStart + 12ms);
  Helpfulness other;
  other.lost(10s, kStart);
  check_pause(other, kStart + 1s);
}

TEST_CASE("a pause that follows soon is longer by twice the last one") {
  for (const bool soon : {true, false}) {
    Helpfulness helpfulness;
    helpfulness.lost(1ms, kStart);
    const Clock::time_point again = kStart + 4ms + (soon ? 16ms - 1ns : 16ms);  // four times the pause after its end
    helpfulness.lost(1ms, again);
    check_pause(helpfulness, again + (soon ? 12ms : 4ms));
  }
}

TEST_CASE("what helpers have saved is set against what they lose") {
  Helpfulness helpfulness;
  save_500_us(helpfulness);
  helpfulness.lost(200us, kStart);
  helpfulness.lost(300us, kStart);
  CHECK_FALSE(helpfulness.pausing(kStart));
  helpfulness.lost(1us, kStart);
  check_pause(helpfulness, kStart + 4us);
  helpfulness.lost(1ms, kStart);
  save_500_us(helpfulness);  // pays for later losses, for the credit is never negative
  helpfulness.lost(500us, kStart + 1s);
  CHECK_FALSE(helpfulness.pausing(kStart + 1s));
}

TEST_CASE("helpers are credited with at most 1 ms in a call and 100 ms in all") {
  Helpfulness helpfulness;
  helpfulness.settle(1000, 1, kStart, kStart + 1ms, kStart + 1ms);
  helpfulness.lost(1ms, kStart);
  CHECK_FALSE(helpfulness.pausing(kStart));
  helpfulness.lost(1ns, kStart);
  CHECK(helpfulness.pausing(kStart));
  Helpfulness rich;
  for (int i = 0; i < 120; ++i) rich.settle(1000, 1, kStart, kStart + 1ms, kStart + 1ms);
  rich.lost(100ms, kStart);
  CHECK_FALSE(rich.pausing(kStart));
  rich.lost(1ns, kStart);
  CHECK(rich.pausing(kStart));
}

TEST_CASE("a call whose caller waits longer than 200 us and four units was stalled by a helper") {
  const Clock::time_point alone = kStart + 400us;
  for (const auto waited : {599us, 600us, 601us}) {
    Helpfulness helpfulness;
    helpfulness.settle(4, 4, kStart, alone, alone + waited);  // units of 100 us
    CHECK(helpfulness.pausing(alone + waited) == (waited > 600us));
    if (waited > 600us) check_pause(helpfulness, alone + waited + 4 * waited);
  }
  Helpfulness helpfulness;
  helpfulness.settle(2, 0, kStart, kStart + 10us, kStart + 250us);  // no unit counts as one
  CHECK_FALSE(helpfulness.pausing(kStart + 250us));
  helpfulness.lost(10us, kStart);  // the other unit was saved
  CHECK_FALSE(helpfulness.pausing(kStart));
  helpfulness.lost(1us, kStart);
  CHECK(helpfulness.pausing(kStart));
}

}  // namespace parallel_call_test
