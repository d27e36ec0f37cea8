// Products of four warps whose operands stay in shared memory, by the names of their PTX instructions (sm_90a).
#pragma once

#include <cstdint>
#include <type_traits>

#include <gradus/core/dtype.h>

namespace gradus::cuda_detail {

/// A matrix in shared memory as wgmma reads it: lines of kLineBytes, 64 or 128, whose pieces of 16 bytes are swizzled
/// by their address as TMA has written them, so that a matrix may begin at any line.
/// Depth contiguous: a line is a row, of as much depth. Transposed: a line holds 32 or 64 rows of one depth, and
/// `next_rows` bytes behind it is the line of the next 32 or 64.
template <int kLineBytes>
__device__ uint64_t matrix_descriptor(uint32_t address, uint32_t next_rows = 16) {
  constexpr uint64_t kSwizzle = kLineBytes == 64 ? 2 : 1;
  return (address & 0x3ffff) >> 4 | uint64_t{next_rows >> 4} << 16 | uint64_t{8 * kLineBytes >> 4} << 32 |
         kSwizzle << 62;
}

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until all groups but the last kPending are done.
template <int kPending>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

template <class T>
inline constexpr char kWgmmaType[] = "bf16";
template <>
inline constexpr char kWgmmaType<Half>[] = "f16";

#define GRADUS_SUMS(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])
#define GRADUS_SUMS_4(j) GRADUS_SUMS(j), GRADUS_SUMS(j + 1), GRADUS_SUMS(j + 2), GRADUS_SUMS(j + 3)

/// sums (64 x N) = or += a (64 rows, 16 half types of depth) b (N rows as deep). Of warp w, lane l has rows
/// 16 w + l / 4 and 8 below, columns 8 j + 2 (l % 4) and its neighbour: sums[j][0, 1] above, sums[j][2, 3] below.
template <class T, bool kTransposeA, bool kTransposeB>
__device__ void wgmma(float (&sums)[4][4], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %18, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.%21.%21 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, %19, %20;\n\t}"
      : GRADUS_SUMS_4(0)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeA), "n"(kTransposeB), "C"(kWgmmaType<T>));
}
template <class T, bool kTransposeA, bool kTransposeB>
__device__ void wgmma(float (&sums)[8][4], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.%37.%37 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31}, %32, %33, p, 1, 1, %35, %36;\n\t}"
      : GRADUS_SUMS_4(0), GRADUS_SUMS_4(4)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeA), "n"(kTransposeB), "C"(kWgmmaType<T>));
}
template <class T, bool kTransposeA, bool kTransposeB>
__device__ void wgmma(float (&sums)[12][4], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %50, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.%53.%53 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}, %48, %49, p, 1, 1, %51, %52;\n\t}"
      : GRADUS_SUMS_4(0), GRADUS_SUMS_4(4), GRADUS_SUMS_4(8)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeA), "n"(kTransposeB), "C"(kWgmmaType<T>));
}
template <class T, bool kTransposeA, bool kTransposeB>
__device__ void wgmma(float (&sums)[16][4], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.%69.%69 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"
      "%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, %67, %68;\n\t}"
      : GRADUS_SUMS_4(0), GRADUS_SUMS_4(4), GRADUS_SUMS_4(8), GRADUS_SUMS_4(12)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeA), "n"(kTransposeB), "C"(kWgmmaType<T>));
}
template <class T, bool kTransposeA, bool kTransposeB>
__device__ void wgmma(float (&sums)[24][4], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %98, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.%101.%101 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"
      "%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"
      "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}, %96, %97, p, 1, 1, %99, %100;\n\t}"
      : GRADUS_SUMS_4(0), GRADUS_SUMS_4(4), GRADUS_SUMS_4(8), GRADUS_SUMS_4(12), GRADUS_SUMS_4(16), GRADUS_SUMS_4(20)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeA), "n"(kTransposeB), "C"(kWgmmaType<T>));
}

#undef GRADUS_SUMS_4
#undef GRADUS_SUMS

}  // namespace gradus::cuda_detail
