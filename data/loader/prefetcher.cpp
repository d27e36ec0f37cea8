#include <gradus/data/loader/prefetcher.h>

#include <gradus/autograd/grad_mode.h>
#include <gradus/core/error.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/deadline.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace gradus::data {

struct Prefetcher::State {
  struct Job {
    Request request;
    bool done = false;
    Result result;
    std::exception_ptr error;
  };

  State(size_t workers, size_t ahead, NextRequest next_request, Work work,
        std::optional<std::chrono::milliseconds> timeout);
  ~State() { stop(); }
  Result next();
  void run(size_t worker);
  Result answer(size_t worker, const Request& request);
  void wait_for(const Job& job);
  void refill();
  void stop();

  const size_t ahead_;
  NextRequest next_request_;
  Work work_;
  const std::optional<std::chrono::milliseconds> timeout_;
  bool exhausted_ = false, stop_ = false;
  double work_seconds_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<std::shared_ptr<Job>> open_;    // jobs whose results the consumer has not taken yet, in order
  std::deque<std::shared_ptr<Job>> queued_;  // the open jobs that no worker has started yet
  std::vector<std::thread> threads_;
};

Prefetcher::Prefetcher(size_t workers, size_t ahead, NextRequest next_request, Work work,
                       std::optional<std::chrono::milliseconds> timeout)
    : state_(std::make_unique<State>(workers, ahead, std::move(next_request), std::move(work), timeout)) {}
Prefetcher::~Prefetcher() = default;
Prefetcher::Result Prefetcher::next() { return state_->next(); }
double Prefetcher::work_seconds() {
  std::lock_guard lock(state_->mutex_);
  return state_->work_seconds_;
}

Prefetcher::State::State(size_t workers, size_t ahead, NextRequest next_request, Work work,
                         std::optional<std::chrono::milliseconds> timeout)
    : ahead_(std::max<size_t>(ahead, 1)), next_request_(std::move(next_request)), work_(std::move(work)),
      timeout_(timeout) {
  try {
    for (size_t worker = 0; worker < workers; ++worker) threads_.emplace_back([this, worker] { run(worker); });
  } catch (...) {
    stop();
    throw;
  }
}

void Prefetcher::State::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Prefetcher::Result Prefetcher::State::next() {
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

void Prefetcher::State::wait_for(const Job& job) {
  std::unique_lock lock(mutex_);
  const auto done = [&] { return job.done; };
  if (!timeout_) return done_.wait(lock, done);
  GRADUS_CHECK(done_.wait_for(lock, bounded(*timeout_), done), Error, "the data loader has waited ", timeout_->count(),
               " ms for a batch (DataLoaderOptions::timeout)");
}

Prefetcher::Result Prefetcher::State::answer(size_t worker, const Request& request) {
  const auto start = std::chrono::steady_clock::now();
  Result result = work_(worker, request);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  std::lock_guard lock(mutex_);
  work_seconds_ += time.count();
  return result;
}

void Prefetcher::State::refill() {
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

void Prefetcher::State::run(size_t worker) {
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
      job.reset();  // so that the consumer's reference is the last, and the job is destroyed on the consumer's thread
    }
    done_.notify_one();
  }
}

}  // namespace gradus::data
