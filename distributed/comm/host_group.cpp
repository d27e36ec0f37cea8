#include <gradus/distributed/comm/host_group.h>

#include <gradus/core/error.h>

namespace gradus::dist {
namespace {

/// From here on a second lane is worth its thread.
constexpr size_t kTwoLaneBytes = 2 << 20;

}  // namespace

class HostGroup::HostWork final : public Work {
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
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return done_; });
    if (!status_.ok()) throw CollectiveError(status_);
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

void HostGroup::stop() {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    thread.swap(thread_);
    changed_.notify_all();
  }
  if (thread.joinable()) thread.join();
}

void HostGroup::execute(const Job& job) noexcept {
  CommStatus failure;
  try {
    failure = status();
    const Deadline deadline(job.timeout);
    if (failure.ok() && job.ready) run_staged(job, deadline);
    else if (failure.ok()) run(job.call, deadline);
  } catch (const CollectiveError& error) { failure = fail(error.status()); } catch (const std::exception& error) {
    failure = fail({CommFailure::aborted, rank(), error.what()});
  }
  job.work->finish(std::move(failure));
}

void HostGroup::run_staged(const Job& job, const Range& range, const Deadline& deadline) {
  const Device device = job.in.defined() ? job.in.device() : job.out.device();
  if (!staging_ || !(staging_->device() == device)) staging_.emplace(device, rank(), size());
  staging_->run(job.call, range, job.in, job.out, *job.ready, deadline,
                [&](const Collective& piece) { run(piece, deadline); });
}

void HostGroup::run_staged(const Job& job, const Deadline& deadline) {
  const Descriptor& d = job.call.descriptor;
  if (!second_lane_ || d.count * size_of(d.dtype) < kTwoLaneBytes) return run_staged(job, {0, d.count}, deadline);
  const Range first = part_of(d.count, 2, 0), second = part_of(d.count, 2, 1);
  const auto run_on = [&](HostGroup& lane, const Range& range, HostGroup& other) {
    CommStatus failure;
    try {
      lane.run_staged(job, range, deadline);
    } catch (const CollectiveError& error) { failure = error.status(); } catch (const std::exception& error) {
      failure = {CommFailure::aborted, rank(), error.what()};
    }
    if (!failure.ok()) other.announce(failure);  // which makes it end as well
    return failure;
  };
  CommStatus of_second;
  std::thread helper([&] { of_second = run_on(*second_lane_, second, *this); });
  const CommStatus of_first = run_on(*this, first, *second_lane_);
  helper.join();
  for (const CommStatus& failure : {of_first, of_second})
    if (!failure.ok()) throw CollectiveError(failure);
}

void HostGroup::work_off() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || (!queue_.empty() && !busy_); });
    if (queue_.empty()) return;
    if (busy_) continue;
    const Job job = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    execute(job);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

HostGroup::WorkPtr HostGroup::submit(const Collective& call, const Array& in, const Array& out,
                                     const CollectiveOptions& options) {
  std::shared_ptr<Event> ready;
  if (call.descriptor.on_device) {
    const Device device = in.defined() ? in.device() : out.device();
    DeviceRuntime& runtime = gradus::runtime(device.type);
    GRADUS_CHECK(!runtime.capturing(), DeviceError, "a collective that goes through the host's memory, as those of '",
                 backend(), "' do, cannot be part of a captured graph: take a group of the backend 'nccl'");
    ready = runtime.new_event(false);
    ready->record(runtime.current_stream(device.index));
  }
  std::unique_lock lock(mutex_);
  Job job{call, options.timeout.value_or(timeout()), in, out, std::move(ready), nullptr};
  take_number(&job.call);
  job.work = std::make_shared<HostWork>(job.call.descriptor.sequence);

  if (!options.async && !busy_ && queue_.empty()) {  // nothing is in front of it, so no other thread need be woken
    busy_ = true;
    lock.unlock();
    execute(job);
    lock.lock();
    busy_ = false;
  } else {
    queue_.push_back(job);
    if (!thread_.joinable()) thread_ = std::thread([this] { work_off(); });
  }
  changed_.notify_all();
  lock.unlock();
  if (!options.async) job.work->wait();
  return job.work;
}

}  // namespace gradus::dist
