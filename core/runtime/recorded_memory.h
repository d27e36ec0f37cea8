// The memory of arrays on a thread whose work is recorded instead of run (graph/recorder.h). Nothing is computed, but
// arrays need addresses. (Defined in runtime.cpp.)
#pragma once

#include <memory>
#include <vector>

#include <gradus/core/formulas/integers.h>
#include <gradus/core/runtime/device.h>

namespace gradus {

/// Allocates blocks that never share an address, so that an address identifies the array that a kernel was given.
class RecordedMemory {
 public:
  virtual ~RecordedMemory() = default;
  /// The type of the devices whose work is recorded.
  virtual DeviceType type() const = 0;
  /// A block aligned to 64 bytes; its last owner frees it, on any thread. Null if the runtime should allocate instead.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
  /// Copies `bytes` bytes from the host address `from` to `to`, an address in a block, whose data the recording then
  /// keeps. Throws a DeviceError if `to` is not in a block.
  virtual void fill(void* to, const void* from, size_t bytes) = 0;
  /// True if kernels run as usual and blocks are only observed (inspect/explain/explain.h).
  virtual bool is_watched() const { return false; }

  /// Allocates scratch memory for a kernel, for the duration of its call on this thread.
  void* take(size_t bytes);
  /// Frees memory from take(); returns false for any other memory.
  bool give_back(void* data) noexcept;

 private:
  std::vector<std::shared_ptr<void>> taken_;
};

namespace detail {
/// The RecordedMemory of this thread. Recorders set it.
inline thread_local constinit RecordedMemory* recorded_memory = nullptr;
}  // namespace detail

/// The RecordedMemory of this thread if it records devices of this type, else null.
inline RecordedMemory* recorded_memory_of(DeviceType type) {
  RecordedMemory* const memory = detail::recorded_memory;
  return memory && memory->type() == type ? memory : nullptr;
}

/// True if this thread's work on devices of this type is recorded. In that case the capturing() of their runtime is
/// true as well, and the kernels that the runtime captures are discarded.
inline bool is_recording(DeviceType type) {
  const RecordedMemory* const memory = recorded_memory_of(type);
  return memory && !memory->is_watched();
}

/// The size that MemoryStats counts for an array of `bytes` bytes.
inline int64_t counted_bytes(size_t bytes, DeviceType type) {
  return static_cast<int64_t>(type == DeviceType::cuda ? round_up(bytes, size_t{512}) : bytes);
}

/// Throws a DeviceError if this thread's work on devices of this type is recorded. Operations that need computed
/// numbers call it; `what` names the operation in the message.
void check_not_recording(DeviceType type, const char* what);

/// Handles a copy between devices while this thread's work is recorded: records a copy from the host, throws a
/// DeviceError for other copies. Returns false if nothing is recorded.
bool record_copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes);

}  // namespace gradus
