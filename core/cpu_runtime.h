// The CPU's memory: aligned blocks kept in size-class free lists.
#pragma once

#include <memory>

#include <gradus/core/runtime.h>

namespace gradus {

std::unique_ptr<DeviceRuntime> make_cpu_runtime();

/// Where the CPU's runtime takes memory from on a thread whose work is recorded instead of run (core/graph/recorder.h):
/// blocks that no later one shares an address with, so that an address tells which array a kernel was given.
class RecordedMemory {
 public:
  virtual ~RecordedMemory() = default;
  /// Bytes before each block, which are the runtime's.
  static constexpr size_t kHeader = 64;
  /// Aligned to 64 bytes. Only threads that record call it; free() is called by any.
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* data) noexcept = 0;
};

namespace detail {
/// This thread's; while there is one, the runtime is capturing(). Recorders set it.
inline thread_local constinit RecordedMemory* recorded_memory = nullptr;
}  // namespace detail

/// A DeviceError where this thread's work is recorded: `what` needs numbers that nothing has computed.
void check_not_recording(const char* what);

}  // namespace gradus
