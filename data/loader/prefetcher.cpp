#include <gradus/data/loader/prefetcher.h>

#include <gradus/autograd/grad_mode.h>
#include <gradus/core/error.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/deadline.h>

#include <algorithm>

namespace gradus::data {

Prefetcher::Prefetcher(size_t workers, size_t ahead, NextRequest next_request, Work work,
                       std::optional<std::chrono::milliseconds> timeout)
    : ahead_(std::max<size_t>(ahead, 1)), next_request_(std::move(next_request)), work_(std::move(work)),
      timeout_(timeout) {
  try {
    for (size_t worker = 0; worker < workers; ++worker) {
      threads_.emplace_back([this, worker] { run(worker); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

void Prefetcher::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Prefetcher::Result Prefetcher::next() {
  if (threads_.empty()) {
    const std::optional<Request> request = exhausted_ ? std::nullopt : next_request_();
    exhausted_ = !request;
    if (exhausted_) return nullptr;
    const NoGradGuard no_grad;
    return answer(0, *request);
  }
  refill();
  if (open_.empty()) return nullptr;
  const std::shared_ptr<Job> job = std::move(open_.front());
  open_.pop_front();
  wait_for(*job);
  refill();  // replaces the job just taken, before the consumer continues
  if (job->error) std::rethrow_exception(job->error);
  return std::move(job->result);
}

void Prefetcher::wait_for(const Job& job) {
  std::unique_lock lock(mutex_);
  const auto done = [&] { return job.done; };
  if (!timeout_) return done_.wait(lock, done);
  GRADUS_CHECK(done_.wait_for(lock, bounded(*timeout_), done), Error, "the data loader has waited ", timeout_->count(),
               " ms for a batch (DataLoaderOptions::timeout)");
}

double Prefetcher::work_seconds() {
  std::lock_guard lock(mutex_);
  return work_seconds_;
}

Prefetcher::Result Prefetcher::answer(size_t worker, const Request& request) {
  const auto start = std::chrono::steady_clock::now();
  Result result = work_(worker, request);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  std::lock_guard lock(mutex_);
  work_seconds_ += time.count();
  return result;
}

void Prefetcher::refill() {
  while (!exhausted_ && open_.size() < ahead_) {
    std::optional<Request> request = next_request_();
    exhausted_ = !request;
    if (exhausted_) break;
    auto job = std::make_shared<Job>();
    job->request = std::move(*request);
    open_.push_back(job);
    {
      std::lock_guard lock(mutex_);
      queued_.push_back(std::move(job));
    }
    wake_.notify_one();
  }
}

void Prefetcher::run(size_t worker) {
  const SerialGuard serial;
  const NoGradGuard no_grad;
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !queued_.empty(); });
      if (stop_) return;
      job = std::move(queued_.front());
      queued_.pop_front();
    }
    try {
      job->result = answer(worker, job->request);
    } catch (...) { job->error = std::current_exception(); }
    {
      std::lock_guard lock(mutex_);
      job->done = true;
      job.reset();  // the consumer's reference is now the last, so the job is destroyed on the consumer's thread
    }
    done_.notify_one();
  }
}

}  // namespace gradus::data
