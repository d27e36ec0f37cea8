// The arithmetic of collectives on the device: sums of arrays in the memory of several GPUs, and the reductions of
// `strict` collectives.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradus/core/array/dtype.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

/// y[i] = the sum, maximum, … (`kind`) of x[i], x[count + i], x[2 count + i], … of all ranks, combined in this order.
/// The bits are those of reduce_in_order(). Queued on the stream.
void reduce_in_order_on(const Stream& stream, DType dtype, ReduceKind kind, const void* x, int ranks, void* y,
                        size_t count);

// Sums of arrays in the memory of several GPUs. All ranks must launch the same kernels in the same order.

inline constexpr int kMaxPeers = 8, kMaxPeerLines = 48;
/// Bytes of a part, the unit in which kernels move data. Each array (line) of a collective begins with a new part.
inline constexpr size_t kPartBytes = 16;

inline constexpr size_t kPeerFlagBytes = 4096;

/// The memory of all ranks as this rank's GPU sees it. The memory of each rank consists of flags, two halves of
/// `staging` bytes for all_reduce_lines(), and a slot of `slot` bytes for each rank.
struct Peers {
  std::byte* memory[kMaxPeers];
  int rank, size;
  size_t staging, slot;
  const int* stopped;  // in host memory; nonzero once kernels must stop waiting

  /// Bytes of each rank's memory.
  size_t bytes() const { return kPeerFlagBytes + 2 * staging + static_cast<size_t>(size) * slot; }
  /// The slot for rank `from` in the memory of rank `of`.
  GRADUS_HOST_DEVICE std::byte* slot_of(int of, int from) const {
    return memory[of] + kPeerFlagBytes + 2 * staging + static_cast<size_t>(from) * slot;
  }
};

/// Several arrays (lines) of one or more elements each.
struct PeerLines {
  const void* in[kMaxPeerLines];
  void* out[kMaxPeerLines];
  uint32_t count[kMaxPeerLines];
  int size = 0;
};

/// Computes the `sum` or `avg`, in the order of the ranks, of floating-point lines of at most `staging` bytes in all,
/// in one kernel. Each rank copies its lines to its staging memory, where the other ranks read them.
void all_reduce_lines(const Stream& stream, const Peers& peers, DType dtype, ReduceKind kind, const PeerLines& lines);
/// Computes the same for one array that fits in the slots, by the copy engines. Each rank owns a share of the array: it
/// receives that share from every other rank, sums it, and the others fetch the sum.
void all_reduce_shares(const Stream& stream, const Peers& peers, DType dtype, ReduceKind kind, const void* in,
                       void* out, size_t count);

}  // namespace gradus::dist
