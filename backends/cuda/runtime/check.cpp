#include <gradus/backends/cuda/runtime/check.h>

#include <cstdlib>
#include <string>

#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/core/runtime/observer.h>

namespace gradus::cuda_detail {
namespace {

// What the user can do about an error, or "" if that is not known.
std::string remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion: {
      int device = 0;
      cudaDeviceProp properties{};
      if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&properties, device) != cudaSuccess)
        return "";
      return "; " + wrong_architecture(compiled_architectures(), 10 * properties.major + properties.minor);
    }
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
      return "; what waits for the device (item(), printing, copies to the host) cannot be part of a captured graph";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorAssert:
      return synchronizes_launches ? "; it is this op's kernel that failed, and the process must be restarted: "
                                     "compute-sanitizer tells more"
                                   : "; an earlier kernel failed, and the process must be restarted: run it with "
                                     "GRADUS_CUDA_SYNCHRONIZE=1 to see of which op, or under compute-sanitizer";
    default: return "";
  }
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value && std::string_view(value) != "0";
}

}  // namespace

// wait_for_launch() reports the name of the running operator's event. Since operators have events only while an
// observer is registered, an observer that does nothing is registered here.
const bool synchronizes_launches = [] {
  const bool wanted = is_set("GRADUS_CUDA_SYNCHRONIZE");
  static Observer nobody;
  if (wanted) add_observer(&nobody);
  return wanted;
}();

void wait_for_launch(cudaStream_t stream) {
  if (this_thread_captures()) return;  // captured kernels do not run yet
  const ObservedEvent* event = innermost_event();
  check((std::string("kernel '") + (event ? event->name : "?") + "'").c_str(), cudaStreamSynchronize(stream));
}

std::string_view compiled_architectures() { return GRADUS_CUDA_ARCHITECTURES; }

void check(const char* call, cudaError_t error) {
  if (error == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // clears an error that is not permanent, so that the next call does not report it again
  GRADUS_FAIL(DeviceError, call, " failed: ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")",
              remedy(error));
}

void check(const char* call, cublasStatus_t status) {
  GRADUS_CHECK(status == CUBLAS_STATUS_SUCCESS, DeviceError, call, " failed: ", cublasGetStatusName(status), " (",
               cublasGetStatusString(status), ")");
}

}  // namespace gradus::cuda_detail
