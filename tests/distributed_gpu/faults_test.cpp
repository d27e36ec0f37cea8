// The errors of ranks over NCCL when one of them makes a different call, makes none, or ends. In tests in which a rank
// ends, GPUs communicate through host memory or sockets, because a rank must not end while another GPU reads its
// memory.
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include <gradus/gradus.h>
#include <gradus/tests/distributed/training.h>
#include <gradus/tests/distributed_gpu/support.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

/// Runs two ranks over NCCL, with or without direct access of one GPU to the other's memory.
void two_linked(bool direct, Milliseconds timeout, const std::function<void(ProcessGroup&)>& body) {
  setenv("NCCL_P2P_DISABLE", direct ? "0" : "1", 1);
  setenv("NCCL_SHM_DISABLE", direct ? "0" : "1", 1);
  two_ranks({.backend = "nccl", .timeout = timeout}, body);
}
void two_apart(Milliseconds timeout, const std::function<void(ProcessGroup&)>& body) {
  two_linked(false, timeout, body);
}

Array ones(int64_t count) {
  const Array x = Array::empty({count}, DType::f32, Device(DeviceType::cuda, cuda::current_device()));
  current_backend(DeviceType::cuda).fill(x, 1);
  return x;
}

/// Computes a sum and waits for it on the host.
void sum(ProcessGroup& group, int64_t count) {
  group.all_reduce(ones(count), ReduceKind::sum, {.async = true})->wait(Milliseconds(60'000));
}

std::string told(const Failure& failure) {
  return failure.status.message + " (after " + std::to_string(failure.seconds) + " s)";
}

}  // namespace

TEST_CASE("a rank that never calls is named when the deadline passes", "[faults]") {
  if (no_nccl_for(2)) return;
  const bool direct = GENERATE(true, false);
  CAPTURE(direct);
  two_linked(direct, Milliseconds(20'000), [](ProcessGroup& group) {
    sum(group, 1000);
    if (group.rank() == 1) {  // learns of the failure without a call of its own
      for (int i = 0; i < 100 && group.status().ok(); ++i) std::this_thread::sleep_for(Milliseconds(100));
      require(group.status().failure == CommFailure::timeout && group.status().rank == 1, group.status().message);
      return;
    }
    group.set_timeout(Milliseconds(1000));
    const Failure failure = failure_of([&] { sum(group, 1000); });
    require(failure.status.failure == CommFailure::timeout && failure.status.rank == 1, told(failure));
    require(contains_text(failure.status.message, "all_reduce #2 (sum of 1000 float32") &&
                contains_text(failure.status.message, "rank 0 waited 1000 ms for rank 1"),
            told(failure));
    require(failure.seconds < 10, told(failure));
    const Failure again = failure_of([&] { sum(group, 10); });
    require(again.status.message == failure.status.message && again.seconds < 1, told(again));
    cuda::synchronize();  // returns because the device has given up
  });
}

TEST_CASE("a rank whose device does not reach a collective is named", "[faults]") {
  if (no_nccl_for(2)) return;
  const bool direct = GENERATE(true, false);
  CAPTURE(direct);
  two_linked(direct, Milliseconds(20'000), [](ProcessGroup& group) {
    sum(group, 1000);
    if (group.rank() == 1) {  // first queues some seconds of work
      const Array large = Array::empty({int64_t{1} << 31}, DType::f32, Device(DeviceType::cuda, 1));
      for (int i = 0; i < 1500; ++i) current_backend(DeviceType::cuda).fill(large, i);
    }
    const Failure failure = failure_of([&] {
      group.all_reduce(ones(1000), ReduceKind::sum, {.async = true, .timeout = Milliseconds(1000)})
          ->wait(Milliseconds(10'000));
    });
    require(failure.status.failure == CommFailure::timeout && failure.status.rank == 1, told(failure));
  });
}

TEST_CASE("calls that differ are an error on both sides before they are launched, if debug is on", "[faults]") {
  if (no_nccl_for(2)) return;
  setenv("GRADUS_NCCL_DEBUG", "1", 1);
  for (const std::string difference : {"count", "dtype", "kind"})
    two_apart(Milliseconds(10'000), [&](ProcessGroup& group) {
      sum(group, 1000);
      const bool odd = group.rank() == 1;
      const Array x = ones(1000);
      const Failure failure = failure_of([&] {
        if (!odd) group.all_reduce(x);
        else if (difference == "count") group.all_reduce(ones(1001));
        else if (difference == "dtype") group.all_reduce(Array::empty({1000}, DType::i32, x.device()));
        else group.broadcast(x, 0);
      });
      require(failure.status.failure == CommFailure::mismatch &&
                  contains_text(failure.status.message, "rank 0 called") &&
                  contains_text(failure.status.message, "rank 1 called") && contains_text(failure.status.message, "#2"),
              told(failure));
    });
  unsetenv("GRADUS_NCCL_DEBUG");
}

TEST_CASE("abort ends the work that waits on other ranks' devices", "[faults]") {
  if (no_nccl_for(2)) return;
  const bool direct = GENERATE(true, false);
  CAPTURE(direct);
  two_linked(direct, Milliseconds(20'000), [](ProcessGroup& group) {
    sum(group, 1000);
    if (group.rank() == 1) {
      std::this_thread::sleep_for(Milliseconds(500));
      group.abort("enough");
    }
    const Failure failure = failure_of([&] { sum(group, 1000); });
    require(failure.status.failure == CommFailure::aborted &&
                contains_text(failure.status.message, "rank 1 ended the group: enough"),
            told(failure));
    require(failure.seconds < 8, told(failure));
    cuda::synchronize();
  });
}

TEST_CASE("a rank whose process has ended is named", "[faults]") {
  if (no_nccl_for(2)) return;
  two_apart(Milliseconds(20'000), [](ProcessGroup& group) {
    sum(group, 1000);
    group.barrier();
    cuda::synchronize();
    if (group.rank() == 1) _exit(0);  // without leaving the group
    const Failure failure = failure_of([&] { sum(group, 1000); });
    require(failure.status.failure == CommFailure::peer_lost && failure.status.rank == 1, told(failure));
    require(failure.seconds < 8, told(failure));
  });
}

TEST_CASE("training over NCCL: a rank whose process ends, or that makes no more steps, is named", "[faults]") {
  if (no_nccl_for(2)) return;
  const bool ends = GENERATE(true, false);
  CAPTURE(ends);
  two_apart(Milliseconds(20'000), [&](ProcessGroup& group) {
    const Device device(DeviceType::cuda, cuda::current_device());
    const auto wait = [&](int step, Net&) {
      if (step < 3) return;  // until the net and its communication are set up
      if (step == 3) {
        cuda::synchronize();
        group.barrier();
        group.set_timeout(Milliseconds(1000));
      }
      if (group.rank() == 0) return;
      if (ends) _exit(0);  // without leaving the group
      for (int i = 0; i < 100 && group.status().ok(); ++i) std::this_thread::sleep_for(Milliseconds(100));
      throw CollectiveError(group.status());
    };
    const Failure failure = failure_of([&] { train(group, 1 << 30, wait, device); });
    const CommFailure expected = ends ? CommFailure::peer_lost : CommFailure::timeout;
    require(failure.status.failure == expected && failure.status.rank == 1, told(failure));
    require(failure.seconds < 20, told(failure));
  });
}

TEST_CASE("a rank that has left is named", "[faults]") {
  if (no_nccl_for(2)) return;
  two_apart(Milliseconds(20'000), [](ProcessGroup& group) {
    sum(group, 1000);
    group.set_timeout(Milliseconds(1000));
    if (group.rank() == 1) return;
    const Failure failure = failure_of([&] { sum(group, 1000); });
    require(failure.status.failure == CommFailure::peer_lost && failure.status.rank == 1, told(failure));
    require(contains_text(failure.status.message, "rank 1 has left the group"), told(failure));
  });
}

TEST_CASE("a rank that does not join a new group over NCCL is named", "[faults]") {
  if (no_nccl_for(1)) return;
  const auto begin = std::chrono::steady_clock::now();
  std::string message;
  try {
    spawn(
        [](int rank) {
          if (rank == 1) std::this_thread::sleep_for(Milliseconds(5000));
          else init_process_group({.backend = "nccl", .timeout = Milliseconds(1000)});
        },
        2);
  } catch (const CommError& error) { message = error.what(); }
  CHECK_THAT(message, contains("rank 0 waited 1000 ms for these ranks, which did not arrive: 1"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}
