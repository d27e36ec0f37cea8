// The main loops of the implicit GEMMs in implicit_gemm.cu and implicit_gemm_wgrad.cu: a loop divides a block's depth
// into steps, and loads a step into shared memory while earlier steps are multiplied. `Tile::Shared` is one stage of
// shared memory, the loader fills it with a step, and `mma` holds the sums of a warp. Each loader works with one of the
// loops, which it names as `Loader::Loop`.
#pragma once

#include <gradus/backends/cuda/device/cp_async.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::cuda_detail {

template <class Tile, class Mma>
__device__ void multiply_stage(const typename Tile::Shared& stage, Mma& mma) {
  mma.multiply(stage.left + Tile::first_row(), stage.right + Tile::first_column());
}

/// Two stages, loaded through registers: a thread loads its share of the next step into registers, multiplies the
/// current stage, and stores the registers in the other stage.
struct RegisterLoop {
  static constexpr int kStages = 2;

  template <class Tile, class Loader, class Mma>
  static __device__ void run(typename Tile::Shared* stages, uint32_t steps, Loader& loader, Mma& mma) {
    if (steps == 0) return;
    loader.load_tile();
    loader.store_tile(stages[0]);
    __syncthreads();
    int stage = 0;
    for (uint32_t step = 0; step < steps; ++step, stage ^= 1) {
      const bool more = step + 1 < steps;
      if (more) loader.load_tile();
      multiply_stage<Tile>(stages[stage], mma);
      if (more) loader.store_tile(stages[stage ^ 1]);
      __syncthreads();
    }
  }
};

/// Three stages, loaded by cp.async without registers, two steps ahead.
struct AsyncLoop {
  static constexpr int kStages = 3;

  template <class Tile, class Loader, class Mma>
  static __device__ void run(typename Tile::Shared* stages, uint32_t steps, Loader& loader, Mma& mma) {
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (stage < steps) loader.load_tile(stages[stage]);
      cp_async_commit();
    }
    int stage = 0;
    for (uint32_t step = 0; step < steps; ++step) {
      cp_async_wait<kStages - 2>();
      __syncthreads();
      if (step + kStages - 1 < steps) loader.load_tile(stages[stage == 0 ? kStages - 1 : stage - 1]);
      cp_async_commit();
      loader.add_bias(stages[stage]);
      multiply_stage<Tile>(stages[stage], mma);
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
  }
};

}  // namespace gradus::cuda_detail
