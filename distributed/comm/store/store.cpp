#include <gradus/distributed/comm/store/store.h>

#include <charconv>

#include <gradus/core/error.h>

namespace gradus::dist {

void detail::fail_to_find(const std::vector<std::string>& missing, Milliseconds timeout) {
  std::string names;
  for (const std::string& key : missing) names += (names.empty() ? "'" : ", '") + key + "'";
  GRADUS_FAIL(CommError, "[store] no process set ", names, " within ", timeout.count(),
              " ms: a process of the job did not start, or ended early");
}

void StoreTable::set(const std::string& key, std::string_view value) {
  GRADUS_CHECK(key.size() <= limits_.key_bytes, CommError, "[store] a key has ", key.size(), " bytes; at most ",
               limits_.key_bytes, " are accepted");
  GRADUS_CHECK(value.size() <= limits_.value_bytes, CommError, "[store] the value of '", key, "' has ", value.size(),
               " bytes; at most ", limits_.value_bytes, " are accepted");
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t after = bytes_ - before + key.size() + value.size();
  GRADUS_CHECK(after <= limits_.total_bytes, CommError, "[store] it would hold ", after, " bytes with '", key,
               "'; at most ", limits_.total_bytes, " are accepted");
  if (found == values_.end()) values_.emplace(key, value);
  else found->second = value;
  bytes_ = after;
}

const std::string* StoreTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::vector<std::string> StoreTable::missing(const std::vector<std::string>& keys) const {
  std::vector<std::string> found;
  for (const std::string& key : keys)
    if (!values_.contains(key)) found.push_back(key);
  return found;
}

int64_t StoreTable::add(const std::string& key, int64_t amount) {
  int64_t sum = 0;
  if (const std::string* text = find(key)) {
    const char* end = text->data() + text->size();
    const auto [rest, error] = std::from_chars(text->data(), end, sum);
    GRADUS_CHECK(error == std::errc() && rest == end, CommError, "[store] '", key,
                 "' does not hold a number to add to");
  }
  GRADUS_CHECK(!__builtin_add_overflow(sum, amount, &sum), CommError, "[store] '", key,
               "' would leave the range of int64");
  set(key, std::to_string(sum));
  return sum;
}

std::string StoreTable::compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
  const std::string* value = find(key);
  if (value ? *value == expected : expected.empty()) {
    set(key, desired);
    return std::string(desired);
  }
  return value ? *value : std::string();
}

bool StoreTable::erase(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= key.size() + found->second.size();
  values_.erase(found);
  return true;
}

std::optional<StoreAnswer> StoreTable::carry_out(const StoreRequest& request) {
  StoreAnswer answer;
  switch (request.kind) {
    case StoreMessage::set: set(request.keys[0], request.value); break;
    case StoreMessage::get:
    case StoreMessage::wait:
      if (!missing(request.keys).empty()) return std::nullopt;
      if (request.kind == StoreMessage::get) answer.text = *find(request.keys[0]);
      break;
    case StoreMessage::check: answer.number = missing(request.keys).empty(); break;
    case StoreMessage::add: answer.number = add(request.keys[0], request.amount); break;
    case StoreMessage::compare_set: answer.text = compare_set(request.keys[0], request.expected, request.value); break;
    case StoreMessage::delete_key: answer.number = erase(request.keys[0]); break;
    case StoreMessage::num_keys: answer.number = static_cast<int64_t>(values_.size()); break;
    default: GRADUS_FAIL(CommError, "not a request");
  }
  return answer;
}

StoreAnswer HashStore::ask(StoreRequest request) {
  std::unique_lock lock(mutex_);
  std::optional<StoreAnswer> answer;
  if (!changed_.wait_for(lock, bounded(request.timeout),
                         [&] { return (answer = table_.carry_out(request)).has_value(); }))
    detail::fail_to_find(table_.missing(request.keys), request.timeout);
  changed_.notify_all();
  return *std::move(answer);
}

void Store::set(const std::string& key, std::string_view value) {
  ask({.kind = StoreMessage::set, .keys = {key}, .value = std::string(value)});
}

std::string Store::get(const std::string& key, Milliseconds timeout) {
  return ask({.kind = StoreMessage::get, .keys = {key}, .timeout = timeout}).text;
}

void Store::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  ask({.kind = StoreMessage::wait, .keys = keys, .timeout = timeout});
}

bool Store::check(const std::vector<std::string>& keys) {
  return ask({.kind = StoreMessage::check, .keys = keys}).number != 0;
}

int64_t Store::add(const std::string& key, int64_t amount) {
  return ask({.kind = StoreMessage::add, .keys = {key}, .amount = amount}).number;
}

std::string Store::compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
  StoreRequest request{.kind = StoreMessage::compare_set, .keys = {key}};
  request.value = desired;
  request.expected = expected;
  return ask(std::move(request)).text;
}

bool Store::delete_key(const std::string& key) {
  return ask({.kind = StoreMessage::delete_key, .keys = {key}}).number != 0;
}

int64_t Store::num_keys() { return ask({.kind = StoreMessage::num_keys}).number; }

}  // namespace gradus::dist
