// A small key-value table through which the processes of a job find each other, as c10d::Store.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/socket.h>

namespace gradus::dist {

/// What a store accepts. More is a CommError for the caller, and no memory is reserved for it.
struct StoreLimits {
  size_t key_bytes = 1 << 10;
  size_t value_bytes = 1 << 22;
  size_t total_bytes = 1 << 26;  // keys and values together
  // Limits of a server: how long a client may take to prove that it knows the token, and how many such clients there
  // may be.
  Milliseconds handshake{5000};
  size_t strangers = most_strangers();
};

class Store {
 public:
  virtual ~Store() = default;

  /// Timeout of get() and wait() without one.
  void set_timeout(Milliseconds timeout) { timeout_ = timeout; }
  Milliseconds timeout() const { return timeout_; }

  /// Sets the key to this value, whatever it held before.
  virtual void set(const std::string& key, std::string_view value) = 0;
  /// Waits until the key exists and returns its value. Throws a CommError that names the key after the timeout.
  std::string get(const std::string& key) { return get(key, timeout_); }
  virtual std::string get(const std::string& key, Milliseconds timeout) = 0;
  /// Returns when all keys exist, or throws likewise.
  void wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }
  virtual void wait(const std::vector<std::string>& keys, Milliseconds timeout) = 0;
  /// True if all keys exist now.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  /// Adds to the decimal number that `key` holds (0 if there is no such key) and returns the sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  /// Sets `key` to `desired` if it holds `expected`, or if it does not exist and `expected` is empty. Returns the value
  /// that it holds afterwards, "" if it does not exist.
  virtual std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) = 0;
  /// Removes a key. Returns true if it existed.
  virtual bool delete_key(const std::string& key) = 0;
  /// The number of keys.
  virtual int64_t num_keys() = 0;

 private:
  Milliseconds timeout_ = kDefaultTimeout;
};

/// The table itself, without locks or waits. Every method may throw a CommError if a limit is exceeded.
class StoreTable {
 public:
  explicit StoreTable(const StoreLimits& limits) : limits_(limits) {}

  void set(const std::string& key, std::string_view value);
  const std::string* find(const std::string& key) const;
  /// Those of `keys` that do not exist.
  std::vector<std::string> missing(const std::vector<std::string>& keys) const;
  int64_t add(const std::string& key, int64_t amount);
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired);
  bool erase(const std::string& key);
  int64_t size() const { return static_cast<int64_t>(values_.size()); }

 private:
  StoreLimits limits_;
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;
};

/// A store within one process, for threads and for tests.
class HashStore final : public Store {
 public:
  explicit HashStore(const StoreLimits& limits = {}) : table_(limits) {}

  using Store::get;
  using Store::wait;
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, Milliseconds timeout) override;
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) override;
  bool delete_key(const std::string& key) override;
  int64_t num_keys() override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  StoreTable table_;
};

/// A view of another store in which all keys begin with `prefix/`, so that several groups can share a job's store.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {
    set_timeout(store_->timeout());
  }

  using Store::get;
  using Store::wait;
  void set(const std::string& key, std::string_view value) override { store_->set(prefix_ + key, value); }
  std::string get(const std::string& key, Milliseconds timeout) override { return store_->get(prefix_ + key, timeout); }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override { store_->wait(full(keys), timeout); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(full(keys)); }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(prefix_ + key, amount); }
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) override {
    return store_->compare_set(prefix_ + key, expected, desired);
  }
  bool delete_key(const std::string& key) override { return store_->delete_key(prefix_ + key); }
  /// The number of keys in the whole store.
  int64_t num_keys() override { return store_->num_keys(); }

 private:
  std::vector<std::string> full(std::vector<std::string> keys) const {
    for (std::string& key : keys) key.insert(0, prefix_);
    return keys;
  }

  std::string prefix_;
  std::shared_ptr<Store> store_;
};

/// A shared pointer to a store that the caller keeps alive.
inline std::shared_ptr<Store> borrow(Store& store) { return {std::shared_ptr<void>(), &store}; }

namespace detail {
/// Throws the CommError of a wait that ended without these keys.
[[noreturn]] void fail_to_find(const std::vector<std::string>& missing, Milliseconds timeout);
}  // namespace detail

}  // namespace gradus::dist
