// Collectives of device arrays over transports that can read only host memory. An array passes through pinned buffers
// piece by piece. Each piece is a collective of its own, so that while one piece is on the wire, the next is copied off
// the device and the previous one back to it:
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
  /// Does what `call` says for the elements of `range` of arrays in device memory. For each piece, `carry_out` runs the
  /// same collective on host memory. Work begins once the event `ready` has occurred. Returns when the result is in
  /// device memory. `in` and `out` own what `call` points to.
  void run(const Collective& call, const Range& range, const Array& in, const Array& out, const Event& ready,
           const Deadline& deadline, const std::function<void(const Collective&)>& carry_out);

 private:
  /// The buffer of a piece while it is in transit.
  struct Slot {
    Storage memory;
    std::unique_ptr<Event> filled, emptied;
  };
  struct Piece {
    size_t begin, count;
  };
  /// The input or output of a call: blocks of its elements, which are consecutive in a slot.
  struct Side {
    std::byte* data = nullptr;
    size_t blocks = 0, offset = 0;  // offset in the slot
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
  const Stream down_, up_;  // copies from the device, and to it
  std::array<Slot, 3> slots_;
};

}  // namespace gradus::dist
