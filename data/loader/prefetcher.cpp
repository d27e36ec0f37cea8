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
namespace {

class Workers : public Prefetcher {
 public:
  Workers(size_t workers, size_t ahead, NextRequest next_request, Work work, std::optional<Milliseconds> timeout)
      : ahead_(std::max<size_t>(ahead, 1)), next_request_(std::move(next_request)), work_(std::move(work)),
        timeout_(timeout) {
    for (size_t worker = 0; worker < workers; ++worker)
      threads_.emplace_back([this, worker](const std::stop_token& stop) { run(worker, stop); });
  }
  ~Workers() override {
    for (std::jthread& thread : threads_) thread.request_stop();
  }

  Result next() override {
    if (threads_.empty()) {
      const std::optional<Request> request = take_request();
      const NoGradGuard no_grad;
      return request ? answer(0, *request) : nullptr;
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

  double work_seconds() override {
    std::lock_guard lock(mutex_);
    return work_seconds_;
  }

 private:
  struct Job {
    Request request;
    bool done = false;
    Result result;
    std::exception_ptr error;
  };

  // Calls next_request_ until it has returned nothing once.
  std::optional<Request> take_request() {
    std::optional<Request> request = exhausted_ ? std::nullopt : next_request_();
    exhausted_ = !request;
    return request;
  }

  void refill() {
    while (open_.size() < ahead_) {
      std::optional<Request> request = take_request();
      if (!request) break;
      const auto job = std::make_shared<Job>(Job{std::move(*request), false, nullptr, nullptr});
      open_.push_back(job);
      std::lock_guard lock(mutex_);
      queued_.push_back(job);
      wake_.notify_one();
    }
  }

  void wait_for(const Job& job) {
    std::unique_lock lock(mutex_);
    const auto done = [&] { return job.done; };
    if (!timeout_) return done_.wait(lock, done);
    GRADUS_CHECK(done_.wait_for(lock, bounded(*timeout_), done), Error, "the data loader has waited ",
                 timeout_->count(), " ms for a batch (DataLoaderOptions::timeout)");
  }

  Result answer(size_t worker, const Request& request) {
    const auto start = std::chrono::steady_clock::now();
    Result result = work_(worker, request);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    std::lock_guard lock(mutex_);
    work_seconds_ += time.count();
    return result;
  }

  void run(size_t worker, const std::stop_token& stop) {
    const SerialGuard serial;
    const NoGradGuard no_grad;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, stop, [&] { return !queued_.empty(); });
      if (stop.stop_requested()) return;
      std::shared_ptr<Job> job = std::move(queued_.front());
      queued_.pop_front();
      lock.unlock();
      try {
        job->result = answer(worker, job->request);
      } catch (...) { job->error = std::current_exception(); }
      lock.lock();
      job->done = true;
      job.reset();  // so that the consumer's reference is the last, and the job is destroyed on the consumer's thread
      done_.notify_one();
    }
  }

  const size_t ahead_;
  const NextRequest next_request_;
  const Work work_;
  const std::optional<Milliseconds> timeout_;
  bool exhausted_ = false;
  double work_seconds_ = 0;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::condition_variable done_;
  std::deque<std::shared_ptr<Job>> open_;    // jobs whose results the consumer has not taken yet, in order
  std::deque<std::shared_ptr<Job>> queued_;  // the open jobs that no worker has started yet
  std::vector<std::jthread> threads_;        // last, because the threads use the members above
};

}  // namespace

std::unique_ptr<Prefetcher> make_prefetcher(size_t workers, size_t ahead, Prefetcher::NextRequest next_request,
                                            Prefetcher::Work work, std::optional<Milliseconds> timeout) {
  return std::make_unique<Workers>(workers, ahead, std::move(next_request), std::move(work), timeout);
}

}  // namespace gradus::data
