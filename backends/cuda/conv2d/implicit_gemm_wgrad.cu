// conv2d weight gradient, implicit GEMM, in any math mode (FMA, TF32, half).
// dw[k, (r,s,c)] = sum over (n,p,q) of dy[k, (n,p,q)] x[n, c, p, q shifted by (r,s)];  dbias[k] = sum of dy[k].
// Grid: x = tiles of K x tiles of C R S, y = groups, z = split-K.  Block: 160 or 192 threads, a warp makes 32 x 64
// results, a thread 64 of them; the depth is 16 or 32 pixels a step. Columns go tap by tap, channels innermost.
// Pipeline: the next step is loaded into registers while this one is multiplied (2 stages of shared memory), the
// coordinates of the one after are prepared meanwhile. Which taps of a pixel are inside the image is a bit mask, made
// once for each pixel of a block. The gradient of the bias is summed from the dy that a thread loads anyway.
// Deterministic: each split leaves its sums in the workspace, see wgrad.cu.
#include <gradus/backends/cuda/conv2d/wgrad.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::cuda_detail {
namespace {

/// A pixel of the depth: where dy and the window's corner in x begin, in bytes (of x beyond the largest step that
/// padding makes before its beginning), and which taps are inside.
struct PixelCoord {
  uint32_t dy, x, taps;
};
constexpr uint32_t kNowhere = ~uint32_t{0};  // dy of a pixel beyond the end
/// A column: the distance of its channel and tap from the corner in bytes, and the tap's bit; none beyond the last.
struct ColumnCoord {
  uint32_t x, bit;
};

/// Which elements of a tile of kSize rows a thread loads: number i of its kCount is at row(i), depth(i).
/// Neighbouring threads, neighbours in memory: a warp takes the depth of one row (two, four apart, of floats: they are
/// in different banks), or, where channels are innermost, 32 rows at one depth, and a thread whole vectors.
template <class T, class Tile, int kSize, bool kByChannel>
struct Share {
  static constexpr int kWarps = Tile::kThreads / 32, kDepth = kRowDepth<T>, kVec = kVec16Size<T>;
  static constexpr int kPasses = (kSize * kRowVecs + Tile::kThreads - 1) / Tile::kThreads;  // of vectors
  static constexpr int kLines = kDepth == 32 ? 1 : 8;  // rows of a warp in a round, which floats take four turns for
  static constexpr int kRounds = (kSize + kLines * kWarps - 1) / (kLines * kWarps);
  static constexpr int kCount = kByChannel ? kPasses * kVec : kRounds * (kDepth == 32 ? 1 : 4);

  static __device__ int row(int i) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if constexpr (kByChannel) return (threadIdx.x + i / kVec * Tile::kThreads) % kSize;
    else if constexpr (kDepth == 32) return i * kWarps + warp;
    else return i / 4 * (8 * kWarps) + warp * 8 + lane / 16 * 4 + i % 4;
  }
  static __device__ int depth(int i) {
    if constexpr (kByChannel) return (threadIdx.x + i / kVec * Tile::kThreads) / kSize * kVec + i % kVec;
    else return threadIdx.x % kDepth;
  }
  /// Not beyond the tile.
  static __device__ bool inside(int i) {
    if constexpr (kByChannel) return threadIdx.x + i / kVec * Tile::kThreads < kSize * kRowVecs;
    else return row(i) < kSize;
  }
  template <MathMode kMode>
  static __device__ void store(const T (&elements)[kCount], TileRow* tile) {
    if constexpr (kByChannel) {
#pragma unroll
      for (int i = 0; i < kCount; i += kVec) {
        T vec[kVec];
#pragma unroll
        for (int j = 0; j < kVec; ++j) vec[j] = elements[i + j];
        if (inside(i)) tile[row(i)][depth(i) / kVec] = make_vec16<kMode, T>(vec);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (inside(i)) reinterpret_cast<T*>(tile[row(i)])[depth(i)] = multiplicand<kMode>(elements[i]);
    }
  }
};

/// Dynamic shared memory of a block.
template <class T, class Tile>
struct WgradShared {
  typename Tile::Shared stages[2];      // left: dy (BM, BK), right: x (BN, BK)
  PixelCoord pixels[2][kRowDepth<T>];   // of a step and the next
  ColumnCoord columns[Tile::kColumns];  // (BN)
};

/// What a block computes, and its operands.
template <class T, class Tile>
struct WgradBlock {
  const WeightGradient& g;
  const uint32_t row_tiles = ceil_div(g.rows, Tile::kRows), group = blockIdx.y, split = blockIdx.z;
  const uint32_t first_row = blockIdx.x % row_tiles * Tile::kRows;
  const uint32_t first_column = blockIdx.x / row_tiles * Tile::kColumns;
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);
  const int64_t before = (g.padding[0] * g.x.h + g.padding[1] * g.x.w) * static_cast<int64_t>(sizeof(T));

