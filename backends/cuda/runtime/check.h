// Converts errors of the CUDA libraries to DeviceError. The message has the call, the name of the error and the running
// operator.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include <gradus/core/error.h>

namespace gradus::cuda_detail {

/// Throws DeviceError with the call's name unless it succeeded.
void check(const char* call, cudaError_t error);
void check(const char* call, cublasStatus_t status);

/// True if the environment variable GRADUS_CUDA_SYNCHRONIZE is set and not "0". Every launch then waits until its
/// kernel has ended.
extern const bool synchronizes_launches;
void wait_for_launch(cudaStream_t stream);

/// Called after every launch. Throws if the launch was refused. With GRADUS_CUDA_SYNCHRONIZE, also throws if the kernel
/// failed; without it, the next call that waits for the device reports the failure, in a later operator.
inline void check_launch(cudaStream_t stream) {
  check("kernel launch", cudaGetLastError());
  if (synchronizes_launches) [[unlikely]]
    wait_for_launch(stream);
}

/// Returns true if the device has finished all work before the event.
inline bool is_done(cudaEvent_t event) {
  const cudaError_t state = cudaEventQuery(event);
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // clears the error; otherwise the next launch would report it
    return false;
  }
  check("cudaEventQuery", state);
  return true;
}

/// CMAKE_CUDA_ARCHITECTURES of this build, separated by spaces (device_properties.h).
std::string_view compiled_architectures();

}  // namespace gradus::cuda_detail

/// Evaluates a CUDA or cuBLAS call; throws DeviceError unless it succeeds.
#define GRADUS_CUDA_CHECK(call) ::gradus::cuda_detail::check(#call, call)
