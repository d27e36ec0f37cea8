// Exchange of data between the blocks of a cluster. Functions are named after their PTX instructions. Clusters need
// compute capability 9.0; the host launches such kernels on no older device (DeviceProperties::has_clusters).
#pragma once

#include <gradus/backends/cuda/device/mbarrier.cuh>

namespace gradus::cuda_detail {

/// The address in the shared memory of block `block` of the cluster that corresponds to `address` in this block.
__device__ inline uint32_t mapa(uint32_t address, int block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Loads 16 bytes from the shared memory of block `block` of the cluster, at the address that corresponds to `address`.
__device__ inline float4 load_cluster(uint32_t address, int block) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(mapa(address, block))
               : "memory");
  return v;
}

/// Stores `value` in the shared memory of block `block` of the cluster and counts its bytes at that block's barrier.
/// `to` and `barrier` are the addresses in this block.
__device__ inline void st_async(float value, const float* to, const Mbarrier* barrier, int block) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   mapa(shared_address(to), block)),
               "r"(__float_as_uint(value)), "r"(mapa(shared_address(barrier), block))
               : "memory");
}

}  // namespace gradus::cuda_detail
