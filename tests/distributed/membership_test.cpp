// The lists of a job's workers: the consequences of a loss, text that is not a list, and several threads that change
// them.
#include <algorithm>
#include <barrier>
#include <functional>
#include <set>
#include <thread>

#include <gradus/core/error.h>
#include <gradus/distributed/elastic/membership.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

constexpr Milliseconds kAMinute{60'000};

/// The store of a new job with its first list of workers.
std::shared_ptr<Store> store_of(const Members& first) {
  const auto store = std::make_shared<HashStore>();
  Membership(store).begin(first);
  return store;
}

/// Calls body(index, membership) on `count` threads that begin together. Returns the message of the exception of each
/// thread.
[[nodiscard]] std::vector<std::string> at_once(const std::shared_ptr<Store>& store, int count,
                                               const std::function<void(int, Membership&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(count));
  std::barrier begin(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      Membership membership(store);
      begin.arrive_and_wait();
      try {
        body(i, membership);
      } catch (const std::exception& error) { errors[static_cast<size_t>(i)] = error.what(); }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void expect_parse_error(const std::string& text) {
  INFO(text.substr(0, 100));
  CHECK_THROWS_AS(Members::parse(text), CommError);
  CHECK_THROWS_WITH(Members::parse(text), contains("not a list of a job's workers: '"));
}

}  // namespace

TEST_CASE("a lost rank is replaced by the first spare, then by the ranks after it, and then the job ends",
          "[membership]") {
  Members members = Members::first(3, 2, 2);
  CHECK(members.str() == "generation 0 ranks 0 1 2 spares 3 4 min_ranks 2");
  CHECK((members.rank_of(2) == 2 && !members.rank_of(3) && members.has_spare(3) && members.has(3) && !members.has(5)));
  const std::pair<int, std::string> losses[] = {{5, "generation 1 ranks 0 1 2 spares 3 4 min_ranks 2"},
                                                {3, "generation 2 ranks 0 1 2 spares 4 min_ranks 2"},
                                                {1, "generation 3 ranks 0 4 2 spares min_ranks 2"},
                                                {0, "generation 4 ranks 4 2 spares min_ranks 2"},
                                                {2, "generation 5 ranks 4 spares min_ranks 2 end was killed"}};
  for (const auto& [worker, expected] : losses) {
    members = members.without(worker, "was killed");
    CHECK(members.str() == expected);
    CHECK(!members.has(worker));
    CHECK(Members::parse(expected).str() == expected);
  }
  CHECK(Members::first(1, 0, 1).without(0, "").end == "a rank was lost");
}

TEST_CASE("the cause of a job's end is read as it was written", "[membership]") {
  using namespace std::string_literals;
  Members members = Members::first(1, 1, 2);
  for (const std::string& cause : {"end"s, " "s, "  x "s, "two\nlines\n"s, "\0"s, "ranks 1 end"s, "\xff\xfe"s})
    CHECK(Members::parse((members.end = cause, members.str())).end == cause);
}

TEST_CASE("text that is not a list of workers is an error", "[membership]") {
  using namespace std::string_literals;
  const std::string many(1 << 22, '7');
  for (const std::string& text : {""s,
                                  " "s,
                                  "\n"s,
                                  "generation"s,
                                  "generation 0"s,
                                  "generation 0 ranks 0 spares"s,
                                  "members 0 ranks 0"s,
                                  "generation 0 ranks 0 spares min_ranks"s,
                                  "generation 0 ranks spares min_ranks 1"s,
                                  "generation 0 ranks 0 spares min_ranks 0"s,
                                  "generation 0 ranks 0 spares min_ranks -1"s,
                                  "generation -1 ranks 0 spares min_ranks 1"s,
                                  "generation 0 ranks 0 0 spares min_ranks 1"s,
                                  "generation 0 ranks 0 spares 0 min_ranks 1"s,
                                  "generation 0 ranks -1 spares min_ranks 1"s,
                                  "generation 0 ranks 0 spares -2 min_ranks 1"s,
                                  "generation 0 ranks 0 spares min_ranks 2"s,
                                  "generation 0 ranks 0 spares min_ranks 1 "s,
                                  "generation 0 ranks 0 spares min_ranks 1 end"s,
                                  "generation 0 ranks 0 spares min_ranks 1 end "s,
                                  "generation 0 ranks 0 spares min_ranks 1 because x"s,
                                  " generation 0 ranks 0 spares min_ranks 1"s,
                                  "generation 0  ranks 0 spares min_ranks 1"s,
                                  "generation 00 ranks 0 spares min_ranks 1"s,
                                  "generation +0 ranks 0 spares min_ranks 1"s,
                                  "generation 0x1 ranks 0 spares min_ranks 1"s,
                                  "generation 0 ranks 2147483648 spares min_ranks 1"s,
                                  "generation 9223372036854775808 ranks 0 spares min_ranks 1"s,
                                  "generation 0 ranks 0 spares min_ranks 1\0"s,
                                  "generation\0 0 ranks 0 spares min_ranks 1"s,
                                  many,
                                  "generation " + many + " ranks 0 spares min_ranks 1",
                                  "generation 0 ranks " + many,
                                  "generation 0 ranks 0 spares min_ranks " + many,
                                  std::string(1 << 22, '\0'),
                                  std::string(1 << 22, ' ')})
    expect_parse_error(text);
  // The message does not repeat all of 4 MiB.
  CHECK_THROWS_WITH(Members::parse(many), contains("[... 4194304 bytes ...]"));

  std::string long_list = "generation 0 ranks";
  while (long_list.size() < (1 << 22)) long_list += " 1";
  expect_parse_error(long_list + " spares min_ranks 1");
  const Members huge = Members::first(100'000, 100'000, 100'000);
  CHECK(Members::parse(huge.str()).str() == huge.str());
}

TEST_CASE("a list with any byte lost or changed is an error, or another list", "[membership]") {
  const std::string text = Members::first(2, 2, 1).without(0, "").without(9, "").str();
  const auto check = [](const std::string& changed) {
    std::string list;
    try {
      list = Members::parse(changed).str();
    } catch (const CommError&) { return false; }
    CHECK(list == changed);
    return true;
  };
  int lists = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    CHECK(!check(text.substr(0, at)));
    lists += check(text.substr(0, at) + text.substr(at + 1));
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = text;
      changed[at] = static_cast<char>(byte);
      if (changed != text) lists += check(changed);
    }
  }
  CHECK(lists > 0);  // lists with other numbers
  CHECK(lists < 100);
}

TEST_CASE("other text under the key of a list is an error for all that read or change lists", "[membership]") {
  const auto expect_error = [](const std::shared_ptr<Store>& store, const std::string& message) {
    Membership membership(store);
    CHECK_THROWS_WITH(membership.latest(), contains(message));
    CHECK_THROWS_WITH(membership.after(0, kAMinute), contains(message));
    CHECK_THROWS_WITH(membership.remove(0, "x"), contains(message));
    CHECK_THROWS_WITH(membership.renew(0), contains(message));
    CHECK_THROWS_WITH(membership.finish(), contains(message));
    CHECK(membership.is_finished());  // set before the waiting processes are woken
    CHECK(!membership.has(2));
  };
  for (const std::string& text : {std::string("\xff\0garbage", 9), std::string(1 << 20, '1')}) {
    const auto store = store_of(Members::first(2, 1, 1));
    store->set("members/1", text);
    expect_error(store, "not a list of a job's workers: '");
  }
  const auto store = store_of(Members::first(2, 1, 1));
  store->set("members/1", "generation 7 ranks 0 1 spares 2 min_ranks 1");
  expect_error(store, "the list of a job's workers of generation 1 is 'generation 7 ranks 0 1");

  Membership membership(store_of(Members::first(2, 1, 1)));
  CHECK_THROWS_AS(membership.remove(0, std::string(1 << 23, 'x')), CommError);  // longer than a store accepts
  CHECK(membership.latest().generation == 0);
  CHECK(membership.remove(0, "x").str() == "generation 1 ranks 2 1 spares min_ranks 1");
}

TEST_CASE("if several threads remove workers at once, one makes each list and all agree", "[membership]") {
  constexpr int kThreads = 6, kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    const Members first = Members::first(5, 2, 2);
    const auto store = store_of(first);
    std::vector<int> workers = {0, 1, 2, 3, 4, 5, 6};
    std::shuffle(workers.begin(), workers.end(), engine());
    // Either two threads at once remove each of three workers, or all threads remove the same one.
    const auto worker_of = [&](int thread) { return workers[static_cast<size_t>(round % 4 == 0 ? 0 : thread / 2)]; };
    std::vector<std::string> found(kThreads);
    const auto errors = at_once(store, kThreads, [&](int thread, Membership& membership) {
      const Members left = membership.remove(worker_of(thread), "by " + std::to_string(thread));
      if (left.has(worker_of(thread))) throw Error("still a member: " + left.str());
      found[static_cast<size_t>(thread)] = left.str();
    });
    for (const std::string& error : errors) CHECK(error.empty());

    Membership membership(store);
    const Members last = membership.latest();
    CHECK(last.generation == (round % 4 == 0 ? 1 : 3));
    CHECK(!membership.has(last.generation + 1));
    std::set<std::string> lists = {first.str()};
    for (int64_t generation = 1; generation <= last.generation; ++generation) {
      const Members before = membership.list(generation - 1), list = membership.list(generation);
      lists.insert(list.str());
      CHECK(std::ranges::count_if(workers, [&](int worker) {
              return before.has(worker) && before.without(worker, "").str() == list.str();
            }) == 1);
    }
    for (const std::string& list : found) CHECK(lists.count(list) == 1);
    for (int thread = 0; thread < kThreads; ++thread) {
      const std::string cause = membership.cause_of(worker_of(thread));
      REQUIRE(cause.starts_with("by "));
      CHECK(worker_of(std::stoi(cause.substr(3))) == worker_of(thread));
    }
    CHECK(membership.cause_of(workers[6]).empty());
  }
}

