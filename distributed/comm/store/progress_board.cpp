#include <gradus/distributed/comm/store/progress_board.h>

#include <algorithm>

namespace gradus::dist {
namespace {

/// The number of latest calls that an answer lists. A mismatch is only found while ranks are not more calls apart.
constexpr size_t kCallsKept = 64;
/// A live rank answers within this time. Its watchdog polls ten times as often.
constexpr Milliseconds kAnswerTime{1000};
constexpr Milliseconds kPause{1};

std::string to_string(io::ByteSpan bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
io::ByteSpan to_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string key(const std::string& name, int rank) { return name + "/" + std::to_string(rank); }

}  // namespace

ProgressBoard::ProgressBoard(std::shared_ptr<Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {}

std::string ProgressBoard::meet(const std::string& value, const Deadline& deadline) {
  store_->set(key("here", rank_), value);
  while (true) {
    std::vector<int> missing;
    for (int r = 0; r < size_; ++r)
      if (!store_->check({key("here", r)})) missing.push_back(r);
    if (missing.empty()) return store_->get(key("here", 0));
    GRADUS_CHECK(!deadline.passed(), CommError, "rank ", rank_, " waited ", deadline.timeout().count(),
                 " ms for these ranks, which did not arrive: ", joined(missing));
    std::this_thread::sleep_for(kPause);
  }
}

void ProgressBoard::note(const Descriptor& call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(call);
  if (calls_.size() > kCallsKept) calls_.pop_front();
}

void ProgressBoard::compare(const std::string& scope, const Descriptor& call, const std::vector<int>& others,
                            const Deadline& deadline) {
  const std::string name = scope + "/" + std::to_string(call.sequence);
  store_->set(key(name, rank_), to_string(MessageHeader{call}.encode()));
  for (size_t next = 0; next < others.size();) {
    const std::string theirs = key(name, others[next]);
    if (store_->check({theirs})) {
      const Descriptor called = MessageHeader::decode(to_bytes(store_->get(theirs))).descriptor;
      if (called != call) throw CollectiveError(mismatch(others[next], called, rank_, call));
      ++next;
      continue;
    }
    if (const CommStatus ended = failure(); !ended.ok()) throw CollectiveError(ended);
    if (deadline.passed())
      throw CollectiveError(timed_out(call, rank_, {others.begin() + static_cast<std::ptrdiff_t>(next), others.end()},
                                      deadline.timeout()));
    std::this_thread::sleep_for(kPause);
  }
  // All ranks have made this call, so they have read what this rank said about the call before it.
  store_->delete_key(key(scope + "/" + std::to_string(call.sequence - 1), rank_));
}

CommStatus ProgressBoard::failure() {
  const std::string text = store_->find("failure");
  return text.empty() ? CommStatus() : decode_failure(to_bytes(text));
}

CommStatus ProgressBoard::announce(const CommStatus& failure) {
  store_->compare_set("failure", "", to_string(encode(failure, std::string::npos)));
  store_->add("alarm", 1);
  return this->failure();
}

CommStatus ProgressBoard::look(uint64_t reached) { return answer(reached) ? failure() : CommStatus(); }

bool ProgressBoard::answer(uint64_t reached) {
  const int64_t alarm = store_->add("alarm", 0);
  PayloadWriter payload;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(answered_, alarm) == alarm) return false;
    payload.number(static_cast<uint64_t>(alarm)).number(reached).number(calls_.size());
    for (const Descriptor& call : calls_) payload.bytes(MessageHeader{call}.encode());
  }
  store_->set(key("answer", rank_), to_string(payload.take()));
  return true;
}

ProgressBoard::Answer ProgressBoard::answer_of(int rank) {
  const std::string text = store_->find(key("answer", rank));
  if (text.empty()) return {};
  PayloadReader payload(to_bytes(text));
  Answer answer{static_cast<int64_t>(payload.number()), payload.number(), {}};
  for (uint64_t left = payload.number(); left > 0; --left)
    answer.calls.push_back(MessageHeader::decode(payload.bytes(MessageHeader::kBytes)).descriptor);
  return answer;
}

std::vector<int> ProgressBoard::missing(const Descriptor& call, uint64_t reached) {
  const int64_t alarm = store_->add("alarm", 1);
  std::vector<int> silent, late;
  for (int r = 0; r < size_; ++r) silent.push_back(r);
  for (const Deadline deadline(kAnswerTime); !silent.empty() && !deadline.passed();) {
    answer(reached);  // this rank's own answer counts too, and other ranks may ask at the same time
    if (const CommStatus ended = failure(); !ended.ok()) throw CollectiveError(ended);
    std::erase_if(silent, [&](int r) {
      const Answer answer = answer_of(r);
      if (answer.alarm < alarm) return false;
      for (const Descriptor& theirs : answer.calls)
        if (contradicts(theirs, call)) throw CollectiveError(mismatch(r, theirs, rank_, call));
      if (answer.reached < call.sequence) late.push_back(r);
      return true;
    });
    std::this_thread::sleep_for(kPause);
  }
  for (int r : silent)
    if (has_left(r)) throw CollectiveError(peer_left(call, r));
  late.insert(late.end(), silent.begin(), silent.end());
  std::sort(late.begin(), late.end());
  return late;
}

}  // namespace gradus::dist
