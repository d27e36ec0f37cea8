// Every collective of arrays on GPUs, over nccl, tcp and shm, compared with sums computed here.
#include <cmath>
#include <cstring>

#include <gradus/gradus.h>
#include <gradus/tests/distributed_gpu/support.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

/// NCCL needs a GPU for each rank. Through host memory ranks may share one.
bool cannot_run(const std::string& backend, int ranks = 2) {
  return backend == "nccl" ? no_nccl_for(ranks) : fewer_gpus_than(1);
}

template <class T>
void check_reductions(ProcessGroup& group) {
  const int rank = group.rank(), ranks = group.size(), root = 1;
  for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg, ReduceKind::min, ReduceKind::max, ReduceKind::prod})
    for (const bool strict : {false, true})
      for (const int64_t count : {0, 1, 1000, 300'001}) {
        if (count > 1000 && kind != ReduceKind::avg) continue;
        const std::string what = std::string(strict ? "strict " : "") + name(kind) + " of " + std::to_string(count) +
                                 " " + std::string(type_name(dtype_of<T>));
        const auto expected = [&](int64_t i) {
          const double value = reduced(kind, ranks, i);
          return std::is_integral_v<T> ? std::trunc(value) : value;
        };
        const Array x = on_device(contribution<T>(rank, count));
        group.all_reduce(x, kind, {.strict = strict});
        require(equals<T>(on_host(x), 0, count, expected), "all_reduce " + what);

        const Array y = on_device(contribution<T>(rank, count));
        group.reduce(y, root, kind, {.strict = strict});
        const auto own = [&](int64_t i) { return element(rank, i); };
        if (rank == root) require(equals<T>(on_host(y), 0, count, expected), "reduce " + what);
        else require(equals<T>(on_host(y), 0, count, own), "reduce leaves the others alone: " + what);

        const Array parts = on_device(contribution<T>(rank, count * ranks)),
                    part = on_device(contribution<T>(0, count));
        group.reduce_scatter(parts, part, kind, {.strict = strict});
        const auto expected_part = [&](int64_t i) { return expected(rank * count + i); };
        require(equals<T>(on_host(part), 0, count, expected_part), "reduce_scatter " + what);
      }
}

