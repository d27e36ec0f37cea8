// Collectives of arrays that lie on a device, over transports that read the host's memory alone: piece by piece through
// pinned buffers. Every piece is a collective of its own, so that while one is on the wire the next is copied off the
// device and the last one back:
//
//   off the device   | piece 0 | piece 1 | piece 2 | …
//   wire                       | piece 0 | piece 1 | piece 2 | …
//   to the device                        | piece 0 | piece 1 | piece 2 | …
#pragma once

#include <array>
#include <functional>
#include <memory>

#include <gradus/core/array/array.h>
#include <gradus/distributed/comm/collectives.h>

namespace gradus::dist {

class Staging {
 public:
  /// For a group of `ranks` ranks, of which this is `rank`.
  Staging(Device device, int rank, int ranks);

  Device device() const { return device_; }
  /// Does what `call` says with memory of the device, for the elements of `range`, by way of `carry_out`, which does
  /// the same with the host's. The work that `ready` stands behind comes first. Returns when the result is in the
  /// device's memory. `in` and `out` own what the call points to.
  void run(const Collective& call, const Range& range, const Array& in, const Array& out, const Event& ready,
           const Deadline& deadline, const std::function<void(const Collective&)>& carry_out);

 private:
  /// Where a piece is while it is on its way.
  struct Slot {
    Storage memory;
    std::unique_ptr<Event> filled, emptied;
  };
  struct Piece {
    size_t begin, count;
  };
  /// Part of a call: blocks of its elements, one behind the other in a slot.
  struct Side {
    std::byte* data = nullptr;
    size_t blocks = 0, offset = 0;  // in the slot
  };

  Slot& slot(size_t piece) { return slots_[piece % slots_.size()]; }
  std::byte* place(size_t piece, const Side& side) {
    return static_cast<std::byte*>(slot(piece).memory.data()) + side.offset;
  }
  void copy(const Descriptor& call, const Side& side, const Piece& piece, std::byte* host, const Stream& stream);
  void await(const Event& event, const Descriptor& call, const Deadline& deadline) const;

  const Device device_;
  const int rank_;
  const size_t ranks_;
  DeviceRuntime& runtime_;
  const Stream down_, up_;  // off the device, and back
  std::array<Slot, 3> slots_;
};

}  // namespace gradus::dist
