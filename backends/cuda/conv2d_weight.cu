// Gradients of the weights and the bias:
//   dw[k, (c,r,s)] = sum over (n,p,q) of dy[n,k,p,q] x[n, c, p stride - padding + r dilation, q …]
//   dbias[k]       = sum over (n,p,q) of dy[n,k,p,q]
// One product of matrices that are never built; the bias is one more column, of ones. The long sum over positions is
// cut into splits: each block writes its part, a second launch adds the parts in order. dy counts only where mask > 0.
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/conv2d.cuh>
#include <gradus/backends/cuda/tile_product.cuh>

namespace gradus::cuda_detail {
namespace {

struct WeightGradient {
  uint32_t rows, taps, columns;   // per group: K, C * R * S, and with the bias's column
  uint32_t positions, per_split;  // N * P * Q
  uint32_t row_tiles, channels;   // per group: C
  int in_height, in_width;
  int stride[2], padding[2], dilation[2];
  Divisor out_height, out_width;  // position -> (n, p, q)
  Divisor kernel, kernel_width;   // column -> (c, r, s)
  Strides4 dy, x;
};

// The column of ones, for the bias, has this h; columns beyond the last are kOutside.
constexpr int kOnes = INT32_MIN;

// Grid: tiles of columns x tiles of rows, groups, splits. partial (splits, groups, rows, columns).
template <bool kMasked, class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    weight_kernel(WeightGradient g, const T* dy, const T* mask, const T* x, compute_t<T>* partial) {
  using C = compute_t<T>;
  using Product = TileProduct<C, Tile>;
  constexpr int kThreads = Tile::kThreads, kStep = kThreads / Tile::kDepth;
  constexpr int kLeft = Tile::kRows / kStep, kRight = Tile::kColumns / kStep;
  __shared__ typename Product::Shared shared;
  __shared__ Tap taps[Tile::kColumns];

  const uint32_t group = blockIdx.y, split = blockIdx.z;
  const uint32_t first_row = blockIdx.x % g.row_tiles * Tile::kRows,
                 first_column = blockIdx.x / g.row_tiles * Tile::kColumns;
  dy += static_cast<int64_t>(group) * g.rows * g.dy.c;
  if constexpr (kMasked) mask += static_cast<int64_t>(group) * g.rows * g.dy.c;
  x += static_cast<int64_t>(group) * g.channels * g.x.c;
  for (int i = threadIdx.x; i < Tile::kColumns; i += kThreads) {
    uint32_t s = first_column + i;
    Tap tap{0, s < g.columns ? kOnes : kOutside, 0};
    if (s < g.taps) {
      const uint32_t c = g.kernel.split(s), r = g.kernel_width.split(s);
      tap.h = static_cast<int>(r) * g.dilation[0], tap.w = static_cast<int>(s) * g.dilation[1];
      tap.offset = c * g.x.c + tap.h * g.x.h + tap.w * g.x.w;
    }
    taps[i] = tap;
  }
  __syncthreads();

  // A thread fetches for one position of the tile: neighbouring threads, neighbouring positions. Without branches, so
  // that its loads are all under way at once: what is outside reads element 0 instead.
  const int depth = threadIdx.x % Tile::kDepth, lane = threadIdx.x / Tile::kDepth;
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);
  C left[kLeft], right[kRight];
  auto fetch = [&](uint32_t position) {
    const bool valid = position < end;
    uint32_t q = valid ? position : 0;
    uint32_t p = g.out_width.split(q);
    const uint32_t n = g.out_height.split(p);
    const int64_t dy_base = n * g.dy.n + p * g.dy.h + q * g.dy.w;
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const uint32_t row = first_row + lane + i * kStep;
      bool counts = valid && row < g.rows;
      const int64_t at = counts ? dy_base + row * g.dy.c : 0;
      const C value = static_cast<C>(dy[at]);
      if constexpr (kMasked) counts = counts && static_cast<C>(mask[at]) > C(0);
      left[i] = counts ? value : C(0);
    }
    const int h0 = static_cast<int>(p) * g.stride[0] - g.padding[0],
              w0 = static_cast<int>(q) * g.stride[1] - g.padding[1];
    const int64_t x_base = n * g.x.n + h0 * g.x.h + w0 * g.x.w;
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      const Tap tap = taps[lane + i * kStep];
      const int h = h0 + tap.h, w = w0 + tap.w;
      const bool inside = tap.h >= 0 && valid && h >= 0 && h < g.in_height && w >= 0 && w < g.in_width;
      const C value = static_cast<C>(x[inside ? x_base + tap.offset : 0]);
      right[i] = inside ? value : C(tap.h == kOnes && valid ? 1 : 0);
    }
  };
  Product product;
  if (begin < end) fetch(begin + depth);
  for (uint32_t position = begin; position < end; position += Tile::kDepth) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) shared.left[depth][lane + i * kStep] = left[i];
#pragma unroll
    for (int i = 0; i < kRight; ++i) shared.right[depth][lane + i * kStep] = right[i];
    __syncthreads();
    if (position + Tile::kDepth < end) fetch(position + Tile::kDepth + depth);
    product.accumulate(shared);
    __syncthreads();
  }

  C* out = partial + (static_cast<int64_t>(split) * gridDim.y + group) * g.rows * g.columns;
#pragma unroll
  for (int i = 0; i < Tile::kPerRow; ++i) {
    const uint32_t row = first_row + Product::row() + i;
    if (row >= g.rows) break;
#pragma unroll
    for (int j = 0; j < Tile::kPerColumn; ++j) {
      const uint32_t column = first_column + Product::column() + j;
      if (column < g.columns) out[static_cast<int64_t>(row) * g.columns + column] = product.sums[i][j];
    }
  }
}

