// A small key-value table through which the processes of a job find each other, as c10d::Store. Every call is a
// StoreRequest, so a kind of store is only a way to get requests to a StoreTable.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gradus/distributed/comm/frame.h>
#include <gradus/distributed/comm/tcp/token.h>

namespace gradus::dist {

/// What a store accepts. A larger request is a CommError for the caller, and no memory is reserved for it.
struct StoreLimits {
  size_t key_bytes = 1 << 10;
  size_t value_bytes = 1 << 22;
  size_t total_bytes = 1 << 26;  // keys and values together
  // For a server: how long a client may take to prove that it knows the token, and how many clients may be doing so at
  // a time.
  Milliseconds handshake{5000};
  size_t strangers = most_strangers();
};

/// Type of a frame between a TcpStore and its server. The comments describe the payload. Frames marked "server" are
/// sent by the server, all others by the client. The numbers s and c and the proofs: Handshake in token.h.
enum class StoreMessage : uint8_t {
  challenge = 1,  // server: s, 32 bytes
  proof,          // client: c, 32 bytes, and its proof, 32 bytes
  welcome,        // server: its proof, 32 bytes
  set,            // key, value
  get,            // timeout in ms, key
  wait,           // timeout in ms, keys
  check,          // keys
  add,            // key, amount as int64
  compare_set,    // key, expected, desired
  delete_key,     // key
  num_keys,       // nothing
  done,           // server: the number and the string that the request asked for, 0 and "" if there is none
  timed_out,      // server: the keys that are missing
  refused,        // server: an error message; may replace a welcome
};

/// A call of a method of Store.
struct StoreRequest {
  StoreMessage kind = StoreMessage::num_keys;
  std::vector<std::string> keys = {};
  std::string value = {}, expected = {};
  int64_t amount = 0;
  Milliseconds timeout{0};

  Frame encode(uint64_t id) const;
  /// Throws a CommError if the frame is not a request.
  static StoreRequest decode(const Frame& frame);
};

struct StoreAnswer {
  StoreMessage kind = StoreMessage::done;  ///< done, timed_out or refused
  int64_t number = 0;
  std::string text = {};                  ///< the string for `done`, the error message for `refused`
  std::vector<std::string> missing = {};  ///< the missing keys for `timed_out`

  Frame encode(uint64_t id) const;
  /// Throws a CommError if the frame is not an answer.
  static StoreAnswer decode(const Frame& frame);
};

class Store {
 public:
  virtual ~Store() = default;

  /// Timeout of get() and wait() without one.
  void set_timeout(Milliseconds timeout) { timeout_ = timeout; }
  Milliseconds timeout() const { return timeout_; }

  /// Sets the key to this value, whatever it held before.
  void set(const std::string& key, std::string_view value) {
    ask({.kind = StoreMessage::set, .keys = {key}, .value = std::string(value)});
  }
  /// Waits until the key exists and returns its value. Throws a CommError that names the key after the timeout.
  std::string get(const std::string& key) { return get(key, timeout_); }
  std::string get(const std::string& key, Milliseconds timeout) {
    return ask({.kind = StoreMessage::get, .keys = {key}, .timeout = timeout}).text;
  }
  /// Waits until all keys exist. Throws a CommError that names the missing keys after the timeout.
  void wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) {
    ask({.kind = StoreMessage::wait, .keys = keys, .timeout = timeout});
  }
  /// The value of a key, "" if it does not exist now.
  std::string find(const std::string& key) { return check({key}) ? get(key) : ""; }
  /// True if all keys exist now.
  bool check(const std::vector<std::string>& keys) {
    return ask({.kind = StoreMessage::check, .keys = keys}).number != 0;
  }
  /// Adds to the decimal number that `key` holds (0 if there is no such key) and returns the sum.
  int64_t add(const std::string& key, int64_t amount) {
    return ask({.kind = StoreMessage::add, .keys = {key}, .amount = amount}).number;
  }
  /// Sets `key` to `desired` if it holds `expected`, or if it does not exist and `expected` is empty. Returns the value
  /// that `key` holds afterwards, "" if it does not exist.
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
    StoreRequest request{.kind = StoreMessage::compare_set, .keys = {key}, .value = std::string(desired)};
    request.expected = expected;
    return ask(std::move(request)).text;
  }
  /// Removes a key. Returns true if it existed.
  bool delete_key(const std::string& key) { return ask({.kind = StoreMessage::delete_key, .keys = {key}}).number != 0; }
  /// The number of keys.
  int64_t num_keys() { return ask({.kind = StoreMessage::num_keys}).number; }

  /// Carries out a request of one of the methods above. Throws a CommError if the request exceeds a limit, or if its
  /// keys do not exist before its timeout.
  virtual StoreAnswer ask(StoreRequest request) = 0;

 private:
  Milliseconds timeout_ = kDefaultTimeout;
};

