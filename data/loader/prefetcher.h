// Prefetcher: worker threads that process requests before the consumer asks for the results. Data loaders use it to
// make batches. It does not depend on the type of a batch, so it is compiled only once.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <gradus/core/runtime/clock.h>
#include <gradus/core/scope.h>

namespace gradus::data {

/// The implementation is in the .cpp, because <thread> and <deque> are long headers.
class Prefetcher : NoCopy {
 public:
  using Request = std::vector<size_t>;
  using Result = std::shared_ptr<void>;
  /// Returns the next request, or nothing after the last one. Runs on the consumer's thread.
  using NextRequest = std::function<std::optional<Request>()>;
  /// Processes a request. Runs on the thread of `worker` (0, 1, …), which processes one request at a time.
  using Work = std::function<Result(size_t worker, const Request& request)>;

  /// Waits for the requests that workers are processing. Requests in the queue are dropped.
  virtual ~Prefetcher() = default;
  /// Returns the results in the order of the requests, and null after the last one. If `work` threw an exception for
  /// the request, rethrows it.
  virtual Result next() = 0;
  /// Total time in seconds that all workers spent on requests.
  virtual double work_seconds() = 0;
};

/// The workers process at most `ahead` requests whose results the consumer has not taken yet. Without workers, next()
/// processes each request itself. With a timeout, next() throws an Error if it waits longer for a result.
std::unique_ptr<Prefetcher> make_prefetcher(size_t workers, size_t ahead, Prefetcher::NextRequest next_request,
                                            Prefetcher::Work work,
                                            std::optional<std::chrono::milliseconds> timeout = std::nullopt);

}  // namespace gradus::data
