#include <gradus/core/cpu_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace gradus {
namespace {

constexpr size_t kAlignment = 64, kLimit = size_t{1} << 62;

// A block begins with 64 bytes of its own, so that what follows keeps its alignment.
struct Block {
  size_t capacity;
  size_t bytes;  // that were asked for, and are counted
  Block* next;   // in its free list
};
static_assert(sizeof(Block) <= kAlignment);

// Sizes are rounded up so that few distinct capacities occur: to 64 bytes below 4 KiB, then to an eighth of the power
// of two below. Each capacity has its free list, numbered in order.
size_t rounded(size_t bytes) {
  if (bytes <= 4096) return (bytes + 63) / 64 * 64;
  const size_t step = (size_t{1} << (63 - __builtin_clzll(bytes))) / 8;
  return (bytes + step - 1) / step * step;
}
size_t list_of(size_t capacity) {
  if (capacity <= 4096) return capacity / 64;
  const int power = 63 - __builtin_clzll(capacity);
  return 64 + 8 * static_cast<size_t>(power - 12) + (capacity >> (power - 3)) % 8;
}
constexpr size_t kLists = 64 + 8 * (62 - 12) + 1;

class CpuEvent final : public Event {
 public:
  void record(const Stream&) override { time_ = std::chrono::steady_clock::now(); }
  void block(const Stream&) const override {}
  void synchronize() const override {}
  bool query() const override { return true; }
  double elapsed_ms(const Event& start) const override {
    return std::chrono::duration<double, std::milli>(time_ - static_cast<const CpuEvent&>(start).time_).count();
  }

 private:
  std::chrono::steady_clock::time_point time_;
};

class CpuRuntime final : public DeviceRuntime {
 public:
  DeviceType type() const override { return DeviceType::cpu; }
  int device_count() const override { return 1; }
  int current_device() const override { return 0; }
  void set_current_device(int) override {}
  std::string description(int) const override { return "CPU"; }

  void* allocate(size_t bytes, const Stream&) override {
    if (bytes == 0) return nullptr;
    std::unique_lock lock(mutex_);
    const size_t capacity = bytes < kLimit ? rounded(bytes) : bytes;
    Block* block = nullptr;
    if (bytes < kLimit && (block = free_[list_of(capacity)])) free_[list_of(capacity)] = block->next;
    else block = from_system(lock, capacity, bytes);
    block->bytes = bytes;
    ++stats_.allocations;
    stats_.allocated += static_cast<int64_t>(bytes);
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
    return reinterpret_cast<char*>(block) + kAlignment;
  }

  void free(void* data) noexcept override {
    if (!data) return;
    Block* block = reinterpret_cast<Block*>(static_cast<char*>(data) - kAlignment);
    std::lock_guard lock(mutex_);
    stats_.allocated -= static_cast<int64_t>(block->bytes);
    Block*& list = free_[list_of(block->capacity)];
    block->next = list;
    list = block;
  }

  void record_stream(void*, const Stream&) override {}

  void empty_cache() override {
    std::lock_guard lock(mutex_);
    free_all();
  }

  MemoryStats memory_stats(int) const override {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak_memory_stats(int) override {
    std::lock_guard lock(mutex_);
    stats_.peak_allocated = stats_.allocated;
    stats_.peak_reserved = stats_.reserved;
  }

  void* allocate_pinned(size_t bytes) override { return allocate(bytes, {}); }
  void free_pinned(void* data) noexcept override { free(data); }

  void copy(void* to, Device, const void* from, Device, size_t bytes, bool) override {
    if (bytes) std::memcpy(to, from, bytes);
  }

  Stream current_stream(int) override { return {}; }
  void set_current_stream(const Stream&) override {}
  Stream new_stream(int) override { return {}; }
  std::unique_ptr<Event> new_event(bool) override { return std::make_unique<CpuEvent>(); }
  void synchronize(int) override {}

  void begin_capture() override {
    GRADUS_FAIL(DeviceError, "graph capture needs a cuda device; on the cpu run eagerly");
  }
  std::unique_ptr<CapturedGraph> end_capture() override {
    begin_capture();
    return nullptr;
  }
  bool capturing() const override { return false; }

 private:
  void free_all() noexcept {
    for (Block*& list : free_)
      while (Block* block = list) {
        list = block->next;
        stats_.reserved -= static_cast<int64_t>(block->capacity);
        std::free(block);
      }
  }

  // Asks without the lock, which others may want meanwhile; tries once more with an empty cache before giving up.
  Block* from_system(std::unique_lock<std::mutex>& lock, size_t capacity, size_t bytes) {
    auto ask = [&] { return capacity < kLimit ? std::aligned_alloc(kAlignment, capacity + kAlignment) : nullptr; };
    lock.unlock();
    void* memory = ask();
    lock.lock();
    if (!memory) {
      free_all();
      memory = ask();
    }
    GRADUS_CHECK(memory, OutOfMemoryError, "the cpu has no ", bytes, " bytes: ", stats_.allocated, " are in tensors, ",
                 stats_.reserved, " reserved, peak ", stats_.peak_allocated,
                 "; use a smaller batch or free tensors first");
    ++stats_.system_allocations;
    stats_.reserved += static_cast<int64_t>(capacity);
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
    return new (memory) Block{capacity, 0, nullptr};
  }

  mutable std::mutex mutex_;
  Block* free_[kLists] = {};  // by list_of(capacity)
  MemoryStats stats_;
};

}  // namespace

std::unique_ptr<DeviceRuntime> make_cpu_runtime() { return std::make_unique<CpuRuntime>(); }

}  // namespace gradus
