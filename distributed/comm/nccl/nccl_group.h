// The process group over NCCL: ranks with a GPU each.
//
// A call queues its work on the current stream, or, if it is `async`, on a stream of the group behind what the current
// stream has to do; the host goes on, as in torch.distributed. The device does one call after the other, messages too:
// around a ring some ranks have to receive first, even if the others' sends are `async`. A thread, the watchdog, sees
// to deadlines: it finds out who is missing, tells all ranks by way of the store, and makes the device give up.
// Sums and averages of floating-point numbers go past NCCL where GPUs reach each other's memory (PeerMemory).
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
#include <gradus/distributed/comm/progress_board.h>
#include <gradus/distributed/comm/shm/shared_memory.h>

namespace gradus::dist {

class NcclGroup final : public ProcessGroup {
 public:
  /// Meets the other ranks by way of the store.
  NcclGroup(std::shared_ptr<Store> store, int rank, int size, const NcclOptions& options);
  /// Waits for what is under way.
  ~NcclGroup() override;

  std::string_view backend() const override { return "nccl"; }
  bool coalesces() const override { return true; }

 private:
  class NcclWork;
  /// How often the watchdog looks.
  static constexpr Milliseconds kLookOut{100};
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
  /// Numbers the call and queues its work, of one array or several. The lock is held no longer than that.
  NcclWorkPtr launch(Collective call, const std::vector<Array>& several, const CollectiveOptions& options);
  void compare(const Collective& call, const Deadline& deadline);
  /// Queues the work on a stream.
  void queue(const Collective& call, const Stream& stream);
  void queue_coalesced(Collective call, const std::vector<Array>& arrays, const Stream& stream);
  void queue_point_to_point(const Collective& call, const Stream& stream);
  void queue_in_order(const Collective& call, const Stream& stream);
  /// Ends the group by this failure, or by that which another rank was the first to announce.
  CommStatus end(const CommStatus& status) noexcept;

  void watch();
  void look_after();
  void forget_completed();
  /// The last collective that the device has come to.
  uint64_t reached() const;
  /// The failure of a call where the process of a rank of this host has ended; ok if none has.
  CommStatus ended_rank(const Descriptor& call);
  /// The same behind an error of NCCL: it may know of a rank's end before the process has ended.
  CommStatus ending_rank(const Descriptor& call);
  /// Throws what is behind an error that NCCL reports.
  [[noreturn]] void explain(const std::string& error, const Descriptor& waiting);
  void look_for_dead_ranks(const Descriptor& waiting);

  const std::shared_ptr<Store> store_;
  const NcclOptions options_;
  DeviceRuntime& runtime_;
  const Device device_;
  const Stream stream_;
  ProgressBoard board_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<PeerMemory> peers_;                   // null: all by NCCL
  Storage token_;                                       // a byte on the device, for barriers
  std::vector<std::optional<ProcessWatch>> processes_;  // of this host, by rank

  std::timed_mutex launch_mutex_;  // all ranks queue the same calls in the same order
  NcclWorkPtr last_;               // that was queued
  Stream last_stream_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<NcclWorkPtr> pending_;
  uint64_t completed_ = 0, warned_ = 0;  // sequence numbers
  bool stopping_ = false;
  std::thread watchdog_;
};

}  // namespace gradus::dist
