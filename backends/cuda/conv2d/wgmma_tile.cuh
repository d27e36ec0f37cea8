// What the wgmma kernels share: images as TMA loads them, and the transpositions of their epilogues.
#pragma once

#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/tma.cuh>
#include <gradus/backends/cuda/device/wgmma.cuh>

namespace gradus::cuda_detail {

/// Describes an image (N, C, H, W) with channels innermost to TMA, in boxes of `rows` rows of `pitch` pixels of
/// `channels` channels.
inline CUtensorMap image_map(const void* data, DType dtype, const Shape& shape, cuuint32_t channels, int pitch,
                             int rows) {
  const auto N = static_cast<cuuint64_t>(shape[0]), C = static_cast<cuuint64_t>(shape[1]);
  const cuuint64_t pixel = size_of(dtype) * C;
  const auto H = static_cast<cuuint64_t>(shape[2]), W = static_cast<cuuint64_t>(shape[3]);
  return tensor_map(data, dtype, {C, W, H, N}, {pixel, pixel * W, pixel * W * H},
                    {channels, static_cast<cuuint32_t>(pitch), static_cast<cuuint32_t>(rows), 1});
}

__device__ inline void store_shared(uint32_t to, const uint4& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

/// Transposes an 8 x 8 matrix of half types, of which lane l holds two neighbours of row l / 4.
__device__ inline uint32_t transpose_matrix(uint32_t word) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(word));
  return result;
}
/// Transposes a 4 x 4 block of words over four lanes: lane i holds column i before and row i afterwards.
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
