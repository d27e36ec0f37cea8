// Kernels that sum what is in several GPUs' memory. All ranks launch the same ones in the same order.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradus/core/array/dtype.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

inline constexpr int kMaxPeers = 8, kMaxPeerLines = 48;
/// What is moved at a time. Each line of a collective begins a new one.
inline constexpr size_t kPartBytes = 16;

inline constexpr size_t kPeerFlagBytes = 4096;

/// The memory of all ranks, as this rank's GPU sees it. Each has, from offset 0: flags, two halves of `staging` bytes
/// for sums in one kernel, and a slot of `slot` bytes for each rank.
struct Peers {
  std::byte* memory[kMaxPeers];
  int rank, size;
  size_t staging, slot;
  const int* stopped;  // on the host: not 0 once waiting is over

  /// Bytes of each rank's memory.
  size_t bytes() const { return kPeerFlagBytes + 2 * staging + static_cast<size_t>(size) * slot; }
  /// The slot for rank `from` in the memory of rank `of`.
  GRADUS_HOST_DEVICE std::byte* slot_of(int of, int from) const {
    return memory[of] + kPeerFlagBytes + 2 * staging + static_cast<size_t>(from) * slot;
  }
};

/// Several arrays, of one or more elements each.
struct PeerLines {
  const void* in[kMaxPeerLines];
  void* out[kMaxPeerLines];
  uint32_t count[kMaxPeerLines];
  int size = 0;
};

/// The `sum` or `avg`, in the order of the ranks, of floating-point lines of `staging` bytes at most, in one kernel:
/// each rank puts its own where the others read them.
void all_reduce_lines(const Stream& stream, const Peers& peers, DType dtype, ReduceKind kind, const PeerLines& lines);
/// The same of an array of as many bytes as all slots have at most, by the copy engines: each rank sends every other
/// that one's share of the array, sums its own share, and fetches the others' sums.
void all_reduce_shares(const Stream& stream, const Peers& peers, DType dtype, ReduceKind kind, const void* in,
                       void* out, size_t count);

}  // namespace gradus::dist
