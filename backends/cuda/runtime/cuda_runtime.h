// What code that launches kernels needs from the runtime: the current stream, the properties of the device, scratch
// memory, and guards for the state that CUDA keeps for each thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include <gradus/backends/cuda/runtime/check.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/runtime/device.h>

namespace gradus::cuda_detail {

/// This thread's stream on device `index`.
cudaStream_t current_stream(int index);
/// The properties of device `index`, on which all choices of kernels depend. They are limited by the environment
/// variable GRADUS_CUDA_MAX_CAPABILITY and by the code that this build has for the device (device_properties.h), and
/// are determined only once.
const DeviceProperties& device_properties(int index);
/// The architecture, 10 major + minor, of the kernels that device `index` runs, according to CUDA. This function loads
/// a kernel. device_properties() derives the same number from CMAKE_CUDA_ARCHITECTURES; a test compares the two
/// numbers.
int loaded_code(int index);

/// Device memory for the kernels of one operator. The destructor frees it; later work on the stream may then reuse it.
class Scratch : NoCopy {
 public:
  Scratch(size_t bytes, Device device);
  ~Scratch();

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
};

/// Makes `device` current until the end of the scope.
class DeviceGuard : NoCopy {
 public:
  explicit DeviceGuard(int device) : device_(device) {
    GRADUS_CUDA_CHECK(cudaGetDevice(&previous_));
    if (device != previous_) GRADUS_CUDA_CHECK(cudaSetDevice(device));
  }
  ~DeviceGuard() {
    if (device_ != previous_) cudaSetDevice(previous_);
  }

 private:
  const int device_;
  int previous_ = 0;
};

/// During its lifetime, calls such as cudaMalloc are allowed although this thread captures a graph. They do not become
/// part of the graph.
class RelaxedCapture : NoCopy {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Returns true between begin_capture() and end_capture() of this thread.
bool this_thread_captures();

/// Milliseconds of a call that queues work on this thread's stream of the device, measured by replays of a graph of ten
/// calls, after a call that is not timed. Infinity if the call returns false, throws an Error (for example because
/// memory is exhausted) or cannot be captured.
double fastest_ms(int device, const std::function<bool()>& call);

}  // namespace gradus::cuda_detail
