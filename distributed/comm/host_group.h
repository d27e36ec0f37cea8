// Groups whose collectives a thread of this process carries out: all but nccl. A call that is not `async` and has nothing in
// front of it runs on the thread of its caller, others on a thread of the group, in the order of the calls.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/staging.h>

namespace gradus::dist {

class HostGroup : public ProcessGroup {
 protected:
  HostGroup(int rank, int size, uint32_t epoch, Milliseconds timeout) : ProcessGroup(rank, size, epoch, timeout) {}
  /// Ends the thread. Classes that derive call it before their members go.
  void stop();

  /// Does the work, or throws a CollectiveError. Called by one thread at a time, in the order of the calls.
  virtual void run(const Collective& call, const Deadline& deadline) = 0;
  /// A second way between the same ranks, which carries half of a large array of a device at the same time as the first:
  /// what a thread copies into and out of sockets is what such arrays wait for.
  void add_lane(std::unique_ptr<HostGroup> lane) { second_lane_ = std::move(lane); }
  /// Failures are announced on both.
  void announce_on_lane(const CommStatus& failure) noexcept {
    if (second_lane_) second_lane_->announce(failure);
  }

  /// Arrays of a device go by way of the host's memory.
  bool serves(Device) const override { return true; }
  std::string places() const override { return "all devices"; }

 private:
  class HostWork;
  struct Job {
    Collective call;
    Milliseconds timeout;
    Array in, out;                 // keep the memory
    std::shared_ptr<Event> ready;  // of the caller's stream, where the memory is a device's
    std::shared_ptr<HostWork> work;
  };

  WorkPtr submit(const Collective& call, const Array& in, const Array& out, const CollectiveOptions& options) override;
  void execute(const Job& job) noexcept;
  void run_staged(const Job& job, const Deadline& deadline);
  /// Part of it, on this lane.
  void run_staged(const Job& job, const Range& range, const Deadline& deadline);
  void work_off();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;
  bool busy_ = false, stopping_ = false;
  std::optional<Staging> staging_;
  std::unique_ptr<HostGroup> second_lane_;
  std::thread thread_;  // started by the first call that is async
};

}  // namespace gradus::dist
