// Groups whose ranks are threads of the test.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gradus/distributed/comm/local/local_group.h>
#include <gradus/distributed/comm/shm/shm_group.h>
#include <gradus/distributed/comm/tcp/tcp_group.h>
#include <gradus/tests/temporary_directory.h>

namespace gradus::test {

/// A shared pointer to the group of the test's thread.
inline std::shared_ptr<dist::ProcessGroup> shared(dist::ProcessGroup& group) {
  return {std::shared_ptr<void>(), &group};
}

/// A local group that sums several arrays in place as one collective, as groups of GPUs do.
class CoalescingGroup final : public dist::TransportGroup<dist::LocalTransport> {
 public:
  CoalescingGroup(const std::shared_ptr<dist::LocalWorld>& world, int rank, dist::Milliseconds timeout)
      : TransportGroup(rank, world->size(), 0, timeout, world, rank) {}
  ~CoalescingGroup() override { stop(); }
  std::string_view backend() const override { return "coalescing"; }
  bool coalesces() const override { return true; }
  /// The newest call for several arrays.
  const dist::Descriptor& coalesced() const { return coalesced_; }

 private:
  bool serves(Device device) const override { return device.is_cpu(); }
  std::string places() const override { return "the cpu"; }
  WorkPtr submit_coalesced(const dist::Collective& call, const std::vector<Array>& arrays,
                           const dist::CollectiveOptions& options) override {
    coalesced_ = call.descriptor;
    WorkPtr last;
    for (const Array& x : arrays) last = all_reduce(x, call.descriptor.reduce, options);
    return last;
  }
  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>&, int, uint32_t, dist::Milliseconds) override {
    throw CommError("a coalescing group has no parts");
  }

  dist::Descriptor coalesced_;
};

/// What `body` and the threads that it starts print to stderr.
inline std::string printed_to_stderr(const std::function<void()>& body) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("stderr");
  const int before = dup(STDERR_FILENO), file = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  dup2(file, STDERR_FILENO);
  body();
  dup2(before, STDERR_FILENO);
  close(before), close(file);
  const io::Bytes bytes = io::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// How a rank ended: the message of the exception that it threw, "" if it threw none. For a CollectiveError, `status`
/// is its status.
struct RankResult {
  dist::CommStatus status;
  std::string error;
};

/// Calls body(group) for each rank of a new group at the same time. `kind` is "local", "coalescing", "shm" or "tcp".
/// The ranks meet through `meeting_place`, if there is one.
[[nodiscard]] inline std::vector<RankResult> run_ranks(const std::string& kind, int size,
                                                       const std::function<void(dist::ProcessGroup&)>& body,
                                                       dist::TcpOptions options = {},
                                                       std::vector<dist::LocalFault> script = {},
                                                       dist::Store* meeting_place = nullptr) {
  const auto world = std::make_shared<dist::LocalWorld>(size, std::move(script));
  dist::HashStore own;
  dist::Store& store = meeting_place ? *meeting_place : own;
  std::vector<RankResult> results(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      RankResult& result = results[static_cast<size_t>(rank)];
      try {
        std::unique_ptr<dist::ProcessGroup> group;
        if (kind == "local") group = std::make_unique<dist::LocalGroup>(world, rank, options.timeout);
        else if (kind == "coalescing") group = std::make_unique<CoalescingGroup>(world, rank, options.timeout);
        else if (kind == "shm")
          group = std::make_unique<dist::ShmGroup>(store, rank, size, dist::ShmOptions{options.timeout});
        else group = std::make_unique<dist::TcpGroup>(store, rank, size, options);
        body(*group);
      } catch (const dist::CollectiveError& error) {
        result = {error.status(), error.what()};
      } catch (const std::exception& error) { result.error = error.what(); } catch (...) {
        result.error = "no std::exception";
      }
    });
  for (std::thread& thread : threads) thread.join();
  return results;
}

/// Like run_ranks(), for bodies in which nothing may fail.
inline void expect_ranks(const std::string& kind, int size, const std::function<void(dist::ProcessGroup&)>& body,
                         const dist::TcpOptions& options = {}) {
  for (const RankResult& result : run_ranks(kind, size, body, options))
    if (!result.error.empty()) throw std::runtime_error(result.error);
}

}  // namespace gradus::test
