#include <gradus/distributed/comm/collectives.h>

#include <algorithm>
#include <cstring>
#include <functional>

namespace gradus::dist {
namespace {

/// Up to this size the latency of its hops determines the time of an all-reduce.
constexpr size_t kShortBytes = 16 << 10;
/// Bytes that a rank sums at a time. They fit in the second-level cache and, with their header, just fit in six full
/// packets of loopback, which carry 65464 bytes over IPv6 and 19 more over IPv4. A remainder would cost another packet.
constexpr size_t kSegmentBytes = 384 * 1024 - 512;
static_assert(kSegmentBytes + MessageHeader::kBytes <= 6 * 65464 && kSegmentBytes % 128 == 0);
/// Up to this number of ranks, every rank communicates with every other rank directly: two exchanges for each segment,
/// instead of the 2 (n - 1) of a ring.
constexpr int kFewRanks = 4;

}  // namespace

/// One call of Collectives::run().
class Collectives::Run {
 public:
  Run(Collectives& collectives, const Collective& call, const Deadline& deadline)
      : collectives_(collectives), transport_(collectives.transport_), transfers_(collectives.transfers_), call_(call),
        d_(call.descriptor), deadline_(deadline), element_(size_of(d_.dtype)), bytes_(d_.count * element_) {}

  /// If the vector is so short that latency dominates, every rank sums all of it, which takes one hop.
  void all_reduce() {
    // A ring would round the partial sums of half types at each hop.
    const bool is_half = d_.dtype == DType::f16 || d_.dtype == DType::bf16;
    const auto everything = [&](int) { return Range{0, d_.count}; };
    if (bytes_ <= kShortBytes) sum_parts(everything, static_cast<std::byte*>(call_.out));
    else if (d_.strict || is_half || size() <= kFewRanks) all_reduce_by_parts();
    else all_reduce_ring();
  }

  void reduce_scatter() {
    const size_t segment = kSegmentBytes / element_;
    size_t begin = 0;
    do {  // once even for an empty vector, so that descriptors are compared
      const auto part = [&](int r) {
        const size_t first = static_cast<size_t>(r) * d_.count + begin;
        return Range{first, first + std::min(segment, d_.count - begin)};
      };
      sum_parts(part, at(call_.out, begin, d_.dtype));
      begin += segment;
    } while (begin < d_.count);
  }

  /// all_gather and all_to_all, with parts of any lengths: every rank sends a part to every other rank.
  void all_to_all() {
    for (int r = 0; r < size(); ++r) {
      const Range in = call_.in_part(r), out = call_.out_part(r);
      const std::byte* own = at(call_.in, in.begin, d_.dtype);
      std::byte* place = at(call_.out, out.begin, d_.dtype);
      if (!is_mine(r)) {
        transfers_.push_back(Transfer::to(r, own, in.size() * element_));
        transfers_.push_back(Transfer::from(r, place, out.size() * element_));
      } else if (place != own && in.size() > 0) {
        std::memmove(place, own, in.size() * element_);
      }
    }
    exchange();
  }

  /// reduce and gather: every rank sends to the root. The root greets all ranks twice: when it begins, and when it has
  /// received everything.
  void to_root() {
    if (!is_mine(d_.root)) {
      transfers_ = {Transfer::to(d_.root, call_.in, bytes_), Transfer::from(d_.root, nullptr, 0),
                    Transfer::from(d_.root, nullptr, 0)};
      return exchange();
    }
    greet_all();
    const bool reduces = d_.kind == CollectiveKind::reduce;
    std::byte* places = reduces ? scratch(bytes_ * static_cast<size_t>(size())) : static_cast<std::byte*>(call_.out);
    std::vector<const void*> operands(static_cast<size_t>(size()));
    for (int r = 0; r < size(); ++r) {
      std::byte* place = places + bytes_ * static_cast<size_t>(r);
      operands[static_cast<size_t>(r)] = is_mine(r) ? call_.in : place;
      if (!is_mine(r)) transfers_.push_back(Transfer::from(r, place, bytes_));
      else if (!reduces && place != call_.in && bytes_ > 0) std::memmove(place, call_.in, bytes_);
    }
    exchange();
    greet_all();
    exchange();
    if (reduces && bytes_ > 0) reduce_in_order(d_.dtype, d_.reduce, operands, call_.out, d_.count);
  }

  /// broadcast and scatter: every rank sends an empty message to the root. When the root has received them all, it
  /// sends the data.
  void from_root() {
    if (!is_mine(d_.root)) {
      transfers_ = {Transfer::to(d_.root, nullptr, 0), Transfer::from(d_.root, nullptr, 0),
                    Transfer::from(d_.root, call_.out, bytes_)};
      return exchange();
    }
    greet_all();
    for (int r = 0; r < size(); ++r)
      if (!is_mine(r)) transfers_.push_back(Transfer::from(r, nullptr, 0));
    exchange();
    const bool scatters = d_.kind == CollectiveKind::scatter;
    for (int r = 0; r < size(); ++r) {
      const std::byte* part = at(call_.in, scatters ? static_cast<size_t>(r) * d_.count : 0, d_.dtype);
      if (!is_mine(r)) transfers_.push_back(Transfer::to(r, part, bytes_));
      else if (call_.out != nullptr && part != call_.out && bytes_ > 0) std::memmove(call_.out, part, bytes_);
    }
    exchange();
  }

  void send_or_receive() {
    const Transfer message =
        call_.sends ? Transfer::to(call_.peer, call_.in, bytes_) : Transfer::from(call_.peer, call_.out, bytes_);
    transport_.exchange({&message, 1}, call_.message_descriptor(), deadline_);
  }

