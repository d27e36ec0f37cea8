#include <gradus/distributed/launcher/nodes.h>

#include <sys/eventfd.h>

#include <sstream>

namespace gradus::dist {
namespace {

constexpr Milliseconds kBeat{500};
constexpr Milliseconds kSilence{15'000};
/// How long a node that has succeeded waits for a node that has not joined the job yet.
constexpr Milliseconds kUntilJoined{60'000};
/// Timeout for connecting, and for a request to the store, whose answer may take 10 s longer. A node that waits for
/// both is still silent for less than kSilence.
constexpr Milliseconds kNodeRequest{2'000};
std::string seconds(Milliseconds time) { return std::to_string(time.count() / 1000) + " s"; }

std::string encode(const Outcome& outcome) {
  return std::to_string(outcome.code) + (outcome.restart ? " 1 " : " 0 ") + outcome.cause;
}

Outcome decode(const std::string& text) {
  std::istringstream stream(text);
  Outcome outcome{1};
  stream >> outcome.code >> outcome.restart >> std::ws;
  std::getline(stream, outcome.cause);
  return outcome;
}

/// Sets `key` to `proposed`, if given, unless the key exists. Returns the value of the key, if it exists.
std::optional<Outcome> settle(Store& store, const std::string& key, const std::optional<Outcome>& proposed) {
  const std::string found = proposed ? store.compare_set(key, "", encode(*proposed)) : store.find(key);
  return found.empty() ? std::nullopt : std::optional(decode(found));
}

}  // namespace

Nodes::Nodes(int node, int count, const Address& store, const Token& token, int attempt)
    : node_(node), address_(store), token_(token), keys_("gradus-run/" + std::to_string(attempt) + "/"),
      changed_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      others_(node == 0 ? static_cast<size_t>(count - 1) : 0, Other{"", Deadline(kSilence)}) {
  GRADUS_CHECK(changed_, CommError, "no descriptor is left to wait for other nodes with");
  thread_ = std::thread([this] { run(); });
}

Nodes::~Nodes() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = woken_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Nodes::failed(const Outcome& own) {
  const std::lock_guard lock(mutex_);
  if (!news_.own || (news_.own->restart && !own.restart)) news_.own = own;
  woken_ = true;
  wake_.notify_one();
}

void Nodes::ended() {
  const std::lock_guard lock(mutex_);
  news_.ended = woken_ = true;
  wake_.notify_one();
}

std::optional<Outcome> Nodes::settle_failure(Store& store, const std::optional<Outcome>& proposed) {
  const std::string key = keys_ + "failure";
  std::optional<Outcome> failure = settle(store, key, proposed);
  if (failure && failure->restart && proposed && !proposed->restart) {
    Outcome last = {failure->code, failure->cause};
    if (proposed->cause != failure->cause) last.cause += "; " + proposed->cause;
    failure = decode(store.compare_set(key, encode(*failure), encode(last)));
  }
  const std::lock_guard lock(mutex_);
  if (failure && !news_.failure) eventfd_write(changed(), 1);
  return news_.failure = failure;
}

void Nodes::finish(const Outcome& outcome) {
  const std::lock_guard lock(mutex_);
  if (outcome.code != 0) news_.failure = outcome;
  news_.outcome = outcome;
  eventfd_write(changed(), 1);
}

void Nodes::run() {
  std::unique_ptr<TcpStore> store;
  while (!news().outcome) {
    const News now = news();
    if ((now.own || now.ended) && !patience_) patience_.emplace(now.own || now.failure ? kSilence : kUntilJoined);
    try {
      if (!store) store = std::make_unique<TcpStore>(address_, token_, kNodeRequest);
      if (node_ == 0) lead(*store);
      else follow(*store);
    } catch (const std::exception& error) {
      if (store || (patience_ && patience_->passed())) {
        const std::string lost = std::string("node 0 ") + (store ? "was lost: " : "cannot be reached: ") + error.what();
        const Outcome cause = news().failure.value_or(now.own.value_or(Outcome{1, lost}));
        finish({cause.code, cause.cause});  // without a restart, because this node cannot restart the job alone
      }
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kBeat, [&] { return woken_ || news_.outcome; });
    if (stopped_) return;
    woken_ = false;
  }
}

void Nodes::follow(Store& store) {
  const News now = news();
  const std::string key = keys_ + "node/" + std::to_string(node_);
  store.set(key, (now.ended ? "ended " : "running ") + std::to_string(++beat_));
  settle_failure(store, now.own);
  const std::optional<Outcome> outcome = settle(store, keys_ + "outcome", std::nullopt);
  if (!outcome) return;
  store.set(key, "left");
  finish(*outcome);
}

void Nodes::lead(Store& store) {
  const News now = news();
  std::optional<Outcome> failure = now.own;
  bool all_ended = now.ended, all_told = true;
  std::string lost;
  for (size_t i = 0; i < others_.size(); ++i) {
    Other& other = others_[i];
    const std::string name = "node " + std::to_string(i + 1);
    const std::string said = store.find(keys_ + "node/" + std::to_string(i + 1));
    if (said != other.said) other = {said, Deadline(kSilence)};
    const bool joined = !said.empty(), left = said == "left", silent = other.silence.passed();
    all_told = all_told && (left || silent);
    if (left) continue;
    if (joined && silent) lost = name + " was lost: its launcher was silent for " + seconds(kSilence);
    else if (!joined && patience_ && patience_->passed()) lost = name + " did not join in time";
    else if (!said.starts_with("ended")) all_ended = false;
  }
  if (!lost.empty() && (!failure || failure->restart)) failure = Outcome{1, lost};
  failure = settle_failure(store, failure);
  if (!all_ended) return;
  const std::optional<Outcome> outcome = settle(store, keys_ + "outcome", failure.value_or(Outcome{}));
  if (all_told) finish(*outcome);
}

}  // namespace gradus::dist
