#include <gradus/distributed/comm/host_group.h>

#include <gradus/core/error.h>

namespace gradus::dist {

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
    if (!finished_.wait_for(lock, timeout, [&] { return done_; })) return false;
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
    if (failure.ok()) run(job.call, Deadline(job.timeout));
  } catch (const CollectiveError& error) { failure = fail(error.status()); } catch (const std::exception& error) {
    failure = fail({CommFailure::aborted, rank(), error.what()});
  }
  job.work->finish(std::move(failure));
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
  std::unique_lock lock(mutex_);
  Job job{call, options.timeout.value_or(timeout()), in, out, nullptr};
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
