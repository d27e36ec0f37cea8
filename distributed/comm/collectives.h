// Collectives built from messages between ranks. Each part of a vector is summed by one rank, in the order of the
// ranks, and that rank sends the result to the others. All ranks therefore get the same bits, in every run. The ring
// all-reduce sums in the order of its hops instead, which is fixed as well.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <gradus/distributed/comm/reduce.h>

namespace gradus::dist {

/// A collective that is about to run, on `count` elements of the descriptor's type. In a collective with a root, `in`
/// is what this rank contributes and `out` is where it receives; each is null if this rank has none.
struct Collective {
  Descriptor descriptor;
  const void* in = nullptr;
  void* out = nullptr;
  int peer = -1;       // the other rank of a point-to-point message
  bool sends = false;  // true if this rank sends that message
  /// all_to_all_v, all_gather_v: the elements of `in` for each rank, and those of `out` from each rank.
  std::vector<Range> in_parts = {}, out_parts = {};
  /// The call of which this collective is a piece, if it is one. Ranks compare this descriptor.
  std::optional<Descriptor> whole = std::nullopt;

  /// The descriptor that messages carry.
  const Descriptor& message_descriptor() const { return whole ? *whole : descriptor; }
  /// The elements for and from one rank. The parts of all_to_all have descriptor.count elements each.
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

  /// Carries out all transfers at the same time; those with the same peer and direction run one after the other, as
  /// listed. Each message carries the descriptor. The receiver compares it with its own and ignores the body if they
  /// differ. Throws a CollectiveError: timeout, peer_lost, mismatch, or the failure that another rank has announced.
  /// Several threads may call this at the same time if no two of them share a peer and a direction.
  virtual void exchange(std::span<const Transfer> transfers, const Descriptor& descriptor,
                        const Deadline& deadline) = 0;

  /// Tells all ranks why this rank takes no further part. The first failure of a group is the one that counts.
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
  /// The unit of scratch memory, because the kernel copies fastest to and from the beginning of a cache line.
  struct alignas(64) CacheLine {
    std::byte bytes[64];
  };

  Transport& transport_;
  std::vector<Transfer> transfers_;
  std::vector<CacheLine> scratch_;
};

}  // namespace gradus::dist
