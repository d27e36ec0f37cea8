#include <gradus/distributed/comm/local/local_group.h>

#include <algorithm>
#include <cstring>
#include <exception>

namespace gradus::dist {

LocalWorld::LocalWorld(int size, std::vector<LocalFault> script, MessageLog* log)
    : script_(std::move(script)), log_(log), ranks_((check_ranks(0, size), static_cast<size_t>(size))) {}

std::shared_ptr<LocalWorld> LocalWorld::group(uint32_t epoch, int size) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<LocalWorld>& group = groups_[epoch];
  if (!group) group = std::make_shared<LocalWorld>(size);
  return group;
}

LocalTransport::~LocalTransport() {
  const std::lock_guard lock(world_->mutex_);
  world_->rank(rank_).left = true;
  world_->changed_.notify_all();
}

void LocalTransport::announce(const CommStatus& failure) noexcept {
  const std::lock_guard lock(world_->mutex_);
  if (world_->failure_.ok() && !world_->rank(rank_).lost) world_->failure_ = failure;
  world_->changed_.notify_all();
}

bool LocalTransport::follow_script(Descriptor* descriptor) {
  bool sends = true;
  for (const LocalFault& fault : world_->script_) {
    if (fault.rank != rank_ || fault.sequence != descriptor->sequence) continue;
    switch (fault.kind) {
      case LocalFault::Kind::delay: std::this_thread::sleep_for(fault.delay); break;
      case LocalFault::Kind::drop: sends = false; break;
      case LocalFault::Kind::mismatch: descriptor->count += 1; break;
      case LocalFault::Kind::crash: {
        const std::lock_guard lock(world_->mutex_);
        world_->rank(rank_).lost = true;
        world_->changed_.notify_all();
        const CollectiveError error(
            {CommFailure::aborted, rank_, "rank " + std::to_string(rank_) + " crashes, as scripted"});
        note_failure(error);
        throw error;
      }
    }
  }
  return sends;
}

void LocalTransport::post(const Transfer& transfer, const Descriptor& descriptor) {
  LocalWorld::Rank& peer = world_->rank(transfer.peer);
  auto& inbox = peer.inbox[static_cast<size_t>(rank_)];
  inbox.push_back({descriptor, {transfer.data, transfer.data + transfer.bytes}, world_->messages_++});
  note(transfer, inbox.back());
}

void LocalTransport::note(const Transfer& transfer, const LocalWorld::Message& message) {
  if (!world_->log_) return;
  const Descriptor& call = message.descriptor;
  const size_t kept = std::min(message.body.size(), MessageLog::kElements * size_of(call.dtype));
  const auto begin = message.body.begin();
  using Kind = MessageLog::Event::Kind;
  world_->log_->events.push_back({transfer.sends ? Kind::sends : Kind::receives,
                                  rank_,
                                  transfer.peer,
                                  message.number,
                                  call.str(),
                                  call.dtype,
                                  message.body.size(),
                                  {begin, begin + static_cast<ptrdiff_t>(kept)}});
}

void LocalTransport::note_failure(const CollectiveError& error) {
  if (!world_->log_) return;
  world_->log_->events.push_back({MessageLog::Event::Kind::fails, rank_, -1, 0, error.what(), DType::u8, 0, {}});
}

void LocalTransport::receive(const Transfer& transfer, const Descriptor& descriptor, const Deadline& deadline,
                             std::unique_lock<std::mutex>& lock) {
  LocalWorld::Rank& peer = world_->rank(transfer.peer);
  auto& inboxes = world_->rank(rank_).inbox;
  auto& inbox = inboxes[static_cast<size_t>(transfer.peer)];
  const auto ready = [&] {
    // Any rank, not only the peer, may have sent a message of a different call with this number.
    for (const auto& [sender, messages] : inboxes)
      if (!messages.empty() && contradicts(messages.front().descriptor, descriptor))
        throw CollectiveError(mismatch(static_cast<int>(sender), messages.front().descriptor, rank_, descriptor));
    return !inbox.empty() || !world_->failure_.ok() || peer.lost || peer.left;
  };
  const bool in_time = world_->changed_.wait_for(lock, deadline.left(), ready);
  if (!world_->failure_.ok()) throw CollectiveError(world_->failure_);
  if (inbox.empty() && in_time)
    throw CollectiveError(peer.left ? peer_left(descriptor, transfer.peer)
                                    : peer_lost(descriptor, transfer.peer, "it crashed"));
  if (inbox.empty()) {
    // The error names a rank that has not joined the call. If all ranks have joined, it names the rank whose message is
    // missing.
    int culprit = transfer.peer;
    for (size_t r = 0; r < world_->ranks_.size(); ++r)
      if (world_->ranks_[r].exchanges == 0 && !world_->ranks_[r].left) culprit = static_cast<int>(r);
    throw CollectiveError(timed_out(descriptor, rank_, {culprit}, deadline.timeout()));
  }
  const LocalWorld::Message message = std::move(inbox.front());
  inbox.pop_front();
  if (message.descriptor != descriptor)
    throw CollectiveError(mismatch(transfer.peer, message.descriptor, rank_, descriptor));
  if (message.body.size() != transfer.bytes)
    throw CollectiveError(wrong_length(descriptor, transfer.peer, message.body.size(), transfer.bytes));
  if (!message.body.empty()) std::memcpy(transfer.data, message.body.data(), message.body.size());
  note(transfer, message);
}

void LocalTransport::exchange(std::span<const Transfer> transfers, const Descriptor& descriptor,
                              const Deadline& deadline) {
  Descriptor own = descriptor;
  const bool sends = follow_script(&own);
  std::unique_lock lock(world_->mutex_);
  int& exchanges = world_->rank(rank_).exchanges;
  ++exchanges;
  if (sends)
    for (const Transfer& transfer : transfers)
      if (transfer.sends) post(transfer, own);
  world_->changed_.notify_all();
  try {
    for (const Transfer& transfer : transfers)
      if (!transfer.sends) receive(transfer, own, deadline, lock);
  } catch (const CollectiveError& error) {
    note_failure(error);
    throw;
  }
  --exchanges;
}

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
      } catch (const CommError&) {  // is in the log; after reset(), others would only report that this rank left
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
