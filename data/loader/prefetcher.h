// Prefetcher: worker threads that process requests before the consumer asks for the results. Data loaders use it to
// make batches. It does not depend on the type of a batch, so it is compiled only once.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <gradus/core/runtime/clock.h>

namespace gradus::data {

class Prefetcher {
 public:
  using Request = std::vector<size_t>;
  using Result = std::shared_ptr<void>;
  /// Returns the next request, or nothing after the last one. Runs on the consumer's thread.
  using NextRequest = std::function<std::optional<Request>()>;
  /// Processes a request. Runs on the thread of `worker` (0, 1, …), which processes one request at a time.
  using Work = std::function<Result(size_t worker, const Request& request)>;

  /// The workers process at most `ahead` requests whose results the consumer has not taken yet. Without workers, next()
  /// processes each request itself. With a timeout, next() throws an Error if it waits longer for a result.
  Prefetcher(size_t workers, size_t ahead, NextRequest next_request, Work work,
             std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Waits for the requests that workers are processing. Requests in the queue are dropped.
  ~Prefetcher() { stop(); }

  /// Returns the results in the order of the requests, and null after the last one. If `work` threw an exception for
  /// the request, rethrows it.
  Result next();
  /// Total time in seconds that all workers spent on requests.
  double work_seconds();

 private:
  struct Job {
    Request request;
    bool done = false;
    Result result;
    std::exception_ptr error;
  };

  void run(size_t worker);
  Result answer(size_t worker, const Request& request);
  void wait_for(const Job& job);
  void refill();
  void stop();

  const size_t ahead_;
  const NextRequest next_request_;
  const Work work_;
  const std::optional<std::chrono::milliseconds> timeout_;
  bool exhausted_ = false, stop_ = false;
  double work_seconds_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<std::shared_ptr<Job>> open_;    // jobs whose results the consumer has not taken yet, in order
  std::deque<std::shared_ptr<Job>> queued_;  // the open jobs that no worker has started yet
  std::vector<std::thread> threads_;
};

}  // namespace gradus::data
