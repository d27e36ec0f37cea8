// A store that one process of the job serves over TCP, and to which all processes connect. After the handshake
// (token.h) a client has at most one request in progress. The answer has the id of the request.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include <gradus/distributed/comm/frame.h>
#include <gradus/distributed/comm/store/store.h>
#include <gradus/distributed/comm/tcp/socket.h>
#include <gradus/distributed/comm/tcp/token.h>

namespace gradus::dist {

inline constexpr std::string_view kStorePurpose = "store";

/// Serves a table to clients that know the token, on a thread of its own, until it is destroyed. Clients that send
/// anything but requests, or do not prove in time that they know the token, are dropped without effect on the others.
/// The number of clients is limited by the file descriptors (RLIMIT_NOFILE, which is raised to the hard limit if
/// necessary); clients beyond that are refused.
class TcpStoreServer {
 public:
  /// Port 0 selects a free port. Without a token only loopback addresses can be served; others throw a CommError.
  explicit TcpStoreServer(const Address& at = {"127.0.0.1", 0}, const Token& token = {},
                          const StoreLimits& limits = {});
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  const Address& address() const { return listener_.address(); }
  /// Number of connected clients.
  int clients() const { return client_count_; }

 private:
  struct Client;

  void serve();
  void accept();
  void read(Client& client);
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

/// A client of a TcpStoreServer. Several threads may share a client, but while one of them waits the others are held
/// up. A thread that should not be held up needs its own client: clone().
class TcpStore final : public Store {
 public:
  /// Connects, retrying until `timeout`, which also becomes the timeout of later waits.
  explicit TcpStore(const Address& server, const Token& token = {}, Milliseconds timeout = kDefaultTimeout);

  /// Makes another connection to the same server.
  std::unique_ptr<TcpStore> clone() const { return std::make_unique<TcpStore>(server_, token_, timeout()); }

  /// Sends the request and waits for its answer. An error closes the connection, because later bytes on it could not be
  /// assigned to a request.
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
