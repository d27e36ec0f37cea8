// Every collective on every transport compared with sums computed here, equal bits on all ranks, and the errors of
// ranks that disagree.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include <gradus/distributed/comm/local/recording_group.h>
#include <gradus/gradus.h>
#include <gradus/graph/recorder.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/ranks.h>
#include <gradus/tests/distributed/values.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

/// Numbers of elements for each rank: none, a few, the largest number that takes one hop, and several segments.
std::vector<int64_t> counts(bool many) {
  return many ? std::vector<int64_t>{0, 1, 3, 1000, 4097, 300'001} : std::vector<int64_t>{0, 3, 5000};
}

std::string bits_of(const Array& x) { return {static_cast<const char*>(x.data()), x.nbytes()}; }

}  // namespace

TEMPLATE_TEST_CASE("all_reduce, reduce and reduce_scatter of every type", "[collectives]", float, double, Half,
                   BFloat16, int64_t, int32_t) {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(1, 2, 3, 5);
  const bool strict = GENERATE(false, true);
  CAPTURE(transport, ranks, strict);
  expect_ranks(transport, ranks, [&](ProcessGroup& group) {
    for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg, ReduceKind::min, ReduceKind::max, ReduceKind::prod})
      for (const int64_t count : counts(kind == ReduceKind::avg && size_of(dtype_of<TestType>) <= 4)) {
        const CollectiveOptions options{.strict = strict};
        const std::string what = std::string(name(kind)) + " of " + std::to_string(count);
        const auto expected = [&](int64_t i) {
          const double value = reduced(kind, ranks, i);
          return std::is_integral_v<TestType> ? std::trunc(value) : value;
        };
        Array x = contribution<TestType>(group.rank(), count);
        group.all_reduce(x, kind, options);
        require(equals<TestType>(x, 0, count, expected), "all_reduce " + what);

        const int root = ranks - 1;
        Array y = contribution<TestType>(group.rank(), count);
        group.reduce(y, root, kind, options);
        const auto own = [&](int64_t i) { return element(group.rank(), i); };
        if (group.rank() == root) require(equals<TestType>(y, 0, count, expected), "reduce " + what);
        else require(equals<TestType>(y, 0, count, own), "reduce leaves the others alone");

        if (count > 5000) continue;
        Array parts = contribution<TestType>(group.rank(), count * ranks);
        Array part = Array::empty({count}, dtype_of<TestType>);
        group.reduce_scatter(parts, part, kind, options);
        const auto expected_part = [&](int64_t i) { return expected(group.rank() * count + i); };
        require(equals<TestType>(part, 0, count, expected_part), "reduce_scatter " + what);
      }
  });
}

TEST_CASE("long vectors travel in several segments", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(2, 5);  // five ranks form a ring
  CAPTURE(transport, ranks);
  expect_ranks(transport, ranks, [&](ProcessGroup& group) {
    constexpr int64_t kCount = 120'001;  // elements of a rank's part; a segment has less than 384 KiB
    for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg}) {
      const auto expected = [&](int64_t i) { return reduced(kind, ranks, i); };
      Array x = contribution<float>(group.rank(), kCount * ranks), part = Array::empty({kCount}, DType::f32);
      group.reduce_scatter(x, part, kind);
      require(equals<float>(part, 0, kCount, [&](int64_t i) { return expected(group.rank() * kCount + i); }),
              "reduce_scatter");
      group.all_reduce(x, kind);
      require(equals<float>(x, 0, kCount * ranks, expected), "all_reduce");
    }
  });
}

TEST_CASE("booleans: sum and max are or, prod and min are and", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  expect_ranks(transport, 3, [](ProcessGroup& group) {
    for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::min, ReduceKind::max, ReduceKind::prod}) {
      Array x = Array::empty({8}, DType::boolean);
      for (int i = 0; i < 8; ++i) x.data<bool>()[i] = (i >> group.rank()) & 1;
      group.all_reduce(x, kind);
      const bool any = kind == ReduceKind::sum || kind == ReduceKind::max;
      for (int i = 0; i < 8; ++i) require(x.data<bool>()[i] == (any ? i != 0 : i == 7), name(kind));
    }
    bool refused = false;
    try {
      group.all_reduce(Array::empty({1}, DType::boolean), ReduceKind::avg);
    } catch (const DTypeError&) { refused = true; }
    require(refused, "an average of booleans");
  });
}

TEST_CASE("broadcast, all_gather, gather, scatter, send, recv and barrier", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(1, 2, 4);
  CAPTURE(transport, ranks);
  expect_ranks(transport, ranks, [&](ProcessGroup& group) {
    const int rank = group.rank();
    for (const int64_t count : counts(true)) {
      for (int root = 0; root < ranks; ++root) {
        Array x = contribution<float>(rank, count);
        group.broadcast(x, root);
        require(equals<float>(x, 0, count, [&](int64_t i) { return element(root, i); }), "broadcast");

        const Array own = contribution<float>(rank, count);
        const Array all = rank == root ? Array::empty({count * ranks}, DType::f32) : Array();
        group.gather(own, all, root);
        for (int r = 0; rank == root && r < ranks; ++r)
          require(equals<float>(all, r * count, count, [&](int64_t i) { return element(r, i); }), "gather");

        Array part = Array::empty({count}, DType::f32);
        group.scatter(all, part, root);
        require(equals<float>(part, 0, count, [&](int64_t i) { return element(rank, i); }), "scatter");
      }
      const Array x = contribution<float>(rank, count), all = Array::empty({count * ranks}, DType::f32);
      group.all_gather(x, all);
      for (int r = 0; r < ranks; ++r)
        require(equals<float>(all, r * count, count, [&](int64_t i) { return element(r, i); }), "all_gather");
      if (ranks > 1) {  // once around the ring; even ranks send first
        const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
        const Array arrived = Array::empty({count}, DType::f32);
        if (rank % 2 == 0) group.send(x, next);
        group.recv(arrived, previous);
        if (rank % 2 == 1) group.send(x, next);
        require(equals<float>(arrived, 0, count, [&](int64_t i) { return element(previous, i); }), "send and recv");
      }
      group.barrier();
    }
  });
}

