// Process groups whose collectives run on threads of this process: all groups except NcclGroup and RecordingGroup. An
// `async` call runs on a thread of the group, any other call on its caller's thread. Calls run in the order in which
// they are made, except for point-to-point messages: a message waits only for earlier collectives and for earlier
// messages in the same direction between the same two ranks. A send that has no matching recv yet therefore does not
// delay a recv.
#pragma once

#include <condition_variable>
#include <list>
#include <set>
#include <thread>
#include <utility>

#include <gradus/distributed/comm/process_group.h>

namespace gradus::dist {

class Staging;

/// A collective that a thread of this process carries out.
class HostWork final : public Work {
 public:
  explicit HostWork(uint64_t sequence) : sequence_(sequence) {}

  uint64_t sequence() const override { return sequence_; }
  bool is_completed() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  CommStatus status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  void wait() const override {
    while (!wait(kLongestWait)) {}
  }
  bool wait(Milliseconds timeout) const override {
    std::unique_lock lock(mutex_);
    if (!finished_.wait_for(lock, bounded(timeout), [&] { return done_; })) return false;
    if (!status_.ok()) throw CollectiveError(status_);
    return true;
  }
  void finish(CommStatus status) {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
    done_ = true;
    finished_.notify_all();
  }

 private:
  const uint64_t sequence_;
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  bool done_ = false;
  CommStatus status_;
};

class HostGroup : public ProcessGroup {
 protected:
  HostGroup(int rank, int size, uint32_t epoch, Milliseconds timeout) : ProcessGroup(rank, size, epoch, timeout) {}
  /// Finishes the calls in progress and joins the threads. The destructor of each final class must call it, because the
  /// threads call virtual methods of that class.
  void stop();

  /// Carries out one call, or throws a CollectiveError. It is called in the order described above, for messages also on
  /// several threads at the same time.
  virtual void run(const Collective& call, const Deadline& deadline) = 0;
  /// Adds a second set of connections between the same ranks. It carries half of a large device array while the first
  /// carries the other half, because such arrays are limited by how fast one thread copies to and from sockets.
  void add_lane(std::unique_ptr<HostGroup> lane) { second_lane_ = std::move(lane); }
  /// Announces a failure on the second lane, if there is one.
  void announce_on_lane(const CommStatus& failure) noexcept {
    if (second_lane_) second_lane_->announce(failure);
  }

  /// Device arrays are copied through host memory.
  bool serves(Device) const override { return true; }
  std::string places() const override { return "all devices"; }

 private:
  struct Job {
    Collective call;
    Milliseconds timeout;
    Array in, out;                 // keep the memory of `call` alive
    std::shared_ptr<Event> ready;  // recorded on the caller's stream if the arrays are in device memory
    std::shared_ptr<HostWork> work;
    bool async = false, begun = false;
  };

  WorkPtr submit(const Collective& call, const Array& in, const Array& out, const CollectiveOptions& options) override;
  /// Returns true if the job does not have to wait for an earlier job.
  bool may_begin(const Job& job) const;
  void carry_out(Job& job, std::unique_lock<std::mutex>& lock);
  void execute(Job& job) noexcept;
  void run_staged(const Job& job, const Deadline& deadline);
  /// Transfers the elements of `range` on this lane.
  void run_staged(const Job& job, const Range& range, const Deadline& deadline);
  /// Runs a call with parts of different lengths on host copies of its arrays.
  void run_on_host(const Job& job, const Deadline& deadline);
  /// The loop of a thread of the group: carries out the first `async` call that may begin, and so on.
  void run_thread();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Job>> jobs_;  // calls that have not ended, in the order in which they were made
  bool stopping_ = false;
  std::list<std::shared_ptr<Staging>> staging_;  // buffers that no call uses now
  std::unique_ptr<HostGroup> second_lane_;
  std::set<int> async_orders_;        // the values that order_of() (host_group.cpp) had for `async` calls so far
  std::vector<std::thread> threads_;  // one for each of async_orders_, because those calls may run at the same time
};

/// A process group over any transport.
template <class T>
class TransportGroup : public HostGroup {
 protected:
  template <class... Arguments>
  TransportGroup(int rank, int size, uint32_t epoch, Milliseconds timeout, Arguments&&... of_transport)
      : HostGroup(rank, size, epoch, timeout), transport_(std::forward<Arguments>(of_transport)...),
        collectives_(transport_) {}
  const T& transport() const { return transport_; }

 private:
  void run(const Collective& call, const Deadline& deadline) override { collectives_.run(call, deadline); }
  void announce(const CommStatus& failure) noexcept override {
    transport_.announce(failure);
    announce_on_lane(failure);
  }

  T transport_;
  Collectives collectives_;
};

}  // namespace gradus::dist
