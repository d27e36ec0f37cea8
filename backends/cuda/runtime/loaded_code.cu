// A kernel that does nothing, which CUDA asks to learn which code of this build a device runs.
#include <gradus/backends/cuda/runtime/check.h>
#include <gradus/backends/cuda/runtime/cuda_runtime.h>

namespace gradus::cuda_detail {
namespace {

__global__ void any_kernel() {}

}  // namespace

int loaded_code(int index) {
  const DeviceGuard guard(index);
  cudaFuncAttributes attributes{};
  GRADUS_CUDA_CHECK(cudaFuncGetAttributes(&attributes, any_kernel));
  return attributes.ptxVersion;
}

}  // namespace gradus::cuda_detail
