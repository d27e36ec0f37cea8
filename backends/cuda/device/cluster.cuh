// Barriers in shared memory, and data exchange between the blocks of a cluster. Functions are named after their PTX
// instructions. They need compute capability 9.0; the host does not launch kernels with them on older devices
// (DeviceProperties::has_clusters).
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace gradus::cuda_detail {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

/// A barrier in shared memory. A phase of the barrier is complete, and the next begins, when `threads` threads have
/// arrived and all bytes that they announced have been written.
struct Mbarrier {
  uint64_t state;

  __device__ void init(uint32_t threads = 1) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(threads) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ void expect_tx(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  /// Waits until the phase with this parity is complete. The first phase has parity 0.
  __device__ void wait(uint32_t parity) {
    // The loop is part of the asm statement: the compiler would consider code after a visible loop divergent, and would
    // make every wgmma wait for its result.
    asm volatile(
        "{\n\t.reg .pred open;\n"
        "wait_%=:\n\tmbarrier.try_wait.parity.shared::cta.b64 open, [%0], %1;\n\t@!open bra wait_%=;\n\t}" ::"r"(
            shared_address(this)),
        "r"(parity)
        : "memory");
  }
};

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
/// `to` and `barrier` are addresses in this block; the store uses the corresponding addresses in the other block.
__device__ inline void st_async(float value, const float* to, const Mbarrier* barrier, int block) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   mapa(shared_address(to), block)),
               "r"(__float_as_uint(value)), "r"(mapa(shared_address(barrier), block))
               : "memory");
}

}  // namespace gradus::cuda_detail
