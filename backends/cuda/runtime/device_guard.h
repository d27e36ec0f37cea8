// Guards of the state that CUDA keeps for each thread.
#pragma once

#include <cuda_runtime_api.h>

#include <gradus/backends/cuda/runtime/check.h>

namespace gradus::cuda_detail {

/// Makes `device` current until the end of the scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : device_(device) {
    GRADUS_CUDA_CHECK(cudaGetDevice(&previous_));
    if (device != previous_) GRADUS_CUDA_CHECK(cudaSetDevice(device));
  }
  ~DeviceGuard() {
    if (device_ != previous_) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  const int device_;
  int previous_ = 0;
};

/// Allows calls such as cudaMalloc while this thread captures a graph. They do not become part of the graph.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Returns true between begin_capture() and end_capture() of this thread.
bool this_thread_captures();

}  // namespace gradus::cuda_detail
