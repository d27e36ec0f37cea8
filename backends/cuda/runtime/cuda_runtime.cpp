#include <gradus/backends/cuda/runtime/cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/runtime/caching_allocator.h>
#include <gradus/backends/cuda/runtime/handle_pool.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus {
namespace cuda_detail {
namespace {

// A capture that this thread has begun and not ended.
struct Capture {
  int device = 0;
  cudaStream_t stream = nullptr, previous_stream = nullptr;
  CachingAllocator::Pool pool = 0;
};
thread_local std::optional<Capture> capture;
thread_local cudaStream_t chosen_stream[kMaxDevices] = {};  // null: the device's shared stream

// Throws unless `stream` is part of this thread's capture. CUDA records the work of another stream, and orders it with
// the recorded work, only if that stream waits for an event of the capture.
void check_part_of_capture(cudaStream_t stream) {
  if (stream == capture->stream) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  GRADUS_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  GRADUS_CHECK(status == cudaStreamCaptureStatusActive, DeviceError,
               "memory for a stream that is not part of the graph being captured: let it wait for an event that was ",
               "recorded in the capture, or do its work before");
}

cudaStream_t make_stream(int device) {
  DeviceGuard guard(device);
  RelaxedCapture relaxed;
  cudaStream_t stream = nullptr;
  GRADUS_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

// The stream of all threads that have not chosen a stream. It is created on first use and never destroyed.
cudaStream_t shared_stream(int device) {
  static std::once_flag made[kMaxDevices];
  static cudaStream_t streams[kMaxDevices];
  std::call_once(made[device], [device] { streams[device] = make_stream(device); });
  return streams[device];
}

template <bool kTiming>
class CudaEvent final : public Event {
 public:
  void record(const Stream& stream) override {
    const DeviceGuard guard(stream.device.index());
    if (!event_) event_.emplace(stream.device.index());
    GRADUS_CHECK(event_->device() == stream.device.index(), DeviceError, "an event of cuda:", event_->device(),
                 " cannot be recorded on a stream of ", stream.device);
    const bool in_graph = kTiming && this_thread_captures();  // if set, every replay of the graph records the event
    GRADUS_CUDA_CHECK(cudaEventRecordWithFlags(*event_, static_cast<cudaStream_t>(stream.handle),
                                               in_graph ? cudaEventRecordExternal : cudaEventRecordDefault));
  }
  void block(const Stream& stream) const override {
    if (!event_) return;  // the event was never recorded
    const DeviceGuard guard(stream.device.index());
    const bool in_graph = kTiming && this_thread_captures();
    GRADUS_CUDA_CHECK(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.handle), *event_,
                                          in_graph ? cudaEventWaitExternal : cudaEventWaitDefault));
  }
  void synchronize() const override {
    if (event_) GRADUS_CUDA_CHECK(cudaEventSynchronize(*event_));
  }
  bool query() const override { return !event_ || is_done(*event_); }
  double elapsed_ms(const Event& start) const override {
    const auto* first = dynamic_cast<const CudaEvent*>(&start);
    GRADUS_CHECK(kTiming && first, DeviceError, "events tell time only when made with timing = true");
    GRADUS_CHECK(event_ && first->event_, DeviceError, "elapsed time needs both events to be recorded");
    float milliseconds = 0;
    GRADUS_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, *first->event_, *event_));
    return milliseconds;
  }

 private:
  std::optional<PooledTimer<kTiming>> event_;
};

class CudaGraph final : public CapturedGraph, NoCopy {
 public:
  /// Takes ownership of the recorded graph and of its memory pool.
  CudaGraph(cudaGraph_t graph, int device, CachingAllocator& allocator, CachingAllocator::Pool pool)
      : device_(device), allocator_(allocator), pool_(pool) {
    DeviceGuard guard(device_);
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    if (error != cudaSuccess) allocator_.release_pool(pool_);
    GRADUS_CUDA_CHECK(error);
  }
  ~CudaGraph() override {
    if (last_stream_) cudaStreamSynchronize(last_stream_);  // before the graph's memory returns to the driver
    cudaGraphExecDestroy(executable_);
    allocator_.release_pool(pool_);
  }

