// The watchdog of a group over NCCL: notices that the group makes no progress, finds out why, and ends it.
#include <algorithm>

#include <gradus/distributed/comm/nccl/nccl_work.h>

namespace gradus::dist {

CommStatus NcclGroup::end(const CommStatus& status) noexcept {
  CommStatus first = status;
  try {
    first = board_.announce(status);
  } catch (const std::exception&) {  // the store may have ended
  }
  return fail(first);
}

void NcclGroup::announce(const CommStatus& failure) noexcept {
  {
    const std::lock_guard lock(mutex_);
    for (const NcclWorkPtr& work : pending_) work->fail(failure);
    pending_.clear();
  }
  try {
    board_.announce(failure);
  } catch (const std::exception&) {}
  // Waits for a thread that is queueing work. If NCCL holds that thread, only abort() below releases it.
  std::unique_lock launching(launch_mutex_, std::defer_lock);
  const bool waited = launching.try_lock_for(std::chrono::seconds(1));
  if (peers_) peers_->stop();
  communicator_->abort();
  if (waited) launching.unlock();
}

void NcclGroup::forget_completed() {
  const std::lock_guard lock(mutex_);
  while (!pending_.empty() && pending_.front()->is_completed()) {
    if (!pending_.front()->is_message()) completed_ = std::max(completed_, pending_.front()->sequence());
    pending_.pop_front();
  }
}

uint64_t NcclGroup::reached() const {
  const std::lock_guard lock(mutex_);
  uint64_t last = completed_;
  for (const NcclWorkPtr& work : pending_) {
    if (!work->is_reached()) break;
    if (!work->is_message()) last = work->sequence();
  }
  return last;
}

void NcclGroup::watch() {
  runtime_.set_current_device(device_.index());
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, kPollInterval, [&] { return stopping_; });
    if (stopping_) return;
    lock.unlock();
    if (status().ok()) try {
        watch_once();
      } catch (const CollectiveError& error) { end(error.status()); } catch (const std::exception& error) {
        end({CommFailure::aborted, rank(), "rank " + std::to_string(rank()) + ": " + error.what()});
      }
    lock.lock();
  }
}

void NcclGroup::watch_once() {
  forget_completed();
  NcclWorkPtr waiting;
  {
    const std::lock_guard lock(mutex_);
    if (!pending_.empty()) waiting = pending_.front();
  }
  CommStatus announced;
  try {
    announced = board_.look(reached());
  } catch (const CommError&) {  // the store ends with its job, which is an error only if a call is in progress
    if (waiting) throw;
  }
  if (!announced.ok()) throw CollectiveError(announced);
  if (!waiting) return;
  const Descriptor& call = waiting->call();
  if (const std::string error = communicator_->error(); !error.empty()) explain("NCCL: " + error, call);
  const bool too_late = waiting->deadline().passed();
  if (too_late || (waiting->is_long() && warned_ != call.sequence)) {
    const std::vector<int> missing =
        waiting->is_message() ? std::vector{waiting->peer()} : board_.missing(call, reached());
    if (waiting->is_completed()) return;
    if (too_late) throw CollectiveError(timed_out(call, rank(), missing, waiting->deadline().timeout()));
    warn_of_waiting(call, rank(), missing);
    warned_ = call.sequence;
  }
  look_for_dead_ranks(call);
}

CommStatus NcclGroup::ended_rank(const Descriptor& call) {
  for (int r = 0; r < size(); ++r) {
    const std::optional<ProcessWatch>& process = processes_[static_cast<size_t>(r)];
    if (!process || !process->has_ended()) continue;
    try {
      if (board_.has_left(r)) return peer_left(call, r);
    } catch (const CommError&) {}  // the store ended with that rank
    return peer_lost(call, r, "its process ended");
  }
  return {};
}

CommStatus NcclGroup::wait_for_ended_rank(const Descriptor& call) {
  CommStatus ended;
  for (const Deadline end(kExitTime); (ended = ended_rank(call)).ok() && !end.passed();)
    std::this_thread::sleep_for(Milliseconds(10));
  return ended;
}

void NcclGroup::explain(const std::string& error, const Descriptor& waiting) {
  if (const CommStatus ended = wait_for_ended_rank(waiting); !ended.ok()) throw CollectiveError(ended);
  const std::vector<int> missing = board_.missing(waiting, reached());
  if (!missing.empty()) throw CollectiveError(peer_lost(waiting, missing[0], error));
  throw CollectiveError({CommFailure::aborted, -1, "[" + waiting.str() + "] " + error});
}

void NcclGroup::look_for_dead_ranks(const Descriptor& waiting) {
  const CommStatus ended = ended_rank(waiting);
  if (ended.ok()) return;
  std::this_thread::sleep_for(kPollInterval);  // work that the rank did before it ended may complete the collective
  forget_completed();
  const std::lock_guard lock(mutex_);
  if (!pending_.empty() && pending_.front()->call() == waiting) throw CollectiveError(ended);
}

}  // namespace gradus::dist
