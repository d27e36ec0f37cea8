// conv2d forward and data gradient, implicit GEMM on the FMA units for all that the other kernels leave: float64, odd
// numbers of channels, any strides.
// out[k, (n,p,q)] = sum over c,r,s of w[k,c,r,s] in[n, c, p, q shifted by (r,s)], see conv2d.cuh.
// Grid: x = tiles of N P Q (BN = 128), y = tiles of rows (BM = 16, 32 or 64), z = groups.  Block: 256 threads; one
// makes 2, 4 or 8 rows x 4 pixels, in steps of 16 of the depth C R S.
// Pipeline: the next step is loaded element by element into registers while this one is multiplied.
// Deterministic: one thread makes a result.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/fma_tile.cuh>

namespace gradus::cuda_detail {
namespace {

template <bool kStrided, class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    implicit_gemm_generic_kernel(Gather gather, const T* input, const T* weight, const T* bias, bool relu, T* output) {
  using C = compute_t<T>;
  using Product = FmaTile<C, Tile>;
  constexpr int kThreads = Tile::kThreads;
  constexpr int kLeft = Tile::kRows * Tile::kDepth / kThreads, kRight = Tile::kColumns * Tile::kDepth / kThreads;
  constexpr int kRowStep = kThreads / Tile::kDepth, kDepthStep = kThreads / Tile::kColumns;
  __shared__ typename Product::Shared shared;
  __shared__ Tap taps[2][Tile::kDepth];  // of this tile and the next

  const uint32_t group = blockIdx.z, first_row = blockIdx.y * Tile::kRows, first_position = blockIdx.x * Tile::kColumns;
  weight += group * gather.weight_group;
  input += group * gather.in_channels * gather.in.c;

  // Neighbouring threads fetch neighbouring depths of a weight row, and neighbouring positions of the input.
  const int left_depth = threadIdx.x % Tile::kDepth, left_row = threadIdx.x / Tile::kDepth;
  const int right_column = threadIdx.x % Tile::kColumns, right_depth = threadIdx.x / Tile::kColumns;
  const Tap position = gather.position_at<kStrided>(first_position + right_column);
  C left[kLeft], right[kRight];
  auto prepare = [&](uint32_t depth, int buffer) {
    if (threadIdx.x < Tile::kDepth) taps[buffer][threadIdx.x] = gather.tap_at<kStrided>(depth + threadIdx.x);
  };
  auto fetch = [&](uint32_t depth, int buffer) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i)
      left[i] = gather.weight_at(weight, first_row + left_row + i * kRowStep, depth + left_depth);
#pragma unroll
    for (int i = 0; i < kRight; ++i)
      right[i] = gather.input_at<kStrided>(input, position, taps[buffer][right_depth + i * kDepthStep]);
  };
  Product product;
  prepare(0, 0);
  __syncthreads();
  if (gather.depth > 0) fetch(0, 0);
  int buffer = 0;
  for (uint32_t depth = 0; depth < gather.depth; depth += Tile::kDepth) {
    buffer ^= 1;
#pragma unroll
    for (int i = 0; i < kLeft; ++i) shared.left[left_depth][left_row + i * kRowStep] = left[i];
#pragma unroll
    for (int i = 0; i < kRight; ++i) shared.right[right_depth + i * kDepthStep][right_column] = right[i];
    prepare(depth + Tile::kDepth, buffer);
    __syncthreads();
    if (depth + Tile::kDepth < gather.depth) fetch(depth + Tile::kDepth, buffer);
    product.accumulate(shared);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < Tile::kPerRow; ++i)
#pragma unroll
    for (int j = 0; j < Tile::kPerColumn; ++j) {
      const uint32_t row = first_row + Product::row() + i, at = first_position + Product::column() + j;
      if (row < gather.rows && at < gather.positions)
        gather.store(output, bias, relu, group, row, at, product.sums[i][j]);
    }
}

}  // namespace

void implicit_gemm_generic(const GatherCall& call, const Launch& launch) {
  const Gather& gather = call.gather;
  const bool strided = gather.stride[0] > 1 || gather.stride[1] > 1;
  visit_floating(call.problem.dtype, [&]<class T>() {
    visit_tiles<SmallTile, MiddleTile, LargeTile>(call.plan.tile, [&]<class Tile>() {
      const dim3 grid(ceil_div(gather.positions, Tile::kColumns), ceil_div(gather.rows, Tile::kRows), call.groups());
      launch(strided ? implicit_gemm_generic_kernel<true, T, Tile> : implicit_gemm_generic_kernel<false, T, Tile>, grid,
             Tile::kThreads, gather, call.input, call.weight, call.bias, call.problem.relu, call.output);
    });
  });
}

}  // namespace gradus::cuda_detail