  __device__ ColumnCoord column_at(uint32_t column, const Divisor& channels) const {
    if (column >= g.taps) return {0, 0};
    uint32_t c = column;
    const uint32_t tap = channels.split(c);
    uint32_t s = tap;
    const uint32_t r = g.kernel_width.split(s);
    return {static_cast<uint32_t>((c * g.x.c + r * g.dilation[0] * g.x.h + s * g.dilation[1] * g.x.w) * sizeof(T)),
            uint32_t{1} << tap};
  }
  __device__ PixelCoord pixel_at(uint32_t position) const {
    int64_t dy_offset;
    const Tap at = g.position_at(position, end, &dy_offset);
    if (at.h == kOutside) return {kNowhere, 0, 0};
    const int width = static_cast<int>(g.kernel_width.divisor);
    uint32_t inside = 0, taps = 0;  // of a row of taps; of all
    for (int s = 0, w = at.w; s < width; ++s, w += g.dilation[1])
      inside |= static_cast<uint32_t>(within(w, g.in_width)) << s;
    for (int r = 0, h = at.h; r < g.kernel_height; ++r, h += g.dilation[0])
      if (within(h, g.in_height)) taps |= inside << (r * width);
    return {static_cast<uint32_t>(dy_offset * sizeof(T)),
            static_cast<uint32_t>(at.offset * static_cast<int64_t>(sizeof(T)) + before), taps};
  }
};

/// A thread's share of a step, by way of registers.
template <MathMode kMode, class T, class Tile, bool kByChannel>
struct WgradLoader {
  using Left = Share<T, Tile, Tile::kRows, kByChannel>;
  using Right = Share<T, Tile, Tile::kColumns, kByChannel>;
  const char *gradients, *images;
  uint32_t row_step, rows;  // bytes from row to row of dy; rows that exist
  T left[Left::kCount], right[Right::kCount];
  float bias[Left::kCount];

  __device__ void load_tile(const PixelCoord* pixels, const ColumnCoord* columns) {
#pragma unroll
    for (int i = 0; i < Left::kCount; ++i) {
      const uint32_t row = Left::row(i), at = pixels[Left::depth(i)].dy;
      const bool counts = Left::inside(i) && row < rows && at != kNowhere;
      left[i] = counts ? load_global<T>(gradients + at + row * row_step) : T(0.0f);
    }
#pragma unroll
    for (int i = 0; i < Right::kCount; ++i) {
      const ColumnCoord column = columns[Right::row(i)];
      const PixelCoord pixel = pixels[Right::depth(i)];
      // The offset that neighbouring elements share, column or pixel, is added once.
      const char* const from = kByChannel ? whole(images + column.x) + pixel.x : whole(images + pixel.x) + column.x;
      right[i] = pixel.taps & column.bit ? load_global<T>(from) : T(0.0f);
    }
  }
  __device__ void store_tile(typename Tile::Shared& tile) {
    Left::template store<kMode>(left, tile.left);
    Right::template store<kMode>(right, tile.right);
#pragma unroll
    for (int i = 0; i < Left::kCount; ++i) bias[i] += static_cast<float>(left[i]);
  }
};

