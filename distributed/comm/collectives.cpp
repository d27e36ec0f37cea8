#include <gradus/distributed/comm/collectives.h>

#include <algorithm>
#include <cstring>

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

std::byte* Collectives::scratch(size_t bytes) {
  const size_t lines = (bytes + sizeof(CacheLine) - 1) / sizeof(CacheLine);
  if (scratch_.size() < lines) scratch_.resize(lines);
  return reinterpret_cast<std::byte*>(scratch_.data());
}

void Collectives::run(const Collective& call, const Deadline& deadline) {
  if (call.descriptor.kind == CollectiveKind::send) return send_or_receive(call, deadline);
  transfers_.clear();  // a call that failed may have left some
  switch (call.descriptor.kind) {
    case CollectiveKind::barrier:
    case CollectiveKind::all_reduce: return all_reduce(call, deadline);
    case CollectiveKind::reduce_scatter: return reduce_scatter(call, deadline);
    case CollectiveKind::all_gather: return all_gather(call, deadline);
    case CollectiveKind::reduce:
    case CollectiveKind::gather: return to_root(call, deadline);
    case CollectiveKind::broadcast:
    case CollectiveKind::scatter: return from_root(call, deadline);
    case CollectiveKind::all_to_all:
    case CollectiveKind::all_to_all_v:
    case CollectiveKind::all_gather_v: return all_to_all(call, deadline);
    case CollectiveKind::send: return;
  }
}

void Collectives::sum_parts(const Collective& call, const PartOf& part, std::byte* sums, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const Range mine = part(rank());
  const size_t bytes = mine.size() * size_of(d.dtype);
  std::byte* theirs = scratch(bytes * static_cast<size_t>(size()));
  std::vector<const void*> operands(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    std::byte* place = theirs + bytes * static_cast<size_t>(r);
    operands[static_cast<size_t>(r)] = is_mine(r) ? at(call.in, mine.begin, d.dtype) : place;
    if (is_mine(r)) continue;
    transfers_.push_back(Transfer::to(r, at(call.in, part(r).begin, d.dtype), part(r).size() * size_of(d.dtype)));
    transfers_.push_back(Transfer::from(r, place, bytes));
  }
  exchange(call, deadline);
  if (bytes > 0) reduce_in_order(d.dtype, d.reduce, operands, sums, mine.size());
}

void Collectives::share_parts(const Collective& call, const PartOf& part, const void* own, const Deadline& deadline) {
  const DType dtype = call.descriptor.dtype;
  for (int r = 0; r < size(); ++r) {
    if (is_mine(r)) continue;
    transfers_.push_back(Transfer::to(r, own, part(rank()).size() * size_of(dtype)));
    transfers_.push_back(Transfer::from(r, at(call.out, part(r).begin, dtype), part(r).size() * size_of(dtype)));
  }
  exchange(call, deadline);
}

void Collectives::all_reduce(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const auto whole = [&](int) { return Range{0, d.count}; };
  // A ring would round the partial sums of half types at each hop.
  const bool is_half = d.dtype == DType::f16 || d.dtype == DType::bf16;
  if (d.count * size_of(d.dtype) <= kShortBytes) sum_parts(call, whole, static_cast<std::byte*>(call.out), deadline);
  else if (d.strict || is_half || size() <= kFewRanks) all_reduce_by_parts(call, deadline);
  else all_reduce_ring(call, deadline);
}

void Collectives::all_reduce_by_parts(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t segment = kSegmentBytes / size_of(d.dtype) * static_cast<size_t>(size());
  for (size_t begin = 0; begin < d.count; begin += segment) {
    const auto part = [&](int r) {
      const Range of_segment = part_of(std::min(segment, d.count - begin), size(), r);
      return Range{begin + of_segment.begin, begin + of_segment.end};
    };
    std::byte* sums = at(call.out, part(rank()).begin, d.dtype);
    sum_parts(call, part, sums, deadline);
    share_parts(call, part, sums, deadline);
  }
}

void Collectives::all_reduce_ring(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype), segment = kSegmentBytes / element;
  const int n = size(), next = (rank() + 1) % n, previous = (rank() + n - 1) % n;
  if (call.in != call.out) std::memcpy(call.out, call.in, d.count * element);
  std::byte* arrived = scratch(kSegmentBytes);
  const size_t longest = part_of(d.count, n, 0).size();
  const auto segment_of = [&](int part, size_t begin) {
    const Range range = part_of(d.count, n, (part % n + n) % n);
    return Range{std::min(range.end, range.begin + begin), std::min(range.end, range.begin + begin + segment)};
  };
  // First n - 1 hops of partial sums: part r leaves rank r and is complete at rank r - 1. Then n - 1 hops of sums.
  for (int hop = 0; hop < 2 * (n - 1); ++hop) {
    const bool sums = hop < n - 1;
    for (size_t begin = 0; begin < longest; begin += segment) {
      const Range out = segment_of(rank() - hop, begin), in = segment_of(rank() - hop - 1, begin);
      std::byte* place = at(call.out, in.begin, d.dtype);
      transfers_.push_back(Transfer::to(next, at(call.out, out.begin, d.dtype), out.size() * element));
      transfers_.push_back(Transfer::from(previous, sums ? arrived : place, in.size() * element));
      exchange(call, deadline);
      if (sums) reduce_step(d.dtype, d.reduce, arrived, place, in.size());
      if (hop == n - 2 && d.reduce == ReduceKind::avg) divide(d.dtype, place, in.size(), n);
    }
  }
}

