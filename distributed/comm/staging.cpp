#include <gradus/distributed/comm/staging.h>

#include <algorithm>
#include <thread>

#include <gradus/core/error.h>

namespace gradus::dist {
namespace {

/// Long enough for the wire, short enough that the first and the last copy, which overlap with nothing, cost little.
constexpr size_t kPieceBytes = 1 << 20;

bool has_blocks_before(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::scatter ||
         kind == CollectiveKind::all_to_all;
}
bool has_blocks_after(CollectiveKind kind) {
  return kind == CollectiveKind::all_gather || kind == CollectiveKind::gather || kind == CollectiveKind::all_to_all;
}

}  // namespace

Staging::Staging(Device device, int rank, int ranks)
    : device_(device), rank_(rank), ranks_(static_cast<size_t>(ranks)), runtime_(runtime(device.type())),
      down_(runtime_.new_stream(device.index())), up_(runtime_.new_stream(device.index())) {
  for (Slot& slot : slots_) {
    slot.memory = Storage::allocate_pinned(2 * kPieceBytes);
    slot.filled = runtime_.new_event(false);
    slot.emptied = runtime_.new_event(false);
  }
}

void Staging::copy(const Descriptor& call, const Side& side, const Piece& piece, std::byte* host,
                   const Stream& stream) {
  const bool off = stream == down_;
  const StreamGuard guard(stream);
  for (size_t block = 0; block < side.blocks; ++block) {
    std::byte* there = at(side.data, block * call.count + piece.begin, call.dtype);
    std::byte* here = at(host, block * piece.count, call.dtype);
    const size_t bytes = piece.count * size_of(call.dtype);
    if (off) runtime_.copy(here, Device(), there, device_, bytes, /*non_blocking=*/true);
    else runtime_.copy(there, device_, here, Device(), bytes, /*non_blocking=*/true);
  }
}

void Staging::await(const Event& event, const Descriptor& call, const Deadline& deadline) const {
  while (!event.query()) {
    if (deadline.passed())
      throw CollectiveError({CommFailure::timeout, rank_,
                             "[" + call.str() + "] rank " + std::to_string(rank_) + " waited " +
                                 std::to_string(deadline.timeout().count()) + " ms for its own " + device_.str() +
                                 ": earlier work on the stream takes longer"});
    std::this_thread::yield();
  }
}

void Staging::run(const Collective& call, const Range& range, const Array& in, const Array& out, const Event& ready,
                  const Deadline& deadline, const std::function<void(const Collective&)>& carry_out) {
  const Descriptor& d = call.descriptor;
  const bool before = has_blocks_before(d.kind), after = has_blocks_after(d.kind);
  Side from, to;
  if (call.in != nullptr) from = {const_cast<std::byte*>(at(call.in, 0, d.dtype)), before ? ranks_ : 1, 0};
  // A reduction writes its result over its operand.
  const bool in_place = d.kind == CollectiveKind::all_reduce || d.kind == CollectiveKind::reduce;
  if (call.out != nullptr) to = {at(call.out, 0, d.dtype), after ? ranks_ : 1, in_place ? 0 : kPieceBytes};

  const size_t length = kPieceBytes / size_of(d.dtype) / (before || after ? ranks_ : 1);
  const size_t pieces = std::max<size_t>(1, (range.size() + length - 1) / length);
  const auto piece = [&](size_t i) {
    return Piece{range.begin + i * length, std::min(length, range.size() - i * length)};
  };
  const auto fill = [&](size_t i) {
    slot(i).emptied->block(down_);
    copy(d, from, piece(i), place(i, from), down_);
    slot(i).filled->record(down_);
  };

  try {
    ready.block(down_);
    ready.block(up_);
    for (size_t i = 0; i + 1 < slots_.size() && i < pieces; ++i) fill(i);
    for (size_t i = 0; i < pieces; ++i) {
      const size_t ahead = i + slots_.size() - 1;
      if (ahead < pieces) fill(ahead);
      await(*slot(i).filled, d, deadline);
      Collective part = call;
      part.whole = d;
      part.descriptor.count = piece(i).count;
      part.in = call.in != nullptr ? place(i, from) : nullptr;
      part.out = call.out != nullptr ? place(i, to) : nullptr;
      carry_out(part);
      copy(d, to, piece(i), place(i, to), up_);
      slot(i).emptied->record(up_);
    }
    await(*slot(pieces - 1).emptied, d, deadline);
  } catch (...) {  // copies may still be in progress
    for (const Stream& stream : {down_, up_}) {
      in.storage().record_stream(stream);
      out.storage().record_stream(stream);
    }
    throw;
  }
}

}  // namespace gradus::dist
