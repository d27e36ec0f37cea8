// Pools of objects that are expensive to create: events, and handles of NVIDIA's libraries, each of which only one
// thread at a time may use.
#pragma once

#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include <gradus/backends/cuda/runtime/cuda_runtime.h>

namespace gradus::cuda_detail {

inline constexpr int kMaxDevices = 64;

/// Holds a handle for a device: an unused handle from the pool, or a new handle that make() creates while that device
/// is current. The destructor returns the handle to the pool.
template <class Handle, Handle (*make)()>
class Pooled {
 public:
  explicit Pooled(int device) : handle_(nullptr, Leave{device}) {
    {
      const std::lock_guard lock(idle().mutex);
      std::vector<Handle>& handles = idle().handles[device];
      if (!handles.empty()) handle_.reset(handles.back()), handles.pop_back();
    }
    if (handle_) return;
    const DeviceGuard guard(device);
    const RelaxedCapture relaxed;
    handle_.reset(make());
  }
  operator Handle() const { return handle_.get(); }  // NOLINT(google-explicit-constructor)
  int device() const { return handle_.get_deleter().device; }

 private:
  struct Idle {
    std::mutex mutex;
    std::vector<Handle> handles[kMaxDevices];
  };
  static Idle& idle() {
    static auto* const all = new Idle;  // never destroyed, because threads that end late still return handles
    return *all;
  }
  struct Leave {
    int device;
    void operator()(Handle handle) const {
      const std::lock_guard lock(idle().mutex);
      idle().handles[device].push_back(handle);
    }
  };

  std::unique_ptr<std::remove_pointer_t<Handle>, Leave> handle_;
};

/// Creates an event. Creating or destroying an event blocks while a launch of another thread waits for a full queue.
/// The watchdogs of collectives must not block, so they use pooled events.
template <unsigned kFlags>
cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  GRADUS_CUDA_CHECK(cudaEventCreateWithFlags(&event, kFlags));
  return event;
}
template <bool kTiming>
using PooledTimer = Pooled<cudaEvent_t, make_event<kTiming ? cudaEventDefault : cudaEventDisableTiming>>;
using PooledEvent = PooledTimer<false>;

/// Removes the events that the device has reached. Returns true if no event remains.
inline bool forget_reached(std::vector<PooledEvent>& events) {
  std::erase_if(events, [](const PooledEvent& event) { return is_done(event); });
  return events.empty();
}

}  // namespace gradus::cuda_detail