  void replay() override {
    DeviceGuard guard(device_);
    last_stream_ = current_stream(device_);
    GRADUS_CUDA_CHECK(cudaGraphLaunch(executable_, last_stream_));
  }

 private:
  const int device_;
  CachingAllocator& allocator_;
  const CachingAllocator::Pool pool_;
  cudaGraphExec_t executable_ = nullptr;
  cudaStream_t last_stream_ = nullptr;
};

class CudaRuntime final : public DeviceRuntime {
 public:
  explicit CudaRuntime(int device_count)
      : device_count_(device_count), allocator_(device_count), pinned_(device_count, /*page_locked=*/true) {}

  DeviceType type() const override { return DeviceType::cuda; }
  int device_count() const override { return device_count_; }
  int current_device() const override {
    int device = 0;
    GRADUS_CUDA_CHECK(cudaGetDevice(&device));
    return device;
  }
  void set_current_device(int index) override { GRADUS_CUDA_CHECK(cudaSetDevice(known(index))); }
  std::string description(int index) const override {
    cudaDeviceProp properties{};
    GRADUS_CUDA_CHECK(cudaGetDeviceProperties(&properties, known(index)));
    const int real = 10 * properties.major + properties.minor,
              used = device_properties(known(index)).compute_capability;
    return std::string(properties.name) + ", " + std::to_string(properties.totalGlobalMem >> 30) + " GiB, sm_" +
           std::to_string(real) + (used == real ? "" : " used as sm_" + std::to_string(used));
  }

  void* allocate(size_t bytes, const Stream& stream) override {
    const int device = known(stream.device.index());
    const auto handle = static_cast<cudaStream_t>(stream.handle);
    if (RecordedMemory* const memory = recorded_memory_of(DeviceType::cuda); memory && bytes > 0)
      if (void* const data = memory->take(bytes)) return data;
    if (capture) check_part_of_capture(handle);
    void* data = allocator_.allocate(bytes, device, handle, capture ? capture->pool : 0);
#ifndef NDEBUG
    DeviceGuard guard(device);
    if (data) GRADUS_CUDA_CHECK(cudaMemsetAsync(data, 0xff, bytes, handle));  // NaN, to reveal reads of unset memory
#endif
    return data;
  }
  void free(void* data) noexcept override {
    RecordedMemory* const memory = recorded_memory_of(DeviceType::cuda);
    if (!memory || !memory->give_back(data)) allocator_.free(data);
  }
  void record_stream(void* data, const Stream& stream) override {
    allocator_.record_stream(data, static_cast<cudaStream_t>(stream.handle));
  }
  void empty_cache() override { allocator_.empty_cache(); }
  MemoryStats memory_stats(int index) const override { return allocator_.stats(known(index)); }
  void reset_peak_memory_stats(int index) override { allocator_.reset_peaks(known(index)); }
  void set_memory_limit(int index, int64_t bytes) override { allocator_.set_limit(known(index), bytes); }

  void* allocate_pinned(size_t bytes) override { return pinned_.allocate(bytes, current_device(), nullptr, 0); }
  void free_pinned(void* data) noexcept override { pinned_.free(data); }

  void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes, bool non_blocking) override;

  Stream current_stream(int index) override {
    return stream_of(known(index), cuda_detail::current_stream(known(index)));
  }
  void set_current_stream(const Stream& stream) override {
    GRADUS_CHECK(stream.handle, DeviceError, "the legacy null stream is not used here: take one from new_stream()");
    chosen_stream[known(stream.device.index())] = static_cast<cudaStream_t>(stream.handle);
  }
  Stream new_stream(int index) override { return stream_of(known(index), make_stream(known(index))); }
  std::unique_ptr<Event> new_event(bool timing) override {
    if (timing) return std::make_unique<CudaEvent<true>>();
    return std::make_unique<CudaEvent<false>>();
  }
  void synchronize(int index) override {
    GRADUS_CHECK(!capture, DeviceError, "synchronize() waits for the device and cannot be part of a captured graph");
    DeviceGuard guard(known(index));
    GRADUS_CUDA_CHECK(cudaDeviceSynchronize());
  }

  void begin_capture() override;
  std::unique_ptr<CapturedGraph> end_capture() override;
  bool capturing() const override { return capture || is_recording(DeviceType::cuda); }

 private:
  // Checks and returns the index of a device; -1 stands for the current device.
  int known(int index) const {
    if (index < 0) return current_device();
    GRADUS_CHECK(index < device_count_, DeviceError, "no device cuda:", index, ": this machine has ", device_count_,
                 " CUDA device", device_count_ == 1 ? "" : "s");
    return index;
  }
  static Stream stream_of(int device, cudaStream_t handle) {
    Stream stream;
    stream.device = Device(DeviceType::cuda, device), stream.handle = handle;
    return stream;
  }
  void copy_between_devices(void* to, int to_device, const void* from, int from_device, size_t bytes);

  const int device_count_;
  CachingAllocator allocator_, pinned_;
};

