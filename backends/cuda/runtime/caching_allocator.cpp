#include <gradus/backends/cuda/runtime/caching_allocator.h>

#include <algorithm>
#include <utility>

#include <gradus/backends/cuda/runtime/check.h>
#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/core/formulas/integers.h>

namespace gradus::cuda_detail {
namespace {

// The bytes that the statistics count for a request of `bytes` bytes, as in PyTorch.
size_t counted(size_t bytes) { return round_up(bytes, 512); }

// The capacity of a new block for a request of `bytes` bytes. Above 64 KiB it is a multiple of p / 8, where p is the
// largest power of two that is not greater than `bytes`, so that less than an eighth of a block is wasted.
size_t rounded(size_t bytes) {
  return bytes <= 65536 ? counted(bytes) : round_up(bytes, (size_t{1} << (63 - __builtin_clzll(bytes))) / 8);
}

}  // namespace

void* CachingAllocator::allocate(size_t bytes, int device, cudaStream_t stream, Pool pool) {
  if (bytes == 0) return nullptr;
  std::lock_guard lock(mutex_);
  if (bytes > size_t{1} << 46) fail_out_of_memory(bytes, device);  // no machine has 64 TiB
  check_limit(bytes, device);
  const size_t capacity = rounded(bytes);
  if (pool == 0) collect_finished(false);
  Block* block = find_free(device, stream, pool, capacity);
  if (!block) {
    void* data = from_system(capacity, bytes, device);
    block = &blocks_[data];
    block->data = data, block->capacity = capacity, block->device = device, block->stream = stream, block->pool = pool;
  }
  block->counted = counted(bytes);
  MemoryStats& stats = stats_[device];
  ++stats.allocations;
  stats.allocated += static_cast<int64_t>(block->counted);
  stats.peak_allocated = std::max(stats.peak_allocated, stats.allocated);
  return block->data;
}

void CachingAllocator::set_limit(int device, int64_t bytes) {
  std::lock_guard lock(mutex_);
  limits_[device] = bytes;
}

void CachingAllocator::check_limit(size_t bytes, int device) const {
  const int64_t allocated = stats_[device].allocated, limit = limits_[device];
  GRADUS_CHECK(allocated + static_cast<int64_t>(counted(bytes)) <= limit, OutOfMemoryError,
               format_bytes(static_cast<int64_t>(bytes)), " more would be beyond the limit of ", format_bytes(limit),
               " that set_memory_limit gave cuda:", device, ": ", format_bytes(allocated), " are in tensors");
}

// Takes the smallest free block that has at least `capacity` bytes, and returns it. Returns null if there is none, or
// if that block is more than an eighth larger.
CachingAllocator::Block* CachingAllocator::find_free(int device, cudaStream_t stream, Pool pool, size_t capacity) {
  const auto fit = free_.lower_bound({pool, device, stream, capacity, nullptr});
  if (fit == free_.end() || *fit > Free(pool, device, stream, capacity + capacity / 8 + 1, nullptr)) return nullptr;
  Block* block = std::get<Block*>(*fit);
  free_.erase(fit);
  return block;
}

void CachingAllocator::free(void* data) noexcept {
  if (!data) return;
  try {
    std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;
    Block* block = &found->second;
    stats_[block->device].allocated -= static_cast<int64_t>(block->counted);
    if (block->users.empty() && block->waits_for.empty()) return make_free(block);
    if (this_thread_captures()) return deferred_.push_back(block);
    wait_for_users(block);
  } catch (...) {  // the device has failed: the block is lost, and the next call reports the failure
  }
}

void CachingAllocator::record_stream(void* data, cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data);
  if (found == blocks_.end() || found->second.stream == stream) return;
  std::vector<cudaStream_t>& users = found->second.users;
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
}

void CachingAllocator::record_copy(const void* address, int device, cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  for (auto& [data, block] : blocks_) {
    const auto first = reinterpret_cast<uintptr_t>(data), touched = reinterpret_cast<uintptr_t>(address);
    if (touched < first || touched >= first + block.capacity) continue;
    forget_reached(block.waits_for);
    const DeviceGuard guard(device);
    GRADUS_CUDA_CHECK(cudaEventRecord(block.waits_for.emplace_back(device), stream));
  }
}

void CachingAllocator::make_free(Block* block) {
  if (block->orphan) return release(block);
  free_.emplace(block->pool, block->device, block->stream, block->capacity, block);
}

