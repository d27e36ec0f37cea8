// What is dear to make and kept for reuse: the handles of NVIDIA's libraries, which serve one thread at a time, and
// events.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include <gradus/backends/cuda/runtime/device_guard.h>

namespace gradus::cuda_detail {

inline constexpr int kMaxDevices = 64;

/// Handles of each device that nobody uses.
template <class Handle>
class IdleHandles {
 public:
  /// Null where there is none.
  Handle take(int device) {
    const std::lock_guard lock(mutex_);
    std::vector<Handle>& idle = handles_[device];
    if (idle.empty()) return nullptr;
    const Handle handle = idle.back();
    idle.pop_back();
    return handle;
  }
  void give(int device, Handle handle) {
    const std::lock_guard lock(mutex_);
    handles_[device].push_back(handle);
  }

 private:
  std::mutex mutex_;
  std::vector<Handle> handles_[kMaxDevices];
};

/// This thread's handles of one library, one per device, which others get when it ends; a thread_local variable. `make`
/// makes one for the current device.
template <class Handle, Handle (*make)()>
class BorrowedHandles {
 public:
  BorrowedHandles() = default;
  ~BorrowedHandles() {
    for (int device = 0; device < kMaxDevices; ++device)
      if (handles_[device]) idle().give(device, handles_[device]);
  }
  BorrowedHandles(const BorrowedHandles&) = delete;
  BorrowedHandles& operator=(const BorrowedHandles&) = delete;

  /// The handle for `device`, which is the current one.
  Handle get(int device) {
    Handle& handle = handles_[device];
    if (!handle) handle = idle().take(device);
    if (handle) [[likely]]
      return handle;
    const RelaxedCapture relaxed;
    return handle = make();
  }

 private:
  static IdleHandles<Handle>& idle() {
    static auto* const all = new IdleHandles<Handle>;  // outlives all threads
    return *all;
  }

  Handle handles_[kMaxDevices] = {};
};

/// An event. To make or destroy one waits for as long as another thread's launch waits for its queue, which watchdogs
/// of collectives must not: they are kept.
class PooledEvent {
 public:
  explicit PooledEvent(int device, bool timing = false)
      : device_(device), timing_(timing), event_(idle(timing).take(device)) {
    if (event_) return;
    const DeviceGuard guard(device);
    GRADUS_CUDA_CHECK(cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming));
  }
  ~PooledEvent() {
    if (event_) idle(timing_).give(device_, event_);
  }
  PooledEvent(PooledEvent&& other) noexcept
      : device_(other.device_), timing_(other.timing_), event_(std::exchange(other.event_, nullptr)) {}
  PooledEvent& operator=(PooledEvent&& other) noexcept {
    std::swap(device_, other.device_), std::swap(timing_, other.timing_), std::swap(event_, other.event_);
    return *this;
  }
  operator cudaEvent_t() const { return event_; }  // NOLINT(google-explicit-constructor)
  int device() const { return device_; }

 private:
  static IdleHandles<cudaEvent_t>& idle(bool timing) {
    static auto* const all = new IdleHandles<cudaEvent_t>[2];
    return all[timing];
  }

  int device_;
  bool timing_;
  cudaEvent_t event_;
};

/// Forgets the events that are reached; true when none is left.
inline bool forget_reached(std::vector<PooledEvent>& events) {
  std::erase_if(events, [](const PooledEvent& event) { return is_done(event); });
  return events.empty();
}

}  // namespace gradus::cuda_detail