// Copies between devices and within a device are ordered by streams, and the host never waits for them. `non_blocking`
// affects only copies from and to the host.
void CudaRuntime::copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes,
                       bool non_blocking) {
  if (bytes == 0 || record_copy(to, to_device, from, from_device, bytes)) return;
  if (to_device.is_cuda() && from_device.is_cuda() && known(to_device.index()) != known(from_device.index()))
    return copy_between_devices(to, known(to_device.index()), from, known(from_device.index()), bytes);
  const int device = known(to_device.is_cuda() ? to_device.index() : from_device.index());
  DeviceGuard guard(device);
  const cudaStream_t stream = cuda_detail::current_stream(device);
  const bool on_device = to_device.is_cuda() && from_device.is_cuda();
  GRADUS_CHECK(
      on_device || non_blocking || !capture, DeviceError,
      "a copy between host and device that waits cannot be part of a captured graph: copy before or after it, ",
      "or non_blocking from pinned memory");
  GRADUS_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
  if (on_device) return;
  if (non_blocking) {
    if (!capture) pinned_.record_copy(to_device.is_cpu() ? to : from, device, stream);
  } else {
    GRADUS_CUDA_CHECK(cudaStreamSynchronize(stream));
  }
}

// Copies on the stream of `to_device`, after the work that is queued on the stream of `from_device`. Later work on the
// stream of `from_device` waits for the copy.
void CudaRuntime::copy_between_devices(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  CudaEvent<false> ready, done;
  ready.record(current_stream(from_device));
  ready.block(current_stream(to_device));
  DeviceGuard guard(to_device);
  GRADUS_CUDA_CHECK(
      cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, cuda_detail::current_stream(to_device)));
  done.record(current_stream(to_device));
  done.block(current_stream(from_device));
}

// The capture uses a new stream, so that other threads that share the current stream are not recorded.
void CudaRuntime::begin_capture() {
  GRADUS_CHECK(!capture, DeviceError, "this thread captures a graph already; captures do not nest");
  Capture begun{.device = current_device()};
  begun.stream = make_stream(begun.device);
  const cudaStreamCaptureMode mode =  // relaxed for graph::Recorder, which discards the capture
      is_recording(DeviceType::cuda) ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal;
  const cudaError_t error = cudaStreamBeginCapture(begun.stream, mode);
  if (error != cudaSuccess) cudaStreamDestroy(begun.stream);
  GRADUS_CUDA_CHECK(error);
  begun.previous_stream = std::exchange(chosen_stream[begun.device], begun.stream);
  begun.pool = allocator_.new_pool();
  capture = begun;
}

std::unique_ptr<CapturedGraph> CudaRuntime::end_capture() {
  GRADUS_CHECK(capture, DeviceError, "end_capture() without begin_capture()");
  const Capture ended = *std::exchange(capture, std::nullopt);
  chosen_stream[ended.device] = ended.previous_stream;
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(ended.stream, &graph);
  cudaStreamDestroy(ended.stream);
  if (error != cudaSuccess) allocator_.release_pool(ended.pool);
  GRADUS_CUDA_CHECK(error);
  if (is_recording(DeviceType::cuda)) {
    cudaGraphDestroy(graph);
    allocator_.release_pool(ended.pool);
    return nullptr;
  }
  return std::make_unique<CudaGraph>(graph, ended.device, allocator_, ended.pool);
}

