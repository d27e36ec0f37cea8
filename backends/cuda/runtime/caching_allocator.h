// Device memory, or page-locked memory of the host, that is kept for reuse: asking the driver costs a hundred
// microseconds and a synchronisation, asking this a tenth of one. Blocks are never cut; sizes are rounded so that few
// distinct ones occur. What a block has beyond what was asked for counts as cached.
//
// A block belongs to the stream that it was allocated for. Freed, it may be given out again on that stream at once,
// because later work there runs after the earlier. Work on other streams is announced by record_stream; the block then
// waits for events on those, as page-locked memory does for copies (record_copy). Blocks made while a graph is captured
// belong to the graph's pool, are reused only within the capture, and go back to the driver with the graph.
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
  /// Names a graph's pool; 0 is the pool of eager work.
  using Pool = uint64_t;

  explicit CachingAllocator(int device_count, bool page_locked = false)
      : page_locked_(page_locked), stats_(device_count), limits_(device_count, kNoMemoryLimit) {}

  void* allocate(size_t bytes, int device, cudaStream_t stream, Pool pool);
  void free(void* data) noexcept;
  void record_stream(void* data, cudaStream_t stream);
  /// A copy queued on `stream` (of `device`) touches `address`; nothing happens for memory that is not from here.
  void record_copy(const void* address, int device, cudaStream_t stream);
  void empty_cache();
  MemoryStats stats(int device) const;
  void set_limit(int device, int64_t bytes);
  void reset_peaks(int device);

  Pool new_pool();
  /// The graph is gone: its unused blocks go back to the driver now, the others when they are freed.
  void release_pool(Pool pool) noexcept;

 private:
  struct Block {
    void* data = nullptr;
    size_t capacity = 0;
    size_t counted = 0;  // of which as allocated
    int device = 0;
    cudaStream_t stream = nullptr;
    Pool pool = 0;
    bool orphan = false;                 // its graph is gone
    std::vector<cudaStream_t> users;     // other streams that work on it
    std::vector<PooledEvent> waits_for;  // not given out again before these are reached
  };
  /// Pool, device, stream and capacity, by which free blocks are found, and the block.
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
  std::vector<Block*> waiting_;   // freed; their events are recorded
  std::vector<Block*> deferred_;  // freed during a capture, where events cannot be recorded
  std::vector<MemoryStats> stats_;
  std::vector<int64_t> limits_;  // of stats_.allocated
  Pool last_pool_ = 0;
};

}  // namespace gradus::cuda_detail
