#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gradus/core/parallel/parallel.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

// Sets the number of threads for the duration of the scope.
struct Threads {
  explicit Threads(int count) : before(num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(before); }
  int before;
};

std::vector<std::pair<int64_t, int64_t>> chunks_of(int64_t count, int64_t grain) {
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> chunks;
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    chunks.emplace_back(begin, end);
  });
  std::sort(chunks.begin(), chunks.end());
  return chunks;
}

}  // namespace

TEST_CASE("chunks depend on count and grain, not on the number of threads") {
  std::vector<std::pair<int64_t, int64_t>> expected{{0, 3}, {3, 6}, {6, 9}, {9, 10}};
  for (int threads : {1, 2, 3, 8}) {
    const Threads use(threads);
    CHECK(num_threads() == threads);
    CHECK(chunks_of(10, 3) == expected);
    CHECK(chunks_of(10, 100) == std::vector<std::pair<int64_t, int64_t>>{{0, 10}});
    CHECK(chunks_of(0, 3).empty());
    CHECK(chunks_of(-5, 3).empty());
    CHECK(chunks_of(2, 0).size() == 2);
  }
}

TEST_CASE("every element is visited once") {
  const Threads use(4);
  std::vector<std::atomic<int>> visits(100003);
  parallel_for(100003, 17, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
  });
  CHECK(std::all_of(visits.begin(), visits.end(), [](const auto& count) { return count == 1; }));
}

TEST_CASE("chunks of a slot run one after another, with at most as many slots as threads and chunks") {
  CHECK(parallel_slots(0, 1) == 1);
  for (int threads : {1, 2, 5}) {
    const Threads use(threads);
    CHECK(parallel_slots(1000, 1) == threads);
    CHECK(parallel_slots(1000, 500) == std::min(threads, 2));
    for (int slots : {1, threads}) {
      std::vector<std::atomic<int>> busy(static_cast<size_t>(slots));
      std::atomic<int> chunks{0}, wrong{0};
      parallel_for(1000, 1, slots, [&](int64_t, int64_t, int slot) {
        if (slot < 0 || slot >= slots || busy[static_cast<size_t>(slot)].exchange(1) != 0) return void(++wrong);
        std::this_thread::sleep_for(std::chrono::microseconds(5));
        wrong += slots > 1 && parallel_slots(1000, 1) != 1;
        parallel_for(3, 1, 1, [&](int64_t, int64_t, int inner) { wrong += inner != 0; });
        busy[static_cast<size_t>(slot)] = 0;
        ++chunks;
      });
      CHECK(chunks == 1000);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("an exception in a chunk reaches the caller and does not affect later calls") {
  for (int threads : {1, 4}) {
    const Threads use(threads);
    auto run = [] {
      parallel_for(100, 1, [](int64_t begin, int64_t) {
        if (begin % 10 == 3) throw std::runtime_error("chunk");
      });
    };
    CHECK_THROWS_WITH(run(), "chunk");
    CHECK(chunks_of(100, 1).size() == 100);
  }
}

TEST_CASE("nested calls run serially on the calling thread") {
  const Threads use(4);
  CHECK_FALSE(detail::in_parallel_region());
  std::atomic<int> inner{0}, elsewhere{0}, outside{0};
  parallel_for(8, 1, [&](int64_t, int64_t) {
    const auto self = std::this_thread::get_id();
    if (!detail::in_parallel_region()) ++outside;
    parallel_for(5, 1, [&](int64_t, int64_t) {
      ++inner;
      if (std::this_thread::get_id() != self) ++elsewhere;
    });
  });
  CHECK(inner == 40);
  CHECK(elsewhere == 0);
  CHECK(outside == 0);
  CHECK_FALSE(detail::in_parallel_region());
}

TEST_CASE("a serial thread computes all chunks itself until its guards end") {
  const Threads use(4);
  const auto self = std::this_thread::get_id();
  auto all_here = [&] {
    std::atomic<int> chunks{0}, elsewhere{0};
    parallel_for(64, 1, [&](int64_t, int64_t) {
      ++chunks;
      if (std::this_thread::get_id() != self) ++elsewhere;
    });
    CHECK(chunks == 64);
    return elsewhere == 0;
  };
  {
    const SerialGuard outer;
    { const SerialGuard inner; }
    CHECK(all_here());
    CHECK(parallel_slots(1000, 1) == 1);
  }
  std::thread([] {
    CHECK_FALSE(detail::serial_thread);  // the guard belonged to another thread
  }).join();
  CHECK_FALSE(detail::serial_thread);
  CHECK(parallel_slots(1000, 1) == 4);
}

TEST_CASE("several threads may call at once") {
  const Threads use(2);
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) parallel_for(100, 9, [&](int64_t begin, int64_t end) { total += end - begin; });
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(total == 4 * 50 * 100);
}

TEST_CASE("concurrent calls of all sizes, some of which fail, each get their own result") {
  const Threads use(4);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      for (int64_t round = 0; round < 400; ++round) {
        const int64_t count = 1 + (round * 37 + caller * 11) % 900, grain = 1 + round % 5;
        const bool fails = round % 7 == caller;
        std::atomic<int64_t> sum{0};
        bool failed = false;
        try {
          parallel_for(count, grain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) sum += i;
            if (fails && begin == 0) throw std::runtime_error("first chunk");
          });
        } catch (const std::runtime_error&) { failed = true; }
        if (failed != fails || (!fails && sum != count * (count - 1) / 2)) ++wrong;
      }
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
}

