// All-reduces between GPUs of one host that read and write each other's memory by NVLink.
//
// NCCL's kernels take longer than this where little is summed, and keep multiprocessors from the backward pass where it
// is much. Here up to 4 MiB are summed in one kernel, and up to 64 MiB are moved by the copy engines. That takes 72 MiB
// of each GPU's memory. Longer arrays, which nothing hides anyway, are NCCL's.
#pragma once

#include <memory>
#include <vector>

#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/nccl/peer_kernels.h>
#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

/// An array of a sum, in place or not.
struct PeerLine {
  const void* in;
  void* out;
  size_t count;
};

class PeerMemory {
 public:
  /// Called by all ranks with the device of each current, after they know to be `on_one_host`. Null on all of them if
  /// one cannot reach another's memory by NVLink, or has NCCL_P2P_DISABLE set as for NCCL.
  static std::unique_ptr<PeerMemory> connect(std::shared_ptr<Store> store, int rank, int size, bool on_one_host,
                                             const Deadline& deadline);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// Whether it does what this is; the same on all ranks.
  bool serves(const Descriptor& call) const;
  /// Queues the sum or average of each line, with the bits of reduce_in_order().
  void all_reduce(const Descriptor& call, const std::vector<PeerLine>& lines, const Stream& stream) const;
  /// Makes kernels that wait for other ranks return, now and later. From any thread.
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
