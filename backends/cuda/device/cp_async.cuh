// Asynchronous copies from global to shared memory that use no registers. On devices before compute capability 8.0 they
// are ordinary copies.
#pragma once

#include <cstdint>

namespace gradus::cuda_detail {

/// Starts a copy of kBytes (4, 8 or 16) bytes, or of the first `bytes` of them with zeros for the others. If `counts`
/// is false, the copy writes zeros and reads nothing.
template <int kBytes>
__device__ void cp_async(void* to, const void* from, bool counts, uint32_t bytes = kBytes) {
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(kBytes),
               "r"(counts ? bytes : 0)
               : "memory");
#else
  for (uint32_t i = 0; i < kBytes; ++i)
    static_cast<char*>(to)[i] = counts && i < bytes ? static_cast<const char*>(from)[i] : 0;
#endif
}
/// Closes a group, which consists of all copies that this thread has started since its last call of this function.
__device__ inline void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until all of this thread's groups except the last kPending are complete.
template <int kPending>
__device__ void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace gradus::cuda_detail
