// All-reduces between GPUs of one host that access each other's memory over NVLink.
//
// NCCL's kernels take longer for small sums, and for large ones they take multiprocessors away from the backward pass.
// Here sums of up to 4 MiB / (ranks - 1) take one kernel, and the copy engines move arrays of up to 64 MiB. This needs
// at most 72 MiB of memory on each GPU. Longer arrays are left to NCCL, because nothing hides their transfer anyway.
#pragma once

#include <memory>
#include <vector>

#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/nccl/reduce_kernels.h>
#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

/// An array to be reduced, in place or not.
struct PeerLine {
  const void* in;
  void* out;
  size_t count;
};

class PeerMemory {
 public:
  /// All ranks must call this, each with its device current. Returns null on all ranks unless they are `on_one_host`
  /// and each can access the memory of the others over NVLink, or if NCCL_P2P_DISABLE is set on any of them.
  static std::unique_ptr<PeerMemory> connect(std::shared_ptr<Store> store, int rank, int size, bool on_one_host,
                                             const Deadline& deadline);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// Whether the call can be done here. The answer is the same on all ranks.
  bool serves(const Descriptor& call) const;
  /// Queues the sum or average of each line. The bits are those of reduce_in_order().
  void all_reduce(const Descriptor& call, const std::vector<PeerLine>& lines, const Stream& stream) const;
  /// Makes kernels that wait for other ranks return, now and in the future. May be called from any thread.
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
