// Blocks of a cluster that send each other numbers, by the names of their PTX instructions. Devices of compute
// capability 9.0 and above have them; the host launches kernels with them nowhere else (DeviceProperties::clusters).
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#if __CUDA_ARCH__ >= 900

namespace gradus::cuda_detail {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

/// The address of the same place in the shared memory of a block of the cluster.
__device__ inline uint32_t mapa(uint32_t address, int block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// A barrier that opens when one thread has announced a number of bytes and so many have come.
struct Mbarrier {
  uint64_t state;

  __device__ void init() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(this)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ void expect_tx(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
                 : "memory");
  }
  /// Until it has opened for the time with this parity (the first time's is 0).
  __device__ void wait(uint32_t parity) {
    uint32_t open;
    do {
      asm volatile(
          "{\n\t.reg .pred open;\n\t"
          "mbarrier.try_wait.parity.shared::cta.b64 open, [%1], %2;\n\t"
          "selp.u32 %0, 1, 0, open;\n\t}"
          : "=r"(open)
          : "r"(shared_address(this)), "r"(parity)
          : "memory");
    } while (!open);
  }
};

/// Writes a number into the shared memory of a block of the cluster and tells that block's barrier.
__device__ inline void st_async(float value, const float* to, const Mbarrier* barrier, int block) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   mapa(shared_address(to), block)),
               "r"(__float_as_uint(value)), "r"(mapa(shared_address(barrier), block))
               : "memory");
}

}  // namespace gradus::cuda_detail

#endif
