// conv2d weight gradient, implicit GEMM on the FMA units for all that the other kernels leave; applies ReLU's mask.
// dw[k, (c,r,s)] = sum over (n,p,q) of dy[k, (n,p,q)] x[n, c, p, q shifted by (r,s)];  the bias is one more column, of
// ones.
// Grid: x = tiles of C R S (BN = 128) x of K (BM = 16, 32 or 64), y = groups, z = split-K.  Block: 256 threads; one
// makes 2, 4 or 8 rows x 4 columns, in steps of 16 pixels.
// Pipeline: the next step is loaded element by element into registers while this one is multiplied.
// Deterministic: each split leaves its sums in the workspace, see wgrad.cu.
#include <gradus/backends/cuda/conv2d/wgrad.cuh>
#include <gradus/backends/cuda/device/fma_tile.cuh>

namespace gradus::cuda_detail {
namespace {

// A thread loads for one pixel of the tile: neighbouring threads, neighbouring pixels.
template <bool kMasked, class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    implicit_gemm_generic_wgrad_kernel(WeightGradient g, const T* dy, const T* mask, const T* x,
                                       compute_t<T>* partial) {
  using C = compute_t<T>;
  using Product = FmaTile<C, Tile>;
  constexpr int kThreads = Tile::kThreads, kStep = kThreads / Tile::kDepth;
  constexpr int kLeft = Tile::kRows / kStep, kRight = Tile::kColumns / kStep;
  __shared__ typename Product::Shared shared;
  __shared__ Tap columns[Tile::kColumns];

  const uint32_t group = blockIdx.y, split = blockIdx.z, row_tiles = ceil_div(g.rows, Tile::kRows);
  const uint32_t first_row = blockIdx.x % row_tiles * Tile::kRows;
  const uint32_t first_column = blockIdx.x / row_tiles * Tile::kColumns;
  dy += static_cast<int64_t>(group) * g.rows * g.dy.c;
  if constexpr (kMasked) mask += static_cast<int64_t>(group) * g.rows * g.dy.c;
  x += static_cast<int64_t>(group) * g.channels * g.x.c;
  for (int i = threadIdx.x; i < Tile::kColumns; i += kThreads) columns[i] = g.column_at(first_column + i);
  __syncthreads();

  const int depth = threadIdx.x % Tile::kDepth, lane = threadIdx.x / Tile::kDepth;
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);
  C left[kLeft], right[kRight];
  auto fetch = [&](uint32_t first) {
    int64_t dy_offset;
    const Tap position = g.position_at(first + depth, end, &dy_offset);
#pragma unroll
    for (int i = 0; i < kLeft; ++i)
      left[i] = g.gradient_at<kMasked>(dy, mask, first_row + lane + i * kStep, position, dy_offset);
#pragma unroll
    for (int i = 0; i < kRight; ++i) right[i] = g.input_at(x, position, columns[lane + i * kStep]);
  };
  Product product;
  if (begin < end) fetch(begin);
  for (uint32_t first = begin; first < end; first += Tile::kDepth) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) shared.left[depth][lane + i * kStep] = left[i];
#pragma unroll
    for (int i = 0; i < kRight; ++i) shared.right[depth][lane + i * kStep] = right[i];
    __syncthreads();
    if (first + Tile::kDepth < end) fetch(first + Tile::kDepth);
    product.accumulate(shared);
    __syncthreads();
  }
  C* out = partial + (static_cast<int64_t>(split) * gridDim.y + group) * g.rows * g.columns;
#pragma unroll
  for (int i = 0; i < Tile::kPerRow; ++i)
#pragma unroll
    for (int j = 0; j < Tile::kPerColumn; ++j) {
      const uint32_t row = first_row + Product::row() + i, column = first_column + Product::column() + j;
      if (row < g.rows && column < g.columns) out[static_cast<int64_t>(row) * g.columns + column] = product.sums[i][j];
    }
}

}  // namespace

void implicit_gemm_generic_wgrad(const WeightCall& call, const Launch& launch) {
  visit_floating(call.problem.dtype, [&]<class T>() {
    visit_tiles<SmallTile, MiddleTile, LargeTile>(call.plan.tile, [&]<class Tile>() {
      launch(call.mask ? implicit_gemm_generic_wgrad_kernel<true, T, Tile>
                       : implicit_gemm_generic_wgrad_kernel<false, T, Tile>,
             dim3(call.tiles(call.product.columns), call.groups(), call.plan.split_k), Tile::kThreads, call.product,
             call.dy, call.mask, call.x, call.partial);
    });
  });
}

}  // namespace gradus::cuda_detail
