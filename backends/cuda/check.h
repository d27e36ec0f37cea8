// Errors of the CUDA libraries become DeviceError with the call, the error's name and the op that was running.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <gradus/core/error.h>

namespace gradus::cuda_detail {

[[noreturn]] void fail_cuda(const char* call, cudaError_t error);
[[noreturn]] void fail_cublas(const char* call, cublasStatus_t status);

inline void check(const char* call, cudaError_t error) {
  if (error != cudaSuccess) [[unlikely]]
    fail_cuda(call, error);
}
inline void check(const char* call, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail_cublas(call, status);
}

}  // namespace gradus::cuda_detail

/// Evaluates a CUDA or cuBLAS call; throws DeviceError unless it succeeds.
#define GRADUS_CUDA_CHECK(call) ::gradus::cuda_detail::check(#call, call)
