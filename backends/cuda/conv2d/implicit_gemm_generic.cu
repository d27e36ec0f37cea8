// conv2d fprop, dgrad and wgrad, implicit GEMM on the FMA units, for problems that no other kernel can compute:
// float64, odd numbers of channels, any sizes.
//   out[k, (n,p,q)] = sum over c,r,s of w[k,c,r,s] in[n, c, p, q shifted by (r,s)]  (fprop and dgrad, conv2d.cuh)
//   dw[k, (c,r,s)]  = sum over n,p,q of dy[k, (n,p,q)] x[n, c, p, q shifted by (r,s)]
// Layout: any strides.  Tile: rows K, for dgrad C (BM = 16, 32 or 64) x columns N P Q, for wgrad C R S (BN = 128).
// Grid: fprop, dgrad: x = tiles of columns, y = tiles of rows, z = groups; wgrad: x = tiles of columns x tiles of rows,
// y = groups, z = split-K.  Block: 256 threads; a thread computes (2, 4 or 8) rows x 4 columns, in steps of 16 of the
// depth C R S, for wgrad N P Q.
// Pipeline: the next step is loaded element by element into registers while the current step is multiplied.
// Deterministic: one thread computes a result or, for wgrad, a split's part of it, which conv2d.cu adds in order.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>

namespace gradus::cuda_detail {
namespace {

/// The tile of a block. The rows of its operands in shared memory are padded so that a warp that stores a column has
/// few bank conflicts and loads stay aligned to four elements.
template <int kRows_>
struct GenericTile {
  static constexpr int kRows = kRows_, kColumns = 128, kDepth = 16, kPad = 4;
  static constexpr int kPerRow = kRows / 8, kPerColumn = 4;  // results of a thread
};

/// Calls store(row, column, sum) for each result of a thread in the block's tile, summed over [begin, end) of the
/// depth. The operands are left(depth, row) and right(depth, column). Neighbouring threads load neighbouring depths or,
/// of `right` if kAlongColumns is true, neighbouring columns. prepare(depth) is called before the barrier that precedes
/// the loads of a step.
template <class Tile, bool kAlongColumns, class C, class Prepare, class Left, class Right, class Store>
__device__ void multiply(uint32_t begin, uint32_t end, const Prepare& prepare, const Left& left, const Right& right,
                         const Store& store) {
  constexpr int kDepth = Tile::kDepth, kPerRow = Tile::kPerRow, kPerColumn = Tile::kPerColumn;
  constexpr int kLeft = Tile::kRows * kDepth / kThreads, kRight = Tile::kColumns * kDepth / kThreads;
  constexpr int kAcross = kAlongColumns ? Tile::kColumns : kDepth;  // neighbours that a round of loads of `right` reads
  constexpr int kStep = kThreads / kAcross;                         // rows of such neighbours in a round
  __shared__ alignas(16) C lefts[kDepth][Tile::kRows + Tile::kPad], rights[kDepth][Tile::kColumns + Tile::kPad];
  const int across = threadIdx.x % kAcross, along = threadIdx.x / kAcross;
  const int left_depth = threadIdx.x % kDepth;
  const auto left_row = [&](int i) { return threadIdx.x / kDepth + i * (kThreads / kDepth); };
  const auto right_depth = [&](int i) { return kAlongColumns ? along + i * kStep : across; };
  const auto right_column = [&](int i) { return kAlongColumns ? across : along + i * kStep; };
  C next_left[kLeft], next_right[kRight], sums[kPerRow][kPerColumn] = {};
  const auto load = [&](uint32_t depth) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) next_left[i] = left(depth + left_depth, left_row(i));
#pragma unroll
    for (int i = 0; i < kRight; ++i) next_right[i] = right(depth + right_depth(i), right_column(i));
  };
  prepare(begin);
  __syncthreads();
  if (begin < end) load(begin);
  const int row = threadIdx.x / 32 * kPerRow, column = threadIdx.x % 32 * kPerColumn;
  for (uint32_t depth = begin; depth < end; depth += kDepth) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) lefts[left_depth][left_row(i)] = next_left[i];
#pragma unroll
    for (int i = 0; i < kRight; ++i) rights[right_depth(i)][right_column(i)] = next_right[i];
    prepare(depth + kDepth);
    __syncthreads();
    if (depth + kDepth < end) load(depth + kDepth);
#pragma unroll
    for (int k = 0; k < kDepth; ++k)
#pragma unroll
      for (int i = 0; i < kPerRow; ++i)
