// The weights' gradient for few rows or few columns. A warp takes four columns, a lane one position at a time: four
// input elements meet the dy of all rows of a tile, which the block has staged in shared memory. Where many rows meet
// fewer columns than there are warps for, warps share the positions. At the end the lanes' sums are added in a fixed
// tree.
#include <gradus/backends/cuda/conv2d/conv2d_weight.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kWarps = 8, kColumns = 4;  // per warp
static_assert(kWarps * kColumns == kDirectColumns);

// Grid: blocks of columns x tiles of rows, groups, splits.
template <bool kMasked, class T, int kRows>
__global__ void __launch_bounds__(32 * kWarps)
    direct_kernel(WeightGradient g, uint32_t sharers, const T* dy, const T* mask, const T* x, compute_t<T>* partial) {
  using C = compute_t<T>;
  __shared__ Tap positions[kDirectPositions];
  __shared__ C gradients[kRows][kDirectPositions];
  const uint32_t group = blockIdx.y, split = blockIdx.z, row_tiles = (g.rows + kRows - 1) / kRows;
  const uint32_t first_row = blockIdx.x % row_tiles * kRows;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  dy += static_cast<int64_t>(group) * g.rows * g.dy.c;
  if constexpr (kMasked) mask += static_cast<int64_t>(group) * g.rows * g.dy.c;
  x += static_cast<int64_t>(group) * g.channels * g.x.c;
  const uint32_t first_column = blockIdx.x / row_tiles * kDirectColumns + warp / sharers * kColumns;
  Tap columns[kColumns];
#pragma unroll
  for (int j = 0; j < kColumns; ++j) columns[j] = g.column_at(first_column + j);

  C sums[kColumns * kRows] = {};
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);
  for (uint32_t first = begin; first < end; first += kDirectPositions) {
    __syncthreads();
    {  // two threads per position, each for half of the rows
      const uint32_t slot = threadIdx.x % kDirectPositions, half = threadIdx.x / kDirectPositions;
      int64_t dy_offset;
      const Tap position = g.position_at(first + slot, end, &dy_offset);
      if (half == 0) positions[slot] = position;
#pragma unroll
      for (int row = 0; row < kRows / 2; ++row)
        gradients[half * (kRows / 2) + row][slot] =
            g.gradient_at<kMasked>(dy, mask, first_row + half * (kRows / 2) + row, position, dy_offset);
    }
    __syncthreads();
    if (first_column >= g.columns) continue;
#pragma unroll 2
    for (uint32_t slot = warp % sharers * 32 + lane; slot < kDirectPositions; slot += sharers * 32) {
      const Tap position = positions[slot];
      C values[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) values[j] = g.input_at(x, position, columns[j]);
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const C gradient = gradients[row][slot];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sums[row * kColumns + j] += gradient * values[j];
      }
    }
  }
  warp_reduce_scatter<16, 1, kColumns * kRows / 2>(sums, lane);
  C* out = partial + (static_cast<int64_t>(split * sharers + warp % sharers) * gridDim.y + group) * g.rows * g.columns;
#pragma unroll
  for (int i = 0; i < kColumns * kRows / 32; ++i) {
    const uint32_t index = lane * (kColumns * kRows / 32) + i, row = first_row + index / kColumns;
    const uint32_t column = first_column + index % kColumns;
    if (row < g.rows && column < g.columns) out[static_cast<int64_t>(row) * g.columns + column] = sums[i];
  }
}

}  // namespace

void direct_weight_gradient(const WeightCall& call, const Launch& launch) {
  const WeightGradient& g = call.product;
  visit_floating(call.problem.dtype, [&]<class T>() {
    const auto run = [&]<class Tile>() {
      launch(call.mask ? direct_kernel<true, T, Tile::kRows> : direct_kernel<false, T, Tile::kRows>,
             dim3(call.tiles(g.columns), call.groups(), call.plan.split_k), 32 * kWarps, g, call.plan.sharers, call.dy,
             call.mask, call.x, call.partial);
    };
    using Few = TileOf<8, kDirectColumns>;
    using More = TileOf<16, kDirectColumns>;
    if constexpr (sizeof(compute_t<T>) == 8) visit_tiles<Few, More>(call.plan.tile, run);  // no registers for 32
    else visit_tiles<Few, More, TileOf<32, kDirectColumns>>(call.plan.tile, run);
  });
}

}  // namespace gradus::cuda_detail
