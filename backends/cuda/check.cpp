#include <gradus/backends/cuda/check.h>

namespace gradus::cuda_detail {
namespace {

// What to do about an error, where we know.
std::string remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion: {
      int device = 0;
      cudaDeviceProp properties{};
      cudaGetDevice(&device);
      if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return "";
      const std::string number = std::to_string(properties.major) + std::to_string(properties.minor);
      return std::string("; gradus was compiled for ") + GRADUS_CUDA_ARCHITECTURES + ", the device is sm_" + number +
             ": rebuild with -DCMAKE_CUDA_ARCHITECTURES=" + number;
    }
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
      return "; what waits for the device (item(), printing, copies to the host) cannot be part of a captured graph";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
      return "; an earlier kernel failed, and the process must be restarted: run it under compute-sanitizer to see "
             "which";
    default: return "";
  }
}

}  // namespace

void fail_cuda(const char* call, cudaError_t error) {
  cudaGetLastError();  // clears errors that do not stick, so that the next call does not report this one
  GRADUS_FAIL(DeviceError, call, " failed: ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")",
              remedy(error));
}

void fail_cublas(const char* call, cublasStatus_t status) {
  GRADUS_FAIL(DeviceError, call, " failed: ", cublasGetStatusName(status), " (", cublasGetStatusString(status), ")");
}

}  // namespace gradus::cuda_detail
