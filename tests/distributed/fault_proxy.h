// A TCP proxy that damages the bytes that pass it, between the ranks of a group or between a store and its clients.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gradus/distributed/comm/store/store.h>
#include <gradus/distributed/comm/tcp/socket.h>
#include <gradus/tests/distributed/ranks.h>

namespace gradus::test {

struct WireFault {
  enum class Kind : uint8_t {
    none,
    trickle,     ///< on all connections, in both directions, the first `after` bytes arrive one at a time
    flip,        ///< bit number `bit` of the next byte is inverted
    reset,       ///< both ends get a reset
    half_close,  ///< no more bytes arrive, and the receiver sees the end
    swallow,     ///< no more bytes arrive, and the receiver sees nothing
  };
  Kind kind = Kind::none;
  int from = 1;             // ranks: the rank that connects to the one behind the proxy
  bool on_control = false;  // ranks: on the control connection; false: on the connections of messages
  bool upwards = true;      // what the connecting side sends, or what it receives
  size_t after = 0;         // bytes after the handshake that pass unharmed
  int bit = 0;
};

class FaultProxy {
 public:
  /// The protocol behind the proxy, which determines the length of the handshakes. These pass unharmed.
  enum class Protocol : uint8_t { store, ranks };

  FaultProxy(const dist::Address& target, Protocol protocol, const WireFault& fault);
  ~FaultProxy();

  const dist::Address& address() const { return listener_.address(); }
  bool has_struck() const { return struck_; }

 private:
  struct Pipe {
    dist::Connection *from = nullptr, *to = nullptr;
    size_t passed = 0;  // number of bytes that were read
    io::Bytes waiting;
    bool ended = false, cut = false;  // no more bytes come, or none may pass
    bool told = false;                // the receiver has been told about that
  };
  struct Pair {
    dist::Connection client, server;
    Pipe up, down;
    io::Bytes hello;  // the bytes of the hello that have arrived
  };

  void serve();
  bool pump(Pair& pair, Pipe& pipe);
  bool is_target(const Pair& pair, const Pipe& pipe) const;
  void strike(Pair& pair, Pipe& pipe, io::Bytes* bytes, size_t begin);

  const dist::Address target_;
  const Protocol protocol_;
  const WireFault fault_;
  const dist::Listener listener_;
  std::list<Pair> pairs_;
  std::atomic<bool> stop_{false}, struck_{false};
  std::thread thread_;
};

/// A store that gives the address of a proxy instead of the address of rank 0.
class ProxiedStore final : public dist::Store {
 public:
  ProxiedStore(dist::Store& store, const WireFault& fault) : store_(store), fault_(fault) {}

  bool has_struck() const { return proxy_ != nullptr && proxy_->has_struck(); }

  dist::StoreAnswer ask(dist::StoreRequest request) override;

 private:
  dist::Store& store_;
  const WireFault fault_;
  std::unique_ptr<FaultProxy> proxy_;
};

struct Outcome {
  std::vector<RankResult> ranks;
  bool struck;
};

/// Runs ranks in threads. All connections of rank 0 pass a proxy.
inline Outcome run_through_proxy(int size, const WireFault& fault, const std::function<void(dist::ProcessGroup&)>& body,
                                 const dist::TcpOptions& options = {.timeout = dist::Milliseconds(10'000)}) {
  dist::HashStore store;
  ProxiedStore proxied(store, fault);
  std::vector<RankResult> ranks = run_ranks("tcp", size, body, options, {}, &proxied);
  // If another rank has announced the failure, the proxy may not have applied its fault yet.
  for (const dist::Deadline patience(dist::Milliseconds(2000)); !proxied.has_struck() && !patience.passed();) {
    if (fault.kind == WireFault::Kind::trickle) break;
    std::this_thread::sleep_for(dist::Milliseconds(1));
  }
  return {ranks, proxied.has_struck()};
}

}  // namespace gradus::test
