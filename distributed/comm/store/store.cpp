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

void HashStore::set(const std::string& key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  table_.set(key, value);
  changed_.notify_all();
}

std::string HashStore::get(const std::string& key, Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const std::string* value = nullptr;
  if (!changed_.wait_for(lock, bounded(timeout), [&] { return (value = table_.find(key)) != nullptr; }))
    detail::fail_to_find({key}, timeout);
  return *value;
}

void HashStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, bounded(timeout), [&] { return table_.missing(keys).empty(); }))
    detail::fail_to_find(table_.missing(keys), timeout);
}

bool HashStore::check(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  return table_.missing(keys).empty();
}

int64_t HashStore::add(const std::string& key, int64_t amount) {
  const std::lock_guard lock(mutex_);
  const int64_t sum = table_.add(key, amount);
  changed_.notify_all();
  return sum;
}

std::string HashStore::compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
  const std::lock_guard lock(mutex_);
  std::string value = table_.compare_set(key, expected, desired);
  changed_.notify_all();
  return value;
}

bool HashStore::delete_key(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return table_.erase(key);
}

int64_t HashStore::num_keys() {
  const std::lock_guard lock(mutex_);
  return table_.size();
}

}  // namespace gradus::dist