void Collectives::reduce_scatter(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t segment = kSegmentBytes / size_of(d.dtype);
  size_t begin = 0;
  do {  // once even for an empty vector, so that descriptors are compared
    const auto part = [&](int r) {
      const size_t first = static_cast<size_t>(r) * d.count + begin;
      return Range{first, first + std::min(segment, d.count - begin)};
    };
    sum_parts(call, part, at(call.out, begin, d.dtype), deadline);
    begin += segment;
  } while (begin < d.count);
}

void Collectives::all_gather(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const auto part = [&](int r) {
    return Range{static_cast<size_t>(r) * d.count, (static_cast<size_t>(r) + 1) * d.count};
  };
  std::byte* place = at(call.out, part(rank()).begin, d.dtype);
  if (place != call.in && d.count > 0) std::memmove(place, call.in, d.count * size_of(d.dtype));
  share_parts(call, part, call.in, deadline);
}

void Collectives::all_to_all(const Collective& call, const Deadline& deadline) {
  const DType dtype = call.descriptor.dtype;
  for (int r = 0; r < size(); ++r) {
    const Range in = call.in_part(r), out = call.out_part(r);
    const size_t in_bytes = in.size() * size_of(dtype), out_bytes = out.size() * size_of(dtype);
    if (!is_mine(r)) {
      transfers_.push_back(Transfer::to(r, at(call.in, in.begin, dtype), in_bytes));
      transfers_.push_back(Transfer::from(r, at(call.out, out.begin, dtype), out_bytes));
    } else if (in_bytes > 0) {
      std::memcpy(at(call.out, out.begin, dtype), at(call.in, in.begin, dtype), in_bytes);
    }
  }
  exchange(call, deadline);
}

void Collectives::greet_all() {
  for (int r = 0; r < size(); ++r)
    if (!is_mine(r)) transfers_.push_back(Transfer::to(r, nullptr, 0));
}

void Collectives::to_root(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t bytes = d.count * size_of(d.dtype);
  if (!is_mine(d.root)) {
    transfers_ = {Transfer::to(d.root, call.in, bytes), Transfer::from(d.root, nullptr, 0),
                  Transfer::from(d.root, nullptr, 0)};
    return exchange(call, deadline);
  }
  greet_all();
  const bool reduces = d.kind == CollectiveKind::reduce;
  std::byte* places = reduces ? scratch(bytes * static_cast<size_t>(size())) : static_cast<std::byte*>(call.out);
  std::vector<const void*> operands(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    std::byte* place = places + bytes * static_cast<size_t>(r);
    operands[static_cast<size_t>(r)] = is_mine(r) ? call.in : place;
    if (!is_mine(r)) transfers_.push_back(Transfer::from(r, place, bytes));
    else if (!reduces && place != call.in && bytes > 0) std::memmove(place, call.in, bytes);
  }
  exchange(call, deadline);
  greet_all();
  exchange(call, deadline);
  if (reduces && bytes > 0) reduce_in_order(d.dtype, d.reduce, operands, call.out, d.count);
}

void Collectives::from_root(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t bytes = d.count * size_of(d.dtype);
  if (!is_mine(d.root)) {
    transfers_ = {Transfer::to(d.root, nullptr, 0), Transfer::from(d.root, nullptr, 0),
                  Transfer::from(d.root, call.out, bytes)};
    return exchange(call, deadline);
  }
  greet_all();
  for (int r = 0; r < size(); ++r)
    if (!is_mine(r)) transfers_.push_back(Transfer::from(r, nullptr, 0));
  exchange(call, deadline);
  const bool scatters = d.kind == CollectiveKind::scatter;
  for (int r = 0; r < size(); ++r) {
    const std::byte* part = scatters ? at(call.in, static_cast<size_t>(r) * d.count, d.dtype) : at(call.in, 0, d.dtype);
    if (!is_mine(r)) transfers_.push_back(Transfer::to(r, part, bytes));
    else if (call.out != nullptr && part != call.out && bytes > 0) std::memmove(call.out, part, bytes);
  }
  exchange(call, deadline);
}

void Collectives::send_or_receive(const Collective& call, const Deadline& deadline) {
  const size_t bytes = call.descriptor.count * size_of(call.descriptor.dtype);
  const Transfer message =
      call.sends ? Transfer::to(call.peer, call.in, bytes) : Transfer::from(call.peer, call.out, bytes);
  transport_.exchange({&message, 1}, call.message_descriptor(), deadline);
}

}  // namespace gradus::dist