int attribute_of(int device, cudaDeviceAttr which) {
  int value = 0;
  GRADUS_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

int capability_of(int device) {
  return 10 * attribute_of(device, cudaDevAttrComputeCapabilityMajor) +
         attribute_of(device, cudaDevAttrComputeCapabilityMinor);
}

// The limit that the environment variable GRADUS_CUDA_MAX_CAPABILITY sets, or a number above all capabilities.
int max_capability() {
  static const int limit = [] {
    const char* text = std::getenv("GRADUS_CUDA_MAX_CAPABILITY");
    return text && *text ? parse_max_capability(text) : std::numeric_limits<int>::max();
  }();
  return limit;
}

// The error message if no device can run the code of this build, otherwise "". If only some devices can run the code,
// the other devices report an error at their first kernel.
std::string unserved_devices(int count) {
  std::string first;
  for (int device = 0; device < count; ++device) {
    const int capability = capability_of(device);
    if (code_for(compiled_architectures(), capability) > 0) return "";
    if (first.empty()) first = wrong_architecture(compiled_architectures(), capability);
  }
  return first;
}

}  // namespace

bool this_thread_captures() { return capture.has_value(); }

double fastest_ms(int device, const std::function<bool()>& call) try {
  constexpr int kCalls = 10;
  const DeviceGuard guard(device);
  double fastest = std::numeric_limits<double>::infinity();
  if (!call()) return fastest;
  cuda::Graph calls;
  calls.capture([&] {
    for (int i = 0; i < kCalls; ++i) call();
  });
  cuda::Event ends[] = {cuda::Event(true), cuda::Event(true), cuda::Event(true)};
  for (cuda::Event& end : ends) calls.replay(), end.record();  // while the first runs, the host launches the others
  ends[2].synchronize();
  for (int i = 0; i < 2; ++i) fastest = std::min(fastest, ends[i].elapsed_time(ends[i + 1]) / kCalls);
  return fastest;
} catch (const Error&) { return std::numeric_limits<double>::infinity(); }

cudaStream_t current_stream(int index) {
  const cudaStream_t chosen = chosen_stream[index];
  return chosen ? chosen : shared_stream(index);
}

const DeviceProperties& device_properties(int index) {
  static std::once_flag asked[kMaxDevices];
  static DeviceProperties properties[kMaxDevices];
  std::call_once(asked[index], [index] {
    const int capability = capability_of(index);
    const DeviceProperties device =
        with_peaks({.compute_capability = capability,
                    .multiprocessors = attribute_of(index, cudaDevAttrMultiProcessorCount),
                    .shared_memory = static_cast<size_t>(attribute_of(index, cudaDevAttrMaxSharedMemoryPerBlockOptin))},
                   attribute_of(index, cudaDevAttrClockRate), attribute_of(index, cudaDevAttrMemoryClockRate),
                   attribute_of(index, cudaDevAttrGlobalMemoryBusWidth));
    properties[index] = limited(device, code_for(compiled_architectures(), capability), max_capability());
  });
  return properties[index];
}

Scratch::Scratch(size_t bytes, Device device)
    : data_(runtime(DeviceType::cuda).allocate(bytes, runtime(DeviceType::cuda).current_stream(device.index()))) {}
Scratch::~Scratch() { runtime(DeviceType::cuda).free(data_); }

}  // namespace cuda_detail

std::unique_ptr<DeviceRuntime> make_cuda_runtime(std::string* why_not) {
  int count = 0;
  cuda_detail::max_capability();  // throws for an invalid value, even on a machine without a device
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    *why_not =
        "no NVIDIA driver that this CUDA version can use is loaded: install or update it (nvidia-smi shows it), "
        "or use --device cpu";
  } else if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    *why_not = "this machine has no CUDA device (or CUDA_VISIBLE_DEVICES hides it): use --device cpu";
  } else if (error != cudaSuccess) {
    *why_not = std::string("the CUDA driver does not start: ") + cudaGetErrorName(error) + " (" +
               cudaGetErrorString(error) + "); use --device cpu";
  } else if (std::string wrong = cuda_detail::unserved_devices(count); !wrong.empty()) {
    *why_not = std::move(wrong) + ", or use --device cpu";
  } else {
    return std::make_unique<cuda_detail::CudaRuntime>(std::min(count, cuda_detail::kMaxDevices));
  }
  cudaGetLastError();
  return nullptr;
}

}  // namespace gradus