TEST_CASE("all_to_all, and parts of different lengths", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(1, 2, 4);
  CAPTURE(transport, ranks);
  expect_ranks(transport, ranks, [&](ProcessGroup& group) {
    const int rank = group.rank();
    for (const int64_t count : counts(true)) {
      const Array x = contribution<float>(rank, count * ranks), y = Array::empty({count * ranks}, DType::f32);
      group.all_to_all(x, y);
      for (int r = 0; r < ranks; ++r)
        require(equals<float>(y, r * count, count, [&](int64_t i) { return element(r, rank * count + i); }),
                "all_to_all");

      // Rank r sends (2 r + s) % 3 * `count` elements to rank s: some send nothing, and some get nothing.
      const auto length = [&](int from, int to) { return (2 * from + to) % 3 * count; };
      std::vector<int64_t> sent, received, lengths;
      for (int r = 0; r < ranks; ++r) {
        sent.push_back(length(rank, r));
        received.push_back(length(r, rank));
        lengths.push_back(length(r, r));
      }
      const auto sum = [](const std::vector<int64_t>& parts) {
        return std::accumulate(parts.begin(), parts.end(), int64_t{0});
      };
      const Array uneven = contribution<float>(rank, sum(sent)), arrived = Array::empty({sum(received)}, DType::f32);
      group.all_to_all_v(uneven, sent, arrived, received, {.async = true})->wait();
      int64_t begin = 0;
      for (int r = 0; r < ranks; ++r) {
        int64_t first = 0;  // of the elements that r sends to this rank
        for (int s = 0; s < rank; ++s) first += length(r, s);
        require(equals<float>(arrived, begin, length(r, rank), [&](int64_t i) { return element(r, first + i); }),
                "all_to_all_v");
        begin += length(r, rank);
      }

      const Array own = contribution<float>(rank, length(rank, rank)), all = Array::empty({sum(lengths)}, DType::f32);
      group.all_gather_v(own, all, lengths);
      begin = 0;
      for (int r = 0; r < ranks; ++r) {
        require(equals<float>(all, begin, length(r, r), [&](int64_t i) { return element(r, i); }), "all_gather_v");
        begin += length(r, r);
      }
    }
  });
}

TEST_CASE("counts that disagree are an error on all ranks", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const auto results = run_ranks(transport, 3,
                                 [](ProcessGroup& group) {
                                   // Rank 2 sends rank 0 one element more than rank 0 expects.
                                   const std::vector<int64_t> sent = {group.rank() == 2 ? 3 : 2, 2, 2};
                                   const Array x = contribution<float>(0, sent[0] + 4);
                                   const int64_t own = group.rank() == 0 ? sent[0] : 2;
                                   group.all_to_all_v(x, sent, Array::empty({4 + own}, DType::f32), {2, 2, 2});
                                   group.barrier();
                                 },
                                 {.timeout = Milliseconds(5000)});
  for (const RankResult& result : results) {
    CHECK(result.status.failure == CommFailure::mismatch);
    CHECK(result.status.rank == 2);
    CHECK_THAT(result.error,
               contains("[all_to_all_v #1 (float32)] rank 2 sends 12 bytes where 8 are due: their counts"));
  }
}

TEST_CASE("all ranks get the same bits, and strict sums the same on every transport and in every run",
          "[collectives]") {
  const int ranks = GENERATE(3, 4, 5);  // five ranks use a ring for more than 16 KiB
  const int64_t count = ranks == 4 ? 4097 : GENERATE(100, 4096, 4097, 200'000);
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::f16);
  const auto results = [&](const std::string& transport, bool strict) {
    std::vector<std::string> bits(static_cast<size_t>(ranks));
    expect_ranks(transport, ranks, [&](ProcessGroup& group) {
      Array x = Array::empty({count}, dtype);
      backend("naive").normal(x, {7, static_cast<uint64_t>(group.rank())}, 0, 1);
      group.all_reduce(x, ReduceKind::avg, {.strict = strict});
      bits[static_cast<size_t>(group.rank())] = bits_of(x);
    });
    CHECK(std::ranges::all_of(bits, [&](const std::string& rank) { return rank == bits[0]; }));
    return bits[0];
  };
  const std::string strict = results("local", true);
  CHECK(results("tcp", true) == strict);
  CHECK(results("shm", true) == strict);
  CHECK(results("shm", false) == strict);  // shared memory always sums in the order of the ranks
  const std::string relaxed = results("tcp", false);
  CHECK(results("tcp", false) == relaxed);
  CHECK(results("local", false) == relaxed);
  const bool in_a_ring = ranks == 5 && count > 4096 && dtype == DType::f32;
  CHECK((relaxed == strict) == !in_a_ring);
}

TEST_CASE("set_strict applies to all collectives of a group and of groups made from it", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const bool in_group = GENERATE(false, true);
  const auto results = run_ranks(transport, 2, [&](ProcessGroup& group) {
    group.set_strict(group.rank() == 0);  // the other rank's error shows it
    const auto shared_group = shared(group);
    const Array x = contribution<float>(group.rank(), 5);
    (in_group ? new_group(shared_group, {0, 1}) : shared_group)->all_reduce(x);
  });
  for (const RankResult& result : results) CHECK(result.status.failure == CommFailure::mismatch);
}

TEST_CASE("a RecordingGroup counts the bytes of uneven parts and fills what it would receive", "[collectives]") {
  RecordingGroup group(1, 3);
  const Array x = contribution<float>(1, 4), all = Array::empty({9}, DType::f32), y = Array::empty({6}, DType::f32);
  group.all_gather_v(x, all, {2, 4, 3});
  CHECK(group.bytes(CollectiveKind::all_gather_v) == 4 * 4 * 2);
  CHECK(equals<float>(all, 2, 4, [](int64_t i) { return element(1, i); }));
  CHECK(equals<float>(all, 6, 3, [](int64_t i) { return element(1, i); }));
  group.all_gather_v(x.slice(0, 0, 1), all, {5, 1, 3});
  CHECK(equals<float>(all, 1, 4, [](int64_t) { return 0; }));
  group.all_to_all_v(x, {1, 2, 1}, y, {3, 2, 1});
  CHECK(group.bytes(CollectiveKind::all_to_all_v) == 4 * 2);
  CHECK(equals<float>(y, 0, 4, [](int64_t i) { return element(1, i); }));
  std::fill_n(y.data<float>(), 6, 9.0f);
  group.all_to_all_v(x.slice(0, 0, 2), {0, 2, 0}, y, {3, 2, 1});  // sends less than it receives
  CHECK(equals<float>(y, 0, 2, [](int64_t i) { return element(1, i); }));
  CHECK(equals<float>(y, 2, 4, [](int64_t) { return 9; }));
}

