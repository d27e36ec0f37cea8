#include <gradus/core/runtime/cuda.h>

#include <gradus/core/registry.h>

namespace gradus::cuda {
namespace {

DeviceRuntime& cuda_runtime() { return runtime(DeviceType::cuda); }

// Returns the index of an existing device; -1 becomes the current device.
int checked(int index) {
  DeviceRuntime& cuda = cuda_runtime();
  if (index == -1) return cuda.current_device();
  GRADUS_CHECK(index >= 0 && index < cuda.device_count(), DeviceError, "no device cuda:", index, ": this machine has ",
               cuda.device_count(), " CUDA device", cuda.device_count() == 1 ? "" : "s");
  return index;
}

}  // namespace

int device_count() {
  const DeviceRuntime* cuda = find_runtime(DeviceType::cuda);
  return cuda ? cuda->device_count() : 0;
}
int current_device() { return cuda_runtime().current_device(); }
void set_device(int index) { cuda_runtime().set_current_device(checked(index)); }
void synchronize(int index) { cuda_runtime().synchronize(checked(index)); }

MemoryStats memory_stats(int index) { return cuda_runtime().memory_stats(checked(index)); }
std::string memory_summary(int index) {
  index = checked(index);
  const MemoryStats stats = memory_stats(index);
  const auto line = [](const char* what, int64_t now, int64_t peak) {
    const std::string held = format_bytes(now);
    return std::string("  ") + what + std::string(14 - held.size(), ' ') + held + ", at most " + format_bytes(peak) +
           "\n";
  };
  return "cuda:" + std::to_string(index) + " " + cuda_runtime().description(index) + "\n" +
         line("held by tensors    ", stats.allocated, stats.peak_allocated) +
         line("taken from driver  ", stats.reserved, stats.peak_reserved) +
         "  allocations: " + std::to_string(stats.allocations) + ", by the driver " +
         std::to_string(stats.system_allocations) + ", after giving the cache back " + std::to_string(stats.retries) +
         "\n";
}
void reset_peak_memory_stats(int index) { cuda_runtime().reset_peak_memory_stats(checked(index)); }
void empty_cache() { cuda_runtime().empty_cache(); }

Stream current_stream(int index) { return cuda_runtime().current_stream(checked(index)); }
Stream new_stream(int index) { return cuda_runtime().new_stream(checked(index)); }

Graph::~Graph() { abandon(); }

void Graph::capture_begin() {
  GRADUS_CHECK(!capturing_ && !graph_, DeviceError, "this graph already holds a capture; reset() it first");
  DeviceRuntime& cuda = cuda_runtime();
  if (!random_offset_.defined())
    random_offset_ = Array::empty({1}, DType::i64, Device(DeviceType::cuda, cuda.current_device()));
  notify_of_capture();
  cuda.begin_capture();
  Generator::begin_capture(static_cast<const uint64_t*>(random_offset_.data()));
  capturing_ = true;
}

void Graph::capture_end() {
  GRADUS_CHECK(capturing_, DeviceError, "capture_end() without capture_begin()");
  capturing_ = false;
  notify_of_capture();
  draws_ = Generator::end_capture();
  graph_ = cuda_runtime().end_capture();
}

void Graph::abandon() noexcept {
  if (!capturing_) return;
  capturing_ = false;
  notify_of_capture();
  Generator::end_capture();
  try {
    cuda_runtime().end_capture();
  } catch (...) {  // the work could not be captured, and the operator responsible has thrown already
  }
}

void Graph::replay() {
  GRADUS_CHECK(graph_, DeviceError, "nothing to replay: capture first");
  if (draws_ > 0) {  // fill() copies the offset when it is called, and is queued after earlier replays
    const uint64_t offset = default_generator().advance(draws_);
    current_backend(DeviceType::cuda).fill(random_offset_, Scalar(static_cast<int64_t>(offset)));
  }
  graph_->replay();
  count_replay();
}

void Graph::reset() {
  abandon();
  graph_.reset();
}

}  // namespace gradus::cuda

bool gradus::cudnn::is_available() { return has_backend("cudnn"); }
