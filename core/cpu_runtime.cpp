#include <gradus/core/cpu_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gradus {
namespace {

constexpr size_t kAlignment = 64;
// Sits before every block: 64 bytes, so that the block keeps its alignment.
struct Header {
  size_t capacity;
  size_t bytes;  // that were asked for, and are counted
};
static_assert(sizeof(Header) <= kAlignment);

// Sizes are rounded up so that few distinct capacities occur: to 64 bytes below 4 KiB, then to an eighth of the power
// of two below.
size_t rounded(size_t bytes) {
  if (bytes <= 4096) return (bytes + 63) / 64 * 64;
  const size_t step = (size_t{1} << (63 - __builtin_clzll(bytes))) / 8;
  return (bytes + step - 1) / step * step;
}

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
    const size_t limit = size_t{1} << 62;
    const size_t capacity = bytes < limit ? rounded(bytes) : bytes;
    void* block = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (auto it = free_.find(capacity); it != free_.end() && !it->second.empty()) {
        block = it->second.back();
        it->second.pop_back();
      }
    }
    if (!block) block = from_system(capacity, bytes);
    static_cast<Header*>(block)->bytes = bytes;
    std::lock_guard lock(mutex_);
    ++stats_.allocations;
    stats_.allocated += static_cast<int64_t>(bytes);
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
    return static_cast<char*>(block) + kAlignment;
  }

  void free(void* data) noexcept override {
    if (!data) return;
    void* block = static_cast<char*>(data) - kAlignment;
    const auto [capacity, bytes] = *static_cast<Header*>(block);
    std::lock_guard lock(mutex_);
    stats_.allocated -= static_cast<int64_t>(bytes);
    try {
      free_[capacity].push_back(block);
    } catch (...) {
      stats_.reserved -= static_cast<int64_t>(capacity);
      std::free(block);
    }
  }

  void record_stream(void*, const Stream&) override {}

  void empty_cache() override {
    std::lock_guard lock(mutex_);
    for (auto& [capacity, blocks] : free_) {
      for (void* block : blocks) std::free(block);
      stats_.reserved -= static_cast<int64_t>(capacity * blocks.size());
    }
    free_.clear();
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
  // Tries once more with an empty cache before giving up.
  void* from_system(size_t capacity, size_t bytes) {
    void* block = capacity < (size_t{1} << 62) ? std::aligned_alloc(kAlignment, capacity + kAlignment) : nullptr;
    if (!block && capacity < (size_t{1} << 62)) {
      empty_cache();
      block = std::aligned_alloc(kAlignment, capacity + kAlignment);
    }
    std::lock_guard lock(mutex_);
    GRADUS_CHECK(block, OutOfMemoryError, "the cpu has no ", bytes, " bytes: ", stats_.allocated, " are in tensors, ",
                 stats_.reserved, " reserved, peak ", stats_.peak_allocated,
                 "; use a smaller batch or free tensors first");
    static_cast<Header*>(block)->capacity = capacity;
    ++stats_.system_allocations;
    stats_.reserved += static_cast<int64_t>(capacity);
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
    return block;
  }

  mutable std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
  MemoryStats stats_;
};

}  // namespace

std::unique_ptr<DeviceRuntime> make_cpu_runtime() { return std::make_unique<CpuRuntime>(); }

}  // namespace gradus
