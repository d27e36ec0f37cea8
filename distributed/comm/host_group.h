// Groups whose collectives threads of this process carry out: all but nccl. A call that is `async` runs on a thread of
// the group, others on that of their caller. They are done in the order of the calls, but messages wait only for
// collectives and for the messages of their own direction between the same two ranks: so a send that nobody takes yet
// holds up no recv.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/staging.h>

namespace gradus::dist {

class HostGroup : public ProcessGroup {
 protected:
  HostGroup(int rank, int size, uint32_t epoch, Milliseconds timeout) : ProcessGroup(rank, size, epoch, timeout) {}
  /// Ends the threads, behind what is under way. The destructors of final classes call it: threads call methods of
  /// theirs.
  void stop();

  /// Does the work, or throws a CollectiveError. Called in the order above: messages may run at the same time, each on
  /// a thread of its own.
  virtual void run(const Collective& call, const Deadline& deadline) = 0;
  /// A second way between the same ranks, which carries half of a large array of a device at the same time as the
  /// first: what a thread copies into and out of sockets is what such arrays wait for.
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
    bool async = false, begun = false;
  };

  WorkPtr submit(const Collective& call, const Array& in, const Array& out, const CollectiveOptions& options) override;
  /// True if nothing in front of it holds it up.
  bool may_begin(const Job& job) const;
  /// The first call that a thread of the group can carry out now; null if there is none.
  std::shared_ptr<Job> next() const;
  void carry_out(Job& job, std::unique_lock<std::mutex>& lock);
  void execute(Job& job) noexcept;
  void run_staged(const Job& job, const Deadline& deadline);
  /// Part of it, on this lane.
  void run_staged(const Job& job, const Range& range, const Deadline& deadline);
  /// A call with parts of different lengths, on copies of its arrays.
  void run_on_host(const Job& job, const Deadline& deadline);
  void work_off();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Job>> jobs_;  // that have not ended
  bool stopping_ = false;
  std::list<Staging> staging_;  // that no call uses now
  std::unique_ptr<HostGroup> second_lane_;
  std::set<int> async_orders_;        // order_of() the calls that were async: as many can run at the same time
  std::vector<std::thread> threads_;  // for each of these one
};

}  // namespace gradus::dist
