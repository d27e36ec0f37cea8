// Collectives between the ranks of a group, named as in torch.distributed. All ranks call the same ones in the same order.
//
// A call returns when its work is done, or throws. With `async` it returns at once; the work is done in the order of the
// calls by a thread of the group, and Work::wait() says how it went. Tensors must not be touched meanwhile.
//
// The first failure of a group ends it: it reaches every rank, and all calls from then on throw it.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <gradus/core/array.h>
#include <gradus/distributed/comm/collectives.h>
#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/status.h>

namespace gradus::dist {

/// A collective on its way.
class Work {
 public:
  explicit Work(uint64_t sequence) : sequence_(sequence) {}

  /// Number of the collective in its group, from 1.
  uint64_t sequence() const { return sequence_; }
  bool is_completed() const;
  /// What became of it; ok while it runs.
  CommStatus status() const;
  /// Returns when it is done, or throws the CollectiveError that ended it.
  void wait() const;
  /// False if it is not done within `timeout`. It goes on.
  bool wait(Milliseconds timeout) const;

 private:
  friend class ProcessGroup;
  void finish(CommStatus status);

  const uint64_t sequence_;
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  bool done_ = false;
  CommStatus status_;
};

struct CollectiveOptions {
  bool async = false;
  /// Sums in the order of the ranks whatever the size, so that all transports give the same bits.
  bool strict = false;
  /// Of the whole collective; none: the group's.
  std::optional<Milliseconds> timeout = std::nullopt;
};

class ProcessGroup {
 public:
  using WorkPtr = std::shared_ptr<Work>;

  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// "tcp", "shm", "local" or "nccl"
  virtual std::string_view backend() const = 0;
  int rank() const { return rank_; }
  int size() const { return size_; }
  Milliseconds timeout() const { return timeout_; }
  void set_timeout(Milliseconds timeout) { timeout_ = timeout; }

  // Arrays are contiguous, in memory of the cpu; shapes may differ between ranks where their numbers of elements agree. A `peer` or `root` is a
  // rank of this group.

  /// x = the `kind` of all ranks' x.
  WorkPtr all_reduce(const Array& x, ReduceKind kind = ReduceKind::sum, const CollectiveOptions& options = {});
  /// The same, of which only the root gets the result; the x of the others stay as they are.
  WorkPtr reduce(const Array& x, int root, ReduceKind kind = ReduceKind::sum, const CollectiveOptions& options = {});
  /// x = the root's x.
  WorkPtr broadcast(const Array& x, int root, const CollectiveOptions& options = {});
  /// y (n x.numel()) = all ranks' x, one behind the other.
  WorkPtr all_gather(const Array& x, const Array& y, const CollectiveOptions& options = {});
  /// y = this rank's part of the `kind` of all ranks' x (n y.numel()).
  WorkPtr reduce_scatter(const Array& x, const Array& y, ReduceKind kind = ReduceKind::sum,
                         const CollectiveOptions& options = {});
  /// The root's y (n x.numel()) = all ranks' x. The others give an undefined y.
  WorkPtr gather(const Array& x, const Array& y, int root, const CollectiveOptions& options = {});
  /// y = this rank's part of the root's x (n y.numel()). The others give an undefined x.
  WorkPtr scatter(const Array& x, const Array& y, int root, const CollectiveOptions& options = {});
  /// The peer calls recv() with as many elements of the same type. Messages between two ranks are numbered by themselves.
  WorkPtr send(const Array& x, int peer, const CollectiveOptions& options = {});
  WorkPtr recv(const Array& x, int peer, const CollectiveOptions& options = {});
  /// Returns when all ranks have called it.
  WorkPtr barrier(const CollectiveOptions& options = {});

  /// Ends the group on all ranks; what runs and what is called later throws Aborted with this cause. From any thread.
  void abort(const std::string& cause);
  /// The failure that ended the group; ok while it lives.
  CommStatus status() const;

 protected:
  ProcessGroup(int rank, int size, uint32_t epoch, Milliseconds timeout);
  /// Ends the thread. Classes that derive call it before their members go.
  void stop();

  /// Does the work, or throws a CollectiveError. Called by one thread at a time, in the order of the calls.
  virtual void run(const Collective& call, const Deadline& deadline) = 0;
  /// Tells the other ranks. May come from any thread, once.
  virtual void announce(const CommStatus& failure) noexcept = 0;

 private:
  struct Job {
    Collective call;
    Milliseconds timeout;
    Array in, out;  // keep the memory
    WorkPtr work;
  };

  WorkPtr message(const Array& x, int peer, bool sends, const CollectiveOptions& options);
  WorkPtr submit(Collective call, const Array& in, const Array& out, const CollectiveOptions& options);
  void execute(const Job& job) noexcept;
  void work_off();
  void fail(const CommStatus& status) noexcept;

  const int rank_, size_;
  const uint32_t epoch_;
  Milliseconds timeout_;
  std::vector<uint64_t> sent_, received_;  // messages to and from each rank

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t sequence_ = 0;
  std::deque<Job> queue_;
  bool busy_ = false, stopping_ = false;
  CommStatus failure_;
  std::thread thread_;  // started by the first call that is async
};

}  // namespace gradus::dist
