// A rank of the jobs that mpi_test.py starts with mpirun: does what the argument says, and ends with code 0 if that
// went as it should. A job that has to fail prints what each rank heard.
#include <mpi.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include <gradus/distributed/comm/init.h>
#include <gradus/gradus.h>
#include <gradus/tests/distributed/ranks.h>
#include <gradus/tests/distributed/training.h>
#include <gradus/tests/distributed/values.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

using Group = std::shared_ptr<ProcessGroup>;

Group make(Milliseconds timeout = kDefaultTimeout) {
  return init_process_group({.backend = "mpi", .timeout = timeout});
}

template <class T>
void reductions(ProcessGroup& group) {
  const int rank = group.rank(), ranks = group.size();
  for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg, ReduceKind::min, ReduceKind::max, ReduceKind::prod})
    for (const int64_t count : {0, 1, 3, 4097, 300'001}) {  // the last of more than 1 MiB, for what has 4 bytes
      const std::string what = std::string(name(kind)) + " of " + std::to_string(count);
      const auto expected = [&](int64_t i) {
        const double value = reduced(kind, ranks, i);
        return std::is_integral_v<T> ? std::trunc(value) : value;
      };
      Array x = contribution<T>(rank, count), y = contribution<T>(rank, count);
      group.all_reduce(x, kind);
      require(equals<T>(x, 0, count, expected), "all_reduce " + what);
      group.reduce(y, ranks - 1, kind);
      const auto own = [&](int64_t i) { return element(rank, i); };
      require(rank == ranks - 1 ? equals<T>(y, 0, count, expected) : equals<T>(y, 0, count, own), "reduce " + what);
      const Array parts = contribution<T>(rank, count * ranks), part = Array::empty({count}, dtype_of<T>);
      group.reduce_scatter(parts, part, kind);
      require(equals<T>(part, 0, count, [&](int64_t i) { return expected(rank * count + i); }), "scattered " + what);
    }
}