TEST_CASE("a call does not wait for helpers that are busy with another") {
  const Threads use(2);
  std::atomic<bool> second_done{false};
  std::atomic<int> begun{0};
  std::thread first([&] {
    parallel_for(2, 1, [&](int64_t, int64_t) {
      ++begun;
      while (!second_done) std::this_thread::yield();
    });
  });
  while (begun == 0) std::this_thread::yield();
  CHECK(chunks_of(10, 1).size() == 10);  // meanwhile the first call's chunks keep the helpers waiting
  second_done = true;
  first.join();
  CHECK(begun == 2);
}

TEST_CASE("after a helper has stalled a call, callers work without helpers for a while") {
  const Threads use(2);
  set_thread_runtime(ThreadRuntime::pool);
  const std::thread::id caller = std::this_thread::get_id();
  using namespace std::chrono_literals;
  std::atomic<bool> stalled = false;
  while (!stalled)
    parallel_for(2, 1, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() == caller) return std::this_thread::sleep_for(1ms);
      stalled = true;
      std::this_thread::sleep_for(200ms);  // as if its core were given to another process
    });
  std::atomic<int> calls = 0, helped = 0;
  parallel_for(8, 1, [&](int64_t, int64_t) {
    ++calls;
    if (std::this_thread::get_id() != caller) ++helped;
    std::this_thread::sleep_for(1ms);
  });
  CHECK(calls == 8);
  CHECK(helped == 0);
  std::this_thread::sleep_for(1100ms);  // longer than kLongestPause, because other tests need helpers
}

TEST_CASE("more concurrent calls than the pool has room for") {
  const Threads use(2);
  constexpr int kCallers = 24;
  std::atomic<int> arrived{0}, chunks{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i)
    callers.emplace_back([&] {
      std::atomic<bool> counted{false};
      parallel_for(3, 1, [&](int64_t, int64_t) {
        if (!counted.exchange(true)) ++arrived;
        while (arrived < kCallers) std::this_thread::yield();  // so all calls overlap
        ++chunks;
      });
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(chunks == 3 * kCallers);
}

TEST_CASE("each of very many chunks is called once") {
  const Threads use(3);
  std::atomic<int64_t> calls{0}, sum{0};
  parallel_for(200001, 2, [&](int64_t begin, int64_t end) {
    ++calls;
    for (int64_t i = begin; i < end; ++i) sum += i;
  });
  CHECK(calls == 100001);
  CHECK(sum == int64_t{200001} * 200000 / 2);
}

namespace {

// Returns true if several threads compute chunks of a call at the same time. Tries again for up to 30 s, because
// callers work without helpers for a while if a busy machine has delayed these.
bool helpers_compute() {
  using namespace std::chrono_literals;
  for (const auto end = std::chrono::steady_clock::now() + 30s; std::chrono::steady_clock::now() < end;) {
    std::atomic<int> running{0};
    std::atomic<bool> met{false};
    parallel_for(4, 1, [&](int64_t, int64_t) {
      ++running;
      const auto patience = std::chrono::steady_clock::now() + 5ms;
      while (!met && std::chrono::steady_clock::now() < patience) {
        if (running > 1) met = true;
        std::this_thread::sleep_for(50us);
      }
      --running;
    });
    if (met) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

}  // namespace

// Under ThreadSanitizer, a child forked from a threaded process cannot start threads.
#ifndef GRADUS_THREAD_SANITIZER
TEST_CASE("a forked child starts its own helpers and exits normally") {
  const Threads use(4);
  CHECK(chunks_of(100, 1).size() == 100);  // the parent has helpers
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::atomic<int64_t> sum{0};
    for (int i = 0; i < 100; ++i) parallel_for(100, 1, [&](int64_t begin, int64_t) { sum += begin; });
    std::_Exit(sum == 100 * 4950 && helpers_compute() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(chunks_of(100, 1).size() == 100);
}
#endif

TEST_CASE("calls that ask for several slots run serially in a chunk and on a serial thread, and only there") {
  const Threads use(4);
  // The number of threads that computed chunks, which take long enough for helpers to come, and the largest slot.
  const auto threads_of = [](int slots) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    int largest = 0;
    parallel_for(8, 1, slots, [&](int64_t, int64_t, int slot) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
      largest = std::max(largest, slot);
    });
    return std::pair(threads.size(), largest);
  };
  const std::pair<size_t, int> serially{1, 0};
  CHECK(threads_of(1) == serially);
  {
    const SerialGuard serial;
    for (int i = 0; i < 5; ++i) CHECK(threads_of(4) == serially);
  }
  std::mutex mutex;
  std::vector<std::pair<size_t, int>> nested;
  parallel_for(4, 1, [&](int64_t, int64_t) {
    const auto found = threads_of(4);
    const std::lock_guard lock(mutex);
    nested.push_back(found);
  });
  CHECK(nested == std::vector(4, serially));
  CHECK(helpers_compute());
}

TEST_CASE("a body may be a temporary, an lvalue or const") {
  int64_t sum = 0;
  const auto body = [&](int64_t begin, int64_t end) { sum += end - begin; };
  parallel_for(5, 5, body);
  parallel_for(5, 5, [&](int64_t begin, int64_t end) { sum += end - begin; });
  CHECK(sum == 10);
}

TEST_CASE("helpers compute, also after they have slept and while other calls run") {
  const Threads use(4);
  CHECK(helpers_compute());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // helpers sleep after 200 us without work
  CHECK(helpers_compute());
  std::atomic<bool> done{false};
  std::atomic<int> begun{0};
  std::thread other([&] {
    parallel_for(2, 1, [&](int64_t, int64_t) {
      ++begun;
      while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  });
  while (begun == 0) std::this_thread::yield();
  CHECK(helpers_compute());
  done = true;
  other.join();
}
