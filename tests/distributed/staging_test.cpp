// Collectives of device arrays by way of host memory: the results are right however late the streams are.
#include <atomic>

#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/fake_device.h>
#include <gradus/tests/distributed/ranks.h>
#include <gradus/tests/distributed/values.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

/// Skips the case and returns true if there is a real device instead of the fake one. tests/distributed_gpu has the
/// same tests for a real device.
bool no_fake_device() { return !use_fake_device() && skip("a machine without CUDA devices"); }

Array on_device(int64_t count, DType dtype = DType::f32, int index = 0) {
  return Array::empty({count}, dtype, Device(DeviceType::cuda, index));
}

/// Queues the filling of x with the contribution of `rank` on the current stream, after a delay.
void fill_late(const Array& x, int rank) {
  static_cast<FakeStream*>(runtime(DeviceType::cuda).current_stream(0).handle)->push([x, rank] {
    std::this_thread::sleep_for(Milliseconds(2));
    fill<float>(x, rank);
  });
}

}  // namespace

TEST_CASE("all collectives take arrays of a device", "[staging]") {
  if (no_fake_device()) return;
  const auto way = GENERATE(as<std::string>(), "shm", "tcp", "tcp, two lanes");
  const int ranks = GENERATE(1, 3);
  CAPTURE(way, ranks);
  const auto body = [&](ProcessGroup& group) {
    const int rank = group.rank(), root = ranks - 1;
    const auto of = [](int r) { return [r](int64_t i) { return element(r, i); }; };
    const auto reduced_by = [&](ReduceKind kind) { return [=](int64_t i) { return reduced(kind, ranks, i); }; };
    for (const int64_t count : {0, 1, 262'144, 600'003}) {  // no piece, one, exactly one, several
      const int64_t whole = count * ranks;
      const Array x = on_device(count), all = on_device(whole);
      fill_late(x, rank);
      group.all_reduce(x, ReduceKind::avg);
      require(equals<float>(x, 0, count, reduced_by(ReduceKind::avg)), "all_reduce");

      fill_late(x, rank);
      group.reduce(x, root, ReduceKind::max);
      if (rank == root) require(equals<float>(x, 0, count, reduced_by(ReduceKind::max)), "reduce");
      else require(equals<float>(x, 0, count, of(rank)), "reduce leaves the others alone");

      fill_late(x, rank);
      group.broadcast(x, root);
      require(equals<float>(x, 0, count, of(root)), "broadcast");

      fill_late(x, rank);
      group.all_gather(x, all);
      for (int r = 0; r < ranks; ++r) require(equals<float>(all, r * count, count, of(r)), "all_gather");

      const Array parts = Array::empty(all.shape(), all.dtype(), all.device());
      fill_late(all, rank);
      group.all_to_all(all, parts);
      for (int r = 0; r < ranks; ++r)
        require(equals<float>(parts, r * count, count, [&](int64_t i) { return of(r)(rank * count + i); }),
                "all_to_all");

      fill_late(x, rank);
      group.all_gather_v(x, all, std::vector<int64_t>(static_cast<size_t>(ranks), count));
      for (int r = 0; r < ranks; ++r) require(equals<float>(all, r * count, count, of(r)), "all_gather_v");

      fill_late(all, rank);
      group.reduce_scatter(all, x, ReduceKind::avg);
      const auto expected_part = [&](int64_t i) { return reduced(ReduceKind::avg, ranks, rank * count + i); };
      require(equals<float>(x, 0, count, expected_part), "reduce_scatter");

      fill_late(x, rank);
      group.gather(x, rank == root ? all : Array(), root);
      for (int r = 0; rank == root && r < ranks; ++r) require(equals<float>(all, r * count, count, of(r)), "gather");

      group.scatter(rank == root ? all : Array(), x, root);
      require(equals<float>(x, 0, count, of(rank)), "scatter");

      if (ranks > 1) {
        const Array arrived = on_device(count);
        if (rank == 0) group.send(x, 1);
        if (rank == 1) {
          group.recv(arrived, 0);
          require(equals<float>(arrived, 0, count, of(0)), "send and recv");
        }
      }
    }
  };
  expect_ranks(way.substr(0, 3), ranks, body, {.two_lanes = way.size() > 3});
}

