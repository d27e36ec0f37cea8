// Reductions on the device: all-reduces between GPUs of one host that access each other's memory over NVLink, and the
// sums of `strict` collectives.
//
// NCCL's kernels take longer than these for small sums, and for large sums they take multiprocessors away from the
// backward pass. Here sums of up to 4 MiB / (ranks - 1) take one kernel, and the copy engines move arrays of up to
// 64 MiB. This needs at most 72 MiB of memory on each GPU. Longer arrays are left to NCCL: no computation hides their
// long transfer anyway, so the multiprocessors that NCCL occupies are not missed.
#pragma once

#include <gradus/core/runtime/runtime.h>
#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

class Store;

/// y[i] = the sum, maximum, … (`kind`) of x[i], x[count + i], x[2 count + i], … of all ranks, combined in this order.
/// Has the same bits as reduce_in_order(). The work is queued on the stream.
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
  const int* stopped;  // a flag in host memory: nonzero once kernels must stop waiting

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
/// Computes the same for one array that fits in the slots, by the copy engines. Each rank owns a share of the array. It
/// receives this share from every other rank and sums it, and the other ranks fetch the sum.
void all_reduce_shares(const Stream& stream, const Peers& peers, DType dtype, ReduceKind kind, const void* in,
                       void* out, size_t count);

/// An array to be reduced, in place or not.
struct PeerLine {
  const void* in;
  void* out;
  size_t count;
};

class PeerMemory : NoCopy {
 public:
  /// All ranks must call this, each with its device current. Returns null on all ranks if the ranks are not
  /// `on_one_host`, if a rank cannot access the memory of another rank over NVLink, or if NCCL_P2P_DISABLE is set on a
  /// rank.
  static std::unique_ptr<PeerMemory> connect(std::shared_ptr<Store> store, int rank, int size, bool on_one_host,
                                             const Deadline& deadline);
  ~PeerMemory();

  /// Returns true if the call can use peer memory. The answer is the same on all ranks.
  bool serves(const Descriptor& call) const;
  /// Queues the sum or average of each line, with the same bits as reduce_in_order().
  void all_reduce(const Descriptor& call, const std::vector<PeerLine>& lines, const Stream& stream) const;
  /// From now on, kernels that wait for other ranks return at once. May be called from any thread.
  void stop() noexcept;

 private:
  PeerMemory(std::shared_ptr<Store> store, int rank, int size);
  std::string allocate();
  bool open(int peer, const std::string& handle);

  const std::shared_ptr<Store> store_;
  Peers peers_{};
  int* stopped_ = nullptr;
};

}  // namespace gradus::dist
