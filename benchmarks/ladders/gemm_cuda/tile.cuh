// Common parts of rungs 3 to 5: tiles of 64 rows x 128 columns, for which a step loads 64 bytes of depth.
#pragma once

#include <gradus/benchmarks/ladders/gemm_cuda/rungs.h>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::ladders::gemm {

using Tile = cuda_detail::BlockTile<2, 2>;  // four warps with 32 x 64 results each

template <class T>
constexpr int kDepth = cuda_detail::kRowDepth<T>;

template <class T>
dim3 grid_of(const Problem<T>& problem) {
  return {static_cast<unsigned>(ceil_div(problem.N, Tile::kColumns)),
          static_cast<unsigned>(ceil_div(problem.M, Tile::kRows))};
}

/// Loads a step for the block's rows of x and w, starting at depth `first_k`. Calls copy(to, from, offset, exists) for
/// each 16 bytes. If not `exists`, which means after the last row, it must write zeros.
template <class T, class Copy>
__device__ void load_tile(const Problem<T>& problem, int first_k, Tile::Shared& tile, const Copy& copy) {
  using namespace cuda_detail;
  const auto load_rows = [&](TileRow* to, int count, const T* from, int64_t first, int rows) {
    for (int i = threadIdx.x; i < count * kRowVecs; i += Tile::kThreads) {
      const int64_t row = first + i / kRowVecs;
      copy(to[i / kRowVecs][i % kRowVecs], from, row * problem.K + first_k + i % kRowVecs * kVec16Size<T>, row < rows);
    }
  };
  load_rows(tile.left, Tile::kRows, problem.x, int64_t{blockIdx.y} * Tile::kRows, problem.M);
  load_rows(tile.right, Tile::kColumns, problem.w, int64_t{blockIdx.x} * Tile::kColumns, problem.N);
}

/// Copies 16 bytes through registers.
struct CopyVec16 {
  template <class T>
  __device__ void operator()(cuda_detail::Vec16& to, const T* from, int64_t offset, bool exists) const {
    to = exists ? reinterpret_cast<const cuda_detail::Vec16&>(from[offset]) : cuda_detail::Vec16{};
  }
};

template <class T, class Mma>
__device__ void store_tile(const Problem<T>& problem, const Mma& mma) {
  const int64_t first_m = int64_t{blockIdx.y} * Tile::kRows + Tile::first_row();
  const int64_t first_n = int64_t{blockIdx.x} * Tile::kColumns + Tile::first_column();
  mma.for_each([&](int row, int column, float sum) {
    const int64_t m = first_m + row, n = first_n + column;
    if (m < problem.M && n < problem.N) problem.y[m * problem.N + n] = T(sum);
  });
}

}  // namespace gradus::ladders::gemm