/// The keys and values of a store, without locks or waits.
class StoreTable {
 public:
  explicit StoreTable(const StoreLimits& limits) : limits_(limits) {}

  /// Sets a key as Store::set() does. Throws a CommError if a limit is exceeded.
  void set(const std::string& key, std::string_view value);
  /// Those of `keys` that do not exist.
  std::vector<std::string> missing(const std::vector<std::string>& keys) const;
  /// Carries out a request. Returns nothing if the request has to wait for keys. Throws a CommError if a limit is
  /// exceeded.
  std::optional<StoreAnswer> carry_out(const StoreRequest& request);

 private:
  StoreLimits limits_;
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;
};

/// A store within one process, for threads and for tests.
class HashStore final : public Store {
 public:
  explicit HashStore(const StoreLimits& limits = {}) : table_(limits) {}
  StoreAnswer ask(StoreRequest request) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  StoreTable table_;
};

/// A view of another store in which all keys begin with `prefix/`, so that several groups can share a job's store.
/// num_keys() is the number of keys in the whole store.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {
    set_timeout(store_->timeout());
  }
  StoreAnswer ask(StoreRequest request) override {
    for (std::string& key : request.keys) key.insert(0, prefix_);
    return store_->ask(std::move(request));
  }

 private:
  const std::string prefix_;
  const std::shared_ptr<Store> store_;
};

/// A shared pointer to a store that the caller keeps alive.
inline std::shared_ptr<Store> borrow(Store& store) { return {std::shared_ptr<void>(), &store}; }

/// Sets `name`/<rank> to `own` and waits until all ranks have done so. Returns the keys, by rank.
std::vector<std::string> wait_for_ranks(Store& store, const std::string& name, std::string_view own, int rank, int size,
                                        Milliseconds timeout);
/// Does the same. Returns the values of the keys, by rank.
std::vector<std::string> values_of_ranks(Store& store, const std::string& name, std::string_view own, int rank,
                                         int size, Milliseconds timeout);

namespace detail {
/// Throws the CommError of a wait that ended without these keys.
[[noreturn]] void fail_to_find(const std::vector<std::string>& missing, Milliseconds timeout);
}  // namespace detail

// ---- A store that one process of the job serves over TCP, and to which all processes connect ----
// After the handshake (token.h) a client has at most one request in progress. The answer has the id of the request.

inline constexpr std::string_view kStorePurpose = "store";

/// Serves a table to clients that know the token, on a new thread, until it is destroyed. Clients that send anything
/// but requests, or do not prove in time that they know the token, are disconnected. Other clients do not notice. The
/// number of clients is limited by the file descriptors (RLIMIT_NOFILE, which is raised to the hard limit if
/// necessary); clients beyond that are refused.
class TcpStoreServer : NoCopy {
 public:
  /// Port 0 selects a free port. Without a token only loopback addresses can be served; others throw a CommError.
  explicit TcpStoreServer(const Address& at = {"127.0.0.1", 0}, const Token& token = {},
                          const StoreLimits& limits = {});
  ~TcpStoreServer();

  const Address& address() const { return listener_.address(); }
  /// Number of connected clients.
  int clients() const { return client_count_; }

 private:
  struct Client;

  void serve();
  void accept();
  /// Answers every request that has arrived, up to the first that has to wait.
  void answer_all(Client& client);
  void answer(Client& client, const Frame& frame);
  void check_proof(Client& client, const Frame& frame);
  void resolve_waiters();
  size_t strangers() const;
  Milliseconds next_deadline(bool full) const;

  const Token token_;
  const StoreLimits limits_;
  Listener listener_;
  FileDescriptor stop_;  // eventfd(2): becomes readable when the thread must end
  StoreTable table_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::atomic<int> client_count_ = 0;
  bool out_of_descriptors_ = false, warned_ = false;
  std::thread thread_;
};

/// A client of a TcpStoreServer. Several threads may share a client, but while one thread waits for a key, the other
/// threads wait too. A thread that must not wait needs another client: clone().
class TcpStore final : public Store {
 public:
  /// Connects, retrying until `timeout`, which also becomes the timeout of later waits.
  explicit TcpStore(const Address& server, const Token& token = {}, Milliseconds timeout = kDefaultTimeout);

  /// Makes another connection to the same server.
  std::unique_ptr<TcpStore> clone() const { return std::make_unique<TcpStore>(server_, token_, timeout()); }

  /// Sends the request and waits for its answer. An error closes the connection, because an answer that arrives later
  /// could not be assigned to a request.
  StoreAnswer ask(StoreRequest request) override;

 private:
  Frame receive(const Deadline& deadline);
  void shake_hands(const Deadline& deadline);

  const Address server_;
  const Token token_;
  const std::string peer_;  // the name of the server in messages
  std::mutex mutex_;
  Connection connection_;
  FrameReader reader_;
  uint64_t next_id_ = 1;
};

}  // namespace gradus::dist