TEST_CASE("sums of device arrays have the bits of host arrays", "[staging]") {
  if (no_fake_device()) return;
  const auto transport = GENERATE(as<std::string>(), "shm", "tcp");
  expect_ranks(transport, 3, [](ProcessGroup& group) {
    const Array here = Array::empty({700'001}, DType::bf16), there = on_device(here.numel(), here.dtype());
    backend("naive").normal(here, {7, static_cast<uint64_t>(group.rank())}, 0, 1);
    std::memcpy(there.data(), here.data(), here.nbytes());
    group.all_reduce(here, ReduceKind::avg, {.strict = true});
    group.all_reduce(there, ReduceKind::avg, {.strict = true});
    require(std::memcmp(there.data(), here.data(), here.nbytes()) == 0, "bits");
  });
}

TEST_CASE("two lanes divide a long array of a device between them", "[staging]") {
  if (no_fake_device()) return;
  const int64_t count =
      GENERATE(524'287, 524'288, 3'000'001);  // 4 bytes less than two lanes need, just enough, many pieces
  CAPTURE(count);
  expect_ranks(
      "tcp", 2,
      [&](ProcessGroup& group) {
        const Array x = on_device(count), all = on_device(2 * count);
        for (int round = 0; round < 2; ++round) {
          fill_late(x, group.rank());
          group.all_reduce(x);
          require(equals<float>(x, 0, count, [](int64_t i) { return reduced(ReduceKind::sum, 2, i); }), "all_reduce");
          fill_late(x, group.rank());
          group.all_gather(x, all);
          for (int r = 0; r < 2; ++r)
            require(equals<float>(all, r * count, count, [&](int64_t i) { return element(r, i); }), "all_gather");
        }
      },
      {.two_lanes = true});
}

TEST_CASE("work that is queued before a collective does not overwrite its result", "[staging]") {
  if (no_fake_device()) return;
  const auto transport = GENERATE(as<std::string>(), "shm", "tcp");
  const auto kind = GENERATE(as<std::string>(), "broadcast", "scatter", "recv", "all_gather", "gather", "all_gather_v",
                             "all_to_all_v");
  const int64_t count = GENERATE(as<int64_t>(), 5, 300'000);  // of one piece, and of several
  CAPTURE(transport, kind, count);
  expect_ranks(transport, 2, [&](ProcessGroup& group) {
    const bool sends = group.rank() == 0;
    const Array x = on_device(count), both = on_device(2 * count), sent = on_device(count);
    fill<float>(sent, group.rank());
    fill<float>(both, 0);
    if (sends && kind == "broadcast") fill<float>(x, 0);
    else fill_late(x, 9);
    const bool joins = kind.starts_with("all_") || kind == "gather";
    const Array whole = on_device(2 * count);
    fill<float>(whole, group.rank());
    if (joins) fill_late(both, 9);
    if (kind == "broadcast") group.broadcast(x, 0);
    if (kind == "scatter") group.scatter(both, x, 0);
    if (kind == "recv") sends ? group.send(sent, 1) : group.recv(x, 0);
    if (kind == "all_gather") group.all_gather(sent, both);
    if (kind == "gather") group.gather(sent, both, 1);
    if (kind == "all_gather_v") group.all_gather_v(sent, both, {count, count});
    if (kind == "all_to_all_v") group.all_to_all_v(whole, {count, count}, both, {count, count});
    runtime(DeviceType::cuda).synchronize(0);
    if (kind == "broadcast" || kind == "scatter" || (kind == "recv" && !sends))
      require(equals<float>(x, 0, count, [](int64_t i) { return element(0, i); }), "x");
    if (joins && (kind != "gather" || !sends))
      for (const int rank : {0, 1})
        require(equals<float>(both, rank * count, count, [&](int64_t i) { return element(rank, i); }), "parts");
  });
}

TEST_CASE("asynchronous work on a device keeps its arrays and the order of calls", "[staging]") {
  if (no_fake_device()) return;
  const auto transport = GENERATE(as<std::string>(), "shm", "tcp");
  expect_ranks(transport, 2, [](ProcessGroup& group) {
    std::vector<std::shared_ptr<Work>> works;
    const Array last = on_device(300'000);
    for (int i = 0; i < 5; ++i) {
      const Array x = i < 4 ? on_device(400'000) : last;  // the other arrays are released while in transit
      fill_late(x, group.rank());
      works.push_back(group.all_reduce(x, ReduceKind::sum, {.async = true}));
    }
    for (const auto& work : works) work->wait();
    require(equals<float>(last, 0, last.numel(), [](int64_t i) { return reduced(ReduceKind::sum, 2, i); }), "sum");
  });
}

TEST_CASE("in a ring every rank can send a device array before it receives one", "[staging]") {
  if (no_fake_device()) return;
  const auto way = GENERATE(as<std::string>(), "shm", "tcp", "tcp, two lanes");
  const int64_t count = GENERATE(10, 3'000'000);
  CAPTURE(way, count);
  const auto body = [&](ProcessGroup& group) {
    const int n = group.size(), next = (group.rank() + 1) % n, previous = (group.rank() + n - 1) % n;
    const Array x = on_device(count), arrived = on_device(count);
    fill_late(x, group.rank());
    const auto sent = group.send(x, next, {.async = true});
    group.recv(arrived, previous);
    sent->wait();
    require(equals<float>(arrived, 0, count, [&](int64_t i) { return element(previous, i); }), "what arrived");
  };
  expect_ranks(way.substr(0, 3), 3, body, {.timeout = Milliseconds(10'000), .two_lanes = way.size() > 3});
}

TEST_CASE("ranks that disagree about device arrays learn the whole call", "[staging]") {
  if (no_fake_device()) return;
  const auto way = GENERATE(as<std::string>(), "shm", "tcp", "tcp, two lanes");
  const auto difference = GENERATE(as<std::string>(), "pieces", "last piece", "device");
  CAPTURE(way, difference);
  const auto results = run_ranks(way.substr(0, 3), 3,
                                 [&](ProcessGroup& group) {
                                   const int64_t count = 1'000'000;
                                   if (group.rank() != 1) group.all_reduce(on_device(count));
                                   else if (difference == "pieces") group.all_reduce(on_device(10));
                                   else if (difference == "last piece") group.all_reduce(on_device(count - 1));
                                   else group.all_reduce(Array::empty({count}, DType::f32));
                                 },
                                 {.timeout = Milliseconds(5000), .two_lanes = way.size() > 3});
  for (const RankResult& result : results) {
    CHECK(result.status.failure == CommFailure::mismatch);
    CHECK_THAT(result.error, contains("(sum of 1000000 float32 on a device)"));
    CHECK_THAT(result.error, contains("rank 1 called"));
  }
}

TEST_CASE("ranks that disagree about empty arrays of a device learn it", "[staging]") {
  if (no_fake_device()) return;
  const auto transport = GENERATE(as<std::string>(), "shm", "tcp");
  const auto results = run_ranks(transport, 2,
                                 [](ProcessGroup& group) {
                                   if (group.rank() == 0) group.all_reduce(on_device(0));
                                   else group.broadcast(on_device(0), 0);
                                 },
                                 {.timeout = Milliseconds(5000)});
  for (const RankResult& result : results) {
    CHECK(result.status.failure == CommFailure::mismatch);
    CHECK_THAT(result.error, contains("rank 1 called broadcast #1 (0 float32, root 0 on a device)"));
  }
}

TEST_CASE("a collective that fails keeps its arrays until the copies that it began are done", "[staging]") {
  if (no_fake_device()) return;
  const auto transport = GENERATE(as<std::string>(), "shm", "tcp");
  std::atomic<bool> is_kept = false;
  const auto results = run_ranks(transport, 2, [&](ProcessGroup& group) {
    const Array x = on_device(10 + group.rank());  // the other rank expects another number
    try {
      group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
      group.barrier();
    } catch (const CollectiveError&) {
      if (group.rank() == 1) is_kept = dynamic_cast<FakeRuntime&>(runtime(DeviceType::cuda)).is_recorded(x.data());
      throw;
    }
  });
  for (const RankResult& result : results) CHECK(result.status.failure == CommFailure::mismatch);
  CHECK(is_kept);
}

TEST_CASE("a device that does not reach a collective is named when the deadline passes", "[staging]") {
  if (no_fake_device()) return;
  const auto transport = GENERATE(as<std::string>(), "shm", "tcp");
  const auto results = run_ranks(transport, 2, [](ProcessGroup& group) {
    const Array x = on_device(10);
    if (group.rank() == 1)
      static_cast<FakeStream*>(runtime(DeviceType::cuda).current_stream(0).handle)->push([] {
        std::this_thread::sleep_for(Milliseconds(600));
      });
    // The deadline of rank 1 is the first.
    group.all_reduce(x, ReduceKind::sum, {.timeout = Milliseconds(group.rank() == 1 ? 200 : 5000)});
  });
  for (const RankResult& result : results) {
    CHECK(result.status.failure == CommFailure::timeout);
    CHECK(result.status.rank == 1);
    CHECK_THAT(result.error, contains("rank 1 waited 200 ms for its own cuda:0"));
  }
}

TEST_CASE("a failure on one lane ends the other", "[staging]") {
  if (no_fake_device()) return;
  const auto results = run_ranks("tcp", 3,
                                 [&](ProcessGroup& group) {
                                   const Array x = on_device(1'000'000);
                                   group.all_reduce(x);
                                   if (group.rank() == 1) return;
                                   group.all_reduce(x);
                                 },
                                 {.timeout = Milliseconds(20'000), .two_lanes = true});
  CHECK(results[1].error.empty());
  for (size_t rank : {0, 2}) {
    CHECK(results[rank].status.failure == CommFailure::peer_lost);
    CHECK(results[rank].status.rank == 1);
  }
}

TEST_CASE("errors about arrays of a device", "[staging]") {
  if (no_fake_device()) return;
  expect_ranks("shm", 1, [](ProcessGroup& group) {
    const auto message = [&](const Array& x, const Array& y) {
      try {
        group.all_gather(x, y);
      } catch (const DeviceError& error) { return std::string(error.what()); }
      return std::string();
    };
    require(message(on_device(3), on_device(3, DType::f32, 1)).find("y is on cuda:1, x on cuda:0") != std::string::npos,
            "two devices");
    runtime(DeviceType::cuda).begin_capture();
    const std::string captured = message(on_device(3), on_device(3));
    runtime(DeviceType::cuda).end_capture();
    require(captured.find("cannot be part of a captured graph") != std::string::npos, captured);
    group.barrier();  // none of the errors has ended the group
  });
}
