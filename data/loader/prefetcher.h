// Worker threads that process requests in order, ahead of the consumer. Used only by DataLoader; independent of types,
// so that it is compiled once.
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
  /// Returns the next request, or nothing if there are no more. Called on the consumer's thread.
  using NextRequest = std::function<std::optional<Request>()>;
  /// Processes a request on worker 0, 1, …. Each worker processes one request at a time.
  using Work = std::function<Result(size_t worker, const Request& request)>;

  /// At most `ahead` requests are open at a time. Without workers, next() processes requests itself. With a timeout,
  /// next() throws an Error after waiting that long.
  Prefetcher(size_t workers, size_t ahead, NextRequest next_request, Work work,
             std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Waits for requests in progress, not for those that are queued.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Returns the result of the next request, null after the last one. Rethrows an exception of `work`.
  Result next();
  /// Total time in seconds that all workers spent on requests.
  double work_seconds();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradus::data
