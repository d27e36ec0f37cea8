// The weights' gradient for few rows. A warp takes four columns, a lane one position at a time: four input elements
// meet the dy of all rows, which the block has staged in shared memory. At the end the lanes' sums are added in a fixed
// tree.
#include <gradus/backends/cuda/conv2d_weight.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kWarps = 8, kColumns = 4;  // per warp
static_assert(kWarps * kColumns == kDirectColumns);

/// Adds values over the 32 lanes; lane l ends with the sums of values l N / 32 … in front. Each step exchanges half of
/// what is left with a partner.
template <int kStep, int kCount, int N, class C>
__device__ void transpose_add(C (&values)[N], int lane) {
  if constexpr (kStep > 0) {
    const bool upper = lane & kStep;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const C sent = upper ? values[i] : values[i + kCount], kept = upper ? values[i + kCount] : values[i];
      values[i] = kept + __shfl_xor_sync(0xffffffffu, sent, kStep);
    }
    transpose_add<kStep / 2, kCount / 2>(values, lane);
  }
}

// Grid: blocks of columns, groups, splits.
template <bool kMasked, class T, int kRows>
__global__ void __launch_bounds__(32 * kWarps)
    direct_kernel(WeightGradient g, const T* dy, const T* mask, const T* x, compute_t<T>* partial) {
  using C = compute_t<T>;
  __shared__ Tap positions[kDirectPositions];
  __shared__ C gradients[kRows][kDirectPositions];
  const uint32_t group = blockIdx.y, split = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  dy += static_cast<int64_t>(group) * g.rows * g.dy.c;
  if constexpr (kMasked) mask += static_cast<int64_t>(group) * g.rows * g.dy.c;
  x += static_cast<int64_t>(group) * g.channels * g.x.c;
  const uint32_t first_column = blockIdx.x * kDirectColumns + warp * kColumns;
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
            g.gradient_at<kMasked>(dy, mask, half * (kRows / 2) + row, position, dy_offset);
    }
    __syncthreads();
    if (first_column >= g.columns) continue;
#pragma unroll 2
    for (uint32_t slot = lane; slot < kDirectPositions; slot += 32) {
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
  transpose_add<16, kColumns * kRows / 2>(sums, lane);
  C* out = partial + (static_cast<int64_t>(split) * gridDim.y + group) * g.rows * g.columns;
#pragma unroll
  for (int i = 0; i < kColumns * kRows / 32; ++i) {
    const uint32_t index = lane * (kColumns * kRows / 32) + i, row = index / kColumns;
    const uint32_t column = first_column + index % kColumns;
    if (row < g.rows && column < g.columns) out[static_cast<int64_t>(row) * g.columns + column] = sums[i];
  }
}

}  // namespace

void direct_weight_gradient(const WeightCall& call, const Launch& launch) {
  const WeightGradient& g = call.product;
  visit_floating(call.dtype, [&]<class T>() {
    auto run = [&]<int kRows>() {
      const auto kernel = call.mask ? direct_kernel<true, T, kRows> : direct_kernel<false, T, kRows>;
      launch(kernel, dim3((g.columns + kDirectColumns - 1) / kDirectColumns, call.groups, call.splits), 32 * kWarps, g,
             static_cast<const T*>(call.dy), static_cast<const T*>(call.mask), static_cast<const T*>(call.x),
             static_cast<compute_t<T>*>(call.partial));
    };
    if (g.rows <= 8) run.template operator()<8>();
    else run.template operator()<16>();
  });
}

}  // namespace gradus::cuda_detail