void collectives() {
  const Group group = make();
  require(group->backend() == "mpi", "the backend");
  const int rank = group->rank(), ranks = group->size();
  reductions<float>(*group), reductions<double>(*group), reductions<BFloat16>(*group), reductions<int64_t>(*group);
  for (const int64_t count : {0, 1, 3, 4097, 300'001})
    for (int root = 0; root < ranks; ++root) {
      const auto of = [](int r) { return [r](int64_t i) { return element(r, i); }; };
      const Array x = contribution<float>(rank, count), own = contribution<float>(rank, count);
      group->broadcast(x, root);
      require(equals<float>(x, 0, count, of(root)), "broadcast");
      const Array all = Array::empty({count * ranks}, DType::f32), part = Array::empty({count}, DType::f32);
      group->all_gather(own, all);
      for (int r = 0; r < ranks; ++r) require(equals<float>(all, r * count, count, of(r)), "all_gather");
      const Array parts = contribution<float>(rank, count * ranks);
      group->all_to_all(parts, all);
      for (int r = 0; r < ranks; ++r)
        require(equals<float>(all, r * count, count, [&](int64_t i) { return element(r, rank * count + i); }),
                "all_to_all");
      std::vector<int64_t> counts;  // of the ranks, which send each other all they have
      int64_t before = 0, total = 0;
      for (int r = 0; r < ranks; total += counts.back(), ++r) counts.push_back((r + root) % 2 * count);
      for (int r = 0; r < ranks; ++r) before += r < rank ? counts[static_cast<size_t>(r)] : 0;
      const Array gathered = Array::empty({total}, DType::f32);
      group->all_gather_v(own.slice(0, 0, counts[static_cast<size_t>(rank)]), gathered, counts);
      require(equals<float>(gathered, before, counts[static_cast<size_t>(rank)], of(rank)), "all_gather_v");
      const Array at_root = rank == root ? Array::empty({count * ranks}, DType::f32) : Array();
      group->gather(own, at_root, root);
      for (int r = 0; rank == root && r < ranks; ++r)
        require(equals<float>(at_root, r * count, count, of(r)), "gather");
      group->scatter(at_root, part, root);
      require(equals<float>(part, 0, count, of(rank)), "scatter");
      group->barrier();
    }
}

/// Everybody sends to everybody at the same time, on threads of the group, bodies of no, one and several pieces.
void messages() {
  const Group group = make();
  const int rank = group->rank(), ranks = group->size();
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{100'003}, int64_t{(64 << 20) + 5}}) {
    if (count > 1'000'000 && ranks > 2) continue;
    std::vector<ProcessGroup::WorkPtr> works;
    std::vector<Array> arrived;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      arrived.push_back(Array::empty({count}, DType::u8));
      works.push_back(group->send(contribution<uint8_t>(rank + 2 * peer, count), peer, {.async = true}));
      works.push_back(group->recv(arrived.back(), peer, {.async = true}));
    }
    for (const auto& work : works) work->wait();
    for (int peer = 0, i = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      const Array expected = contribution<uint8_t>(peer + 2 * rank, count);
      const uint8_t* got = arrived[static_cast<size_t>(i++)].data<uint8_t>();
      require(std::equal(got, got + count, expected.data<uint8_t>()), "message");
    }
  }
}

/// Strict sums have the bits of `local`, whose ranks are threads of each process here.
void strict() {
  const Group group = make();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t count : {100, 200'000}) {
      const auto sum = [&](ProcessGroup& ranks) {
        Array x = Array::empty({count}, dtype);
        backend("naive").normal(x, {7, static_cast<uint64_t>(ranks.rank())}, 0, 1);
        ranks.all_reduce(x, ReduceKind::sum, {.strict = true});
        return std::string(static_cast<const char*>(x.data()), x.nbytes());
      };
      std::string local;
      expect_ranks("local", group->size(), [&](ProcessGroup& ranks) {
        const std::string bits = sum(ranks);
        if (ranks.rank() == 0) local = bits;
      });
      require(sum(*group) == local, "the bits of local");
    }
}

/// The sum of 2^rank over the group: tells exactly who took part.
double members(ProcessGroup& group, int world_rank, int64_t count = 1000) {
  Array x = Array::empty({count}, DType::f32);
  std::fill_n(x.data<float>(), count, static_cast<float>(1 << world_rank));
  group.all_reduce(x);
  return x.data<float>()[count - 1];
}

/// The steps of one process, and in the order of the ranks the bits of its shares added up.
void train_in_order() {
  const Group group = make();
  const int rank = group->rank(), ranks = group->size();
  manual_seed(2);
  const auto batches = make_batches(3, 12, kDouble);
  const Net alone = make_net(1, kDouble), added = make_net(1, kDouble), net = make_net(1, kDouble);
  optim::SGD sgd_alone(alone->parameters(), 0.1), sgd_added(added->parameters(), 0.1), sgd(net->parameters(), 0.1);
  DistributedDataParallel ddp(net, group, small_buckets().strict(true));
  for (const Batch& batch : batches) {
    for (optim::SGD* each : {&sgd_alone, &sgd_added, &sgd}) each->zero_grad();
    loss_of(alone, batch).backward();
    for (int r = 0; r < ranks; ++r) loss_of(added, share(batch, r, ranks)).backward();
    for (const Tensor& parameter : added->parameters())
      if (parameter.grad().defined()) parameter.grad().div_(ranks);
    loss_of(net, share(batch, rank, ranks)).backward();
    for (optim::SGD* each : {&sgd_alone, &sgd_added, &sgd}) each->step();
  }
  const auto trained = numbers_of(*net), expected = numbers_of(*added);
  require(difference_of(trained, numbers_of(*alone)) < 1e-12, "the steps of one process");
  for (size_t i = 0; i < trained.size(); ++i) require(trained[i].equal(expected[i]), "the bits of its shares");
}

void sub_groups() {  // of 4
  const Group world = make(), other_world = make();
  const int rank = world->rank();
  const Group low = new_group(world, {2, 0, 1}), high = new_group(other_world, {1, 2, 3});
  for (const int64_t count : {1, 100'000}) {
    if (low) require(members(*low, rank, count) == 7, "low");
    if (high) require(members(*high, rank, count) == 14, "high");
    require(members(*other_world, rank, count) == 15 && members(*world, rank, count) == 15, "worlds");
  }
  if (high) {
    require(high->rank() == rank - 1 && high->ranks() == std::vector<int>{1, 2, 3}, "numbers of their own");
    const Group inner = new_group(high, {0, 2}, Milliseconds(500));
    if (inner) {
      require(inner->ranks() == std::vector<int>{1, 3} && members(*inner, rank) == 10, "inner");
      if (rank == 3) std::this_thread::sleep_for(Milliseconds(1500));
      std::string message;
      for (int i = 0; i < 2; ++i) try {
          members(*inner, rank);
        } catch (const CollectiveError& error) { message = error.what(); }
      require(message.find("waited 500 ms for rank 1") != std::string::npos &&
                  message.find("its ranks are the ranks 1, 3)") != std::string::npos,
              "the failure of a sub-group: " + message);
    }
  }
  require(members(*world, rank) == 15, "the world goes on");
}

/// Prints what ended the group, for mpi_test.py.
void report(ProcessGroup& group, const std::function<void()>& calls) {
  try {
    calls();
  } catch (const CollectiveError& error) {
    const CommStatus& status = error.status();
    std::printf("rank %d: failure %d of rank %d: %s;\n", group.rank(), static_cast<int>(status.failure), status.rank,
                status.message.c_str());
    std::fflush(stdout);
    return;
  }
  throw std::runtime_error("nothing failed");
}

void all_reduce(ProcessGroup& group, int64_t count) { group.all_reduce(contribution<float>(group.rank(), count)); }

/// Rank 1 gives one element more: few, which wait in MPI, and many, for whose bodies nobody asks.
void disagreement() {
  for (const int64_t count : {1000, 1'000'000}) {
    const Group group = make();
    report(*group, [&] { all_reduce(*group, count + (group->rank() == 1)); });
  }
}

/// Each takes the next for the root, which takes another for it: nobody hears from the one that it waits for.
void roots() {
  const Group group = make();
  report(*group, [&] { group->broadcast(contribution<float>(0, 100'000), (group->rank() + 1) % group->size()); });
}

/// The last rank comes too late: in a collective, or at the end of a chain of ranks that wait for each other.
void late(bool chain) {
  const Group group = make(Milliseconds(700));
  const int next = (group->rank() + 1) % group->size();
  all_reduce(*group, 10);
  if (next == 0) std::this_thread::sleep_for(Milliseconds(2000));
  report(*group, [&] {
    if (chain) group->recv(contribution<float>(0, 10), next);
    else all_reduce(*group, 1'000'000);
  });
}

void aborted() {
  const Group group = make();
  std::thread other;
  if (group->rank() == 1) {
    other = std::thread([&] {
      std::this_thread::sleep_for(Milliseconds(500));
      group->abort("the loss is NaN");
    });
  }
  report(*group, [&] {
    if (group->rank() == 0) std::this_thread::sleep_for(Milliseconds(1000));
    while (true) all_reduce(*group, 1'000'000);
  });
  if (other.joinable()) other.join();
}

void killed() {
  const Group group = make();
  all_reduce(*group, 10);
  if (group->rank() == 1) raise(SIGKILL);
  all_reduce(*group, 10);
}

void failed() {
  const Group group = make();
  if (group->rank() == 1) std::exit(7);
  all_reduce(*group, 10);
}

void stopped() {  // and what the others throw ends them
  const Group group = make(Milliseconds(700));
  if (group->rank() == 1) raise(SIGSTOP);
  all_reduce(*group, 1'000'000);
}

Group last_group;

/// Ranks end well at different times, and their groups after MPI.
void end() {
  last_group = make();
  all_reduce(*last_group, 10);
  if (last_group->rank() == 0) std::this_thread::sleep_for(Milliseconds(1000));
}

/// A program that initialises MPI by itself, and finalizes it.
struct OwnMpi {
  explicit OwnMpi(int level) { MPI_Init_thread(nullptr, nullptr, level, &level); }
  ~OwnMpi() { MPI_Finalize(); }
};

/// It sends messages of its own meanwhile.
void own(int level) {
  const OwnMpi mpi(level);
  const Group group = make();
  const int next = (group->rank() + 1) % group->size(), sent = group->rank();
  int got = -1;
  MPI_Request request;
  MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  all_reduce(*group, 100'000);
  MPI_Send(&sent, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  require(got == (group->rank() + group->size() - 1) % group->size(), "a message of the program's own");
}

void own_late() {  // rank 1
  const OwnMpi mpi(MPI_THREAD_MULTIPLE);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 1) std::this_thread::sleep_for(Milliseconds(1500));
  Group group;
  try {
    group = make(Milliseconds(500));
  } catch (const CommError& error) {
    std::printf("%s\n", error.what());
    std::fflush(stdout);
    group = make();
  }
  all_reduce(*group, 10);
}

}  // namespace

int main(int, char** arguments) {
  const std::map<std::string, std::function<void()>> jobs = {
      {"collectives", collectives},
      {"messages", messages},
      {"strict", strict},
      {"training", train_in_order},
      {"sub_groups", sub_groups},
      {"disagreement", disagreement},
      {"roots", roots},
      {"late", [] { late(false); }},
      {"chain", [] { late(true); }},
      {"aborted", aborted},
      {"killed", killed},
      {"failed", failed},
      {"stopped", stopped},
      {"end", end},
      {"own_late", own_late},
      {"own", [] { own(MPI_THREAD_MULTIPLE); }},
      {"own_single", [] { own(MPI_THREAD_SINGLE); }},
  };
  try {
    jobs.at(arguments[1])();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
