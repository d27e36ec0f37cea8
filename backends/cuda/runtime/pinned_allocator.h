// Page-locked host memory, kept for reuse: locking pages costs more than the copy that they are locked for. A freed
// block waits for the asynchronous copies that use it.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include <gradus/backends/cuda/runtime/handle_pool.h>

namespace gradus::cuda_detail {

class PinnedAllocator {
 public:
  void* allocate(size_t bytes);
  void free(void* data) noexcept;
  /// A copy queued on `stream` (of `device`) touches `address`; nothing happens for memory that is not from here.
  void record_use(const void* address, int device, cudaStream_t stream);

 private:
  struct Block {
    size_t capacity = 0;
    std::vector<PooledEvent> copies;
  };
  using Blocks = std::map<const char*, Block>;  // by first address

  std::mutex mutex_;
  Blocks blocks_;
  std::map<size_t, std::vector<Blocks::iterator>> free_;
};

}  // namespace gradus::cuda_detail
