// The exchange of messages between the ranks of a group, on which the algorithms of collectives.h are built. Transports
// are tcp and mpi (between processes) and local (between threads).
#pragma once

#include <cstddef>
#include <span>

#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/descriptor.h>
#include <gradus/distributed/comm/status.h>

namespace gradus::dist {

/// One message to or from a rank. Its body consists of elements of the descriptor's type.
struct Transfer {
  int peer = -1;
  bool sends = false;
  std::byte* data = nullptr;  // not written if `sends`
  size_t bytes = 0;

  static Transfer to(int peer, const void* data, size_t bytes) {
    return {peer, true, const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes};
  }
  static Transfer from(int peer, void* data, size_t bytes) {
    return {peer, false, static_cast<std::byte*>(data), bytes};
  }
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Carries out all transfers at the same time; those with the same peer and direction run one after the other, as
  /// listed. Each message carries the descriptor. The receiver compares it with its own and ignores the body if they
  /// differ. Throws a CollectiveError: timeout, peer_lost, mismatch, or the failure that another rank has announced.
  /// Several threads may call this at the same time if no two of them share a peer and a direction.
  virtual void exchange(std::span<const Transfer> transfers, const Descriptor& descriptor,
                        const Deadline& deadline) = 0;

  /// Tells all ranks why this rank takes no further part. The first failure of a group is the one that counts.
  virtual void announce(const CommStatus& failure) noexcept = 0;
};

}  // namespace gradus::dist
