// Copies from global to shared memory that go past the registers, while the thread goes on. Devices of compute
// capability 8.0 and above have them; the host launches kernels with them nowhere else.
#pragma once

#include <cstdint>

namespace gradus::cuda_detail {

/// Starts a copy of kBytes (4, 8 or 16) bytes; where it does not count, zeros are written and nothing is read.
template <int kBytes>
__device__ void cp_async(void* to, const void* from, bool counts) {
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(kBytes),
               "r"(counts ? kBytes : 0)
               : "memory");
#else
  __trap();
#endif
}
/// Makes the copies started since the last call a group.
__device__ inline void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits for this thread's groups but the last kPending.
template <int kPending>
__device__ void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace gradus::cuda_detail
