// The collectives as messages. All sums are taken in the order of the ranks, by one rank for each part of the vector,
// whose result the others receive: so all ranks have the same bits, and the same in every run. The ring is the
// exception; its order is that of its hops, which is fixed as well.
#pragma once

#include <optional>
#include <vector>

#include <gradus/distributed/comm/reduce.h>
#include <gradus/distributed/comm/transport.h>

namespace gradus::dist {

/// A collective that is about to run: `count` elements of the descriptor's type. Where it has a root, `in` is what a
/// rank contributes and `out` what it gets, either null where there is nothing.
struct Collective {
  Descriptor descriptor;
  const void* in = nullptr;
  void* out = nullptr;
  int peer = -1;       // the other end of a message, and
  bool sends = false;  // which end this one is
  /// all_to_all_v, all_gather_v: the elements of `in` that go to each rank, and those of `out` that come from it.
  std::vector<Range> in_parts = {}, out_parts = {};
  /// The call of which this is a piece: what ranks tell each other, and compare.
  std::optional<Descriptor> whole = std::nullopt;

  const Descriptor& told() const { return whole ? *whole : descriptor; }
  /// The same of all_to_all too, whose parts have descriptor.count elements.
  Range in_part(int rank) const { return part(in_parts, rank); }
  Range out_part(int rank) const { return part(out_parts, rank); }

 private:
  Range part(const std::vector<Range>& parts, int rank) const {
    const auto r = static_cast<size_t>(rank);
    return parts.empty() ? Range{r * descriptor.count, (r + 1) * descriptor.count} : parts[r];
  }
};

/// Runs on every rank of the transport at about the same time. Scratch memory is kept from one call to the next.
/// Messages may run at the same time as each other (host_group.h).
class Collectives {
 public:
  explicit Collectives(Transport& transport) : transport_(transport) {}

  void run(const Collective& call, const Deadline& deadline);

 private:
  void all_reduce(const Collective& call, const Deadline& deadline);
  /// Everybody sends everything to everybody: one hop, for vectors so short that hops are what costs.
  void all_reduce_short(const Collective& call, const Deadline& deadline);
  /// Everybody sums one part and sends it to the others, segment by segment: for few ranks, and where the order
  /// matters.
  void all_reduce_by_parts(const Collective& call, const Deadline& deadline);
  /// Partial sums travel round, then the sums (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
  /// clusters of workstations", 2009): each rank speaks with its neighbours alone.
  void all_reduce_ring(const Collective& call, const Deadline& deadline);
  void reduce_scatter(const Collective& call, const Deadline& deadline);
  void all_gather(const Collective& call, const Deadline& deadline);
  /// all_to_all, all_to_all_v, all_gather_v: everybody sends everybody a part.
  void all_to_all(const Collective& call, const Deadline& deadline);
  /// The root says to all that it is there: two ranks that take each other for the root would wait in silence.
  void greet_all();
  /// reduce and gather: to the root, which greets again when it has heard from all.
  void to_root(const Collective& call, const Deadline& deadline);
  /// broadcast and scatter: from the root, which waits until all have said that they are there.
  void from_root(const Collective& call, const Deadline& deadline);
  void send_or_receive(const Collective& call, const Deadline& deadline);

  void exchange(const Collective& call, const Deadline& deadline) {
    transport_.exchange(transfers_, call.told(), deadline);
    transfers_.clear();
  }
  std::byte* scratch(size_t bytes);
  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  bool is_mine(int rank) const { return rank == transport_.rank(); }

  /// What begins at one the kernel copies fastest.
  struct alignas(64) CacheLine {
    std::byte bytes[64];
  };

  Transport& transport_;
  std::vector<Transfer> transfers_;
  std::vector<CacheLine> scratch_;
};

}  // namespace gradus::dist
