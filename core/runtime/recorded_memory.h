// Where arrays get their addresses on a thread whose work is recorded instead of run (graph/recorder.h).
#pragma once

#include <memory>
#include <vector>

#include <gradus/core/formulas/ceil_div.h>
#include <gradus/core/runtime/device.h>

namespace gradus {

/// Blocks that no later one shares an address with, so that an address tells which array a kernel was given.
class RecordedMemory {
 public:
  virtual ~RecordedMemory() = default;
  /// Of the devices whose work is recorded.
  virtual DeviceType type() const = 0;
  /// Aligned to 64 bytes; given back with its last owner, on any thread. Null where the runtime is to be asked.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
  /// Gives a block numbers from the host, which the recording keeps. A DeviceError for other addresses.
  virtual void fill(void* to, const void* from, size_t bytes) = 0;
  /// True where kernels run as ever, and blocks are only watched (inspect/explain/explain.h).
  virtual bool is_watched() const { return false; }

  /// The same for a kernel, which takes memory for the duration of its call, on this thread.
  void* take(size_t bytes);
  /// False for memory that is not from take().
  bool give_back(void* data) noexcept;

 private:
  std::vector<std::shared_ptr<void>> taken_;
};

namespace detail {
/// This thread's. Recorders set it.
inline thread_local constinit RecordedMemory* recorded_memory = nullptr;
}  // namespace detail

/// This thread's for devices of a type.
inline RecordedMemory* recorded_memory_of(DeviceType type) {
  RecordedMemory* const memory = detail::recorded_memory;
  return memory && memory->type() == type ? memory : nullptr;
}

/// Is this thread's work on such devices recorded? Their runtime is capturing() then, and what their kernels capture is
/// thrown away.
inline bool is_recording(DeviceType type) {
  const RecordedMemory* const memory = recorded_memory_of(type);
  return memory && !memory->is_watched();
}

/// What so many bytes of an array count as in MemoryStats.
inline int64_t counted_bytes(size_t bytes, DeviceType type) {
  return static_cast<int64_t>(type == DeviceType::cuda ? round_up(bytes, size_t{512}) : bytes);
}

/// A DeviceError where this thread's work on such devices is recorded: `what` needs numbers that nothing has computed.
void check_not_recording(DeviceType type, const char* what);

/// A copy between devices where this thread's work is recorded: takes numbers from the host, and is a DeviceError for
/// what else it may be. False where nothing is recorded.
bool record_copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes);

}  // namespace gradus
