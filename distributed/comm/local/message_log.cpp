#include <gradus/distributed/comm/local/message_log.h>

#include <exception>
#include <thread>

namespace gradus::dist {

MessageLog record_messages(int ranks, const std::function<void(ProcessGroup&)>& work, std::vector<LocalFault> script) {
  GRADUS_CHECK(ranks > 0, ValueError, "record_messages: the number of ranks must be positive, got ", ranks);
  MessageLog log;
  log.ranks = ranks;
  const auto world = std::make_shared<LocalWorld>(ranks, std::move(script), &log);
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::unique_ptr<LocalGroup>> groups;
  for (int rank = 0; rank < ranks; ++rank) groups.push_back(std::make_unique<LocalGroup>(world, rank));
  std::vector<std::thread> threads;
  for (std::unique_ptr<LocalGroup>& group : groups)
    threads.emplace_back([&] {
      try {
        work(*group);
      } catch (const CommError&) {  // it is in the log; a rank that crashes does not leave in order
        return;
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
      group.reset();
    });
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return log;
}

}  // namespace gradus::dist