TEST_CASE("a RecordingGroup adds up the bytes that leave it, and receives what it sends", "[collectives]") {
  using enum CollectiveKind;
  RecordingGroup group(2, 4);
  const Array x = contribution<float>(2, 8), part = contribution<float>(2, 2), whole = x.new_empty({8});
  const Array quarter = x.new_empty({2});
  for (int64_t calls : {1, 2}) {
    INFO("call " << calls);
    group.all_reduce(x);
    CHECK(group.bytes(all_reduce) == calls * 2 * 32 * 3 / 4);
    group.broadcast(x, 2);
    group.broadcast(x, 0);  // from another rank
    CHECK(group.bytes(broadcast) == calls * 32 * 3);
    group.all_gather(part, whole);
    CHECK(group.bytes(all_gather) == calls * 8 * 3);
    CHECK(equals<float>(
        whole, 0, 8, [](int64_t i) { return element(2, i); }, 2));
    group.reduce_scatter(x, quarter);
    CHECK(group.bytes(reduce_scatter) == calls * 8 * 3);
    CHECK(equals<float>(quarter, 0, 2, [](int64_t i) { return element(2, 4 + i); }));
    group.all_to_all(x, whole);
    CHECK(group.bytes(all_to_all) == calls * 8 * 3);
    CHECK(equals<float>(whole, 0, 8, [](int64_t i) { return element(2, i); }));
    group.barrier();
    CHECK(group.bytes(barrier) == 0);
  }
  CHECK(equals<float>(x, 0, 8, [](int64_t i) { return element(2, i); }));
  group.reset_bytes();
  CHECK(group.bytes(all_reduce) == 0);
  CHECK_THROWS_WITH(group.gather(part, {}, 0), contains("a RecordingGroup does not support gather"));
  CHECK_THROWS_WITH(group.send(part, 0), contains("a RecordingGroup does not support send"));
}

TEST_CASE("asynchronous work is done in order while its callers continue", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  expect_ranks(transport, 3, [](ProcessGroup& group) {
    std::vector<Array> x;
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < 20; ++i) {
      x.push_back(contribution<float>(group.rank(), 1000 * i));
      works.push_back(group.all_reduce(x.back(), ReduceKind::sum, {.async = true}));
    }
    Array last = contribution<float>(group.rank(), 10);
    group.all_reduce(last);  // runs after the messages
    for (size_t i = 0; i < works.size(); ++i) {
      require(works[i]->is_completed() && works[i]->status().ok(), "an earlier one is done");
      require(works[i]->sequence() == i + 1, "sequence");
      works[i]->wait();
      const auto expected = [&](int64_t k) { return reduced(ReduceKind::sum, 3, k); };
      require(equals<float>(x[i], 0, x[i].numel(), expected), "sum");
    }
  });
}

