// Messages over TCP. Each pair of ranks shares three connections: one for the messages in each direction, because a
// connection that is full of outgoing data is slow to deliver incoming data, and one for control messages, which must
// arrive even while a message is stuck: failures, and the question whether a rank is alive.
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
  /// The address at which this rank listens and the others find it. Without a token it must be a loopback address.
  std::string host = "127.0.0.1";
  Token token = {};
  Milliseconds timeout = kDefaultTimeout;
  /// Adds a CRC-32C to every message, so that damage which TCP's own checksum misses becomes an error.
  bool checksum = false;
  uint32_t epoch = 0;
  /// Adds a second set of connections for another thread, which shares the work on large arrays in GPU memory. Must be
  /// the same on all ranks.
  bool two_lanes = false;
};

/// The connections of this rank to another one.
struct TcpPeer {
  Connection out, in, control;
  std::endian byte_order = std::endian::native;
};

/// Meets the other ranks through the store: each rank sets address/<rank>, connects to the ranks before it and accepts
/// the ranks after it. Both sides prove that they know the token. Throws a CommError that names the ranks that did not
/// connect. The result is indexed by rank.
std::vector<TcpPeer> meet_over_tcp(Store& store, int rank, int size, const TcpOptions& options);

class TcpTransport final : public Transport {
 public:
  TcpTransport(Store& store, int rank, int size, const TcpOptions& options);
  /// Tells the other ranks that this one leaves, so that they do not take it for a crash.
  ~TcpTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void exchange(std::span<const Transfer> transfers, const Descriptor& descriptor, const Deadline& deadline) override;
  void announce(const CommStatus& failure) noexcept override;

  /// The kernel's congestion control for what this rank sends, for example "cubic"; "" if there is no other rank.
  std::string congestion_control() const;

 private:
  struct Peer : TcpPeer {
    FrameReader control_reader{1 << 13};
    bool left = false;      // it has announced that it leaves
    bool answered = false;  // it has answered the last question
  };
  class Exchange;

  const int rank_;
  const bool checksum_;
  std::mutex mutex_;  // guards the members below; an exchange holds it unless it waits
  std::vector<Peer> peers_;
  CommStatus heard_;           // the failure that another rank has announced
  std::mutex announce_mutex_;  // guards writing to and closing control connections
  FileDescriptor wake_;        // eventfd(2): becomes readable once this rank has announced a failure
  CommStatus announced_;
};

}  // namespace gradus::dist