// Records an event on each stream that uses the block. The block is not reused before the streams have reached these
// events.
void CachingAllocator::wait_for_users(Block* block) {
  const DeviceGuard guard(block->device);
  for (cudaStream_t user : block->users)
    GRADUS_CUDA_CHECK(cudaEventRecord(block->waits_for.emplace_back(block->device), user));
  block->users.clear();
  waiting_.push_back(block);
}

// Returns a block to the driver.
void CachingAllocator::release(Block* block) {
  DeviceGuard guard(block->device);
  RelaxedCapture relaxed;
  stats_[block->device].reserved -= static_cast<int64_t>(block->capacity);
  void* data = block->data;
  blocks_.erase(data);
  GRADUS_CUDA_CHECK(page_locked_ ? cudaFreeHost(data) : cudaFree(data));
}

void CachingAllocator::collect_finished(bool wait) {
  if (this_thread_captures()) return;
  for (Block* block : std::exchange(deferred_, {})) wait_for_users(block);
  std::erase_if(waiting_, [&](Block* block) {
    if (wait)
      for (const PooledEvent& event : block->waits_for) GRADUS_CUDA_CHECK(cudaEventSynchronize(event));
    const bool finished = forget_reached(block->waits_for);
    if (finished) make_free(block);
    return finished;
  });
}

void* CachingAllocator::from_system(size_t capacity, size_t bytes, int device) {
  DeviceGuard guard(device);
  RelaxedCapture relaxed;
  void* data = nullptr;
  const auto ask = [&] {
    return page_locked_ ? cudaHostAlloc(&data, capacity, cudaHostAllocPortable) : cudaMalloc(&data, capacity);
  };
  cudaError_t error = ask();
  if (error == cudaErrorMemoryAllocation) {  // try again after returning all cached blocks to the driver
    cudaGetLastError();
    ++stats_[device].retries;
    collect_finished(true);
    release_unused(0, device);
    error = ask();
  }
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail_out_of_memory(bytes, device);
  }
  GRADUS_CUDA_CHECK(error);
  MemoryStats& stats = stats_[device];
  ++stats.system_allocations;
  stats.reserved += static_cast<int64_t>(capacity);
  stats.peak_reserved = std::max(stats.peak_reserved, stats.reserved);
  return data;
}

void CachingAllocator::fail_out_of_memory(size_t bytes, int device) const {
  GRADUS_CHECK(!page_locked_, OutOfMemoryError, "the host has no ", bytes,
               " bytes of page-locked memory; use fewer or smaller pinned tensors");
  DeviceGuard guard(device);
  size_t free = 0, total = 0;
  GRADUS_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const MemoryStats& stats = stats_[device];
  const int64_t wanted = static_cast<int64_t>(std::min(bytes, size_t{1} << 60));
  GRADUS_FAIL(OutOfMemoryError, "cuda:", device, " has no ", format_bytes(wanted), ": of ",
              format_bytes(static_cast<int64_t>(total)), " the driver has ", format_bytes(static_cast<int64_t>(free)),
              " free, tensors of this process hold ", format_bytes(stats.allocated), " (peak ",
              format_bytes(stats.peak_allocated), ") and its cache ", format_bytes(stats.reserved - stats.allocated),
              "; use a smaller batch or free tensors first");
}

// Returns a pool's unused blocks on a device (-1: on all devices) to the driver.
void CachingAllocator::release_unused(Pool pool, int device) {
  for (auto next = free_.begin(); next != free_.end();) {
    Block* block = std::get<Block*>(*next);
    const bool wanted = block->pool == pool && (device < 0 || block->device == device);
    next = wanted ? free_.erase(next) : std::next(next);
    if (wanted) release(block);
  }
}

void CachingAllocator::empty_cache() {
  std::lock_guard lock(mutex_);
  collect_finished(false);
  release_unused(0);
}

MemoryStats CachingAllocator::stats(int device) const {
  std::lock_guard lock(mutex_);
  return stats_[device];
}

void CachingAllocator::reset_peaks(int device) {
  std::lock_guard lock(mutex_);
  stats_[device].peak_allocated = stats_[device].allocated;
  stats_[device].peak_reserved = stats_[device].reserved;
}

CachingAllocator::Pool CachingAllocator::new_pool() {
  std::lock_guard lock(mutex_);
  return ++last_pool_;
}

void CachingAllocator::release_pool(Pool pool) noexcept {
  try {
    std::lock_guard lock(mutex_);
    for (auto& [data, block] : blocks_)
      if (block.pool == pool) block.orphan = true;
    release_unused(pool);
  } catch (...) {  // the device has failed, so nothing can be released
  }
}

}  // namespace gradus::cuda_detail
