// What Hopper adds, by the names of its PTX instructions: copies of whole tiles by the tensor memory accelerator (TMA),
// barriers that count their bytes, and products of four warps (wgmma) whose operands stay in shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace gradus::ladders {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

/// A barrier that opens when one thread has arrived and the bytes that it has announced have come.
struct Mbarrier {
  uint64_t state;

  __device__ void init() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(this)) : "memory");
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
    asm volatile(
        "{\n\t.reg .pred open;\n"
        "wait_%=:\n\tmbarrier.try_wait.parity.shared::cta.b64 open, [%0], %1;\n\t@!open bra wait_%=;\n\t}" ::"r"(
            shared_address(this)),
        "r"(parity)
        : "memory");
  }
};

/// What threads have written to shared memory is seen by TMA and wgmma afterwards.
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Starts the copy of the tensor's box that begins at (c0, c1, c2, c3); elements outside of the tensor are zeros.
__device__ inline void tma_load(uint32_t to, const CUtensorMap& tensor, const Mbarrier& barrier, int c0, int c1, int c2,
                                int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], "
      "[%2];" ::"r"(to),
      "l"(&tensor), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

/// A matrix in shared memory as wgmma reads it: rows of kRowBytes (64 or 128) of depth, whose pieces of 16 bytes are
/// swizzled by their address as TMA has written them. So a matrix may begin at any row.
template <int kRowBytes>
__device__ uint64_t matrix_descriptor(uint32_t address) {
  constexpr uint64_t kSwizzle = kRowBytes == 64 ? 2 : 1;
  return (address & 0x3ffff) >> 4 | uint64_t{1} << 16 | uint64_t{8 * kRowBytes >> 4} << 32 | kSwizzle << 62;
}

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/// sums (64 x 32) = or += a (64 rows, 16 bfloat16 of depth) b (32 rows as deep). Of warp w, lane l has rows
/// 16 w + l / 4 and 8 below, columns 8 j + 2 (l % 4) and its neighbour: sums[j][0, 1] above, sums[j][2, 3] below.
__device__ inline void wgmma_m64n32k16(float (&sums)[4][4], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred accumulate;\n\tsetp.ne.b32 accumulate, %18, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
      "%16, %17, accumulate, 1, 1, 0, 0;\n\t}"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]), "+f"(sums[1][1]),
        "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]), "+f"(sums[2][2]), "+f"(sums[2][3]),
        "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), "+f"(sums[3][3])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

}  // namespace gradus::ladders