TEST_CASE("when too few workers are left, the job ends once, and for all", "[membership]") {
  for (int round = 0; round < 30; ++round) {
    const auto store = store_of(Members::first(4, 1, 3));
    std::vector<std::string> ends(4);
    const auto errors = at_once(store, 4, [&](int thread, Membership& membership) {
      ends[static_cast<size_t>(thread)] = membership.remove(thread, "lost " + std::to_string(thread)).end;
    });
    for (const std::string& error : errors) CHECK(error.empty());
    Membership membership(store);
    const Members last = membership.latest();
    CHECK(last.generation == 3);  // a spare replaces a rank, one rank less, the end
    CHECK(last.ranks.size() == 2);
    CHECK(last.end.starts_with("lost "));
    CHECK(std::ranges::count(ends, last.end) >= 2);
    for (const std::string& end : ends) CHECK((end.empty() || end == last.end));
    CHECK(membership.renew(last.generation).str() == last.str());  // no list follows the end
    membership.finish();
    CHECK(membership.latest().str() == last.str());
  }
}

TEST_CASE("several threads that renew a list make one list", "[membership]") {
  for (int round = 0; round < 30; ++round) {
    const auto store = store_of(Members::first(4, 0, 4));
    const auto errors = at_once(store, 4, [&](int, Membership& membership) {
      const std::string list = membership.renew(0).str();
      if (list != "generation 1 ranks 0 1 2 3 spares min_ranks 4") throw Error(list);
    });
    for (const std::string& error : errors) CHECK(error.empty());
    CHECK(Membership(store).latest().generation == 1);
  }
}

