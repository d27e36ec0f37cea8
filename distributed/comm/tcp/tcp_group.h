// The process group over TCP, for ranks on one host or several.
#pragma once

#include <gradus/distributed/comm/tcp/tcp_transport.h>
#include <gradus/distributed/comm/transport_group.h>

namespace gradus::dist {

class TcpGroup final : public TransportGroup<TcpTransport> {
 public:
  /// Meets the other ranks through the store, which must outlive the group.
  TcpGroup(Store& store, int rank, int size, const TcpOptions& options = {})
      : TcpGroup(borrow(store), rank, size, options) {}
  ~TcpGroup() override { stop(); }

  std::string_view backend() const override { return "tcp"; }
  std::string congestion_control() const { return transport().congestion_control(); }

 private:
  TcpGroup(std::shared_ptr<Store> store, int rank, int size, const TcpOptions& options)
      : TransportGroup(rank, size, options.epoch, options.timeout, *store, rank, size, options),
        store_(std::move(store)), options_(options) {
    if (!options.two_lanes) return;
    TcpOptions lane = options;
    lane.two_lanes = false;
    add_lane(std::unique_ptr<TcpGroup>(new TcpGroup(std::make_shared<PrefixStore>("lane", store_), rank, size, lane)));
  }

  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                           Milliseconds timeout) override {
    TcpOptions options = options_;
    options.epoch = epoch;
    options.timeout = timeout;
    auto store = std::make_shared<PrefixStore>("group/" + std::to_string(epoch), store_);
    return std::unique_ptr<TcpGroup>(new TcpGroup(std::move(store), rank, static_cast<int>(ranks.size()), options));
  }

  const std::shared_ptr<Store> store_;
  const TcpOptions options_;
};

}  // namespace gradus::dist
