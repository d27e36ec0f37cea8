// The tiled matrix product inside the convolution kernels.
#pragma once

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

/// A block computes a tile of kRows x kColumns results, each thread kPerRow x kPerColumn of them, in steps of kDepth.
template <int kRows_, int kColumns_, int kDepth_, int kPerRow_, int kPerColumn_>
struct Tile {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kDepth = kDepth_;
  static constexpr int kPerRow = kPerRow_, kPerColumn = kPerColumn_;
  static constexpr int kThreads = kRows / kPerRow * (kColumns / kPerColumn);
};
// All of 256 threads.
using SmallTile = Tile<16, 128, 16, 2, 4>;
using MiddleTile = Tile<32, 128, 16, 4, 4>;
using LargeTile = Tile<64, 128, 16, 8, 4>;

/// Two tiles of operands in shared memory and the thread's part of the product. Rows are padded so that a warp that
/// stores a column of the tile has few bank conflicts, and loads stay aligned to four elements.
template <class C, class T>
struct FmaTile {
  static constexpr int kPad = 4;
  struct Shared {
    alignas(16) C left[T::kDepth][T::kRows + kPad];
    alignas(16) C right[T::kDepth][T::kColumns + kPad];
  };
  C sums[T::kPerRow][T::kPerColumn] = {};

  static __device__ int row() { return threadIdx.x / (T::kColumns / T::kPerColumn) * T::kPerRow; }
  static __device__ int column() { return threadIdx.x % (T::kColumns / T::kPerColumn) * T::kPerColumn; }

  __device__ void accumulate(const Shared& shared) {
    const int r = row(), c = column();
#pragma unroll
    for (int k = 0; k < T::kDepth; ++k) {
      C left[T::kPerRow], right[T::kPerColumn];
#pragma unroll
      for (int i = 0; i < T::kPerRow; ++i) left[i] = shared.left[k][r + i];
#pragma unroll
      for (int j = 0; j < T::kPerColumn; ++j) right[j] = shared.right[k][c + j];
#pragma unroll
      for (int i = 0; i < T::kPerRow; ++i)
#pragma unroll
        for (int j = 0; j < T::kPerColumn; ++j) sums[i][j] += left[i] * right[j];
    }
  }
};

}  // namespace gradus::cuda_detail
