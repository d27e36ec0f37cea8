#include <gradus/core/runtime/recorded_memory.h>

#include <utility>

#include <gradus/core/error.h>

namespace gradus {

void* RecordedMemory::take(size_t bytes) {
  std::shared_ptr<void> block = allocate(bytes);
  return block ? taken_.emplace_back(std::move(block)).get() : nullptr;
}

bool RecordedMemory::give_back(void* data) noexcept {
  return std::erase_if(taken_, [data](const auto& block) { return block.get() == data; }) > 0;
}

void check_not_recording(DeviceType type, const char* what) {
  GRADUS_CHECK(!is_recording(type), DeviceError, what,
               " cannot be part of a recorded step, in which nothing is computed: do it before or after the step");
}

bool record_copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  RecordedMemory* const memory = detail::recorded_memory;
  if (!memory || !is_recording(memory->type())) return false;
  if (!from_device.is_cpu() || to_device.is_cpu()) check_not_recording(memory->type(), "a copy between devices");
  memory->fill(to, from, bytes);
  return true;
}

}  // namespace gradus
