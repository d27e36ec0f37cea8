// Common parts of rungs 4 to 6: tiles of 64 filters x 128 pixels, for each of which a step loads 64 bytes (channels of
// one (r,s)), and the epilogue.
#pragma once

#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::ladders {

using Tile = cuda_detail::BlockTile<2, 2>;  // four warps with 32 x 64 results each

template <class T>
constexpr int kDepth = cuda_detail::kRowDepth<T>;  // number of channels in a step

inline dim3 grid_of(const ConvSize& size) {
  return {static_cast<unsigned>(ceil_div(size.N * size.H * size.W, Tile::kColumns)),
          static_cast<unsigned>(ceil_div(size.K, Tile::kRows))};
}

/// Loads a step for the filters and pixels of the block: the channels from `first_channel` on of (r,s). Calls copy(to,
/// from, offset, inside) for each 16 bytes. If not `inside`, which means after the last filter or in the padding, it
/// must write zeros.
template <class T, class Copy>
__device__ void load_tile(const Fprop<T>& conv, int rs, int first_channel, Tile::Shared& tile, const Copy& copy) {
  using namespace cuda_detail;
  const auto [N, H, W, C, K] = conv.size;
  const int first_k = static_cast<int>(blockIdx.y) * Tile::kRows;
  const int first_pixel = static_cast<int>(blockIdx.x) * Tile::kColumns;
  for (int i = threadIdx.x; i < Tile::kRows * kRowVecs; i += Tile::kThreads) {
    const int k = first_k + i / kRowVecs, c = first_channel + i % kRowVecs * kVec16Size<T>;
    copy(tile.left[i / kRowVecs][i % kRowVecs], conv.w, (k * 9 + rs) * C + c, k < K);
  }
  for (int i = threadIdx.x; i < Tile::kColumns * kRowVecs; i += Tile::kThreads) {
    const int pixel = first_pixel + i / kRowVecs, c = first_channel + i % kRowVecs * kVec16Size<T>;
    const int h = pixel / W % H + rs / 3 - 1, w = pixel % W + rs % 3 - 1, n = pixel / W / H;
    const bool inside = n < N && h >= 0 && h < H && w >= 0 && w < W;
    copy(tile.right[i / kRowVecs][i % kRowVecs], conv.x, (int64_t{n * H + h} * W + w) * C + c, inside);
  }
}

/// Copies 16 bytes through registers.
struct CopyVec16 {
  template <class T, class Offset>
  __device__ void operator()(cuda_detail::Vec16& to, const T* from, Offset offset, bool inside) const {
    to = inside ? reinterpret_cast<const cuda_detail::Vec16&>(from[offset]) : cuda_detail::Vec16{};
  }
};

/// Adds bias and applies ReLU to the sums of the block's threads, and stores the results.
template <class T, class Mma>
__device__ void store_epilogue(const Fprop<T>& conv, Mma& mma) {
  const auto [N, H, W, C, K] = conv.size;
  const int first_k = static_cast<int>(blockIdx.y) * Tile::kRows + Tile::first_row();
  const int first_pixel = static_cast<int>(blockIdx.x) * Tile::kColumns + Tile::first_column();
  mma.for_each([&](int row, int column, float sum) {
    const int k = first_k + row, pixel = first_pixel + column;
    if (k < K && pixel < N * H * W)
      conv.y[int64_t{pixel} * K + k] = T(conv.bias ? fmaxf(sum + conv.bias[k], 0.0f) : sum);
  });
}

}  // namespace gradus::ladders
