// The math modes and tile sizes of mma_tile.cuh, in a header that host code without CUDA can include.
#pragma once

#include <cstddef>

namespace gradus::cuda_detail {

/// How operands are multiplied: float32 on the FMA units, float32 rounded to TF32 on tensor cores, or half types on
/// tensor cores.
enum class MathMode { fma, tf32, half };

/// The tile of results that a warp computes.
inline constexpr int kWarpRows = 32, kWarpColumns = 64;
/// Bytes of depth (the dimension summed over) in a row of a tile in shared memory.
inline constexpr size_t kRowBytes = 64;

}  // namespace gradus::cuda_detail
