#include <gradus/core/runtime/runtime.h>

#include <atomic>
#include <iomanip>
#include <sstream>
#include <utility>

#include <gradus/core/io/parse_number.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus {

using CaptureListener = void (*)();
static thread_local constinit CaptureListener capture_listener = nullptr;
static std::atomic<uint64_t> replays{0};
static thread_local constinit bool uncounted = false;  // inside an UncountedReplays

void on_capture(void (*notify)()) { capture_listener = notify; }
void notify_of_capture() {
  if (capture_listener) capture_listener();
}

uint64_t replay_count() { return replays.load(std::memory_order_relaxed); }
void count_replay() {
  if (!uncounted) replays.fetch_add(1, std::memory_order_relaxed);
}
UncountedReplays::UncountedReplays() : ScopedValue(uncounted, true) {}

void DeviceRuntime::begin_capture() {
  GRADUS_FAIL(DeviceError, "graph capture needs a cuda device; on the cpu run eagerly");
}
std::unique_ptr<CapturedGraph> DeviceRuntime::end_capture() {
  begin_capture();
  return nullptr;
}

void set_memory_limit(Device device, int64_t bytes) {
  GRADUS_CHECK(bytes > 0, ValueError, "set_memory_limit: the limit must be positive, got ", bytes,
               " bytes; kNoMemoryLimit removes it");
  const Device on = settled(device);
  runtime(on.type()).set_memory_limit(on.index(), bytes);
}

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

std::string format_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  std::ostringstream text;
  text << std::setprecision(value < 1000 ? 3 : 4) << value << " " << units[unit];
  return std::move(text).str();
}

Device::Device(std::string_view text) {
  const std::string_view kind = text.substr(0, text.find(':'));
  const bool is_cuda = kind == "cuda";
  constexpr uint8_t kInvalid = 100;  // an index has at most two digits
  int number = is_cuda ? -1 : 0;
  if (kind.size() < text.size()) number = io::parse_number<uint8_t>(text.substr(kind.size() + 1)).value_or(kInvalid);
  const bool is_known = text.size() <= kind.size() + 3 && (is_cuda ? number < kInvalid : kind == "cpu" && number == 0);
  GRADUS_CHECK(is_known, ValueError, "unknown device '", text, "': use \"cpu\", \"cuda\" or \"cuda:N\"");
  *this = Device(is_cuda ? DeviceType::cuda : DeviceType::cpu, number);
}

std::string Device::str() const {
  if (is_cpu()) return "cpu";
  return has_index() ? "cuda:" + std::to_string(index_) : "cuda";
}

}  // namespace gradus
