// Blocks of a cluster that send each other numbers, by the names of their PTX instructions. Devices of compute
// capability 9.0 and above have them; the host launches kernels with them nowhere else
// (DeviceProperties::has_clusters).
#pragma once

#include <gradus/backends/cuda/device/mbarrier.cuh>

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

/// 16 bytes from the same place in the shared memory of a block of the cluster.
__device__ inline float4 load_cluster(uint32_t address, int block) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(mapa(address, block))
               : "memory");
  return v;
}

/// Writes a number into the shared memory of a block of the cluster and tells that block's barrier.
__device__ inline void st_async(float value, const float* to, const Mbarrier* barrier, int block) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   mapa(shared_address(to), block)),
               "r"(__float_as_uint(value)), "r"(mapa(shared_address(barrier), block))
               : "memory");
}

}  // namespace gradus::cuda_detail