template <MathMode kMode, class T, class Tile, bool kByChannel>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    implicit_gemm_wgrad_kernel(WeightGradient g, Divisor channels, const T* __restrict__ dy, const T* __restrict__ x,
                               float* __restrict__ partial) {
  constexpr int kThreads = Tile::kThreads, kDepth = kRowDepth<T>;
  using Loader = WgradLoader<kMode, T, Tile, kByChannel>;
  extern __shared__ Vec16 memory[];
  auto& shared = *reinterpret_cast<WgradShared<T, Tile>*>(memory);
  const WgradBlock<T, Tile> block{g};
  for (int i = threadIdx.x; i < Tile::kColumns; i += kThreads)
    shared.columns[i] = block.column_at(block.first_column + i, channels);
  const auto prepare = [&](uint32_t first, int stage) {
    if (threadIdx.x < kDepth) shared.pixels[stage][threadIdx.x] = block.pixel_at(first + threadIdx.x);
  };

  const auto first_row = static_cast<int64_t>(block.group) * g.rows + block.first_row;
  Loader loader{.gradients = reinterpret_cast<const char*>(dy + first_row * g.dy.c),
                .images = reinterpret_cast<const char*>(x + static_cast<int64_t>(block.group) * g.channels * g.x.c) -
                          block.before,
                .row_step = static_cast<uint32_t>(g.dy.c * static_cast<int64_t>(sizeof(T))),
                .rows = g.rows - block.first_row};
  MmaTile<kMode, T> mma;
  prepare(block.begin, 0);
  prepare(block.begin + kDepth, 1);
  __syncthreads();
  loader.load_tile(shared.pixels[0], shared.columns);
  loader.store_tile(shared.stages[0]);
  __syncthreads();
  int stage = 0;
  for (uint32_t first = block.begin; first < block.end; first += kDepth, stage ^= 1) {
    const bool more = first + kDepth < block.end;
    if (more) loader.load_tile(shared.pixels[stage ^ 1], shared.columns);
    prepare(first + 2 * kDepth, stage);
    const typename Tile::Shared& tile = shared.stages[stage];
    mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
    if (more) loader.store_tile(shared.stages[stage ^ 1]);
    __syncthreads();
  }

  float* const out = g.partial_of(partial, block.split, block.group);
  mma.for_each([&](int row, int column, float sum) {
    g.store_partial(out, block.first_row + Tile::first_row() + row, block.first_column + Tile::first_column() + column,
                    sum);
  });
  if (block.first_column > 0 || g.columns == g.taps) return;
  auto* sums = reinterpret_cast<float(*)[kDepth + 1]>(memory);  // of the bias (BM, BK)
#pragma unroll
  for (int i = 0; i < Loader::Left::kCount; ++i)
    if (Loader::Left::inside(i)) sums[Loader::Left::row(i)][Loader::Left::depth(i)] = loader.bias[i];
  __syncthreads();
  for (int row = threadIdx.x; row < Tile::kRows && block.first_row + row < g.rows; row += kThreads) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kDepth; ++k) sum += sums[row][k];
    out[static_cast<int64_t>(block.first_row + row) * g.columns + g.taps] = sum;
  }
}

}  // namespace

void implicit_gemm_wgrad(const WeightCall& call, const Launch& launch) {
  const WeightGradient& g = call.product;
  visit_math_mode(call.problem.dtype, call.plan.math_mode, [&]<MathMode kMode, class T>() {
    visit_tiles<BlockTile<1, 5>, BlockTile<2, 3>>(call.plan.tile, [&]<class Tile>() {
      launch.with_shared(call.plan.vectorized ? implicit_gemm_wgrad_kernel<kMode, T, Tile, true>
                                              : implicit_gemm_wgrad_kernel<kMode, T, Tile, false>,
                         dim3(call.tiles(g.taps), call.groups(), call.plan.split_k), Tile::kThreads,
                         sizeof(WgradShared<T, Tile>), g, Divisor(g.channels), call.dy, call.x, call.partial);
    });
  });
}

}  // namespace gradus::cuda_detail
