// Messages over TCP. Every two ranks share three connections: one for the messages of each, since a connection that is
// full of what this rank sends is slow to give what it receives, and one for what must come through while a message is
// stuck: failures, and the question whether a rank is still there.
#pragma once

#include <bit>
#include <mutex>
#include <string>
#include <vector>

#include <gradus/distributed/comm/frame.h>
#include <gradus/distributed/comm/socket.h>
#include <gradus/distributed/comm/store/store.h>
#include <gradus/distributed/comm/token.h>
#include <gradus/distributed/comm/transport.h>

namespace gradus::dist {

struct TcpOptions {
  /// Where this rank listens and the others find it. Without a token it must be a loopback address.
  std::string host = "127.0.0.1";
  Token token = {};
  Milliseconds timeout = kDefaultTimeout;
  /// Adds a CRC-32C to every message: damage that TCP's own checksum misses becomes an error.
  bool checksum = false;
  uint32_t epoch = 0;
  /// Pairs of ranks get connections for a second thread, which shares the work on large arrays of a GPU. All ranks
  /// alike.
  bool two_lanes = false;
};

/// What two ranks share.
struct TcpPeer {
  Connection out, in, control;
  std::endian byte_order = std::endian::native;
};

/// Meets the other ranks by way of the store: each sets address/<rank>, connects to those before it and accepts those
/// behind it. Both sides prove that they know the token. A CommError names who did not come. The result is indexed by
/// rank.
std::vector<TcpPeer> meet_over_tcp(Store& store, int rank, int size, const TcpOptions& options);

class TcpTransport final : public Transport {
 public:
  TcpTransport(Store& store, int rank, int size, const TcpOptions& options);
  /// Takes leave, so that the others do not take it for a crash.
  ~TcpTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void exchange(std::span<const Transfer> transfers, const Descriptor& descriptor, const Deadline& deadline) override;
  void announce(const CommStatus& failure) noexcept override;

  /// How the kernel paces what this rank sends, "cubic" say; "" where there is no other rank.
  std::string congestion_control() const;

 private:
  struct Peer : TcpPeer {
    FrameReader control_reader{1 << 13};
    bool left = false;      // it said that it goes
    bool answered = false;  // the last question whether it is there
  };
  class Exchange;

  const int rank_;
  const bool checksum_;
  std::mutex mutex_;  // of what follows: an exchange holds it, except while it waits
  std::vector<Peer> peers_;
  CommStatus heard_;           // the failure that another rank has announced
  std::mutex announce_mutex_;  // of control connections that are written to or closed
  FileDescriptor wake_;        // eventfd(2): readable once this rank has announced a failure
  CommStatus announced_;
};

}  // namespace gradus::dist
