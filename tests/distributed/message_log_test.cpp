// record_messages() logs which rank sent what to which rank, in an order in which it can have happened.
#include <atomic>
#include <cstring>
#include <map>
#include <set>

#include <gradus/distributed/comm/local/local_group.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/values.h>

using namespace gradus;
using dist::MessageLog;
using Kind = MessageLog::Event::Kind;
using test::contains;

namespace {

void sum_of_ranks(dist::ProcessGroup& group) {
  const Tensor x = full({2}, group.rank() + 1.0);
  group.all_reduce(x.array());
  test::require(x.equal(full({2}, 10.0)), "the sum");
}

}  // namespace

TEST_CASE("a log has every message twice, sent and then received", "[message_log]") {
  const MessageLog log = dist::record_messages(4, sum_of_ranks);
  CHECK(log.ranks == 4);
  REQUIRE(log.events.size() == 24);  // for such a short array every rank sends to every other rank
  std::map<size_t, const MessageLog::Event*> sent;
  std::set<std::pair<int, int>> pairs;
  for (const MessageLog::Event& event : log.events) {
    CHECK(event.text == "all_reduce #1 (sum of 2 float32)");
    CHECK(event.bytes == 8);
    float numbers[2];
    REQUIRE(event.body.size() == sizeof numbers);
    std::memcpy(numbers, event.body.data(), sizeof numbers);
    if (event.kind == Kind::sends) {
      CHECK(numbers[1] == static_cast<float>(event.rank + 1));
      CHECK(sent.emplace(event.message, &event).second);
      pairs.emplace(event.rank, event.peer);
    } else {
      REQUIRE(event.kind == Kind::receives);
      REQUIRE(sent.contains(event.message));
      CHECK(sent[event.message]->rank == event.peer);
      CHECK(sent[event.message]->peer == event.rank);
      CHECK(sent[event.message]->body == event.body);
    }
  }
  CHECK(pairs.size() == 12);
}

TEST_CASE("the log keeps the first elements of a long message", "[message_log]") {
  const MessageLog log = dist::record_messages(2, [](dist::ProcessGroup& group) {
    const Tensor x = zeros({1000}, kLong);
    if (group.rank() == 0) group.send(x.array(), 1);
    else group.recv(x.array(), 0);
  });
  REQUIRE(log.events.size() == 2);
  CHECK(log.events[0].bytes == 8000);
  CHECK(log.events[0].body.size() == 8 * MessageLog::kElements);
  CHECK(log.events[1].dtype == DType::i64);
}

TEST_CASE("the log names each of several messages that wait for one rank", "[message_log]") {
  std::atomic<bool> sent = false;
  const MessageLog log = dist::record_messages(2, [&](dist::ProcessGroup& group) {
    for (int64_t i = 0; i < 3; ++i) {
      const Tensor x = full({1}, i, kLong);
      if (group.rank() == 0) group.send(x.array(), 1);
      else {
        sent.wait(false);
        group.recv(x.array(), 0);
      }
    }
    sent = true;
    sent.notify_all();
  });
  REQUIRE(log.events.size() == 6);
  for (size_t i = 0; i < 6; ++i) {
    int64_t number = -1;
    std::memcpy(&number, log.events[i].body.data(), sizeof number);
    CHECK(number == static_cast<int64_t>(i % 3));
    CHECK(log.events[i].message == i % 3);
    CHECK(log.events[i].kind == (i < 3 ? Kind::sends : Kind::receives));
  }
}

TEST_CASE("a log shows a rank that dies, and how the others learn of it", "[message_log]") {
  const MessageLog log = dist::record_messages(
      4, [](dist::ProcessGroup& group) { group.all_reduce(zeros({2}).array()); }, {{.rank = 2, .sequence = 1}});
  std::vector<int> failed;
  for (const MessageLog::Event& event : log.events) {
    if (event.kind != Kind::fails) {
      CHECK(event.rank != 2);
      continue;
    }
    failed.push_back(event.rank);
    CHECK((event.peer == -1 && event.message == 0 && event.bytes == 0 && event.body.empty()));  // no message failed
    CHECK(event.dtype == DType::u8);
  }
  REQUIRE(failed.size() == 4);
  CHECK(failed[0] == 2);
  CHECK(std::set<int>(failed.begin(), failed.end()).size() == 4);
  CHECK_THAT(log.events.back().text, contains("rank 2"));
  CHECK_THAT(log.events.back().text, contains("crashed"));
}

TEST_CASE("other exceptions of a rank are passed to the caller", "[message_log]") {
  CHECK_THROWS_AS(dist::record_messages(2,
                                        [](dist::ProcessGroup& group) {
                                          GRADUS_CHECK(group.rank() != 1, ValueError, "not me");
                                          group.barrier();
                                        }),
                  ValueError);
  CHECK_THROWS_AS(dist::record_messages(0, [](dist::ProcessGroup&) {}), ValueError);
}