/// Sums many arrays in one call. Some are short and some long, and all begin at the second element of their memory.
template <class T>
void check_coalesced(ProcessGroup& group) {
  std::vector<int64_t> counts(60, 3);
  for (const size_t count :
       {size_t{1}, size_t{1000}, size_t{0}, size_t{300'001}, size_t{3'000'001}, 30'000'000 / sizeof(T)})
    counts.push_back(static_cast<int64_t>(count));
  std::vector<Array> arrays;
  for (const int64_t count : counts)
    arrays.push_back(on_device(contribution<T>(group.rank(), count + 1)).slice(0, 1, count + 1));
  group.all_reduce_coalesced(arrays);
  for (size_t a = 0; a < counts.size(); ++a)
    require(equals<T>(on_host(arrays[a]), 0, counts[a],
                      [&](int64_t i) { return reduced(ReduceKind::sum, group.size(), i + 1); }),
            "array " + std::to_string(a) + " of " + std::string(type_name(dtype_of<T>)));
}

template <class T>
void check_moves(ProcessGroup& group) {
  const int rank = group.rank(), ranks = group.size();
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  for (const int64_t count : {0, 1, 1000, 300'001}) {
    const std::string what = " of " + std::to_string(count) + " " + std::string(type_name(dtype_of<T>));
    const auto of = [](int r) { return [r](int64_t i) { return element(r, i); }; };
    const Array own = on_device(contribution<T>(rank, count));
    const auto empty = [&](int64_t n) { return Array::empty({n}, dtype_of<T>, own.device()); };
    for (int root = 0; root < ranks; ++root) {
      const Array x = on_device(contribution<T>(rank, count));
      group.broadcast(x, root);
      require(equals<T>(on_host(x), 0, count, of(root)), "broadcast" + what);
      const Array all = rank == root ? empty(count * ranks) : Array(), part = empty(count);
      group.gather(own, all, root);
      for (int r = 0; rank == root && r < ranks; ++r)
        require(equals<T>(on_host(all), r * count, count, of(r)), "gather" + what);
      group.scatter(all, part, root);
      require(equals<T>(on_host(part), 0, count, of(rank)), "scatter" + what);
    }
    const Array all = empty(count * ranks), arrived = empty(count);
    group.all_gather(own, all);
    for (int r = 0; r < ranks; ++r) require(equals<T>(on_host(all), r * count, count, of(r)), "all_gather" + what);
    const Array parts = on_device(contribution<T>(rank, count * ranks)), exchanged = empty(count * ranks);
    group.all_to_all(parts, exchanged);
    for (int r = 0; r < ranks; ++r)
      require(equals<T>(on_host(exchanged), r * count, count, [&](int64_t i) { return element(r, rank * count + i); }),
              "all_to_all" + what);
    std::vector<int64_t> counts(static_cast<size_t>(ranks), 0);  // only rank 1 has elements
    counts[1] = count;
    group.all_gather_v(rank == 1 ? own : empty(0), arrived, counts);
    require(equals<T>(on_host(arrived), 0, count, of(1)), "all_gather_v" + what);
    std::vector<int64_t> sent(counts.size(), 0), received(counts.size(), 0);  // once around the ring
    sent[static_cast<size_t>(next)] = received[static_cast<size_t>(previous)] = count;
    group.all_to_all_v(own, sent, arrived, received);
    require(equals<T>(on_host(arrived), 0, count, of(previous)), "all_to_all_v" + what);
    if (rank % 2 == 0) group.send(own, next);
    group.recv(arrived, previous);
    if (rank % 2 == 1) group.send(own, next);
    require(equals<T>(on_host(arrived), 0, count, of(previous)), "send and recv" + what);
  }
  group.barrier();
}

}  // namespace

TEST_CASE("reductions of every type on GPUs", "[collectives]") {
  const auto backend = GENERATE(as<std::string>(), "nccl", "tcp", "shm");
  const int ranks = GENERATE(2, 4);
  if (cannot_run(backend, ranks)) return;
  CAPTURE(backend, ranks);
  on_ranks(ranks, {.backend = backend, .timeout = kTimeout}, [](ProcessGroup& group) {
    check_reductions<float>(group);
    check_reductions<double>(group);
    check_reductions<Half>(group);
    check_reductions<BFloat16>(group);
    check_reductions<int64_t>(group);
    check_reductions<int32_t>(group);
    for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::min, ReduceKind::max, ReduceKind::prod})
      for (const bool strict : {false, true}) {
        const int sets = 1 << group.size();  // all sets of ranks that contribute true
        const Array bits = Array::empty({sets}, DType::boolean);
        for (int i = 0; i < sets; ++i) bits.data<bool>()[i] = (i >> group.rank()) & 1;
        const Array x = on_device(bits);
        group.all_reduce(x, kind, {.strict = strict});
        const Array y = on_host(x);
        const bool any = kind == ReduceKind::sum || kind == ReduceKind::max;
        for (int i = 0; i < sets; ++i) require(y.data<bool>()[i] == (any ? i != 0 : i == sets - 1), "booleans");
      }
  });
}

TEST_CASE("broadcast, all_gather, gather, scatter, send and recv on GPUs", "[collectives]") {
  const auto backend = GENERATE(as<std::string>(), "nccl", "tcp", "shm");
  const int ranks = GENERATE(2, 4);
  if (cannot_run(backend, ranks)) return;
  CAPTURE(backend, ranks);
  on_ranks(ranks, {.backend = backend, .timeout = kTimeout}, [](ProcessGroup& group) {
    check_moves<float>(group);
    check_moves<BFloat16>(group);
    check_moves<int64_t>(group);
    check_moves<bool>(group);
  });
}

TEST_CASE("sums on GPUs have the same bits on all ranks and in all runs, and strict sums on all backends",
          "[collectives]") {
  if (no_nccl_for(2)) return;
  two_ranks({.backend = "nccl", .timeout = kTimeout}, [&](ProcessGroup& nccl) {
    const auto tcp = init_process_group({.backend = "tcp", .timeout = kTimeout}),
               again = init_process_group({.backend = "nccl", .timeout = kTimeout});
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t count : {100, 3'000'000}) {
        const auto sum = [&](ProcessGroup& group, bool strict, bool device) {
          const Array x = Array::empty({count}, dtype);
          backend("naive").normal(x, {7, static_cast<uint64_t>(group.rank())}, 0, 1);
          const Array y = device ? on_device(x) : x;
          group.all_reduce(y, ReduceKind::avg, {.strict = strict});
          const Array z = device ? on_host(y) : y, first = Array::empty(z.shape(), dtype);
          std::memcpy(first.data(), z.data(), z.nbytes());
          tcp->broadcast(first, 0);
          require(std::memcmp(first.data(), z.data(), z.nbytes()) == 0, "the same bits on all ranks");
          return z;
        };
        const auto same = [&](const Array& a, const Array& b) {
          return std::memcmp(a.data(), b.data(), a.nbytes()) == 0;
        };
        const Array strict = sum(*tcp, true, false);
        require(same(sum(nccl, true, true), strict), "strict sums of nccl have the bits of tcp's");
        require(same(sum(*tcp, true, true), strict), "strict sums of tcp have the bits of the host's");
        require(same(sum(nccl, false, true), sum(*again, false, true)), "sums of nccl have the same bits each time");
      }
  });
}

