// Requests answered by worker threads ahead of the consumer, in order. Internal to DataLoader; knows no types, so that
// it is compiled once.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <gradus/core/runtime/clock.h>

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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradus::data
