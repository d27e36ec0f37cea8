// The runtime's own kernels: one tells which code of this build a device runs, and one keeps a stream busy.
#include <gradus/backends/cuda/runtime/check.h>
#include <gradus/backends/cuda/runtime/cuda_runtime.h>

namespace gradus::cuda_detail {
namespace {

__global__ void any_kernel() {}

__device__ uint64_t now_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void wait_kernel(uint64_t ns) {
  for (const uint64_t begin = now_ns(); now_ns() - begin < ns;) {}
}

}  // namespace

int loaded_code(int index) {
  const DeviceGuard guard(index);
  cudaFuncAttributes attributes{};
  GRADUS_CUDA_CHECK(cudaFuncGetAttributes(&attributes, any_kernel));
  return attributes.ptxVersion;
}

void keep_busy(cudaStream_t stream) { wait_kernel<<<1, 1, 0, stream>>>(100'000); }

}  // namespace gradus::cuda_detail
