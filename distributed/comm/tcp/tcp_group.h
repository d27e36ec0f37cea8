// The process group over TCP, for ranks on one host or several.
#pragma once

#include <bit>

#include <gradus/distributed/comm/host_group.h>
#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

struct TcpOptions {
  /// The address at which this rank listens, and to which the other ranks connect. Without a token it must be a
  /// loopback address.
  std::string host = "127.0.0.1";
  Token token = {};
  Milliseconds timeout = kDefaultTimeout;
  /// Adds a CRC-32C to every message, because TCP's own checksum does not detect all damage.
  bool checksum = false;
  uint32_t epoch = 0;
  /// Adds a second set of connections. Two threads then share the transfer of large arrays in GPU memory. Must be the
  /// same on all ranks.
  bool two_lanes = false;
};

/// The connections of this rank to another one, and what has arrived over the control connection.
struct TcpPeer {
  Connection out, in, control;
  std::endian byte_order = std::endian::native;
  FrameReader control_reader{1 << 13};
  bool left = false;      // the rank has announced that it leaves
  bool answered = false;  // the rank has answered the last question
};

/// Meets the other ranks through the store: each rank publishes its address under the key address/<rank>, connects to
/// all lower ranks and accepts connections from all higher ranks. Both sides prove that they know the token. Throws a
/// CommError that names the ranks that did not connect. The result is indexed by rank.
std::vector<TcpPeer> meet_over_tcp(Store& store, int rank, int size, const TcpOptions& options);

/// Messages over TCP. Each pair of ranks shares three connections: one for the messages in each direction, because a
/// connection that is full of outgoing data is slow to deliver incoming data, and one for control messages (enum
/// Control), which must arrive even while a message is stuck.
class TcpTransport final : public Transport {
 public:
  TcpTransport(Store& store, int rank, int size, const TcpOptions& options);
  /// Announces to the other ranks that this rank leaves. Otherwise they would report that it crashed.
  ~TcpTransport() override;

  void exchange(std::span<const Transfer> transfers, const Descriptor& descriptor, const Deadline& deadline) override;
  void announce(const CommStatus& failure) noexcept override;

  /// The kernel's congestion control for what this rank sends, for example "cubic"; "" if there is no other rank.
  std::string congestion_control() const;

 private:
  class Exchange;

  const bool checksum_;
  std::mutex mutex_;  // guards the members below; an exchange holds it unless it waits
  std::vector<TcpPeer> peers_;
  CommStatus heard_;           // the failure that another rank has announced
  std::mutex announce_mutex_;  // guards writing to and closing control connections
  FileDescriptor wake_;        // eventfd(2): becomes readable once this rank has announced a failure
  CommStatus announced_;
};

class TcpGroup final : public TransportGroup<TcpTransport> {
 public:
  /// Meets the other ranks through the store, which must outlive the group.
  TcpGroup(Store& store, int rank, int size, const TcpOptions& options = {})
      : TcpGroup(borrow(store), rank, size, options) {}
  /// The same with a store that the group keeps.
  TcpGroup(std::shared_ptr<Store> store, int rank, int size, const TcpOptions& options)
      : TransportGroup(rank, size, options.epoch, options.timeout, *store, rank, size, options),
        store_(std::move(store)), options_(options) {
    if (!options.two_lanes) return;
    TcpOptions lane = options;
    lane.two_lanes = false;
    add_lane(std::make_unique<TcpGroup>(std::make_shared<PrefixStore>("lane", store_), rank, size, lane));
  }
  ~TcpGroup() override { stop(); }

  std::string_view backend() const override { return "tcp"; }
  std::string congestion_control() const { return transport().congestion_control(); }

 private:
  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                           Milliseconds timeout) override {
    TcpOptions options = options_;
    options.epoch = epoch;
    options.timeout = timeout;
    auto store = std::make_shared<PrefixStore>("group/" + std::to_string(epoch), store_);
    return std::make_unique<TcpGroup>(std::move(store), rank, static_cast<int>(ranks.size()), options);
  }

  const std::shared_ptr<Store> store_;
  const TcpOptions options_;
};

}  // namespace gradus::dist
