// Errors of the CUDA libraries become DeviceError with the call, the error's name and the op that was running.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include <gradus/core/error.h>

namespace gradus::cuda_detail {

/// Throws DeviceError with the call's name unless it succeeded.
void check(const char* call, cudaError_t error);
void check(const char* call, cublasStatus_t status);

/// The environment variable GRADUS_CUDA_SYNCHRONIZE, set and not "0": wait for every kernel where it is launched.
extern const bool synchronizes_launches;
void wait_for_launch(cudaStream_t stream);

/// Stands behind every launch: throws when it was refused, and, with GRADUS_CUDA_SYNCHRONIZE, when the kernel failed.
/// Without, a kernel's failure is found by whoever waits next, under the name of a later op.
inline void check_launch(cudaStream_t stream) {
  check("kernel launch", cudaGetLastError());
  if (synchronizes_launches) [[unlikely]]
    wait_for_launch(stream);
}

/// True when the work before the event is done.
inline bool is_done(cudaEvent_t event) {
  const cudaError_t state = cudaEventQuery(event);
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // or the next launch would report it
    return false;
  }
  check("cudaEventQuery", state);
  return true;
}

/// CMAKE_CUDA_ARCHITECTURES of this build, separated by spaces (architectures.h).
std::string_view compiled_architectures();

}  // namespace gradus::cuda_detail

/// Evaluates a CUDA or cuBLAS call; throws DeviceError unless it succeeds.
#define GRADUS_CUDA_CHECK(call) ::gradus::cuda_detail::check(#call, call)