#pragma unroll
        for (int j = 0; j < kPerColumn; ++j) sums[i][j] += lefts[k][row + i] * rights[k][column + j];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPerRow; ++i)
#pragma unroll
    for (int j = 0; j < kPerColumn; ++j) store(row + i, column + j, sums[i][j]);
}

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads)
    implicit_gemm_generic_kernel(ImplicitGemm gemm, const T* input, const T* weight, const T* bias, bool relu,
                                 T* output) {
  using C = compute_t<T>;
  constexpr uint32_t kDepth = Tile::kDepth;
  __shared__ Tap taps[2 * kDepth];  // of the current step and the next
  const uint32_t group = blockIdx.z, first_row = blockIdx.y * Tile::kRows, first_position = blockIdx.x * Tile::kColumns;
  weight += group * gemm.weight_group;
  input += group * gemm.in_channels * gemm.in.c;
  const Tap position = gemm.position_at(first_position + threadIdx.x % Tile::kColumns, gemm.positions);
  multiply<Tile, true, C>(
      0, gemm.depth,
      [&](uint32_t depth) {
        if (threadIdx.x < kDepth) taps[depth % (2 * kDepth) + threadIdx.x] = gemm.tap_at(depth + threadIdx.x);
      },
      [&](uint32_t depth, int row) { return gemm.weight_at(weight, first_row + row, depth); },
      [&](uint32_t depth, int) { return gemm.input_at(input, position, taps[depth % (2 * kDepth)]); },
      [&](uint32_t row, uint32_t column, C sum) {
        row += first_row, column += first_position;
        if (row < gemm.rows && column < gemm.positions) gemm.store(output, bias, relu, group, row, column, sum);
      });
}

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads)
    implicit_gemm_generic_wgrad_kernel(ImplicitGemm g, const T* dy, const T* x, compute_t<T>* partial) {
  using C = compute_t<T>;
  __shared__ Tap columns[Tile::kColumns];
  const uint32_t group = blockIdx.y, split = blockIdx.z, row_tiles = ceil_div(g.rows, Tile::kRows);
  const uint32_t first_row = blockIdx.x % row_tiles * Tile::kRows;
  const uint32_t first_column = blockIdx.x / row_tiles * Tile::kColumns;
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);
  dy += static_cast<int64_t>(group) * g.rows * g.out.c;
  x += static_cast<int64_t>(group) * g.in_channels * g.in.c;
  for (int i = threadIdx.x; i < Tile::kColumns; i += kThreads) columns[i] = g.column_at(first_column + i);
  C* const out = g.partial_of(partial, split, group);
  multiply<Tile, false, C>(
      begin, end, [](uint32_t) {},
      [&](uint32_t position, int row) { return g.gradient_at(dy, first_row + row, position, end); },
      [&](uint32_t position, int column) { return g.column_element(x, g.position_at(position, end), columns[column]); },
      [&](uint32_t row, uint32_t column, C sum) {
        row += first_row, column += first_column;
        if (row < g.rows && column < g.columns) out[static_cast<int64_t>(row) * g.columns + column] = sum;
      });
}

template <class F>
void visit_generic(const ConvCall& call, F&& f) {
  visit_floating(call.problem.dtype, [&]<class T>() {
    visit_tiles<GenericTile<16>, GenericTile<32>, GenericTile<64>>(
        call.plan.tile, [&]<class Tile>() { f.template operator()<T, Tile>(); });
  });
}

void implicit_gemm_generic(const ConvCall& call, const Launch& launch) {
  const ImplicitGemm& gemm = call.gemm;
  visit_generic(call, [&]<class T, class Tile>() {
    launch(implicit_gemm_generic_kernel<T, Tile>,
           dim3(ceil_div(gemm.positions, Tile::kColumns), ceil_div(gemm.rows, Tile::kRows), call.groups()), kThreads,
           gemm, call.in, call.weight, call.bias, call.problem.relu, call.out);
  });
}

void implicit_gemm_generic_wgrad(const ConvCall& call, const Launch& launch) {
  visit_generic(call, [&]<class T, class Tile>() {
    launch(implicit_gemm_generic_wgrad_kernel<T, Tile>,
           dim3(call.tiles(call.gemm.columns), call.groups(), call.phase.split_k), kThreads, call.gemm, call.out,
           call.in, call.partial());
  });
  add_parts(call, launch, false);
}

}  // namespace

bool launch_implicit_gemm_generic(const ConvOperands& call) {
  return launch_phases(call.problem.is_wgrad() ? implicit_gemm_generic_wgrad : implicit_gemm_generic, call);
}

}  // namespace gradus::cuda_detail
