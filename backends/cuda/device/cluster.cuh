// Blocks of a cluster that send each other numbers, by the names of their PTX instructions. Devices of compute
// capability 9.0 and above have them; the host launches kernels with them nowhere else (DeviceProperties::clusters).
#pragma once

#include <gradus/backends/cuda/device/mbarrier.cuh>

#if __CUDA_ARCH__ >= 900

namespace gradus::cuda_detail {

/// The address of the same place in the shared memory of a block of the cluster.
__device__ inline uint32_t mapa(uint32_t address, int block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Writes a number into the shared memory of a block of the cluster and tells that block's barrier.
__device__ inline void st_async(float value, const float* to, const Mbarrier* barrier, int block) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   mapa(shared_address(to), block)),
               "r"(__float_as_uint(value)), "r"(mapa(shared_address(barrier), block))
               : "memory");
}

}  // namespace gradus::cuda_detail

#endif
