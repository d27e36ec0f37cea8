// Collectives built from messages between ranks. Operands are summed in the order of the ranks: one rank sums a part of
// the vector and sends the sum to the others or, if the vector is short, every rank sums all of it. All ranks therefore
// get the same bits, in every run. The ring all-reduce sums in the order of its hops, which is the same in every run
// too.
#pragma once

#include <optional>
#include <vector>

#include <gradus/distributed/comm/reduce.h>

namespace gradus::dist {

/// A collective that is about to run, on `count` elements of the descriptor's type. If this rank contributes nothing,
/// as the ranks other than the root of a broadcast, `in` is null. If it receives nothing, `out` is null.
struct Collective {
  Descriptor descriptor;
  const void* in = nullptr;
  void* out = nullptr;
  int peer = -1;       // the other rank of a point-to-point message
  bool sends = false;  // true if this rank sends that message
  /// For all_to_all_v and all_gather_v: which elements of `in` go to each rank, and which elements of `out` come from
  /// each rank.
  std::vector<Range> in_parts = {}, out_parts = {};
  /// If this collective transfers one piece of a larger call, the descriptor of that call. Ranks then compare it
  /// instead of the piece's descriptor.
  std::optional<Descriptor> whole = std::nullopt;

  /// The descriptor that messages carry.
  const Descriptor& message_descriptor() const { return whole ? *whole : descriptor; }
  /// The elements of `in` that go to `rank`, and the elements of `out` that come from it. In all_to_all each part has
  /// descriptor.count elements.
  Range in_part(int rank) const {
    return descriptor.kind == CollectiveKind::all_gather ? Range{0, descriptor.count} : part(in_parts, rank);
  }
  Range out_part(int rank) const { return part(out_parts, rank); }

 private:
  Range part(const std::vector<Range>& parts, int rank) const {
    const auto r = static_cast<size_t>(rank);
    return parts.empty() ? Range{r * descriptor.count, (r + 1) * descriptor.count} : parts[r];
  }
};

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

/// The exchange of messages between the ranks of a group. Transports are tcp and mpi (between processes) and local
/// (between threads).
class Transport {
 public:
  virtual ~Transport() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Carries out all transfers at the same time. Transfers with the same peer and direction run one after the other, as
  /// listed. Each message carries the descriptor. The receiver compares it with its own descriptor and ignores the body
  /// if they differ. Throws a CollectiveError: timeout, peer_lost, mismatch, or the failure that another rank has
  /// announced. Several threads may call this at the same time if no two of them share a peer and a direction.
  virtual void exchange(std::span<const Transfer> transfers, const Descriptor& descriptor,
                        const Deadline& deadline) = 0;

  /// Sends the failure that ends the group to all other ranks. If several ranks announce failures, the first one
  /// counts.
  virtual void announce(const CommStatus& failure) noexcept = 0;

 protected:
  Transport(int rank, int size) : rank_(rank), size_(size) {}

  const int rank_, size_;
};

/// Runs collectives; every rank of the transport calls run() at about the same time. Scratch memory is reused between
/// calls. Point-to-point messages may run at the same time as each other (host_group.h).
class Collectives {
 public:
  explicit Collectives(Transport& transport) : transport_(transport) {}

  void run(const Collective& call, const Deadline& deadline);

 private:
  class Run;
  /// Scratch memory consists of cache lines, because the operating system copies fastest between sockets and memory
  /// that begins at a cache line.
  struct alignas(64) CacheLine {
    std::byte bytes[64];
  };

  Transport& transport_;
  std::vector<Transfer> transfers_;
  std::vector<CacheLine> scratch_;
};

}  // namespace gradus::dist
