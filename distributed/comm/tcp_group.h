// The process group over TCP: ranks of one host or of several.
#pragma once

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/tcp_transport.h>

namespace gradus::dist {

class TcpGroup final : public ProcessGroup {
 public:
  TcpGroup(Store& store, int rank, int size, const TcpOptions& options = {})
      : ProcessGroup(rank, size, options.epoch, options.timeout), transport_(store, rank, size, options),
        collectives_(transport_) {}
  ~TcpGroup() override { stop(); }

  std::string_view backend() const override { return "tcp"; }
  std::string congestion_control() const { return transport_.congestion_control(); }

 private:
  void run(const Collective& call, const Deadline& deadline) override { collectives_.run(call, deadline); }
  void announce(const CommStatus& failure) noexcept override { transport_.announce(failure); }

  TcpTransport transport_;
  Collectives collectives_;
};

}  // namespace gradus::dist