TEST_CASE("in a ring every rank can send before it receives, whatever the size", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int64_t count = GENERATE(10, 3'000'000);  // only the first fits in the buffers between two ranks
  CAPTURE(transport, count);
  const auto body = [&](ProcessGroup& group) {
    const int n = group.size(), next = (group.rank() + 1) % n, previous = (group.rank() + n - 1) % n;
    const Array x = contribution<float>(group.rank(), count), arrived = Array::empty({count}, DType::f32);
    const auto sent = group.send(x, next, {.async = true});
    group.recv(arrived, previous);
    sent->wait();
    require(equals<float>(arrived, 0, count, [&](int64_t i) { return element(previous, i); }), "what arrived");
    group.barrier();
  };
  expect_ranks(transport, 3, body, {.timeout = Milliseconds(10'000)});
}

TEST_CASE("messages do not wait for messages of other ranks or of the other direction", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  constexpr int64_t kCount = 1'000'000;
  const TcpOptions options{.timeout = Milliseconds(10'000)};
  SECTION("in any order of calls") {
    const int hub = GENERATE(0, 1, 2), first = (hub + 1) % 3, second = (hub + 2) % 3;
    const auto body = [&](ProcessGroup& group) {
      const Array x = contribution<float>(group.rank(), kCount), y = x.slice(0, 0, kCount / 2);
      if (group.rank() == hub) {  // the others call both in the opposite order
        const auto a = group.send(x, first, {.async = true}), b = group.send(y, second, {.async = true});
        b->wait();
        const Array from_first = Array::empty({kCount}, DType::f32), from_second = y.new_empty({kCount / 2});
        const auto c = group.recv(from_first, first, {.async = true});
        const auto d = group.recv(from_second, second, {.async = true});
        for (const auto& work : {a, c, d}) work->wait();
        require(equals<float>(from_first, 0, kCount, [&](int64_t i) { return element(first, i); }), "first");
        require(equals<float>(from_second, 0, kCount / 2, [&](int64_t i) { return element(second, i); }), "second");
      } else if (group.rank() == first) {
        group.recv(Array::empty({1}, DType::f32), second);
        group.recv(Array::empty({kCount}, DType::f32), hub);
        group.recv(Array::empty({1}, DType::f32), second);
        group.send(x, hub);
      } else {
        const Array one = x.slice(0, 0, 1);
        group.recv(Array::empty({kCount / 2}, DType::f32), hub);
        group.send(one, first);
        group.send(y, hub);
        group.send(one, first);
      }
    };
    expect_ranks(transport, 3, body, options);
  }
  SECTION("all at once, but in order between two ranks") {
    const auto body = [&](ProcessGroup& group) {
      std::vector<std::shared_ptr<Work>> works;
      std::vector<std::pair<int, Array>> arrived;
      for (int64_t count : {0, 300'001, 5, 100'000}) {
        const Array x = contribution<float>(group.rank(), count);
        for (int peer = 0; peer < group.size(); ++peer) {
          if (peer == group.rank()) continue;
          works.push_back(group.send(x, peer, {.async = true}));
          arrived.emplace_back(peer, Array::empty({count}, DType::f32));
          works.push_back(group.recv(arrived.back().second, peer, {.async = true}));
        }
      }
      Array x = contribution<float>(group.rank(), 1000);
      group.all_reduce(x);  // after all of them
      for (const auto& work : works) require(work->is_completed() && work->status().ok(), "a message is done");
      for (const auto& [peer, y] : arrived)
        require(equals<float>(y, 0, y.numel(), [&, from = peer](int64_t i) { return element(from, i); }), "message");
      require(equals<float>(x, 0, 1000, [](int64_t i) { return reduced(ReduceKind::sum, 4, i); }), "sum");
    };
    expect_ranks(transport, 4, body, options);
  }
  SECTION("all end with the first one that fails") {
    const auto body = [&](ProcessGroup& group) {
      if (group.rank() == 1) return;
      const Array x = contribution<float>(group.rank(), kCount);
      const auto lost = group.rank() == 0 ? group.recv(x, 1, {.async = true}) : nullptr;
      group.recv(x, group.rank() == 0 ? 2 : 0);
    };
    const auto results = run_ranks(transport, 3, body, options);
    for (size_t rank : {0, 2}) {
      CHECK(results[rank].status.failure == CommFailure::peer_lost);
      CHECK(results[rank].status.rank == 1);
    }
  }
}

TEST_CASE("a wait accepts a timeout of any length", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const auto body = [](ProcessGroup& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(Milliseconds(50));
    Array x = contribution<float>(group.rank(), 10);
    const auto work = group.all_reduce(x, ReduceKind::sum, {.async = true, .timeout = Milliseconds::max()});
    require(work->wait(Milliseconds::max()), "done");
  };
  expect_ranks(transport, 2, body, {.timeout = Milliseconds::max()});
  for (const Milliseconds none : {Milliseconds(0), Milliseconds(-1), Milliseconds::min()}) {
    const auto without_rank_1 = [&](const std::function<void(ProcessGroup&)>& rank_0) {
      std::atomic<bool> ended = false;
      const auto results = run_ranks(transport, 2, [&](ProcessGroup& group) {
        while (group.rank() == 1 && !ended) std::this_thread::sleep_for(Milliseconds(1));
        const std::shared_ptr<void> at_the_end(nullptr, [&](void*) { ended = true; });
        if (group.rank() == 0) rank_0(group);
      });
      return results[0].status.failure;
    };
    bool waited = true;
    without_rank_1([&](ProcessGroup& group) { waited = group.barrier({.async = true})->wait(none); });
    CHECK_FALSE(waited);
    CHECK(without_rank_1([&](ProcessGroup& group) { group.barrier({.timeout = none}); }) == CommFailure::timeout);
  }
}

TEST_CASE("ranks that disagree all learn which rank called what", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int odd = GENERATE(0, 1, 2);
  const std::string difference = GENERATE("count", "dtype", "op", "kind", "root", "strict", "order");
  CAPTURE(transport, odd, difference);
  const auto results = run_ranks(transport, 3,
                                 [&](ProcessGroup& group) {
                                   const bool is_odd = group.rank() == odd;
                                   const Array x = contribution<float>(0, 5000);
                                   group.all_reduce(x);
                                   if (difference == "root") group.broadcast(x, is_odd ? 1 : 2);
                                   else if (difference == "order" && is_odd)
                                     group.all_gather(x.slice(0, 0, 1), x.slice(0, 0, 3));
                                   else if (!is_odd) group.all_reduce(x);
                                   else if (difference == "count") group.all_reduce(contribution<float>(0, 5001));
                                   else if (difference == "dtype") group.all_reduce(contribution<int32_t>(0, 5000));
                                   else if (difference == "op") group.all_reduce(x, ReduceKind::max);
                                   else if (difference == "strict")
                                     group.all_reduce(x, ReduceKind::sum, {.strict = true});
                                   else group.barrier();
                                 },
                                 {.timeout = Milliseconds(5000)});
  const std::string others_call =
      difference == "root" ? "broadcast #2 (5000 float32, root 2)" : "all_reduce #2 (sum of 5000 float32)";
  const std::map<std::string, std::string> odd_calls = {{"count", "all_reduce #2 (sum of 5001 float32)"},
                                                        {"dtype", "all_reduce #2 (sum of 5000 int32)"},
                                                        {"op", "all_reduce #2 (max of 5000 float32)"},
                                                        {"kind", "barrier #2"},
                                                        {"root", "broadcast #2 (5000 float32, root 1)"},
                                                        {"strict", "all_reduce #2 (strict sum of 5000 float32)"},
                                                        {"order", "all_gather #2 (1 float32)"}};
  for (const RankResult& result : results) {
    CHECK(result.status.failure == CommFailure::mismatch);
    CHECK_THAT(result.error, contains("rank " + std::to_string(odd) + " called " + odd_calls.at(difference)));
    CHECK_THAT(result.error, contains(" called " + others_call));
  }
}

TEST_CASE("calls that differ in several fields at once are told apart", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  // Pairs whose differences cancel if the fields are only added up or combined by exclusive or.
  using Call = std::function<void(ProcessGroup&)>;
  const auto floats = [](int64_t count) { return contribution<float>(0, count); };
  const std::pair<Call, Call> pairs[] = {
      {[&](ProcessGroup& group) { group.broadcast(floats(1), 0); },
       [&](ProcessGroup& group) { group.broadcast(floats(0), 1); }},
      {[&](ProcessGroup& group) { group.broadcast(floats(2), 1); },
       [&](ProcessGroup& group) { group.broadcast(floats(3), 0); }},
      {[&](ProcessGroup& group) { group.all_reduce(floats(257)); },
       [&](ProcessGroup& group) { group.all_reduce(floats(1), ReduceKind::sum, {.strict = true}); }},
      {[&](ProcessGroup& group) { group.reduce(floats(4), 0, ReduceKind::max); },
       [&](ProcessGroup& group) { group.reduce(floats(5), 1, ReduceKind::max); }},
      {[&](ProcessGroup& group) { group.all_reduce(floats(6)); },
       [&](ProcessGroup& group) { group.all_reduce(Array::empty({6}, DType::i32)); }},
  };
  for (const auto& [first, second] : pairs) {
    const auto results = run_ranks(transport, 2,
                                   [&, first = first, second = second](ProcessGroup& group) {
                                     (group.rank() == 0 ? first : second)(group);
                                     group.barrier();
                                   },
                                   {.timeout = Milliseconds(5000)});
    for (const RankResult& result : results) {
      CHECK(result.status.failure == CommFailure::mismatch);
      CHECK_THAT(result.error, contains("ranks disagree: "));
    }
  }
}

namespace {

/// A transport that cannot get memory.
class FailingTransport final : public Transport {
 public:
  FailingTransport() : Transport(0, 1) {}
  void exchange(std::span<const Transfer>, const Descriptor&, const Deadline&) override {
    ++calls;
    throw std::runtime_error("no memory");
  }
  void announce(const CommStatus& failure) noexcept override { announced = failure; }
  int calls = 0;
  CommStatus announced;
};

class FailingGroup final : public TransportGroup<FailingTransport> {
 public:
  FailingGroup() : TransportGroup(0, 1, 0, Milliseconds(1000)) {}
  ~FailingGroup() override { stop(); }
  std::string_view backend() const override { return "failing"; }
  const FailingTransport& own() const { return transport(); }

 private:
  bool serves(Device device) const override { return device.is_cpu(); }
  std::string places() const override { return "the cpu"; }
  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>&, int, uint32_t, Milliseconds) override {
    return nullptr;
  }
};

}  // namespace

TEST_CASE("an exception within a collective ends the group with its message", "[collectives]") {
  const bool async = GENERATE(false, true);
  FailingGroup group;
  const auto status_of = [&] {
    try {
      group.all_reduce(contribution<float>(0, 4), ReduceKind::sum, {.async = async})->wait();
    } catch (const CollectiveError& error) { return error.status(); }
    return CommStatus();
  };
  for (int call = 0; call < 2; ++call) {
    const CommStatus status = status_of();
    CHECK((status.failure == CommFailure::aborted && status.rank == 0 && status.message == "no memory"));
  }
  CHECK(group.own().calls == 1);
  CHECK(group.own().announced.message == "no memory");
  CHECK(group.status().message == "no memory");
}

TEST_CASE("both ends of a message learn that they disagree", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const auto results = run_ranks(transport, 2,
                                 [](ProcessGroup& group) {
                                   if (group.rank() == 0) group.send(contribution<float>(0, 10), 1);
                                   else group.recv(contribution<float>(0, 11), 0);
                                   group.barrier();
                                 },
                                 {.timeout = Milliseconds(5000)});
  for (const RankResult& result : results) {
    CHECK(result.status.failure == CommFailure::mismatch);
    CHECK_THAT(result.error, contains("rank 0 called send #1 (10 float32)"));
    CHECK_THAT(result.error, contains("rank 1 called send #1 (11 float32)"));
  }
}

TEST_CASE("a failed group keeps failing with the first cause", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const auto results =
      run_ranks(transport, 3,
                [&](ProcessGroup& group) {
                  const Array x = contribution<float>(0, 10);
                  if (group.rank() == 1) {  // while the others have no call in progress
                    group.recv(x, 0);
                    group.recv(x, 2);
                    group.abort("enough");
                  } else {
                    group.send(x, 1);
                  }
                  for (int i = 0; i < 3; ++i) {
                    bool failed = false;
                    try {
                      group.all_reduce(x);
                    } catch (const CollectiveError& error) {
                      failed = true;
                      require(error.status().failure == CommFailure::aborted, "aborted");
                      require(std::string(error.what()).find("rank 1 ended the group: enough") != std::string::npos,
                              error.what());
                    }
                    require(failed, "a call after the failure");
                  }
                  require(group.status().failure == CommFailure::aborted, "status");
                },
                {.timeout = Milliseconds(5000)});
  for (const RankResult& result : results) CHECK(result.error == "");
}

TEST_CASE("a rank that never calls is named when the deadline passes", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int64_t count = GENERATE(10, 100'000);
  std::atomic<int> ended = 0;
  const auto results =
      run_ranks(transport, 4,
                [&](ProcessGroup& group) {
                  group.barrier();
                  if (group.rank() == 2) {
                    while (ended < 3) std::this_thread::sleep_for(Milliseconds(1));
                    return;
                  }
                  try {
                    group.all_reduce(contribution<float>(0, count), ReduceKind::sum, {.timeout = Milliseconds(200)});
                  } catch (...) {
                    ++ended;
                    throw;
                  }
                },
                {.timeout = Milliseconds(5000)});
  for (int rank : {0, 1, 3}) {
    const RankResult& result = results[static_cast<size_t>(rank)];
    CHECK(result.status.failure == CommFailure::timeout);
    CHECK(result.status.rank == 2);
    CHECK_THAT(result.error, contains("waited 200 ms for rank 2"));
  }
}

TEST_CASE("a rank that waits for long names once the rank that it waits for, and waits on", "[collectives]") {
  const auto warnings = [] {
    std::multiset<std::string> lines;
    std::ifstream in("/proc/self/fd/2");
    for (std::string line; std::getline(in, line);)
      if (line.find("all_reduce") != std::string::npos) lines.insert(line);
    return lines;
  };
  const ScopedValue<Milliseconds> sooner(warn_after, Milliseconds(20));
  std::vector<RankResult> results;
  std::multiset<std::string> lines, expected;
  printed_to_stderr([&] {
    std::vector<std::thread> transports;  // at the same time, because a rank asks for 300 ms which ranks are silent
    std::mutex mutex;
    for (const char* transport : {"shm", "tcp"})
      transports.emplace_back([&, transport] {
        const auto ends = run_ranks(transport, 3, [&](ProcessGroup& group) {
          group.barrier();
          if (group.rank() == 1) {
            for (const Deadline patience(Milliseconds(5000)); warnings().size() < 4 && !patience.passed();)
              std::this_thread::sleep_for(Milliseconds(1));
            std::this_thread::sleep_for(Milliseconds(50));
          }
          group.all_reduce(contribution<float>(group.rank(), 4), ReduceKind::sum);
        });
        const std::lock_guard lock(mutex);
        results.insert(results.end(), ends.begin(), ends.end());
      });
    for (std::thread& transport : transports) transport.join();
    lines = warnings();
  });
  for (const RankResult& result : results) CHECK(result.error == "");
  for (const char* rank : {"0", "0", "2", "2"})
    expected.insert("gradus: [all_reduce #2 (sum of 4 float32)] rank " + std::string(rank) +
                    " has waited 0 s for rank 1");
  CHECK(lines == expected);
}

TEST_CASE("of a chain of ranks that wait for each other, the last one is named", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  std::atomic<int> ended = 0;
  const auto results = run_ranks(transport, 4,
                                 [&](ProcessGroup& group) {
                                   const Array x = contribution<float>(0, 10);
                                   group.barrier();
                                   if (group.rank() == 0) {  // never sends
                                     while (ended < 3) std::this_thread::sleep_for(Milliseconds(1));
                                     return;
                                   }
                                   // Rank 3 waits for 2, which waits for 1. The deadline of rank 3 is the first.
                                   const Milliseconds timeout(group.rank() == 3 ? 200 : 400);
                                   try {
                                     group.recv(x, group.rank() - 1, {.timeout = timeout});
                                   } catch (...) {
                                     ++ended;
                                     throw;
                                   }
                                 },
                                 {.timeout = Milliseconds(5000)});
  for (int rank : {1, 2, 3}) {
    CHECK(results[static_cast<size_t>(rank)].status.failure == CommFailure::timeout);
    CHECK(results[static_cast<size_t>(rank)].status.rank == 0);
  }
}

TEST_CASE("of ranks that wait for each other in a circle, the first to give up names its neighbour", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const bool sends = GENERATE(false, true);
  const int first = GENERATE(0, 1, 2);        // the rank whose deadline is the first
  if (sends && transport == "local") return;  // a local group sends without waiting
  const int neighbour = (first + 2) % 3;
  const auto results =
      run_ranks(transport, 3,
                [&](ProcessGroup& group) {
                  const Array x = contribution<float>(0, sends ? 3'000'000 : 10);
                  group.barrier();
                  const int peer = (group.rank() + 2) % 3;
                  const CollectiveOptions options{.timeout = Milliseconds(group.rank() == first ? 100 : 5000)};
                  if (sends) group.send(x, peer, options);
                  else group.recv(x, peer, options);
                },
                {.timeout = Milliseconds(5000)});
  for (const RankResult& result : results) {
    CHECK(result.status.failure == CommFailure::timeout);
    CHECK(result.status.rank == neighbour);
    CHECK_THAT(result.error,
               contains("rank " + std::to_string(first) + " waited 100 ms for rank " + std::to_string(neighbour)));
  }
}

TEST_CASE("all ranks that are not in a call are listed, except those that left", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "shm", "tcp");
  const bool first_leaves = GENERATE(false, true);
  // Ranks 1 and 2 wait for the two idle ranks. The deadline of rank 1 is the first.
  const int leaver = first_leaves ? 0 : 3;
  const std::vector<int> idle = first_leaves ? std::vector{3, 4} : std::vector{0, 4};
  std::atomic<bool> ended = false;
  const auto results = run_ranks(transport, 5,
                                 [&](ProcessGroup& group) {
                                   const int rank = group.rank();
                                   group.barrier();
                                   if (rank == leaver) return;
                                   if (rank == 1 || rank == 2) {
                                     try {
                                       group.recv(contribution<float>(0, 10), idle[static_cast<size_t>(rank - 1)],
                                                  {.timeout = Milliseconds(rank == 1 ? 200 : 5000)});
                                     } catch (...) {
                                       ended = true;
                                       throw;
                                     }
                                   }
                                   while (!ended) std::this_thread::sleep_for(Milliseconds(1));
                                 },
                                 {.timeout = Milliseconds(5000)});
  for (const int rank : {1, 2}) {
    CHECK(results[static_cast<size_t>(rank)].status.failure == CommFailure::timeout);
    CHECK(results[static_cast<size_t>(rank)].status.rank == idle[0]);
    CHECK_THAT(results[static_cast<size_t>(rank)].error, contains("rank 1 waited 200 ms for ranks " + joined(idle)));
  }
}

TEST_CASE("a failure that was announced before is the cause of a call, not the loss of the rank that it needs",
          "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const auto [caller, announcer, lost] = GENERATE(table<int, int, int>({{1, 0, 2}, {0, 1, 2}, {1, 2, 0}, {2, 1, 0}}));
  CAPTURE(transport, caller, announcer, lost);
  std::atomic<int> done = 0;
  const auto results = run_ranks(transport, 3,
                                 [&, caller = caller, announcer = announcer, lost = lost](ProcessGroup& group) {
                                   if (group.rank() == announcer) group.abort("enough");
                                   ++done;
                                   if (group.rank() == lost) return;
                                   while (done < 3) std::this_thread::sleep_for(Milliseconds(1));
                                   std::this_thread::sleep_for(Milliseconds(20));  // until the connections have ended
                                   if (group.rank() == caller) group.recv(contribution<float>(0, 10), lost);
                                 },
                                 {.timeout = Milliseconds(5000)});
  const RankResult& result = results[static_cast<size_t>(caller)];
  CHECK(result.status.failure == CommFailure::aborted);
  CHECK(result.status.rank == announcer);
  CHECK_THAT(result.error, contains("rank " + std::to_string(announcer) + " ended the group: enough"));
}

TEST_CASE("a failure that a third rank announces ends a wait at once", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  CAPTURE(transport);
  std::atomic<bool> waits = false, ended = false, others_were_there = false;
  const auto results = run_ranks(transport, 3,
                                 [&](ProcessGroup& group) {
                                   if (group.rank() == 0) {
                                     waits = true;
                                     try {
                                       group.recv(Array::empty({10}, DType::f32), 1);
                                     } catch (...) {
                                       ended = true;
                                       throw;
                                     }
                                   }
                                   while (!waits) std::this_thread::sleep_for(Milliseconds(1));
                                   if (group.rank() == 2) group.abort("enough");
                                   const Deadline patience(Milliseconds(20000));
                                   while (!ended && !patience.passed()) std::this_thread::sleep_for(Milliseconds(1));
                                   if (group.rank() == 1) others_were_there = ended.load();
                                 },
                                 {.timeout = Milliseconds(60000)});
  CHECK(results[0].status.failure == CommFailure::aborted);
  CHECK(results[0].status.rank == 2);
  CHECK(others_were_there);
}

TEST_CASE("a rank that leaves is an error only for ranks that need it", "[collectives]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const auto results = run_ranks(transport, 3,
                                 [&](ProcessGroup& group) {
                                   group.all_reduce(contribution<float>(0, 100));
                                   if (group.rank() == 1) return;
                                   const Array x = contribution<float>(0, 10);
                                   if (group.rank() == 0) group.send(x, 2);
                                   else group.recv(x, 0);
                                   group.all_reduce(x);
                                 },
                                 {.timeout = Milliseconds(5000)});
  CHECK(results[1].error.empty());
  for (int rank : {0, 2}) {
    CHECK(results[static_cast<size_t>(rank)].status.failure == CommFailure::peer_lost);
    CHECK(results[static_cast<size_t>(rank)].status.rank == 1);
    CHECK_THAT(results[static_cast<size_t>(rank)].error, contains("rank 1 has left the group"));
  }
}

TEST_CASE("scripted faults of local groups", "[collectives]") {
  using Kind = LocalFault::Kind;
  const auto run = [](LocalFault fault, Milliseconds timeout) {
    return run_ranks("local", 3,
                     [](ProcessGroup& group) {
                       for (int i = 0; i < 3; ++i) group.all_reduce(contribution<float>(group.rank(), 100));
                     },
                     {.timeout = timeout}, {fault});
  };
  for (const RankResult& result : run({1, 2, Kind::delay, Milliseconds(50)}, Milliseconds(5000)))
    CHECK(result.error.empty());
  const auto dropped = run({1, 3, Kind::drop}, Milliseconds(100));
  CHECK(dropped[1].status.ok());  // it received what the others sent, and left
  for (int rank : {0, 2}) {
    CHECK_FALSE(dropped[static_cast<size_t>(rank)].status.ok());
    CHECK(dropped[static_cast<size_t>(rank)].status.rank == 1);
  }
  for (const RankResult& result : run({1, 3, Kind::mismatch}, Milliseconds(5000)))
    CHECK_THAT(result.error, contains("called all_reduce #3 (sum of 101 float32)"));
  const auto crashed = run({1, 1, Kind::crash}, Milliseconds(5000));
  CHECK_THAT(crashed[1].error, contains("as scripted"));
  for (int rank : {0, 2}) {
    CHECK(crashed[static_cast<size_t>(rank)].status.failure == CommFailure::peer_lost);
    CHECK(crashed[static_cast<size_t>(rank)].status.rank == 1);
  }
}

TEST_CASE("errors about arguments of collectives say what is wrong", "[collectives]") {
  LocalGroup group(std::make_shared<LocalWorld>(1), 0);
  const Array x = Array::empty({4, 3}, DType::f32);
  CHECK_THROWS_WITH(group.all_reduce(Array()), contains("[all_reduce] x is undefined"));
  const Array flags = Array::empty({2}, DType::boolean);
  CHECK_THROWS_WITH(group.all_reduce(flags, ReduceKind::avg), contains("booleans have no average"));
  CHECK_THROWS_WITH(group.reduce_scatter(flags, flags, ReduceKind::avg), contains("booleans have no average"));
  float elsewhere = 0;
  const Array on_gpu(Storage::adopt(&elsewhere, 4, Device(DeviceType::cuda, 0), {}), 0, {1}, {1}, DType::f32);
  CHECK_THROWS_WITH(group.all_reduce(on_gpu), contains("[all_reduce] x is on cuda:0"));
  CHECK_THROWS_WITH(group.all_gather(x, on_gpu), contains("[all_gather] y is on cuda:0"));
  CHECK_THROWS_WITH(group.all_reduce(x.transpose(0, 1)), contains("x of shape (3, 4) is not contiguous"));
  const Array turned = x.transpose(0, 1), flat = Array::empty({12}, DType::f32);
  CHECK_THROWS_WITH(group.broadcast(turned, 0), contains("[broadcast]") && contains("not contiguous"));
  CHECK_THROWS_WITH(group.all_gather(turned, flat), contains("[all_gather]") && contains("not contiguous"));
  CHECK_THROWS_WITH(group.all_gather_v(turned, flat, {12}), contains("[all_gather_v]") && contains("not contiguous"));
  CHECK_THROWS_WITH(group.all_to_all(flat, turned), contains("[all_to_all]") && contains("not contiguous"));
  CHECK_THROWS_WITH(group.send(Array(), 1), contains("[send] x is undefined"));
  CHECK_THROWS_WITH(group.send(turned, 1), contains("[send]") && contains("not contiguous"));
  CHECK_THROWS_WITH(group.recv(on_gpu, 1), contains("[recv] x is on cuda:0"));
  CHECK_THROWS_WITH(group.broadcast(x, 1), contains("[broadcast] root 1 is not one of the ranks 0 to 0"));
  CHECK_THROWS_WITH(group.send(x, 0), contains("is this rank itself"));
  CHECK_THROWS_WITH(group.all_gather(x, Array::empty({4}, DType::f32)),
                    contains("y has 4 elements, but 1 ranks with 12 in x need 12"));
  CHECK_THROWS_WITH(group.reduce_scatter(x, Array::empty({12}, DType::f64)), contains("x is of float32, y of float64"));
  CHECK_THROWS_WITH(group.all_to_all(x, x), contains("[all_to_all] x and y are the same memory"));
  CHECK_THROWS_WITH(group.all_to_all(x, Array::empty({5}, DType::f32)), contains("x has 12 elements"));
  CHECK_THROWS_WITH(group.all_to_all_v(x, {12, 0}, Array::empty({12}, DType::f32), {12}),
                    contains("2 counts for 1 ranks"));
  CHECK_THROWS_WITH(group.all_to_all_v(x, {-1}, Array::empty({12}, DType::f32), {12}),
                    contains("a count of -1 where x"));
  CHECK_THROWS_WITH(group.all_to_all_v(x, {12}, Array::empty({12}, DType::f32), {11}),
                    contains("y has 12 elements, but its counts add up to 11"));
  CHECK_THROWS_WITH(group.all_to_all_v(x, {12}, Array::empty({12}, DType::f64), {12}), contains("float64"));
  CHECK_THROWS_WITH(group.all_gather_v(x, Array::empty({11}, DType::f32), {11}),
                    contains("[all_gather_v] x has 12 elements, but counts[0] is 11"));
  {
    const graph::Recorder recorder;
    CHECK_THROWS_WITH(group.all_reduce(x), contains("[all_reduce]") && contains("cannot be part of a recorded step"));
  }
  group.all_reduce(x);  // none of the errors has ended the group
}

TEST_CASE("each array of each collective is defined, contiguous and on a device of the group", "[collectives]") {
  LocalGroup group(std::make_shared<LocalWorld>(1), 0);
  using Call = std::function<void(const Array& x, const Array& y)>;
  const std::pair<const char*, Call> of_two[] = {
      {"all_gather", [&](const Array& x, const Array& y) { group.all_gather(x, y); }},
      {"reduce_scatter", [&](const Array& x, const Array& y) { group.reduce_scatter(x, y); }},
      {"gather", [&](const Array& x, const Array& y) { group.gather(x, y, 0); }},
      {"scatter", [&](const Array& x, const Array& y) { group.scatter(x, y, 0); }},
      {"all_to_all", [&](const Array& x, const Array& y) { group.all_to_all(x, y); }},
      {"all_to_all_v", [&](const Array& x, const Array& y) { group.all_to_all_v(x, {12}, y, {12}); }},
      {"all_gather_v", [&](const Array& x, const Array& y) { group.all_gather_v(x, y, {12}); }},
  };
  const std::pair<const char*, Call> of_one[] = {
      {"all_reduce", [&](const Array& x, const Array&) { group.all_reduce(x); }},
      {"reduce", [&](const Array& x, const Array&) { group.reduce(x, 0); }},
      {"broadcast", [&](const Array& x, const Array&) { group.broadcast(x, 0); }},
      {"send", [&](const Array& x, const Array&) { group.send(x, 1); }},
      {"recv", [&](const Array& x, const Array&) { group.recv(x, 1); }},
  };
  float elsewhere = 0;
  const std::pair<Array, const char*> bad[] = {
      {Array(), " is undefined"},
      {Array::empty({4, 3}, DType::f32).transpose(0, 1), " of shape (3, 4) is not contiguous"},
      {Array(Storage::adopt(&elsewhere, 4, Device(DeviceType::cuda, 0), {}), 0, {1}, {1}, DType::f32), " is on cuda:0"},
  };
  const Array good = Array::empty({12}, DType::f32), other = Array::empty({12}, DType::f32);
  for (const auto& [x, text] : bad) {
    for (const auto& [name, call] : of_two) {
      CAPTURE(name, text);
      CHECK_THROWS_WITH(call(x, good), contains("[" + std::string(name) + "] ") && contains("x" + std::string(text)));
      CHECK_THROWS_WITH(call(good, x), contains("[" + std::string(name) + "] ") && contains("y" + std::string(text)));
      CHECK_NOTHROW(call(good, other));
    }
    for (const auto& [name, call] : of_one) {
      CAPTURE(name, text);
      CHECK_THROWS_WITH(call(x, x), contains("[" + std::string(name) + "] x" + text));
    }
    CHECK_THROWS_WITH(group.all_reduce_coalesced({good, x}), contains("an array" + std::string(text)));
  }
}

TEST_CASE("arrays in shared memory are reduced in place", "[collectives]") {
  const int ranks = GENERATE(1, 2, 3);
  expect_ranks("shm", ranks, [&](ProcessGroup& group) {
    auto& shm = dynamic_cast<ShmGroup&>(group);
    for (const int64_t count : {0, 1, 1000, 300'001}) {
      const Array bucket = shm.empty({count}, DType::f32), other = shm.empty({count + 1}, DType::f32);
      const Array own = contribution<float>(group.rank(), count);
      const auto expected = [&](int64_t i) { return reduced(ReduceKind::avg, ranks, i); };
      for (int round = 0; round < 2; ++round) {
        std::copy_n(own.data<float>(), count, bucket.data<float>());
        group.all_reduce(bucket, ReduceKind::avg);
        require(equals<float>(bucket, 0, count, expected), "in one bucket");
      }
      // The array of one rank is elsewhere, or at another place of its bucket, which the others notice.
      const Array x = group.rank() == 0 ? Array::empty({count}, DType::f32)
                                        : other.slice(0, group.rank() % 2, count + group.rank() % 2);
      std::copy_n(own.data<float>(), count, x.data<float>());
      group.all_reduce(x, ReduceKind::avg);
      require(equals<float>(x, 0, count, expected), "in several places");
    }
  });
}

TEST_CASE("a tcp group that gets no descriptor says so", "[collectives]") {
  HashStore store;
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = dup(0);  // the lowest number that is free
  close(next);
  const rlimit none_left = {static_cast<rlim_t>(next), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none_left) == 0);
  std::string error;
  try {
    const TcpGroup group(store, 0, 1);
  } catch (const CommError& refused) { error = refused.what(); }
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK_THAT(error, contains("no descriptor is left for a group"));
}

TEST_CASE("shared memory of another host or of a group of another size is refused", "[collectives]") {
  HashStore store;
  store.set("shm/0", "another host\n/dev/shm/none");
  CHECK_THROWS_WITH(ShmGroup(store, 1, 2), contains("rank 1 is not on the host of rank 0"));
  store.set("shm/0", "no end");
  CHECK_THROWS_WITH(ShmGroup(store, 1, 2), contains("rank 1 is not on the host of rank 0"));
  store.delete_key("shm/0");
  std::string error;
  std::thread first([&] {
    try {
      const ShmGroup group(store, 0, 2, {Milliseconds(300)});
    } catch (const CommError& late) { error = late.what(); }
  });
  CHECK_THROWS_AS(ShmGroup(store, 1, 3), CommError);
  CHECK_THROWS_WITH(ShmGroup(store, 1, 1), contains("rank 1 is not one of the ranks 0 to 0"));
  first.join();
  CHECK_THAT(error, contains("shm/0/1"));  // no process set the key of rank 1
  CHECK_THROWS_WITH(ShmGroup(store, 0, kMaxRanksOfHost + 1), contains("take the backend 'tcp'"));
}

TEST_CASE("ranks need a token too, and checksums do not change results", "[collectives]") {
  const Token token = Token::random();
  TcpOptions options{.token = token, .checksum = true};
  expect_ranks(
      "tcp", 3,
      [](ProcessGroup& group) {
        Array x = contribution<float>(group.rank(), 100'000);
        group.all_reduce(x);
        require(equals<float>(x, 0, 100'000, [](int64_t i) { return reduced(ReduceKind::sum, 3, i); }), "sum");
      },
      options);
  HashStore store;
  CHECK_THROWS_WITH(TcpGroup(store, 0, 1, {.host = "0.0.0.0"}), contains("need a token"));
  CHECK_THROWS_WITH(TcpGroup(store, 0, 2, {.timeout = Milliseconds(50)}), contains("did not connect: 1"));
}

TEST_CASE("more shared memory than can be addressed is an error") {
  const std::vector<RankResult> results = run_ranks("shm", 2, [](ProcessGroup& group) {
    auto& shm = dynamic_cast<ShmGroup&>(group);
    for (const DType dtype : {kFloat, kByte}) {  // too many bytes for one rank, and for both together
      std::string refusal;
      try {
        shm.empty({int64_t{1} << 62}, dtype);
      } catch (const ShapeError& error) { refusal = error.what(); }
      require(refusal.find("64 bits") != std::string::npos, "refusal");
      require(dtype != kFloat || refusal.find("(4611686018427387904,)") != std::string::npos, "the shape");
    }
    require(shm.empty({3}, kFloat).numel() == 3, "a new array");
  });
  for (const RankResult& result : results) CHECK(result.error == "");
}
