// The collectives of ranks on one host, which move data piece by piece.
#include <algorithm>
#include <cstring>

#include <gradus/distributed/comm/shm/shm_group.h>

namespace gradus::dist {
namespace {

/// Up to this size each rank sums all elements itself, because that takes less time than another fence.
constexpr size_t kShortBytes = 32 << 10;

/// Calls body(begin, count) for pieces of at most `piece` of `count` elements.
template <class F>
void for_pieces(size_t count, size_t piece, F&& body) {
  for (size_t begin = 0; begin < count; begin += piece) body(begin, std::min(piece, count - begin));
}

}  // namespace

void ShmGroup::all_reduce_in_place(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const std::shared_ptr<Bucket> bucket = buckets_[static_cast<size_t>(place_.bucket)].lock();
  const Range mine = part_of(d.count, size(), rank());
  std::vector<void*> parts;  // of all ranks: the operands of this rank's sums, and where the sums go
  for (size_t r = 0; r < static_cast<size_t>(size()); ++r)
    parts.push_back(at(bucket->memory.data() + r * bucket->bytes_each + place_.offset, mine.begin, d.dtype));
  reduce_in_order(d.dtype, d.reduce, std::vector<const void*>(parts.begin(), parts.end()), parts, mine.size());
  fence(d, deadline);
}

void ShmGroup::show(const Collective& call, size_t piece) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype), begin = piece * (kSlotBytes / element);
  if (begin >= d.count) return;
  std::memcpy(slot(rank()), at(call.in, begin, d.dtype), std::min(kSlotBytes, (d.count - begin) * element));
}

void ShmGroup::all_reduce(const Collective& call, Arrays arrays, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  if (d.count == 0) return;
  if (arrays == Arrays::mixed) {  // ranks whose arrays are in a bucket have not written a piece yet
    show(call, 0);
    fence(d, deadline);
  }
  const size_t element = size_of(d.dtype), length = kSlotBytes / element, pieces = (d.count + length - 1) / length;
  // Two ranks each sum every piece entirely, one step after it is written: that reads no more of the other's memory
  // than summing by parts. More ranks sum a part each, and all parts are read in the step after that.
  const bool by_parts = size() > 2 && d.count * element > kShortBytes;
  const size_t taken_after = by_parts ? 2 : 1, steps = pieces + taken_after;
  const auto count_of = [&](size_t piece) { return std::min(length, d.count - piece * length); };
  std::vector<const void*> operands(static_cast<size_t>(size()));

  for (size_t step = 1; step < steps; ++step) {  // begin() has done step 0
    ++pieces_;
    show(call, step);
    if (by_parts && step <= pieces) {
      const Range mine = part_of(count_of(step - 1), size(), rank());
      for (int r = 0; r < size(); ++r) operands[static_cast<size_t>(r)] = at(slot(r, 1), mine.begin, d.dtype);
      reduce_in_order(d.dtype, d.reduce, operands, at(slot(rank(), 1), mine.begin, d.dtype), mine.size());
    }
    if (call.out != nullptr && step >= taken_after) {
      const size_t piece = step - taken_after, begin = piece * length, count = count_of(piece);
      for (int r = 0; r < size(); ++r) {
        operands[static_cast<size_t>(r)] = r == rank() ? at(call.in, begin, d.dtype) : slot(r, 1);
        if (!by_parts) continue;
        const Range part = part_of(count, size(), r);
        std::memcpy(at(call.out, begin + part.begin, d.dtype), at(slot(r, 2), part.begin, d.dtype),
                    part.size() * element);
      }
      if (!by_parts) reduce_in_order(d.dtype, d.reduce, operands, at(call.out, begin, d.dtype), count);
    }
    if (step + 1 < steps) fence(d, deadline);
  }
  ++pieces_;
}

