// An allocator of device memory, or of page-locked host memory, that keeps freed blocks for reuse. An allocation by the
// driver takes a hundred microseconds and synchronises with the device; an allocation from the cache takes a tenth of a
// microsecond. Blocks are never divided. Sizes are rounded so that there are few different sizes; the statistics count
// the part of a block beyond the requested size as cached.
//
// A block belongs to the stream for which it was allocated. After it is freed, it can be allocated on the same stream
// immediately, because later work on a stream runs after earlier work. If other streams use the block, the caller
// announces them by record_stream(); the block is then reused only after these streams have finished that work.
// Page-locked memory is reused only after the copies that record_copy() announced have finished. Blocks that are
// allocated while a graph is captured belong to the graph's pool: they are reused only within the capture and return to
// the driver when the graph is destroyed.
#pragma once

#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <gradus/backends/cuda/runtime/handle_pool.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus::cuda_detail {

class CachingAllocator {
 public:
  /// The pool of a captured graph; 0 is the pool for all allocations outside of captures.
  using Pool = uint64_t;

  explicit CachingAllocator(int device_count, bool page_locked = false)
      : page_locked_(page_locked), stats_(device_count), limits_(device_count, kNoMemoryLimit) {}

  void* allocate(size_t bytes, int device, cudaStream_t stream, Pool pool);
  void free(void* data) noexcept;
  void record_stream(void* data, cudaStream_t stream);
  /// Announces that a copy that is queued on `stream` of `device` accesses `address`. Does nothing for memory of other
  /// allocators.
  void record_copy(const void* address, int device, cudaStream_t stream);
  void empty_cache();
  MemoryStats stats(int device) const;
  void set_limit(int device, int64_t bytes);
  void reset_peaks(int device);

  Pool new_pool();
  /// Called when a graph is destroyed. Unused blocks of its pool return to the driver now, other blocks when they are
  /// freed.
  void release_pool(Pool pool) noexcept;

 private:
  struct Block {
    void* data = nullptr;
    size_t capacity = 0;
    size_t counted = 0;  // bytes that count as allocated in the statistics
    int device = 0;
    cudaStream_t stream = nullptr;
    Pool pool = 0;
    bool orphan = false;                 // the graph of its pool was destroyed
    std::vector<cudaStream_t> users;     // other streams that use the block
    std::vector<PooledEvent> waits_for;  // the block is not reused before these events are reached
  };
  /// A free block, in a tuple that begins with the key by which find_free() searches: pool, device, stream and
  /// capacity.
  using Free = std::tuple<Pool, int, cudaStream_t, size_t, Block*>;

  Block* find_free(int device, cudaStream_t stream, Pool pool, size_t capacity);
  void* from_system(size_t capacity, size_t bytes, int device);
  void make_free(Block* block);
  void wait_for_users(Block* block);
  void release(Block* block);
  void release_unused(Pool pool, int device = -1);
  void collect_finished(bool wait);
  void check_limit(size_t bytes, int device) const;
  [[noreturn]] void fail_out_of_memory(size_t bytes, int device) const;

  const bool page_locked_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::set<Free> free_;
  std::vector<Block*> waiting_;   // freed blocks that wait for their events
  std::vector<Block*> deferred_;  // blocks freed during a capture, in which events cannot be recorded
  std::vector<MemoryStats> stats_;
  std::vector<int64_t> limits_;  // upper limits of stats_.allocated
  Pool last_pool_ = 0;
};

}  // namespace gradus::cuda_detail
