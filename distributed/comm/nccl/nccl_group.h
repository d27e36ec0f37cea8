// The process group over NCCL, for ranks with a GPU each.
//
// A call queues its work on the current stream. An `async` call uses a stream of the group, which first waits for the
// current stream. The host does not wait, as in torch.distributed. The device runs all calls, including messages, one
// after the other. In a ring some ranks must therefore receive before they send, even if the sends are `async`. A
// thread, the watchdog, enforces the deadlines: it finds out which ranks are missing, announces them to all ranks
// through the store, and makes the device give up. Sums and averages of floating-point numbers bypass NCCL if the GPUs
// can access each other's memory (PeerMemory).
#pragma once

#include <condition_variable>
#include <thread>
#include <utility>

#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/comm/nccl/communicator.h>
#include <gradus/distributed/comm/nccl/peer_memory.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/shm/shared_memory.h>
#include <gradus/distributed/comm/store/progress_board.h>

namespace gradus::dist {

class NcclGroup final : public ProcessGroup {
 public:
  /// Meets the other ranks through the store.
  NcclGroup(std::shared_ptr<Store> store, int rank, int size, const NcclOptions& options);
  /// Waits for the calls in progress.
  ~NcclGroup() override;

  std::string_view backend() const override { return "nccl"; }
  bool coalesces() const override { return true; }

 private:
  class NcclWork;
  /// Time between two polls of the watchdog.
  static constexpr Milliseconds kPollInterval{100};
  /// How long a process with a GPU may take to end once its connections are closed.
  static constexpr Milliseconds kExitTime{2000};
  using NcclWorkPtr = std::shared_ptr<NcclWork>;

  bool serves(Device device) const override { return device == device_; }
  std::string places() const override { return device_.str(); }
  WorkPtr submit(const Collective& call, const Array& in, const Array& out, const CollectiveOptions& options) override;
  WorkPtr submit_coalesced(const Collective& call, const std::vector<Array>& arrays,
                           const CollectiveOptions& options) override;
  void announce(const CommStatus& failure) noexcept override;
  void gather_on_host(const Array& x, const Array& y) override;
  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                           Milliseconds timeout) override;

  void connect(const Deadline& deadline);
  /// Numbers the call and queues its work, on the arrays `several` if there are any.
  NcclWorkPtr launch(Collective call, const std::vector<Array>& several, const CollectiveOptions& options);
  void compare(const Collective& call, const Deadline& deadline);
  /// Queues the work on a stream.
  void queue(const Collective& call, const Stream& stream);
  void queue_coalesced(Collective call, const std::vector<Array>& arrays, const Stream& stream);
  void queue_point_to_point(const Collective& call, const Stream& stream);
  void queue_in_order(const Collective& call, const Stream& stream);
  /// Ends the group by this failure, or by an earlier failure that another rank has announced. Returns the failure that
  /// ended the group.
  CommStatus end(const CommStatus& status) noexcept;

  void watch();
  void watch_once();
  void forget_completed();
  /// Number of the last collective that the device has reached.
  uint64_t reached() const;
  /// The failure of `call` if the process of a rank on this host has ended; otherwise ok.
  CommStatus ended_rank(const Descriptor& call);
  /// Like ended_rank(), but waits up to kExitTime, because NCCL may report that a rank is lost before its process has
  /// ended.
  CommStatus wait_for_ended_rank(const Descriptor& call);

  const std::shared_ptr<Store> store_;
  const NcclOptions options_;
  DeviceRuntime& runtime_;
  const Device device_;
  const Stream stream_;
  ProgressBoard board_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<PeerMemory> peers_;                   // null if all sums are done by NCCL
  Storage token_;                                       // a byte on the device, for barriers
  std::vector<std::optional<ProcessWatch>> processes_;  // by rank; empty for ranks of other hosts

  std::timed_mutex launch_mutex_;  // keeps the order in which calls are numbered and queued
  NcclWorkPtr last_;               // the call that was queued last, and its stream
  Stream last_stream_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<NcclWorkPtr> pending_;
  uint64_t completed_ = 0, warned_ = 0;  // sequence numbers of the last completed call and of the last warning
  bool stopping_ = false;
  std::thread watchdog_;
};

/// A collective over NCCL in progress. Two events on its stream mark its beginning and its end.
class NcclGroup::NcclWork final : public Work {
 public:
  /// `captured` is true during the capture of a graph. The work then runs when the graph is replayed.
  NcclWork(const Collective& collective, Milliseconds timeout, DeviceRuntime& runtime, Device device, bool captured)
      : call(collective.descriptor), peer(collective.peer), deadline(timeout), runtime_(runtime), device_(device),
        captured_(captured), ready_(runtime.new_event(false)), done_(runtime.new_event(false)) {}

  uint64_t sequence() const override { return call.sequence; }
  bool is_completed() const override {
    if (captured_) return true;
    const std::lock_guard lock(mutex_);
    return !failure_.ok() || (queued_ && done_->query());
  }
  CommStatus status() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  /// Makes the current stream wait. The host does not wait.
  void wait() const override {
    if (const CommStatus failure = status(); !failure.ok()) throw CollectiveError(failure);
    const Stream waiting = runtime_.current_stream(device_.index());
    block(waiting);
    const std::lock_guard lock(mutex_);
    if (captured_) return;  // a captured work keeps its arrays for its replays
    // The memory of the arrays may be reused on `waiting`, because that stream now waits for this work.
    if (!(waiting == before_))
      for (const Array& x : kept_) x.storage().record_stream(stream_);
    kept_.clear();
  }
  /// Makes the host wait, then the current stream.
  bool wait(Milliseconds timeout) const override {
    for (const Deadline end(timeout); !is_completed(); std::this_thread::sleep_for(std::chrono::microseconds(20)))
      if (end.passed()) return false;
    wait();
    return true;
  }

  const Descriptor call;
  const int peer;  // the other rank of a message
  const Deadline deadline;
  bool is_message() const { return call.kind == CollectiveKind::send; }
  /// True once a warning about missing ranks is due.
  bool is_long() const { return patience_.passed(); }
  /// True once the device has reached this work.
  bool is_reached() const {
    const std::lock_guard lock(mutex_);
    return queued_ && ready_->query();
  }
  /// Marks the work as failed, unless it is done.
  void fail(const CommStatus& failure) {
    const std::lock_guard lock(mutex_);
    if (!queued_ || !done_->query()) failure_ = failure;
  }
  /// Makes `stream`, on which the work runs, wait for what is queued on `before`.
  void begin(const Stream& before, const Stream& stream) {
    before_ = before;
    stream_ = stream;
    ready_->record(before);
    if (!(stream == before)) ready_->block(stream);
  }
  /// Records the end of the work on `stream`.
  void end(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    done_->record(stream);
    queued_ = !captured_;  // events of a capture cannot be queried
  }
  /// Makes `stream` wait for this work.
  void block(const Stream& stream) const { done_->block(stream); }
  /// Keeps the arrays alive until a caller has waited for this work.
  void keep(std::vector<Array> arrays) {
    const std::lock_guard lock(mutex_);
    kept_ = std::move(arrays);
  }

 private:
  const Deadline patience_{warn_after};
  DeviceRuntime& runtime_;
  const Device device_;
  const bool captured_;
  const std::unique_ptr<Event> ready_, done_;
  mutable std::mutex mutex_;
  bool queued_ = false;
  CommStatus failure_;
  Stream before_, stream_;
  mutable std::vector<Array> kept_;
};

}  // namespace gradus::dist
