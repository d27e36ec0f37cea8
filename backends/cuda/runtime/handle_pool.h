// The handles of NVIDIA's libraries. They are dear to make and serve one thread at a time: a thread borrows one per
// device and returns it when it ends.
#pragma once

#include <mutex>
#include <vector>

#include <gradus/backends/cuda/runtime/device_guard.h>

namespace gradus::cuda_detail {

/// This thread's handles of one library; a thread_local variable. `make` makes one for the current device.
template <class Handle, Handle (*make)()>
class BorrowedHandles {
 public:
  BorrowedHandles() = default;
  ~BorrowedHandles() {
    Pool& idle = pool();
    std::lock_guard lock(idle.mutex);
    for (int device = 0; device < kMaxDevices; ++device)
      if (handles_[device]) idle.handles[device].push_back(handles_[device]);
  }
  BorrowedHandles(const BorrowedHandles&) = delete;
  BorrowedHandles& operator=(const BorrowedHandles&) = delete;

  /// The handle for `device`, which is the current one.
  Handle get(int device) {
    Handle& handle = handles_[device];
    if (handle) [[likely]]
      return handle;
    Pool& idle = pool();
    std::lock_guard lock(idle.mutex);
    if (!idle.handles[device].empty()) {
      handle = idle.handles[device].back();
      idle.handles[device].pop_back();
      return handle;
    }
    const RelaxedCapture relaxed;
    return handle = make();
  }

 private:
  static constexpr int kMaxDevices = 64;
  struct Pool {
    std::mutex mutex;
    std::vector<Handle> handles[kMaxDevices];
  };
  static Pool& pool() {
    static Pool* idle = new Pool;  // outlives all threads
    return *idle;
  }

  Handle handles_[kMaxDevices] = {};
};

}  // namespace gradus::cuda_detail
