// A process group over any transport.
#pragma once

#include <utility>

#include <gradus/distributed/comm/collectives.h>
#include <gradus/distributed/comm/host_group.h>

namespace gradus::dist {

template <class T>
class TransportGroup : public HostGroup {
 protected:
  template <class... Arguments>
  TransportGroup(int rank, int size, uint32_t epoch, Milliseconds timeout, Arguments&&... of_transport)
      : HostGroup(rank, size, epoch, timeout), transport_(std::forward<Arguments>(of_transport)...),
        collectives_(transport_) {}
  const T& transport() const { return transport_; }

 private:
  void run(const Collective& call, const Deadline& deadline) override { collectives_.run(call, deadline); }
  void announce(const CommStatus& failure) noexcept override {
    transport_.announce(failure);
    announce_on_lane(failure);
  }

  T transport_;
  Collectives collectives_;
};

}  // namespace gradus::dist
