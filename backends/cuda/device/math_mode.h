// What the host knows of mma_tile.cuh: how it multiplies, and the sizes of its tiles.
#pragma once

#include <cstddef>

namespace gradus::cuda_detail {

/// Which units multiply: the FMA units, exactly; tensor cores, float32 rounded to TF32; tensor cores, half types.
enum class MathMode { fma, tf32, half };

/// Results of a warp.
inline constexpr int kWarpRows = 32, kWarpColumns = 64;
/// Depth of a row of a tile in shared memory.
inline constexpr size_t kRowBytes = 64;

}  // namespace gradus::cuda_detail
