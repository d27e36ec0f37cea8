// conv2d and its gradients, implicit GEMM on the FMA units for all that the other kernels leave: float64, odd numbers
// of channels, any strides; for the gradient of weights also ReLU's mask.
//   out[k, (n,p,q)] = sum over c,r,s of w[k,c,r,s] in[n, c, p, q shifted by (r,s)], see conv2d.cuh
//   dw[k, (c,r,s)]  = sum over n,p,q of dy[k, (n,p,q)] x[n, c, p, q shifted by (r,s)], see conv2d.cuh
// Tiles of rows K (BM = 16, 32 or 64) x of columns, N P Q or C R S (BN = 128).
// Grid: gather: x = tiles of columns, y = of rows, z = groups; dw: x = tiles of columns x of rows, y = groups, z =
// split-K.  Block: 256 threads; one makes 2, 4 or 8 rows x 4 columns, in steps of 16 of the depth, C R S or N P Q.
// Pipeline: the next step is loaded element by element into registers while this one is multiplied.
// Deterministic: one thread makes a result, or a split's part of it, see split_k.cu.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/fma_tile.cuh>

namespace gradus::cuda_detail {
namespace {

/// Which elements of a step a thread fetches: of the left operand neighbouring threads neighbouring depths of a row, of
/// the right one too (kAlongDepth), or neighbouring columns.
template <class Tile, bool kAlongDepth>
struct Share {
  static constexpr int kThreads = Tile::kThreads, kDepth = Tile::kDepth, kColumns = Tile::kColumns;
  static constexpr int kLeft = Tile::kRows * kDepth / kThreads, kRight = kColumns * kDepth / kThreads;

