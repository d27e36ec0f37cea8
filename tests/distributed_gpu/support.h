// Ranks with GPUs. They are copies of the test's process, which itself uses no GPU, because a process that has used a
// GPU cannot be copied.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>

#include <gradus/core/runtime/cuda.h>
#include <gradus/distributed/comm/init.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/values.h>

namespace gradus::test {

/// Timeout of calls that nothing disturbs.
inline constexpr dist::Milliseconds kTimeout{20'000};

/// Number of GPUs of this machine, as seen by a copy of this process.
inline int gpu_count() {
  static const int count = [] {
    const pid_t pid = fork();
    if (pid == 0) _exit(std::min(cuda::device_count(), 100));
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  }();
  return count;
}

/// Skips the case and returns true if there are fewer GPUs.
inline bool fewer_gpus_than(int needed) {
  return gpu_count() < needed && skip(std::to_string(needed) + " CUDA device" + (needed > 1 ? "s" : ""));
}
inline bool no_nccl_for(int ranks) { return fewer_gpus_than(ranks) || (dist::nccl_version() == 0 && skip("NCCL")); }

/// Runs the ranks of a group. Each rank has its own GPU if there are enough. Throws the exception of the first rank
/// that fails.
inline void on_ranks(int ranks, const dist::InitOptions& options,
                     const std::function<void(dist::ProcessGroup&)>& body) {
  const int gpus = gpu_count();
  dist::spawn(
      [&](int rank) {
        cuda::set_device(rank % gpus);
        const auto group = dist::init_process_group(options);
        body(*group);
      },
      ranks);
}
inline void two_ranks(const dist::InitOptions& options, const std::function<void(dist::ProcessGroup&)>& body) {
  on_ranks(2, options, body);
}

inline std::shared_ptr<dist::ProcessGroup> shared(dist::ProcessGroup& group) {
  return {std::shared_ptr<void>(), &group};
}

/// Copies x to this rank's device, or back to the host.
inline Array on_device(const Array& x) {
  const Array y = Array::empty(x.shape(), x.dtype(), Device(DeviceType::cuda, cuda::current_device()));
  runtime(DeviceType::cuda).copy(y.data(), y.device(), x.data(), Device(), x.nbytes(), /*non_blocking=*/false);
  return y;
}
inline Array on_host(const Array& x) {
  const Array y = Array::empty(x.shape(), x.dtype());
  runtime(DeviceType::cuda).copy(y.data(), Device(), x.data(), x.device(), x.nbytes(), /*non_blocking=*/false);
  return y;
}

/// The exception that `body` throws, and how long the call took.
struct Failure {
  dist::CommStatus status;
  double seconds = 0;
};
template <class F>
Failure failure_of(F&& body) {
  const auto begin = std::chrono::steady_clock::now();
  Failure failure;
  try {
    body();
  } catch (const dist::CollectiveError& error) { failure.status = error.status(); }
  failure.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return failure;
}

inline bool contains_text(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace gradus::test