TEST_CASE("ranks meet when all have arrived, the others are removed, and a newer list ends the wait", "[membership]") {
  const auto store = store_of(Members::first(3, 1, 3));
  const Members first = Membership(store).latest();
  // Worker 1 does not arrive.
  for (const std::string& error : at_once(store, 2, [&](int thread, Membership&membership) {
         if (membership.meet(first, 2 * thread, Milliseconds(50))) throw Error("met without worker 1");
       }))
    CHECK(error.empty());
  Membership membership(store);
  const Members second = membership.latest();
  CHECK(second.str() == "generation 1 ranks 0 3 2 spares min_ranks 3");
  CHECK(membership.cause_of(1) == "did not arrive within 50 ms");
  CHECK(!membership.meet(first, 1, kAMinute));  // too late
  // The other workers meet, even if they call meet() again.
  for (const std::string& error : at_once(store, 6, [&](int thread, Membership&own) {
         if (!own.meet(second, second.ranks[static_cast<size_t>(thread / 2)], kAMinute)) throw Error("a newer list");
       }))
    CHECK(error.empty());
  // Two workers wait, and the third is known to be dead.
  const Members third = membership.renew(second.generation);
  for (const std::string& error : at_once(store, 3, [&](int thread, Membership&own) {
         if (thread == 2) own.remove(2, "was killed");
         else if (own.meet(third, third.ranks[static_cast<size_t>(thread)], kAMinute))
           throw Error("met without worker 2");
       }))
    CHECK(error.empty());
  CHECK(membership.latest().str() == "generation 3 ranks 0 3 spares min_ranks 3 end was killed");
}

TEST_CASE("finish() wakes all that wait for a list or for other workers", "[membership]") {
  for (int round = 0; round < 20; ++round) {
    const auto store = store_of(Members::first(3, 2, 3));
    const Members first = Membership(store).latest();
    const auto errors = at_once(store, 6, [&](int thread, Membership& membership) {
      if (thread < 2) {  // the last rank does not arrive, because it has finished training
        if (membership.meet(first, thread, kAMinute)) throw Error("met without worker 2");
      } else if (thread < 4) {
        if (membership.after(0, kAMinute).generation == 0) throw Error("woken without a list");
      } else {
        membership.finish();
      }
      if (!membership.is_finished()) throw Error("woken before the job was finished");
    });
    for (const std::string& error : errors) CHECK(error.empty());
    Membership membership(store);
    const Members last = membership.latest();
    CHECK((last.ranks == first.ranks && last.spares == first.spares && last.end.empty()));
    CHECK(last.generation >= 1);
    CHECK(last.generation <= 2);  // each of the two threads that called finish() may have added a list
  }
}
