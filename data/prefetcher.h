// Requests answered by worker threads ahead of the consumer, in order. Internal to DataLoader; knows no types, so that
// it is compiled once.
#pragma once

#include <chrono>
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

namespace gradus::data {

class Prefetcher {
 public:
  using Request = std::vector<size_t>;
  using Result = std::shared_ptr<void>;
  /// The next request, none when there are no more. Called on the consumer's thread.
  using NextRequest = std::function<std::optional<Request>()>;
  /// Answers a request as worker 0, 1, …: one request at a time for each of them.
  using Work = std::function<Result(size_t worker, const Request& request)>;

  /// At most `ahead` requests are open at a time. Without workers, requests are answered by next() itself. With a
  /// timeout, next() throws an Error when it has waited that long.
  Prefetcher(size_t workers, size_t ahead, NextRequest next_request, Work work,
             std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Waits for the requests at work, not for those still queued.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The answer to the next request, null after the last. Rethrows what the work for it has thrown.
  Result next();
  /// Seconds that all workers together have spent on requests.
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
  NextRequest next_request_;
  Work work_;
  const std::optional<std::chrono::milliseconds> timeout_;
  bool exhausted_ = false, stop_ = false;
  double work_seconds_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<std::shared_ptr<Job>> open_;    // in order, the consumer's next one first
  std::deque<std::shared_ptr<Job>> queued_;  // of these, not yet taken by a worker
  std::vector<std::thread> threads_;
};

}  // namespace gradus::data