void ShmGroup::reduce_scatter(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype), piece = kSlotBytes / element / static_cast<size_t>(size());
  std::vector<const void*> operands(static_cast<size_t>(size()));
  for_pieces(d.count, piece, [&](size_t begin, size_t count) {
    const auto place = [&](int in_slot_of, int part) {
      return slot(in_slot_of) + static_cast<size_t>(part) * piece * element;
    };
    for (int r = 0; r < size(); ++r)
      std::memcpy(place(rank(), r), at(call.in, static_cast<size_t>(r) * d.count + begin, d.dtype), count * element);
    fence(d, deadline);
    for (int r = 0; r < size(); ++r) operands[static_cast<size_t>(r)] = place(r, rank());
    reduce_in_order(d.dtype, d.reduce, operands, at(call.out, begin, d.dtype), count);
    ++pieces_;
  });
}

void ShmGroup::all_gather(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype);
  for_pieces(d.count, kSlotBytes / element, [&](size_t begin, size_t count) {
    std::memcpy(slot(rank()), at(call.in, begin, d.dtype), count * element);
    fence(d, deadline);
    for (int r = 0; call.out != nullptr && r < size(); ++r)
      std::memcpy(at(call.out, static_cast<size_t>(r) * d.count + begin, d.dtype), slot(r), count * element);
    ++pieces_;
  });
}

void ShmGroup::broadcast(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype);
  for_pieces(d.count, kSlotBytes / element, [&](size_t begin, size_t count) {
    if (call.in != nullptr) std::memcpy(slot(rank()), at(call.in, begin, d.dtype), count * element);
    fence(d, deadline);
    if (call.in == nullptr) std::memcpy(at(call.out, begin, d.dtype), slot(d.root), count * element);
    ++pieces_;
  });
}

void ShmGroup::scatter(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype), piece = kSlotBytes / element / static_cast<size_t>(size());
  for_pieces(d.count, piece, [&](size_t begin, size_t count) {
    const auto place = [&](int r) { return slot(d.root) + static_cast<size_t>(r) * piece * element; };
    for (int r = 0; call.in != nullptr && r < size(); ++r)
      std::memcpy(place(r), at(call.in, static_cast<size_t>(r) * d.count + begin, d.dtype), count * element);
    fence(d, deadline);
    std::memcpy(at(call.out, begin, d.dtype), place(rank()), count * element);
    ++pieces_;
  });
}

size_t ShmGroup::longest_part(const Collective& call, const Deadline& deadline) {
  if (call.in_parts.empty()) return call.descriptor.count;
  const auto ranks = static_cast<size_t>(size());
  std::vector<uint64_t> counts(ranks * ranks);  // [r][s]: elements that rank r sends to rank s
  for (int r = 0; r < size(); ++r) counts[static_cast<size_t>(r)] = call.in_part(r).size();
  std::memcpy(slot(rank()), counts.data(), ranks * sizeof(uint64_t));
  fence(call.descriptor, deadline);
  for (int r = 0; r < size(); ++r)
    std::memcpy(&counts[static_cast<size_t>(r) * ranks], slot(r), ranks * sizeof(uint64_t));
  ++pieces_;
  const size_t element = size_of(call.descriptor.dtype);
  for (int r = 0; r < size(); ++r) {
    const uint64_t sent = counts[static_cast<size_t>(r) * ranks + static_cast<size_t>(rank())];
    if (const size_t due = call.out_part(r).size(); sent != due)
      throw CollectiveError(wrong_length(call.descriptor, r, sent * element, due * element));
  }
  return *std::max_element(counts.begin(), counts.end());
}

void ShmGroup::all_to_all(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype), piece = kSlotBytes / element / static_cast<size_t>(size());
  for_pieces(longest_part(call, deadline), piece, [&](size_t begin, size_t count) {
    const auto place = [&](int from, int to) { return slot(from) + static_cast<size_t>(to) * piece * element; };
    const auto of = [&](const Range& part) {
      const size_t first = std::min(part.begin + begin, part.end);
      return Range{first, std::min(first + count, part.end)};
    };
    for (int r = 0; r < size(); ++r)
      if (const Range part = of(call.in_part(r)); part.size() > 0)
        std::memcpy(place(rank(), r), at(call.in, part.begin, d.dtype), part.size() * element);
    fence(d, deadline);
    for (int r = 0; r < size(); ++r)
      if (const Range part = of(call.out_part(r)); part.size() > 0)
        std::memcpy(at(call.out, part.begin, d.dtype), place(r, rank()), part.size() * element);
    ++pieces_;
  });
}

}  // namespace gradus::dist
