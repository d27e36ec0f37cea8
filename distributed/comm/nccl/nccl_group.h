// The process group over NCCL, for ranks with a GPU each.
//
// A call queues its work on the current stream. An `async` call uses a stream of the group instead, which first waits
// for the current stream. The host does not wait, as in torch.distributed. The device runs all calls one after the
// other, messages included: in a ring some ranks must therefore receive first, even if the sends are `async`. A thread,
// the watchdog, enforces the deadlines: it finds out which ranks are missing, tells all ranks through the store, and
// makes the device give up. Sums and averages of floating-point numbers bypass NCCL if the GPUs can access each other's
// memory (PeerMemory).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <thread>

#include <gradus/distributed/comm/nccl/communicator.h>
#include <gradus/distributed/comm/nccl/peer_memory.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/process_group_factory.h>
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
  /// Numbers the call and queues its work, on one array or several. Holds the lock only while it does so.
  NcclWorkPtr launch(Collective call, const std::vector<Array>& several, const CollectiveOptions& options);
  void compare(const Collective& call, const Deadline& deadline);
  /// Queues the work on a stream.
  void queue(const Collective& call, const Stream& stream);
  void queue_coalesced(Collective call, const std::vector<Array>& arrays, const Stream& stream);
  void queue_point_to_point(const Collective& call, const Stream& stream);
  void queue_in_order(const Collective& call, const Stream& stream);
  /// Ends the group by this failure, or by an earlier one that another rank has announced. Returns the one that counts.
  CommStatus end(const CommStatus& status) noexcept;

  void watch();
  void watch_once();
  void forget_completed();
  /// Number of the last collective that the device has reached.
  uint64_t reached() const;
  /// The failure of `call` if the process of a rank on this host has ended; otherwise ok.
  CommStatus ended_rank(const Descriptor& call);
  /// Like ended_rank(), but waits a moment, because NCCL may report a rank's end before the process has ended.
  CommStatus wait_for_ended_rank(const Descriptor& call);
  /// Throws the cause of an error that NCCL reports.
  [[noreturn]] void explain(const std::string& error, const Descriptor& waiting);
  void look_for_dead_ranks(const Descriptor& waiting);

  const std::shared_ptr<Store> store_;
  const NcclOptions options_;
  DeviceRuntime& runtime_;
  const Device device_;
  const Stream stream_;
  ProgressBoard board_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<PeerMemory> peers_;                   // null if NCCL does everything
  Storage token_;                                       // a byte on the device, for barriers
  std::vector<std::optional<ProcessWatch>> processes_;  // by rank; empty for ranks of other hosts

  std::timed_mutex launch_mutex_;  // keeps the order in which calls are numbered and queued
  NcclWorkPtr last_;               // the call that was queued last, and its stream
  Stream last_stream_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<NcclWorkPtr> pending_;
  uint64_t completed_ = 0, warned_ = 0;  // sequence numbers
  bool stopping_ = false;
  std::thread watchdog_;
};

}  // namespace gradus::dist
