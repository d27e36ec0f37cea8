// The process group over TCP: ranks of one host or of several.
#pragma once

#include <gradus/distributed/comm/tcp_transport.h>
#include <gradus/distributed/comm/transport_group.h>

namespace gradus::dist {

class TcpGroup final : public TransportGroup<TcpTransport> {
 public:
  TcpGroup(Store& store, int rank, int size, const TcpOptions& options = {})
      : TransportGroup(rank, size, options.epoch, options.timeout, store, rank, size, options) {}

  std::string_view backend() const override { return "tcp"; }
  std::string congestion_control() const { return transport().congestion_control(); }
};

}  // namespace gradus::dist
