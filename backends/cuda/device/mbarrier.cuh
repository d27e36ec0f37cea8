// Barriers in shared memory that count arrivals and bytes, by the names of their PTX instructions. Devices of compute
// capability 9.0 and above have all of them; the host launches kernels with them nowhere else.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace gradus::cuda_detail {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

/// A barrier that opens when so many threads have arrived and the bytes that they have announced have come.
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
  /// Until it has opened for the time with this parity (the first time's is 0).
  __device__ void wait(uint32_t parity) {
    // The loop is hidden from the compiler, which would take what follows for divergent and let wgmma wait.
    asm volatile(
        "{\n\t.reg .pred open;\n"
        "wait_%=:\n\tmbarrier.try_wait.parity.shared::cta.b64 open, [%0], %1;\n\t@!open bra wait_%=;\n\t}" ::"r"(
            shared_address(this)),
        "r"(parity)
        : "memory");
  }
};

}  // namespace gradus::cuda_detail
