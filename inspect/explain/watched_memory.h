// Records the memory of a step for explanations: where each block was made, what keeps it, and when it was released.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include <gradus/autograd/node.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/inspect/explain/explain_parts.h>

namespace gradus::training::detail {

/// The operators that are open on a thread.
class OpenOperators final : public ThreadObserver {
 public:
  void on_begin(const ObservedEvent& event) override {
    if (is_mine(event, ObservedEvent::Kind::op)) open_.push_back(event.name);
  }
  void on_end(const ObservedEvent& event) override {
    if (is_mine(event, ObservedEvent::Kind::op) && !open_.empty()) open_.pop_back();
  }
  bool backward() const { return place_of_backward() < open_.size(); }
  /// The user's operator, or the node in the backward pass.
  std::string name() const {
    if (open_.empty()) return "";
    const size_t at = place_of_backward();
    return at + 1 < open_.size() ? open_[at + 1] : open_[at < open_.size() ? at : 0];
  }
  std::string str() const {
    const std::string module = ModuleFrame::current_path();
    return name() + (module.empty() ? "" : " of " + module) + (backward() ? ", backward" : "");
  }

 private:
  size_t place_of_backward() const {
    const auto at = std::find_if(open_.begin(), open_.end(),
                                 [](std::string_view name) { return name == "backward" || name == "grad"; });
    return static_cast<size_t>(at - open_.begin());
  }
  std::vector<const char*> open_;
};

/// Allocates the memory of a thread's arrays, from the system or a GPU, and keeps a history of each block.
class WatchedMemory final : public RecordedMemory, public std::enable_shared_from_this<WatchedMemory> {
 public:
  static constexpr size_t kAlive = SIZE_MAX;
  struct Block {
    const char* data = nullptr;
    size_t bytes = 0;
    int step = 0;
    graph::Origin origin;
    size_t from_call = 0, to_call = kAlive;
    size_t from = 0, to = kAlive;  // ticks of allocation and release
    std::string until, module;
    std::vector<std::string> kept_by;
    size_t writer = kAlive;  // the last call that wrote it
    StridedLayout layout;    // the layout in which it was first written
  };

  explicit WatchedMemory(Device device) : device_(device) {}
  DeviceType type() const override { return device_.type(); }
  std::shared_ptr<void> allocate(size_t bytes) override {
    char* const data = from_system(bytes);
    std::lock_guard lock(mutex_);
    alive_[data] = blocks_.size();
    Block& block = blocks_.emplace_back();
    block.data = data, block.bytes = bytes, block.step = step, block.origin = graph::Origin::current();
    block.from_call = calls, block.from = ticks_++;
    bytes_ += counted_bytes(bytes, device_.type());
    if (bytes_ > peak_) peak_ = bytes_, peak_tick_ = ticks_ - 1, peak_call_ = calls;
    return {data, [memory = shared_from_this()](char* freed) { memory->free(freed); }};
  }
  void fill(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  bool is_watched() const override { return true; }

  void begin_step(int number) {
    std::lock_guard lock(mutex_);
    step = number, calls = 0;
    before_ = bytes_, peak_ = bytes_, peak_tick_ = ticks_, peak_call_ = 0;
  }
  int64_t peak() const { return peak_ - before_; }
  size_t peak_tick() const { return peak_tick_; }
  size_t peak_call() const { return peak_call_; }
  /// Number of allocations and releases so far.
  size_t tick() const { return ticks_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  /// The block that contains this address, null if it is not one of these blocks.
  Block* find(const void* address) {
    std::lock_guard lock(mutex_);
    const auto behind = alive_.upper_bound(static_cast<const char*>(address));
    if (behind == alive_.begin()) return nullptr;
    Block& block = blocks_[std::prev(behind)->second];
    return address < block.data + block.bytes ? &block : nullptr;
  }

  int step = 0;
  size_t calls = 0;                          // number of calls in the step so far
  const OpenOperators* operators = nullptr;  // set while steps are watched

 private:
  /// Disables watching of memory on this thread during its lifetime.
  struct Unwatched {
    ~Unwatched() { gradus::detail::recorded_memory = before; }
    RecordedMemory* const before = std::exchange(gradus::detail::recorded_memory, nullptr);
  };
  char* from_system(size_t bytes) const {
    constexpr size_t kAlignment = 64;
    if (device_.is_cuda()) {
      const Unwatched unwatched;
      DeviceRuntime& cuda = runtime(device_.type());
      return static_cast<char*>(cuda.allocate(bytes, cuda.current_stream(device_.index())));
    }
    void* const data = bytes < size_t{1} << 62 ? std::aligned_alloc(kAlignment, round_up(bytes, kAlignment)) : nullptr;
    GRADUS_CHECK(data, OutOfMemoryError, "the cpu has no ", bytes, " bytes");
    return static_cast<char*>(data);
  }
  void to_system(char* data) const noexcept {
    const Unwatched unwatched;
    if (device_.is_cuda()) runtime(device_.type()).free(data);
    else std::free(data);
  }
  void free(char* data) noexcept {
    std::lock_guard lock(mutex_);
    const auto entry = alive_.find(data);
    Block& block = blocks_[entry->second];
    alive_.erase(entry);
    bytes_ -= counted_bytes(block.bytes, device_.type());
    block.to = ticks_++;
    if (operators && block.step == step) block.to_call = calls, block.until = operators->str();
    to_system(data);
  }

  const Device device_;
  std::mutex mutex_;
  std::vector<Block> blocks_;
  std::map<const char*, size_t> alive_;  // indices into blocks_
  int64_t bytes_ = 0, before_ = 0, peak_ = 0;
  size_t ticks_ = 0, peak_tick_ = 0, peak_call_ = 0;
};

}  // namespace gradus::training::detail