TEST_CASE("calls wait for the current stream, and their results are ready for it", "[collectives]") {
  const auto backend = GENERATE(as<std::string>(), "nccl", "tcp", "shm");
  if (cannot_run(backend)) return;
  CAPTURE(backend);
  two_ranks({.backend = backend, .timeout = kTimeout}, [](ProcessGroup& group) {
    const cuda::StreamGuard guard(cuda::new_stream());
    Backend& kernels = current_backend(DeviceType::cuda);
    const Device device(DeviceType::cuda, cuda::current_device());
    const Array large = Array::empty({int64_t{1} << 26}, DType::f32, device);
    std::vector<Array> results;
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < 10; ++k) kernels.fill(large, k);  // keeps the stream busy
      const Array x = large.slice(0, 0, 5'000'000);
      kernels.fill(x, group.rank() + i);
      if (i % 2 == 0) group.all_reduce(x);
      else works.push_back(group.all_reduce(x, ReduceKind::sum, {.async = true})), works.back()->wait();
      const Array y = Array::empty(x.shape(), x.dtype(), device);
      kernels.copy(x, y);
      results.push_back(y);
      const Array gone = Array::empty({1'000'000}, DType::f32, device);  // freed while it is in transit
      kernels.fill(gone, 1);
      works.push_back(group.all_reduce(gone, ReduceKind::sum, {.async = true}));
    }
    for (const auto& work : works) {
      require(work->wait(Milliseconds(10'000)), "work ends");
      require(work->is_completed() && work->status().ok(), "completed");
    }
    for (int i = 0; i < 4; ++i)
      require(equals<float>(on_host(results[static_cast<size_t>(i)]), 0, 5'000'000, [&](int64_t) { return 1 + 2 * i; }),
              "sum " + std::to_string(i));
  });
}

TEST_CASE("collectives over NCCL are part of a captured graph", "[collectives]") {
  if (no_nccl_for(2)) return;
  const int64_t count = GENERATE(100'000, 3'000'000);
  CAPTURE(count);
  two_ranks({.backend = "nccl", .timeout = kTimeout}, [&](ProcessGroup& group) {
    const Device device(DeviceType::cuda, cuda::current_device());
    Backend& kernels = current_backend(DeviceType::cuda);
    const Array x = Array::empty({count}, DType::f32, device), y = Array::empty({count}, DType::f32, device);
    const auto step = [&] {
      kernels.copy(x, y);
      group.all_reduce(y);
      group.all_reduce(y, ReduceKind::avg, {.strict = true});
      const auto work = group.all_reduce(y, ReduceKind::max, {.async = true});
      work->wait();
      if (runtime(DeviceType::cuda).capturing())
        require(work->is_completed(), "nothing to wait for while it is recorded");
    };
    for (int i = 0; i < 2; ++i) step();
    cuda::Graph graph;
    graph.capture(step);
    for (int i = 0; i < 5; ++i) {
      kernels.fill(x, i + group.rank());
      graph.replay();
      require(equals<float>(on_host(y), 0, count, [&](int64_t) { return 2 * i + 1; }), "replay");
    }
    kernels.fill(x, 1);
    group.all_reduce(x);  // without the graph again
    require(equals<float>(on_host(x), 0, count, [](int64_t) { return 2; }), "after the graph");
    graph.reset();
  });
}

TEST_CASE("all_reduce_coalesced over NCCL sums several arrays in place", "[collectives]") {
  if (no_nccl_for(2)) return;
  two_ranks({.backend = "nccl", .timeout = kTimeout}, [](ProcessGroup& group) {
    for (const bool strict : {false, true}) {
      std::vector<Array> arrays;
      for (const int64_t count : {1, 100'000, 0, 7})
        arrays.push_back(on_device(full({count}, group.rank() + static_cast<double>(count)).array()));
      for (const bool async : {false, true})
        group.all_reduce_coalesced(arrays, ReduceKind::avg, {.async = async, .strict = strict})->wait();
      for (const Array& x : arrays)
        require(equals<float>(on_host(x), 0, x.numel(), [&](int64_t) { return static_cast<double>(x.numel()) + 0.5; }),
                "average of " + std::to_string(x.numel()));
    }
    check_coalesced<float>(group);
    check_coalesced<double>(group);
    check_coalesced<BFloat16>(group);
    const int64_t large = 20'000'000;  // larger than the memory that GPUs share
    const Array x = on_device(contribution<float>(group.rank(), large));
    group.all_reduce(x);
    require(equals<float>(on_host(x), 0, large, [](int64_t i) { return reduced(ReduceKind::sum, 2, i); }),
            "a large sum");
  });
}

TEST_CASE("short sums over NCCL in quick succession do not affect each other", "[collectives]") {
  if (no_nccl_for(2)) return;
  two_ranks({.backend = "nccl", .timeout = kTimeout}, [](ProcessGroup& group) {
    Backend& kernels = current_backend(DeviceType::cuda);
    std::vector<Array> arrays;
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < 100; ++i) {
      const int64_t count = i % 7 == 6 ? 2'000'000 : 1 + 977 * i % 40'000;  // for one block, for many, and for copies
      arrays.push_back(Array::empty({count}, DType::f32, Device(DeviceType::cuda, cuda::current_device())));
      kernels.fill(arrays.back(), i + group.rank());
      works.push_back(group.all_reduce(arrays.back(), ReduceKind::sum, {.async = true}));
    }
    for (const auto& work : works) work->wait();
    for (size_t i = 0; i < arrays.size(); ++i)
      require(equals<float>(on_host(arrays[i]), 0, arrays[i].numel(),
                            [&](int64_t) { return static_cast<double>(2 * i + 1); }),
              "sum " + std::to_string(i));
  });
}

TEST_CASE("collectives through the host cannot be part of a captured graph", "[collectives]") {
  if (fewer_gpus_than(1)) return;
  two_ranks({.backend = "shm", .timeout = kTimeout}, [](ProcessGroup& group) {
    const Array x = Array::empty({10}, DType::f32, Device(DeviceType::cuda, cuda::current_device()));
    std::string message;
    try {
      cuda::Graph().capture([&] { group.all_reduce(x); });
    } catch (const DeviceError& error) { message = error.what(); }
    require(contains_text(message, "cannot be part of a captured graph"), message);
    group.all_reduce(x);
  });
}

TEST_CASE("sub-groups over NCCL", "[collectives]") {
  if (no_nccl_for(2)) return;
  two_ranks({.backend = "nccl", .timeout = kTimeout}, [](ProcessGroup& world) {
    const int rank = world.rank();
    const auto both = new_group(shared(world), {1, 0}), alone = new_group(shared(world), {1});
    require((alone != nullptr) == (rank == 1), "null outside");
    const Array x = on_device(contribution<float>(rank, 1000));
    if (alone) alone->all_reduce(x);
    require(equals<float>(on_host(x), 0, 1000, [&](int64_t i) { return element(rank, i); }), "a group of one");
    both->all_reduce(x);
    world.all_reduce(x);
    const auto expected = [](int64_t i) { return 2 * reduced(ReduceKind::sum, 2, i); };
    require(equals<float>(on_host(x), 0, 1000, expected), "both");
    const Failure failure = failure_of([&] { new_group(shared(world), {rank}); });
    require(failure.status.failure == CommFailure::mismatch, "other lists: " + failure.status.message);
    world.barrier();
  });
}

TEST_CASE("collectives of several sub-groups over NCCL run at the same time", "[collectives]") {
  if (no_nccl_for(4)) return;
  on_ranks(4, {.backend = "nccl", .timeout = kTimeout}, [](ProcessGroup& world) {
    const int rank = world.rank(), half = rank / 2;
    const auto low = new_group(shared(world), {0, 1}), high = new_group(shared(world), {2, 3});
    const auto outer = new_group(shared(world), {3, 0});
    require((low != nullptr) == (half == 0) && (high != nullptr) == (half == 1), "each rank is in one half");
    const Array x = on_device(contribution<float>(rank, 1000));
    (half == 0 ? low : high)->all_reduce(x);
    const auto sum_of_half = [](int h) { return [h](int64_t i) { return element(2 * h, i) + element(2 * h + 1, i); }; };
    require(equals<float>(on_host(x), 0, 1000, sum_of_half(half)), "the half's sum");
    if (outer) {
      outer->broadcast(x, 1);  // rank 3 of the world
      require(equals<float>(on_host(x), 0, 1000, sum_of_half(1)), "from rank 3 to rank 0");
    }
    world.barrier();
  });
}

TEST_CASE("a group over NCCL says which arrays it takes", "[collectives]") {
  if (no_nccl_for(2)) return;
  two_ranks({.backend = "nccl", .timeout = kTimeout}, [](ProcessGroup& group) {
    const auto message = [&](Device device) {
      try {
        group.all_reduce(Array::empty({1}, DType::f32, device));
      } catch (const DeviceError& error) { return std::string(error.what()); }
      return std::string();
    };
    const std::string own = Device(DeviceType::cuda, group.rank()).str();
    const std::string of_host = message(Device()), of_other = message(Device(DeviceType::cuda, 1 - group.rank()));
    require(contains_text(of_host, "x is on cpu, but this rank's group of 'nccl' takes arrays on " + own), of_host);
    require(contains_text(of_other, "takes arrays on " + own), of_other);
    group.barrier();
  });
}
