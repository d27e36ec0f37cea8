// Barriers in shared memory that count arrivals and bytes. Functions are named after their PTX instructions, all of
// which need compute capability 9.0; the host launches such kernels on no older device.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace gradus::cuda_detail {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

/// A barrier that completes a phase, and begins the next, when `threads` threads have arrived and all bytes that they
/// announced have been written.
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

}  // namespace gradus::cuda_detail