// The threads of a block are kSumOutputs results times the lanes that share one result's splits.
constexpr uint32_t kSumOutputs = 8, kSumLanes = kThreads / kSumOutputs;

// dw (K, C / groups, R, S) and dbias (K) from the parts, a result (group, row, column) per row of threads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_splits_kernel(const compute_t<T>* partial, uint32_t splits, uint32_t results, Divisor columns, Divisor kernel,
                      Divisor kernel_width, uint32_t taps, T* dw, Strides4 dw_strides, T* dbias, int64_t dbias_step) {
  using C = compute_t<T>;
  __shared__ C shared[kSumLanes][kSumOutputs];
  const uint32_t slot = threadIdx.x % kSumOutputs, lane = threadIdx.x / kSumOutputs;
  const uint32_t result = blockIdx.x * kSumOutputs + slot;
  C sum = 0;
  if (result < results) {
#pragma unroll 8
    for (uint32_t split = lane; split < splits; split += kSumLanes)
      sum += partial[static_cast<int64_t>(split) * results + result];
  }
  shared[lane][slot] = sum;
  for (uint32_t width = kSumLanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (lane < width) shared[lane][slot] += shared[lane + width][slot];
  }
  if (lane != 0 || result >= results) return;
  uint32_t s = result;
  const uint32_t k = columns.split(s);
  sum = shared[0][slot];
  if (s == taps) {
    dbias[k * dbias_step] = static_cast<T>(sum);
  } else {
    const uint32_t c = kernel.split(s), r = kernel_width.split(s);
    dw[k * dw_strides.n + c * dw_strides.c + r * dw_strides.h + s * dw_strides.w] = static_cast<T>(sum);
  }
}

}  // namespace

void conv2d_weight_gradient(const View& dy, const void* mask, const View& x, const MutableView& dw,
                            const MutableView* dbias, const Conv2dGeometry& geometry) {
  const int64_t groups = geometry.groups, rows = dw.shape[0] / groups;
  const int64_t taps = dw.shape[1] * dw.shape[2] * dw.shape[3], columns = taps + (dbias ? 1 : 0);
  const int64_t positions = dy.shape[0] * dy.shape[2] * dy.shape[3], results = groups * rows * columns;
  if (results == 0) return;
  check_countable(dy.numel(), "dy");
  check_countable(x.numel(), "x");
  check_countable(results, "dw");
  const Divisor kernel(dw.shape[2] * dw.shape[3]), kernel_width(dw.shape[3]);
  WeightGradient g{.rows = static_cast<uint32_t>(rows),
                   .taps = static_cast<uint32_t>(taps),
                   .columns = static_cast<uint32_t>(columns),
                   .positions = static_cast<uint32_t>(positions),
                   .channels = static_cast<uint32_t>(dw.shape[1]),
                   .in_height = static_cast<int>(x.shape[2]),
                   .in_width = static_cast<int>(x.shape[3]),
                   .out_height = Divisor(dy.shape[2]),
                   .out_width = Divisor(dy.shape[3]),
                   .kernel = kernel,
                   .kernel_width = kernel_width,
                   .dy = Strides4(dy.strides),
                   .x = Strides4(x.strides)};
  for (int i = 0; i < 2; ++i) {
    g.stride[i] = static_cast<int>(geometry.stride[i]), g.padding[i] = static_cast<int>(geometry.padding[i]);
    g.dilation[i] = static_cast<int>(geometry.dilation[i]);
  }
  const void* image = x.numel() > 0 ? x.data : dy.data;  // an empty image is never inside, but something is read
  const Launch launch(dy.device);
  visit_floating(dy.dtype, [&]<class T>() {
    visit_tile(rows, [&]<class Tile>() {
      g.row_tiles = static_cast<uint32_t>((rows + Tile::kRows - 1) / Tile::kRows);
      const int64_t tiles = g.row_tiles * ((columns + Tile::kColumns - 1) / Tile::kColumns);
      // Enough splits to fill the device, each with a few tiles of depth.
      const int64_t wanted = 2 * launch.multiprocessors() / std::max<int64_t>(tiles * groups, 1);
      const int64_t at_most = positions / (4 * Tile::kDepth);
      const int64_t splits = std::clamp<int64_t>(std::min(wanted, at_most), 1, 1024);
      g.per_split = static_cast<uint32_t>((positions + splits - 1) / splits);
      const Scratch partial(sizeof(compute_t<T>) * static_cast<size_t>(splits * results), dy.device);
      const auto weight = mask ? weight_kernel<true, T, Tile> : weight_kernel<false, T, Tile>;
      launch(weight, dim3(tiles, static_cast<uint32_t>(groups), static_cast<uint32_t>(splits)), Tile::kThreads, g,
             dy.as<T>(), static_cast<const T*>(mask), static_cast<const T*>(image), partial.as<compute_t<T>>());
      launch(sum_splits_kernel<T>, static_cast<uint32_t>((results + kSumOutputs - 1) / kSumOutputs), kThreads,
             static_cast<const compute_t<T>*>(partial.as<compute_t<T>>()), static_cast<uint32_t>(splits),
             static_cast<uint32_t>(results), Divisor(columns), kernel, kernel_width, static_cast<uint32_t>(taps),
             dw.as<T>(), Strides4(dw.strides), dbias ? dbias->as<T>() : static_cast<T*>(nullptr),
             dbias ? dbias->strides[0] : 0);
    });
  });
}

}  // namespace gradus::cuda_detail
