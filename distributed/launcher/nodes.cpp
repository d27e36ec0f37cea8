#include <gradus/distributed/launcher/nodes.h>

#include <sys/eventfd.h>

#include <charconv>
#include <memory>

#include <gradus/core/error.h>

namespace gradus::dist {
namespace {

constexpr Milliseconds kBeat{500};
constexpr Milliseconds kSilence{15'000};
/// How long a node that has ended well waits for one that has not joined the job yet.
constexpr Milliseconds kUntilJoined{60'000};
/// Of connecting, and of an answer of the store, which has 10 s more: less than kSilence together.
constexpr Milliseconds kRequest{2'000};
const std::string kOutcome = "gradus-run/outcome";

std::string key(int node) { return "gradus-run/node/" + std::to_string(node); }
std::string seconds(Milliseconds time) { return std::to_string(time.count() / 1000) + " s"; }

Outcome decode(const std::string& text) {
  Outcome outcome{1};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), outcome.code);
  outcome.cause = rest == text.data() + text.size() ? "" : rest + 1;
  return outcome;
}

std::string find(Store& store, const std::string& key) { return store.check({key}) ? store.get(key) : ""; }

/// The outcome of the job if there is one: `proposed`, unless another was there before.
std::optional<Outcome> settle(Store& store, const std::optional<Outcome>& proposed) {
  const std::string found =
      proposed ? store.compare_set(kOutcome, "", std::to_string(proposed->code) + " " + proposed->cause)
               : find(store, kOutcome);
  return found.empty() ? std::nullopt : std::optional(decode(found));
}

bool failed(const std::optional<Outcome>& outcome) { return outcome && outcome->code != 0; }

}  // namespace

Nodes::Nodes(int node, int count, const Address& store, const Token& token)
    : node_(node), address_(store), token_(token), changed_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      others_(node == 0 ? static_cast<size_t>(count - 1) : 0, Other{"", Deadline(kSilence)}) {
  GRADUS_CHECK(changed_, CommError, "no descriptor is left to wait for other nodes with");
  thread_ = std::thread([this] { run(); });
}

Nodes::~Nodes() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = news_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Nodes::ended(const Outcome& own) {
  const std::lock_guard lock(mutex_);
  if (failed(own_)) return;
  own_ = own;
  news_ = true;
  wake_.notify_one();
}

std::optional<Outcome> Nodes::outcome() const {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

bool Nodes::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

std::optional<Outcome> Nodes::own() const {
  const std::lock_guard lock(mutex_);
  return own_;
}

void Nodes::acknowledge() {
  eventfd_t count = 0;
  eventfd_read(changed(), &count);
}

void Nodes::decide(const Outcome& outcome) {
  const std::lock_guard lock(mutex_);
  if (!outcome_) outcome_ = outcome;
  eventfd_write(changed(), 1);
}

void Nodes::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  eventfd_write(changed(), 1);
}

void Nodes::run() {
  std::unique_ptr<TcpStore> store;
  while (!finished()) {
    const std::optional<Outcome> own = this->own();
    if (own && !patience_) patience_.emplace(failed(own) ? kSilence : kUntilJoined);
    try {
      if (!store) store = std::make_unique<TcpStore>(address_, token_, kRequest);
      if (node_ == 0) lead(*store);
      else follow(*store);
    } catch (const std::exception& error) {
      if (store || (patience_ && patience_->passed())) {
        decide(failed(own)
                   ? *own
                   : Outcome{1, std::string("node 0 was ") + (store ? "lost: " : "not reached: ") + error.what()});
        finish();
      }
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kBeat, [&] { return news_ || finished_; });
    if (stopped_) return;
    news_ = false;
  }
}

void Nodes::follow(Store& store) {
  const std::optional<Outcome> own = this->own();
  store.set(key(node_), (own ? "ended " : "running ") + std::to_string(++beat_));
  const std::optional<Outcome> outcome = settle(store, failed(own) ? own : std::nullopt);
  if (!outcome) return;
  decide(*outcome);
  store.set(key(node_), "left");
  finish();
}

void Nodes::lead(Store& store) {
  const std::optional<Outcome> own = this->own();
  std::optional<Outcome> proposed = failed(own) ? own : std::nullopt;
  bool all_ended = own.has_value(), all_told = true;
  for (size_t i = 0; i < others_.size(); ++i) {
    Other& other = others_[i];
    const int node = static_cast<int>(i) + 1;
    const std::string said = find(store, key(node));
    if (said != other.said) other = {said, Deadline(kSilence)};
    const bool joined = !said.empty(), left = said == "left", silent = other.silence.passed();
    all_ended = all_ended && (left || said.starts_with("ended"));
    all_told = all_told && (left || silent);
    if (proposed || left) continue;
    const std::string name = "node " + std::to_string(node);
    if (joined && silent) proposed = {1, name + " was lost: its launcher was silent for " + seconds(kSilence)};
    else if (!joined && patience_ && patience_->passed())
      proposed = {1, name + " did not join within " + seconds(kUntilJoined) + " after the ranks of node 0 had ended"};
  }
  if (!proposed && all_ended) proposed = Outcome{};
  const std::optional<Outcome> outcome = settle(store, proposed);
  if (!outcome) return;
  decide(*outcome);
  if (all_told) finish();
}

}  // namespace gradus::dist
