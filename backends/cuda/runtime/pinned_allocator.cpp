#include <gradus/backends/cuda/runtime/pinned_allocator.h>

#include <algorithm>
#include <bit>

namespace gradus::cuda_detail {

void* PinnedAllocator::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  GRADUS_CHECK(bytes <= size_t{1} << 46, OutOfMemoryError, "no ", bytes, " bytes of page-locked host memory");
  const size_t capacity = std::bit_ceil(std::max<size_t>(bytes, 4096));
  std::lock_guard lock(mutex_);
  std::vector<Blocks::iterator>& candidates = free_[capacity];
  const RelaxedCapture relaxed;
  const auto idle = std::find_if(candidates.begin(), candidates.end(),
                                 [](const Blocks::iterator& block) { return forget_reached(block->second.copies); });
  if (idle != candidates.end()) {
    const Blocks::iterator block = *idle;
    candidates.erase(idle);
    return const_cast<char*>(block->first);
  }
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, capacity, cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    GRADUS_FAIL(OutOfMemoryError, "the host has no ", bytes, " bytes of page-locked memory; use fewer or smaller ",
                "pinned tensors");
  }
  GRADUS_CUDA_CHECK(error);
  blocks_[static_cast<char*>(data)].capacity = capacity;
  return data;
}

void PinnedAllocator::free(void* data) noexcept {
  if (!data) return;
  try {
    std::lock_guard lock(mutex_);
    const Blocks::iterator block = blocks_.find(static_cast<char*>(data));
    if (block != blocks_.end()) free_[block->second.capacity].push_back(block);
  } catch (...) {  // out of host memory: the block is lost
  }
}

void PinnedAllocator::record_use(const void* address, int device, cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  Blocks::iterator block = blocks_.upper_bound(static_cast<const char*>(address));
  if (block == blocks_.begin()) return;
  --block;
  if (static_cast<const char*>(address) >= block->first + block->second.capacity) return;
  const RelaxedCapture relaxed;
  forget_reached(block->second.copies);
  const DeviceGuard guard(device);
  GRADUS_CUDA_CHECK(cudaEventRecord(block->second.copies.emplace_back(device), stream));
}

}  // namespace gradus::cuda_detail
