#include <gradus/distributed/comm/host_group.h>

#include <algorithm>

#include <gradus/core/error.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::dist {
namespace {

/// From this size on, a second lane is faster although it needs a thread.
constexpr size_t kTwoLaneBytes = 2 << 20;

/// Calls with the same number run one after the other. A collective (0) also waits for all earlier calls, and all later
/// calls wait for it.
int order_of(const Collective& call) {
  return call.descriptor.kind == CollectiveKind::send ? 1 + 2 * call.peer + call.sends : 0;
}

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
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

void HostGroup::execute(Job& job) noexcept {
  CommStatus failure;
  try {
    failure = status();
    const Deadline deadline(job.timeout);
    const EventScope event(name(job.call.descriptor.kind));
    if (failure.ok() && job.ready && !job.call.out_parts.empty()) run_on_host(job, deadline);
    else if (failure.ok() && job.ready) run_staged(job, deadline);
    else if (failure.ok()) run(job.call, deadline);
  } catch (const CollectiveError& error) { failure = fail(error.status()); } catch (const std::exception& error) {
    failure = fail({CommFailure::aborted, rank(), error.what()});
  }
  job.in = job.out = Array();  // released before wait() returns, because callers may rely on that
  job.work->finish(std::move(failure));
}

void HostGroup::run_staged(const Job& job, const Range& range, const Deadline& deadline) {
  const Device device = job.in.defined() ? job.in.device() : job.out.device();
  struct Borrowed {
    HostGroup& group;
    std::list<Staging> one = {};
    ~Borrowed() {
      const std::lock_guard lock(group.mutex_);
      group.staging_.splice(group.staging_.end(), one);
    }
  } borrowed{*this};
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const Staging& staging) { return staging.device() == device; };
    const auto found = std::find_if(staging_.begin(), staging_.end(), fits);
    if (found != staging_.end()) borrowed.one.splice(borrowed.one.end(), staging_, found);
  }
  if (borrowed.one.empty()) borrowed.one.emplace_back(device, rank(), size());
  borrowed.one.front().run(job.call, range, job.in, job.out, *job.ready, deadline,
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
    if (!failure.ok()) other.announce(failure);  // ends the other lane as well
    return failure;
  };
  CommStatus of_second;
  std::thread helper([&] { of_second = run_on(*second_lane_, second, *this); });
  const CommStatus of_first = run_on(*this, first, *second_lane_);
  helper.join();
  for (const CommStatus& failure : {of_first, of_second})
    if (!failure.ok()) throw CollectiveError(failure);
}

void HostGroup::run_on_host(const Job& job, const Deadline& deadline) {
  const Device device = job.in.device();
  DeviceRuntime& runtime = gradus::runtime(device.type());
  job.ready->block(runtime.current_stream(device.index()));
  const Array in = Array::empty(job.in.shape(), job.in.dtype()), out = Array::empty(job.out.shape(), job.out.dtype());
  runtime.copy(in.data(), Device(), job.in.data(), device, in.nbytes(), /*non_blocking=*/false);
  Collective call = job.call;
  call.in = in.data();
  call.out = out.data();
  run(call, deadline);
  runtime.copy(job.out.data(), device, out.data(), Device(), out.nbytes(), /*non_blocking=*/false);
}

bool HostGroup::may_begin(const Job& job) const {
  for (const std::shared_ptr<Job>& earlier : jobs_) {
    if (earlier.get() == &job) break;
    const int before = order_of(earlier->call), own = order_of(job.call);
    if (before == own || before == 0 || own == 0) return false;
  }
  return true;
}

std::shared_ptr<HostGroup::Job> HostGroup::next() const {
  for (const std::shared_ptr<Job>& job : jobs_)
    if (job->async && !job->begun && may_begin(*job)) return job;
  return nullptr;
}

void HostGroup::carry_out(Job& job, std::unique_lock<std::mutex>& lock) {
  job.begun = true;
  lock.unlock();
  execute(job);
  lock.lock();
  jobs_.erase(std::ranges::find(jobs_, &job, &std::shared_ptr<Job>::get));
  changed_.notify_all();
}

void HostGroup::run_thread() {
  std::unique_lock lock(mutex_);
  while (true) {
    std::shared_ptr<Job> job;
    changed_.wait(lock, [&] { return (job = next()) || (stopping_ && jobs_.empty()); });
    if (!job) return;
    carry_out(*job, lock);
  }
}

HostGroup::WorkPtr HostGroup::submit(const Collective& call, const Array& in, const Array& out,
                                     const CollectiveOptions& options) {
  std::shared_ptr<Event> ready;
  check_not_recording(DeviceType::cpu, "a collective of arrays on the cpu");
  if (call.descriptor.on_device) {
    const Device device = in.defined() ? in.device() : out.device();
    DeviceRuntime& runtime = gradus::runtime(device.type());
    GRADUS_CHECK(!runtime.capturing(), DeviceError, "a collective that goes through the host's memory, as those of '",
                 backend(), "' do, cannot be part of a captured graph: take a group of the backend 'nccl'");
    ready = runtime.new_event(false);
    ready->record(runtime.current_stream(device.index()));
  }
  std::unique_lock lock(mutex_);
  if (options.async && !async_orders_.contains(order_of(call))) {
    threads_.emplace_back([this] { run_thread(); });
    async_orders_.insert(order_of(call));
  }
  Job job{call, options.timeout.value_or(timeout()), in, out, std::move(ready), nullptr, options.async};
  take_number(&job.call);
  job.work = std::make_shared<HostWork>(job.call.descriptor.sequence);
  if (options.async) {
    const auto work = job.work;
    jobs_.push_back(std::make_shared<Job>(std::move(job)));
    changed_.notify_all();
    return work;
  }
  jobs_.push_back({std::shared_ptr<void>(), &job});
  changed_.wait(lock, [&] { return may_begin(job); });
  carry_out(job, lock);
  lock.unlock();
  job.work->wait();
  return job.work;
}

}  // namespace gradus::dist
