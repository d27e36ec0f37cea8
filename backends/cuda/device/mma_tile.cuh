// The product of two tiles in shared memory, by one warp: result[row][column] += sum over k of left[row][k]
// right[column][k]. The depth k is contiguous in both tiles. A row of a tile holds 64 bytes of depth (16 float32 or 32
// half-type elements) in four vectors of 16 bytes; a fifth vector of padding places eight adjacent rows in different
// banks. A warp computes 32 x 64 results, on the FMA units or, for half types and TF32, on tensor cores.
#pragma once

#include <gradus/backends/cuda/device/tuning.h>
#include <gradus/core/array/dtype.h>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus::cuda_detail {

using Vec16 = Vec<uint32_t, 4>;     // 16 bytes of depth
inline constexpr int kRowVecs = 4;  // vectors of a row, without the padding
static_assert(kRowVecs * sizeof(Vec16) == kRowBytes);
using TileRow = Vec16[kRowVecs + 1];

/// Returns the pointer. Hides from the compiler how the pointer was computed, because the compiler would otherwise
/// repeat the address arithmetic for every element.
__device__ inline const char* whole(const char* pointer) {
  asm("" : "+l"(pointer));
  return pointer;
}

/// Loads an element or a vector from global memory that no thread writes while the kernel runs.
template <class T>
__device__ T load_global(const char* from) {
  if constexpr (std::is_same_v<T, Vec16>) {
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
    return {{words.x, words.y, words.z, words.w}};
  } else if constexpr (sizeof(T) == 4) {
    return __ldg(reinterpret_cast<const T*>(from));
  } else {
    T half;
    half.bits = __ldg(reinterpret_cast<const unsigned short*>(from));
    return half;
  }
}

/// The name of a type in PTX instructions of tensor cores.
template <class T>
inline constexpr char kPtxType[] = "tf32";
template <>
inline constexpr char kPtxType<Half>[] = "f16";
template <>
inline constexpr char kPtxType<BFloat16>[] = "bf16";

/// Packs two half-type elements into a 32-bit word.
template <class T>
__device__ uint32_t pair(T low, T high) {
  return static_cast<uint32_t>(low.bits) | static_cast<uint32_t>(high.bits) << 16;
}

/// Elements of type T in a Vec16 and in a row of a tile.
template <class T>
inline constexpr int kVec16Size = 16 / sizeof(T);
template <class T>
inline constexpr int kRowDepth = kRowVecs* kVec16Size<T>;

/// The element as `kMode` multiplies it: rounded to the nearest TF32 number if the mode is tf32, otherwise unchanged.
template <MathMode kMode, class T>
__device__ T multiplicand(T value) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kMode == MathMode::tf32) {
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    value = __uint_as_float(rounded);
  }
#endif
  return value;
}

template <MathMode kMode, class T>
__device__ Vec16 make_vec16(const T (&values)[kVec16Size<T>]) {
  Vec16 vec;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (sizeof(T) == 4) vec.value[j] = __float_as_uint(multiplicand<kMode>(values[j]));
    else vec.value[j] = static_cast<uint32_t>(values[2 * j].bits) | static_cast<uint32_t>(values[2 * j + 1].bits) << 16;
  }
  return vec;
}

/// On FMA units, a lane computes 8 x 8 results, whose rows are 4 apart and whose columns are 8 apart. Of every four
/// lanes, lanes 0 and 1 (2 and 3) have the same columns, and lanes 0 and 2 (1 and 3) the same rows: 16-byte loads from
/// shared memory take half the time if lanes repeat addresses in this pattern.
template <MathMode kMode, class T>
struct MmaTile {
  static_assert(kMode == MathMode::fma && sizeof(T) == 4);
  float sums[8][8] = {};

  static __device__ int row() { return threadIdx.x % 2 + threadIdx.x / 16 % 2 * 2; }
  static __device__ int column() { return threadIdx.x / 2 % 8; }
  /// `left` and `right` point to the first rows of the warp's part of the tiles.
  __device__ void multiply(const TileRow* left, const TileRow* right) {
#pragma unroll 1  // unrolled, the loop would spill registers
    for (int vec = 0; vec < kRowVecs; ++vec) {
      float4 l[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) l[i] = reinterpret_cast<const float4&>(left[row() + 4 * i][vec]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float4 r = reinterpret_cast<const float4&>(right[column() + 8 * j][vec]);
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i][j] += l[i].x * r.x;
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i][j] += l[i].y * r.y;
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i][j] += l[i].z * r.z;
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i][j] += l[i].w * r.w;
      }
    }
  }
  /// Calls f(row, column, sum) for each result of the lane.
  template <class F>
  __device__ void for_each(F&& f) const {
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) f(row() + 4 * i, column() + 8 * j, sums[i][j]);
  }
};

/// Loads four matrices of 8 x 8 half-type elements (8 x 4 words). Each lane passes the address of one row of 16 bytes.
__device__ inline void ldmatrix_x4(uint32_t (&words)[4], const Vec16& row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(&row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address));
}

/// sums (16 x 8) += a (16 rows of 32 bytes of depth) b (8 columns of 32 bytes of depth).
template <class T>
__device__ void mma_m16n8(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k%10.row.col.f32.%11.%11.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "n"(32 / sizeof(T)), "C"(kPtxType<T>));
#else
  __trap();  // the host launches no such kernel on older devices
#endif
}

/// On tensor cores, a warp computes 2 x 8 blocks of 16 x 8 results.
template <MathMode kMode, class T>
requires(kMode != MathMode::fma) struct MmaTile<kMode, T> {
  float sums[2][8][4] = {};

  __device__ void multiply(const TileRow* left, const TileRow* right) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int vec = 0; vec < kRowVecs; vec += 2) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) ldmatrix_x4(a[i], left[16 * i + lane % 16][vec + lane / 16]);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        uint32_t b[4];
        ldmatrix_x4(b, right[8 * j + lane / 16 * 8 + lane % 8][vec + lane / 8 % 2]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          mma_m16n8<T>(sums[i][j], a[i], b[0], b[1]);
          mma_m16n8<T>(sums[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
  }
  template <class F>
  __device__ void for_each(F&& f) const {
    const int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) f(16 * i + row + e / 2 * 8, 8 * j + column + e % 2, sums[i][j][e]);
  }
};

/// The tiles of a block of kWarpsY x kWarpsX warps.
template <int kWarpsY_, int kWarpsX_>
struct BlockTile {
  static constexpr int kWarpsY = kWarpsY_, kWarpsX = kWarpsX_, kThreads = 32 * kWarpsY * kWarpsX;
  static constexpr int kRows = kWarpsY * kWarpRows, kColumns = kWarpsX * kWarpColumns;
  struct Shared {
    TileRow left[kRows], right[kColumns];
  };
  static __device__ int first_row() { return threadIdx.x / 32 / kWarpsX * kWarpRows; }
  static __device__ int first_column() { return threadIdx.x / 32 % kWarpsX * kWarpColumns; }
};

/// Calls f.template operator()<mode, T>() with T = float for fma and tf32, and with the half type `dtype` for half.
template <class F>
void visit_math_mode(DType dtype, MathMode mode, F&& f) {
  switch (mode) {
    case MathMode::fma: return f.template operator()<MathMode::fma, float>();
    case MathMode::tf32: return f.template operator()<MathMode::tf32, float>();
    case MathMode::half: return visit_half(dtype, [&]<class T>() { f.template operator()<MathMode::half, T>(); });
  }
}

}  // namespace gradus::cuda_detail
