// The memory of the CPU: aligned blocks kept in size-class free lists.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr size_t kAlignment = 64, kLimit = size_t{1} << 62;
constexpr int kShelves = 16;              // shelves (sets of free lists) that belong to threads
constexpr size_t kOwn = size_t{1} << 20;  // bytes; larger blocks are on the shelf that all threads share

// Header of a block. It takes 64 bytes, so that the memory after it stays aligned.
struct Block {
  size_t capacity;
  size_t bytes;  // as requested, and as counted by MemoryStats
  Block* next;   // the next block of its free list
  int shelf;     // number of the Shelf that the block returns to when it is freed
};
static_assert(sizeof(Block) <= kAlignment);

// Sizes are rounded up so that there are few distinct capacities: up to 4 KiB to a multiple of 64 bytes, above to a
// multiple of an eighth of the next lower power of two. Each capacity has its own free list, numbered in order.
size_t rounded(size_t bytes) {
  if (bytes <= 4096) return round_up(bytes, size_t{64});
  const size_t step = (size_t{1} << (63 - __builtin_clzll(bytes))) / 8;
  return round_up(bytes, step);
}
size_t list_of(size_t capacity) {
  if (capacity <= 4096) return capacity / 64;
  const int power = 63 - __builtin_clzll(capacity);
  return 64 + 8 * static_cast<size_t>(power - 12) + (capacity >> (power - 3)) % 8;
}
constexpr size_t kLists = 64 + 8 * (62 - 12) + 1;

// Free lists. Small blocks return to the shelf of the thread that first allocated them: a thread's scratch memory then
// stays in its core's cache, and threads that allocate at the same time do not wait for each other.
struct alignas(64) Shelf {
  std::mutex mutex;
  Block* free[kLists] = {};  // by list_of(capacity)
};
int own_shelf() {
  static std::atomic<unsigned> threads{0};
  static thread_local const int shelf = static_cast<int>(threads++ % kShelves);
  return shelf;
}

class CpuEvent final : public Event {
 public:
  void record(const Stream&) override { time_ = std::chrono::steady_clock::now(); }
  double elapsed_ms(const Event& start) const override {
    return std::chrono::duration<double, std::milli>(time_ - static_cast<const CpuEvent&>(start).time_).count();
  }

 private:
  std::chrono::steady_clock::time_point time_;
};

class CpuRuntime final : public DeviceRuntime {
 public:
  DeviceType type() const override { return DeviceType::cpu; }
  std::string description(int) const override { return "CPU"; }

  void* allocate(size_t bytes, const Stream&) override {
    if (bytes == 0) return nullptr;
    const int64_t limit = limit_.load(relaxed), held = allocated_.load(relaxed);
    GRADUS_CHECK(limit == kNoMemoryLimit || std::cmp_less_equal(bytes, limit - held), OutOfMemoryError, "allocating ",
                 bytes, " more bytes would exceed the limit of ", limit,
                 " bytes set by set_memory_limit for the cpu: ", held, " are in tensors");
    const size_t capacity = rounded(std::min(bytes, kLimit));  // no system has a block of kLimit bytes
    const int at = capacity <= kOwn ? own_shelf() : kShelves;
    Block* block = nullptr;
    {
      std::lock_guard lock(shelves_[at].mutex);
      Block*& list = shelves_[at].free[list_of(capacity)];
      if ((block = list)) list = block->next;
    }
    if (!block) block = from_system(capacity, bytes, at);
    block->bytes = bytes;
    allocations_.fetch_add(1, relaxed);
    add(allocated_, peak_allocated_, bytes);
    return reinterpret_cast<char*>(block) + kAlignment;
  }

  void free(void* data) noexcept override {
    if (!data) return;
    Block* block = reinterpret_cast<Block*>(static_cast<char*>(data) - kAlignment);
    allocated_.fetch_sub(static_cast<int64_t>(block->bytes), relaxed);
    Shelf& shelf = shelves_[block->shelf];
    std::lock_guard lock(shelf.mutex);
    Block*& list = shelf.free[list_of(block->capacity)];
    block->next = list;
    list = block;
  }

  void empty_cache() override {
    for (Shelf& shelf : shelves_) {
      std::lock_guard lock(shelf.mutex);
      for (Block*& list : shelf.free)
        while (Block* block = list) {
          list = block->next;
          reserved_ -= static_cast<int64_t>(block->capacity);
          std::free(block);
        }
    }
  }

  MemoryStats memory_stats(int) const override {
    return {.allocated = allocated_,
            .peak_allocated = peak_allocated_,
            .reserved = reserved_,
            .peak_reserved = peak_reserved_,
            .allocations = allocations_,
            .system_allocations = system_allocations_};
  }
  void reset_peak_memory_stats(int) override {
    peak_allocated_ = allocated_.load();
    peak_reserved_ = reserved_.load();
  }

  void set_memory_limit(int, int64_t bytes) override { limit_ = bytes; }

  void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes, bool) override {
    if (bytes && !record_copy(to, to_device, from, from_device, bytes)) std::memcpy(to, from, bytes);
  }

  std::unique_ptr<Event> new_event(bool) override { return std::make_unique<CpuEvent>(); }
  bool capturing() const override { return is_recording(DeviceType::cpu); }

 private:
  using Count = std::atomic<int64_t>;

  static void add(Count& total, Count& peak, size_t bytes) {
    const auto more = static_cast<int64_t>(bytes), now = total.fetch_add(more, relaxed) + more;
    for (int64_t most = peak.load(relaxed); most < now && !peak.compare_exchange_weak(most, now, relaxed);) {}
  }

  // Allocates a block from the C library. If that fails, it empties the cache and tries once more before it throws.
  Block* from_system(size_t capacity, size_t bytes, int shelf) {
    auto ask = [&] { return std::aligned_alloc(kAlignment, capacity + kAlignment); };
    void* memory = ask();
    if (!memory) {
      empty_cache();
      memory = ask();
    }
    GRADUS_CHECK(memory, OutOfMemoryError, "cannot allocate ", bytes, " bytes on the cpu: ", allocated_.load(),
                 " are in tensors, ", reserved_.load(), " reserved, peak ", peak_allocated_.load(),
                 "; use a smaller batch or free tensors first");
    ++system_allocations_;
    add(reserved_, peak_reserved_, capacity);
    return new (memory) Block{capacity, 0, nullptr, shelf};
  }

  Shelf shelves_[kShelves + 1];  // the last one is shared by all threads
  alignas(64) Count allocated_{0};
  Count peak_allocated_{0}, reserved_{0}, peak_reserved_{0}, allocations_{0}, system_allocations_{0},
      limit_{kNoMemoryLimit};
};

}  // namespace

std::unique_ptr<DeviceRuntime> make_cpu_runtime() { return std::make_unique<CpuRuntime>(); }

}  // namespace gradus