 private:
  /// Segment by segment, each rank sums one part and sends the sum to the other ranks. This is used for few ranks, for
  /// half types, and whenever sums must be in the order of the ranks.
  void all_reduce_by_parts() {
    const size_t segment = kSegmentBytes / element_ * static_cast<size_t>(size());
    for (size_t begin = 0; begin < d_.count; begin += segment) {
      const auto part = [&](int r) {
        const Range of_segment = part_of(std::min(segment, d_.count - begin), size(), r);
        return Range{begin + of_segment.begin, begin + of_segment.end};
      };
      const Range mine = part(rank());
      std::byte* sums = at(call_.out, mine.begin, d_.dtype);
      sum_parts(part, sums);
      for (int r = 0; r < size(); ++r) {
        if (is_mine(r)) continue;
        transfers_.push_back(Transfer::to(r, sums, mine.size() * element_));
        transfers_.push_back(Transfer::from(r, at(call_.out, part(r).begin, d_.dtype), part(r).size() * element_));
      }
      exchange();
    }
  }

  /// Partial sums travel around a ring, followed by the sums (Patarasuk and Yuan, "Bandwidth optimal all-reduce
  /// algorithms for clusters of workstations", 2009). Each rank communicates with its two neighbours only.
  void all_reduce_ring() {
    const size_t segment = kSegmentBytes / element_;
    const int n = size(), next = (rank() + 1) % n, previous = (rank() + n - 1) % n;
    if (call_.in != call_.out) std::memcpy(call_.out, call_.in, bytes_);
    std::byte* arrived = scratch(kSegmentBytes);
    const size_t longest = part_of(d_.count, n, 0).size();
    const auto segment_of = [&](int part, size_t begin) {
      const Range range = part_of(d_.count, n, (part % n + n) % n);
      return Range{std::min(range.end, range.begin + begin), std::min(range.end, range.begin + begin + segment)};
    };
    // First n - 1 hops of partial sums: part r leaves rank r and is complete at rank r - 1. Then n - 1 hops of sums.
    for (int hop = 0; hop < 2 * (n - 1); ++hop) {
      const bool sums = hop < n - 1;
      for (size_t begin = 0; begin < longest; begin += segment) {
        const Range out = segment_of(rank() - hop, begin), in = segment_of(rank() - hop - 1, begin);
        std::byte* place = at(call_.out, in.begin, d_.dtype);
        transfers_.push_back(Transfer::to(next, at(call_.out, out.begin, d_.dtype), out.size() * element_));
        transfers_.push_back(Transfer::from(previous, sums ? arrived : place, in.size() * element_));
        exchange();
        if (sums) reduce_step(d_.dtype, d_.reduce, arrived, place, in.size());
        if (hop == n - 2 && d_.reduce == ReduceKind::avg) divide(d_.dtype, place, in.size(), n);
      }
    }
  }

  /// Every rank sends part(r) of `in` to each other rank r, receives its own part from all of them, and writes the sum
  /// to `sums`. The sum is not sent.
  void sum_parts(const std::function<Range(int rank)>& part, std::byte* sums) {
    const Range mine = part(rank());
    const size_t bytes = mine.size() * element_;
    std::byte* theirs = scratch(bytes * static_cast<size_t>(size()));
    std::vector<const void*> operands(static_cast<size_t>(size()));
    for (int r = 0; r < size(); ++r) {
      std::byte* place = theirs + bytes * static_cast<size_t>(r);
      operands[static_cast<size_t>(r)] = is_mine(r) ? at(call_.in, mine.begin, d_.dtype) : place;
      if (is_mine(r)) continue;
      transfers_.push_back(Transfer::to(r, at(call_.in, part(r).begin, d_.dtype), part(r).size() * element_));
      transfers_.push_back(Transfer::from(r, place, bytes));
    }
    exchange();
    if (bytes > 0) reduce_in_order(d_.dtype, d_.reduce, operands, sums, mine.size());
  }

  /// Sends an empty message from the root to every other rank. A rank that waits for it finds out that the sender is in
  /// the same call. Without it, two ranks that each believe the other is the root would deadlock.
  void greet_all() {
    for (int r = 0; r < size(); ++r)
      if (!is_mine(r)) transfers_.push_back(Transfer::to(r, nullptr, 0));
  }

  void exchange() {
    transport_.exchange(transfers_, call_.message_descriptor(), deadline_);
    transfers_.clear();
  }
  std::byte* scratch(size_t bytes) {
    std::vector<CacheLine>& lines = collectives_.scratch_;
    lines.resize(std::max(lines.size(), ceil_div(bytes, sizeof(CacheLine))));
    return reinterpret_cast<std::byte*>(lines.data());
  }
  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  bool is_mine(int rank) const { return rank == transport_.rank(); }

  Collectives& collectives_;
  Transport& transport_;
  std::vector<Transfer>& transfers_;
  const Collective& call_;
  const Descriptor& d_;
  const Deadline& deadline_;
  const size_t element_, bytes_;  // bytes of one element, and of d_.count elements
};

void Collectives::run(const Collective& call, const Deadline& deadline) {
  using enum CollectiveKind;
  Run run(*this, call, deadline);
  if (call.descriptor.kind == send) return run.send_or_receive();
  transfers_.clear();  // a call that threw may have left transfers here
  switch (call.descriptor.kind) {
    case barrier:
    case all_reduce: return run.all_reduce();
    case reduce_scatter: return run.reduce_scatter();
    case reduce:
    case gather: return run.to_root();
    case broadcast:
    case scatter: return run.from_root();
    default: return run.all_to_all();
  }
}

}  // namespace gradus::dist
