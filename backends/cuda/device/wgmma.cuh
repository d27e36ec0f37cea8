// Warpgroup matrix products (wgmma, sm_90a): four warps together multiply two matrices in shared memory. Functions are
// named after their PTX instructions.
#pragma once

#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::cuda_detail {

/// The descriptor of a matrix in shared memory for wgmma. The matrix consists of lines of kLineBytes (64 or 128) bytes,
/// whose 16-byte pieces are swizzled by their address, as TMA writes them. The matrix may begin at any line. If the
/// depth is contiguous, a line is a row with kLineBytes of depth. If the matrix is transposed, a line has the elements
/// of 32 or 64 rows at one depth, and the line of the next 32 or 64 rows follows `next_rows` bytes later.
template <int kLineBytes>
__device__ uint64_t matrix_descriptor(uint32_t address, uint32_t next_rows = 16) {
  constexpr uint64_t kSwizzle = kLineBytes == 64 ? 2 : 1;
  return (address & 0x3ffff) >> 4 | uint64_t{next_rows >> 4} << 16 | uint64_t{8 * kLineBytes >> 4} << 32 |
         kSwizzle << 62;
}

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until all groups except the last kPending have finished.
template <int kPending>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// GRADUS_REGISTERS_N names the registers of the sums of N columns in the text of an asm statement. GRADUS_SUMS(j),
// GRADUS_SUMS_4(j) and GRADUS_SUMS_8(j) list the sums as operands of the statement.
// clang-format off
#define GRADUS_REGISTERS_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define GRADUS_REGISTERS_64 GRADUS_REGISTERS_32 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define GRADUS_REGISTERS_96 GRADUS_REGISTERS_64 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define GRADUS_REGISTERS_128 GRADUS_REGISTERS_96 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define GRADUS_REGISTERS_192 GRADUS_REGISTERS_128 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define GRADUS_SUMS(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])
#define GRADUS_SUMS_4(j) GRADUS_SUMS(j), GRADUS_SUMS(j + 1), GRADUS_SUMS(j + 2), GRADUS_SUMS(j + 3)
#define GRADUS_SUMS_8(j) GRADUS_SUMS_4(j), GRADUS_SUMS_4(j + 4)

/// sums (64 x N) = or += a (64 rows) b (N rows); a row has 32 bytes of depth, 16 half-type or 8 TF32 elements. Lane l
/// of warp w holds the columns 8 j + 2 (l % 4) and the next one of two rows: of row 16 w + l / 4 in sums[j][0, 1], and
/// of the row 8 below in sums[j][2, 3]. TF32 operands cannot be transposed. The macro's arguments `a` to `type` are the
/// numbers of the asm operands that follow the sums.
#define GRADUS_WGMMA(N, a, b, add, transpose_a, transpose_b, type, ...) \
  template <class T, bool kTransposeA, bool kTransposeB> \
  __device__ void wgmma(float (&sums)[N / 8][4], uint64_t a_matrix, uint64_t b_matrix, bool accumulate) { \
    static_assert(sizeof(T) == 2 || !(kTransposeA || kTransposeB)); \
    if constexpr (sizeof(T) == 4) \
      asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #add ", 0;\n\t" \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32" \
                   " {" GRADUS_REGISTERS_##N "}, %" #a ", %" #b ", p, 1, 1;\n\t}" \
                   : __VA_ARGS__ \
                   : "l"(a_matrix), "l"(b_matrix), "r"(static_cast<int>(accumulate))); \
    else \
      asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #add ", 0;\n\t" \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.%" #type ".%" #type \
                   " {" GRADUS_REGISTERS_##N "}, %" #a ", %" #b ", p, 1, 1, " \
                   "%" #transpose_a ", %" #transpose_b ";\n\t}" \
                   : __VA_ARGS__ \
                   : "l"(a_matrix), "l"(b_matrix), "r"(static_cast<int>(accumulate)), "n"(kTransposeA), \
                     "n"(kTransposeB), "C"(kPtxType<T>)); \
  }
GRADUS_WGMMA(32, 16, 17, 18, 19, 20, 21, GRADUS_SUMS_4(0))
GRADUS_WGMMA(64, 32, 33, 34, 35, 36, 37, GRADUS_SUMS_8(0))
GRADUS_WGMMA(96, 48, 49, 50, 51, 52, 53, GRADUS_SUMS_8(0), GRADUS_SUMS_4(8))
GRADUS_WGMMA(128, 64, 65, 66, 67, 68, 69, GRADUS_SUMS_8(0), GRADUS_SUMS_8(8))
GRADUS_WGMMA(192, 96, 97, 98, 99, 100, 101, GRADUS_SUMS_8(0), GRADUS_SUMS_8(8), GRADUS_SUMS_8(16))
// clang-format on

// ---- for the epilogues ----

__device__ inline void store_shared(uint32_t to, const uint4& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

/// Transposes an 8 x 8 matrix of half types that is distributed over the lanes of a warp. Before and after the call,
/// lane l has two neighbouring elements of row l / 4.
__device__ inline uint32_t transpose_matrix(uint32_t word) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(word));
  return result;
}
/// Transposes a 4 x 4 block of words over four lanes: lane i has column i before the call and row i after it.
__device__ inline void transpose_quad(uint32_t (&words)[4]) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = threadIdx.x & step;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & step) continue;
      const uint32_t got = __shfl_xor_sync(~0u, upper ? words[i] : words[i + step], step);
      (upper ? words[i] : words[i + step]) = got;
    }
  }
}

}  // namespace gradus::cuda_detail