  static __device__ int left_depth() { return threadIdx.x % kDepth; }
  static __device__ int left_row(int i) { return threadIdx.x / kDepth + i * (kThreads / kDepth); }
  static __device__ int right_depth(int i) {
    return kAlongDepth ? threadIdx.x % kDepth : threadIdx.x / kColumns + i * (kThreads / kColumns);
  }
  static __device__ int right_column(int i) {
    return kAlongDepth ? threadIdx.x / kDepth + i * (kThreads / kDepth) : threadIdx.x % kColumns;
  }
};

/// store(row, column, sum) of a thread's results in the block's tile, sums over [begin, end) of the depth:
/// prepare(depth) is called before the barrier that precedes fetch(depth, left, right), which loads a step.
template <class Tile, bool kAlongDepth, class C, class Prepare, class Fetch, class Store>
__device__ void multiply(uint32_t begin, uint32_t end, const Prepare& prepare, const Fetch& fetch, const Store& store) {
  using Product = FmaTile<C, Tile>;
  using Mine = Share<Tile, kAlongDepth>;
  __shared__ typename Product::Shared shared;
  C left[Mine::kLeft], right[Mine::kRight];
  Product product;
  prepare(begin);
  __syncthreads();
  if (begin < end) fetch(begin, left, right);
  for (uint32_t depth = begin; depth < end; depth += Tile::kDepth) {
#pragma unroll
    for (int i = 0; i < Mine::kLeft; ++i) shared.left[Mine::left_depth()][Mine::left_row(i)] = left[i];
#pragma unroll
    for (int i = 0; i < Mine::kRight; ++i) shared.right[Mine::right_depth(i)][Mine::right_column(i)] = right[i];
    prepare(depth + Tile::kDepth);
    __syncthreads();
    if (depth + Tile::kDepth < end) fetch(depth + Tile::kDepth, left, right);
    product.accumulate(shared);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < Tile::kPerRow; ++i)
#pragma unroll
    for (int j = 0; j < Tile::kPerColumn; ++j) store(Product::row() + i, Product::column() + j, product.sums[i][j]);
}

template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    implicit_gemm_generic_kernel(Gather gather, const T* input, const T* weight, const T* bias, bool relu, T* output) {
  using C = compute_t<T>;
  using Mine = Share<Tile, false>;
  __shared__ Tap taps[2][Tile::kDepth];  // of this step and the next
  const uint32_t group = blockIdx.z, first_row = blockIdx.y * Tile::kRows, first_position = blockIdx.x * Tile::kColumns;
  weight += group * gather.weight_group;
  input += group * gather.in_channels * gather.in.c;
  const Tap position = gather.position_at(first_position + Mine::right_column(0));
  const auto taps_of = [&](uint32_t depth) { return taps[depth / Tile::kDepth % 2]; };
  multiply<Tile, false, C>(
      0, gather.depth,
      [&](uint32_t depth) {
        if (threadIdx.x < Tile::kDepth) taps_of(depth)[threadIdx.x] = gather.tap_at(depth + threadIdx.x);
      },
      [&](uint32_t depth, C(&left)[Mine::kLeft], C(&right)[Mine::kRight]) {
#pragma unroll
        for (int i = 0; i < Mine::kLeft; ++i)
          left[i] = gather.weight_at(weight, first_row + Mine::left_row(i), depth + Mine::left_depth());
#pragma unroll
        for (int i = 0; i < Mine::kRight; ++i)
          right[i] = gather.input_at(input, position, taps_of(depth)[Mine::right_depth(i)]);
      },
      [&](uint32_t row, uint32_t column, C sum) {
        row += first_row, column += first_position;
        if (row < gather.rows && column < gather.positions) gather.store(output, bias, relu, group, row, column, sum);
      });
}

template <bool kMasked, class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    implicit_gemm_generic_wgrad_kernel(Gather g, const T* dy, const T* mask, const T* x, compute_t<T>* partial) {
  using C = compute_t<T>;
  using Mine = Share<Tile, true>;
  __shared__ Tap columns[Tile::kColumns];
  const uint32_t group = blockIdx.y, split = blockIdx.z, row_tiles = ceil_div(g.rows, Tile::kRows);
  const uint32_t first_row = blockIdx.x % row_tiles * Tile::kRows;
  const uint32_t first_column = blockIdx.x / row_tiles * Tile::kColumns;
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);
  dy += static_cast<int64_t>(group) * g.rows * g.out.c;
  if constexpr (kMasked) mask += static_cast<int64_t>(group) * g.rows * g.out.c;
  x += static_cast<int64_t>(group) * g.in_channels * g.in.c;
  for (int i = threadIdx.x; i < Tile::kColumns; i += Tile::kThreads) columns[i] = g.column_at(first_column + i);
  C* const out = g.partial_of(partial, split, group);
  multiply<Tile, true, C>(
      begin, end, [](uint32_t) {},
      [&](uint32_t depth, C(&left)[Mine::kLeft], C(&right)[Mine::kRight]) {
        int64_t dy_offset;
        const Tap position = g.position_at(depth + Mine::left_depth(), end, &dy_offset);
#pragma unroll
        for (int i = 0; i < Mine::kLeft; ++i)
          left[i] = g.gradient_at<kMasked>(dy, mask, first_row + Mine::left_row(i), position, dy_offset);
#pragma unroll
        for (int i = 0; i < Mine::kRight; ++i) right[i] = g.column_element(x, position, columns[Mine::right_column(i)]);
      },
      [&](uint32_t row, uint32_t column, C sum) {
        row += first_row, column += first_column;
        if (row < g.rows && column < g.columns) out[static_cast<int64_t>(row) * g.columns + column] = sum;
      });
}

template <class F>
void visit_generic(const ConvCall& call, F&& f) {
  visit_floating(call.problem.dtype, [&]<class T>() {
    visit_tiles<SmallTile, MiddleTile, LargeTile>(call.plan.tile,
                                                  [&]<class Tile>() { f.template operator()<T, Tile>(); });
  });
}

}  // namespace

void implicit_gemm_generic(const ConvCall& call, const Launch& launch) {
  const Gather& gather = call.gather;
  visit_generic(call, [&]<class T, class Tile>() {
    launch(implicit_gemm_generic_kernel<T, Tile>,
           dim3(ceil_div(gather.positions, Tile::kColumns), ceil_div(gather.rows, Tile::kRows), call.groups()),
           Tile::kThreads, gather, call.in, call.weight, call.bias, call.problem.relu, call.out);
  });
}

void implicit_gemm_generic_wgrad(const ConvCall& call, const Launch& launch) {
  visit_generic(call, [&]<class T, class Tile>() {
    launch(call.mask ? implicit_gemm_generic_wgrad_kernel<true, T, Tile>
                     : implicit_gemm_generic_wgrad_kernel<false, T, Tile>,
           dim3(call.tiles(call.gather.columns), call.groups(), call.phase.split_k), Tile::kThreads, call.gather,
           call.out, call.mask, call.in, call.partial());
  });
}

}  // namespace gradus::cuda_detail
