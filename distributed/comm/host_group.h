// Groups whose collectives a thread of this process carries out: all but nccl. A call that is not `async` and has nothing in
// front of it runs on the thread of its caller, others on a thread of the group, in the order of the calls.
#pragma once

#include <condition_variable>
#include <deque>
#include <thread>

#include <gradus/distributed/comm/process_group.h>

namespace gradus::dist {

class HostGroup : public ProcessGroup {
 protected:
  HostGroup(int rank, int size, uint32_t epoch, Milliseconds timeout) : ProcessGroup(rank, size, epoch, timeout) {}
  /// Ends the thread. Classes that derive call it before their members go.
  void stop();

  /// Does the work, or throws a CollectiveError. Called by one thread at a time, in the order of the calls.
  virtual void run(const Collective& call, const Deadline& deadline) = 0;

 private:
  class HostWork;
  struct Job {
    Collective call;
    Milliseconds timeout;
    Array in, out;  // keep the memory
    std::shared_ptr<HostWork> work;
  };

  WorkPtr submit(const Collective& call, const Array& in, const Array& out, const CollectiveOptions& options) override;
  void execute(const Job& job) noexcept;
  void work_off();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;  // started by the first call that is async
};

}  // namespace gradus::dist
