// The weights' gradient as a product of matrices that are never built, dy (rows, positions) times gathered input
// (columns, positions), with positions as the contiguous depth of mma_tile.cuh. Which taps of a position lie in the
// image is a bit mask, made once per position and block. Columns go tap by tap, channels innermost. The bias's gradient
// is summed beside from the dy that a thread fetches anyway.
#include <gradus/backends/cuda/conv2d/conv2d_weight.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::cuda_detail {
namespace {

/// A position of the depth: where dy and the corner in x lie in bytes (of x beyond the largest step that padding makes
/// before its beginning), and which taps are inside.
struct Place {
  uint32_t dy, x, taps;
};
constexpr uint32_t kNowhere = ~uint32_t{0};  // dy of a position beyond the end
/// A column: the distance of its channel and tap from the corner in bytes, and the tap's bit; none beyond the last
/// column.
struct Column {
  uint32_t x, bit;
};

/// Which elements of a tile of kSize rows a thread fetches: number i of its kCount lies at row(i), depth(i).
/// Neighbouring threads, neighbours in memory: a warp takes the depth of one row (two, four apart, of floats: they lie
/// in different banks), or, where channels lie side by side, 32 rows at one depth, and a thread whole pieces.
template <class T, class Tile, int kSize, bool kByChannel>
struct Share {
  static constexpr int kWarps = Tile::kThreads / 32, kDepth = kRowDepth<T>, kPiece = kVec16Size<T>;
  static constexpr int kPasses = (kSize * kRowVecs + Tile::kThreads - 1) / Tile::kThreads;  // of pieces
  static constexpr int kLines = kDepth == 32 ? 1 : 8;  // rows of a warp in a round, which floats take four turns for
  static constexpr int kRounds = (kSize + kLines * kWarps - 1) / (kLines * kWarps);
  static constexpr int kCount = kByChannel ? kPasses * kPiece : kRounds * (kDepth == 32 ? 1 : 4);

  static __device__ int row(int i) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if constexpr (kByChannel) return (threadIdx.x + i / kPiece * Tile::kThreads) % kSize;
    else if constexpr (kDepth == 32) return i * kWarps + warp;
    else return i / 4 * (8 * kWarps) + warp * 8 + lane / 16 * 4 + i % 4;
  }
  static __device__ int depth(int i) {
    if constexpr (kByChannel) return (threadIdx.x + i / kPiece * Tile::kThreads) / kSize * kPiece + i % kPiece;
    else return threadIdx.x % kDepth;
  }
  /// Not beyond the tile.
  static __device__ bool inside(int i) {
    if constexpr (kByChannel) return threadIdx.x + i / kPiece * Tile::kThreads < kSize * kRowVecs;
    else return row(i) < kSize;
  }
  template <MathMode kMode>
  static __device__ void put(const T (&elements)[kCount], TileRow* tile) {
    if constexpr (kByChannel) {
#pragma unroll
      for (int i = 0; i < kCount; i += kPiece) {
        T piece[kPiece];
#pragma unroll
        for (int j = 0; j < kPiece; ++j) piece[j] = elements[i + j];
        if (inside(i)) tile[row(i)][depth(i) / kPiece] = make_vec16<kMode, T>(piece);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (inside(i)) reinterpret_cast<T*>(tile[row(i)])[depth(i)] = multiplicand<kMode>(elements[i]);
    }
  }
};

// Grid: tiles of columns x tiles of rows, groups, splits. The next step is fetched into registers while this one is
// multiplied; the places of the one after are prepared meanwhile.
template <MathMode kMode, class T, class Tile, bool kByChannel>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    implicit_kernel(WeightGradient g, Divisor channels, const T* __restrict__ dy, const T* __restrict__ x,
                    float* __restrict__ partial) {
  constexpr int kThreads = Tile::kThreads, kDepth = kRowDepth<T>;
  using Left = Share<T, Tile, Tile::kRows, kByChannel>;
  using Right = Share<T, Tile, Tile::kColumns, kByChannel>;
  extern __shared__ Vec16 memory[];
  auto* tiles = reinterpret_cast<typename Tile::Shared*>(memory);  // two of them
  auto* places = reinterpret_cast<Place*>(tiles + 2);              // of this step and the next
  auto* columns = reinterpret_cast<Column*>(places + 2 * kDepth);

  const uint32_t group = blockIdx.y, split = blockIdx.z, row_tiles = (g.rows + Tile::kRows - 1) / Tile::kRows;
  const uint32_t first_row = blockIdx.x % row_tiles * Tile::kRows;
  const uint32_t first_column = blockIdx.x / row_tiles * Tile::kColumns;
  const int64_t before = (g.padding[0] * g.x.h + g.padding[1] * g.x.w) * static_cast<int64_t>(sizeof(T));
  const char* const images =
      reinterpret_cast<const char*>(x + static_cast<int64_t>(group) * g.channels * g.x.c) - before;
  const char* const gradients =
      reinterpret_cast<const char*>(dy + (static_cast<int64_t>(group) * g.rows + first_row) * g.dy.c);
  const auto row_step = static_cast<uint32_t>(g.dy.c * static_cast<int64_t>(sizeof(T)));
  for (int i = threadIdx.x; i < Tile::kColumns; i += kThreads) {
    uint32_t c = first_column + i;
    Column column{0, 0};
    if (c < g.taps) {
      const uint32_t tap = channels.split(c);
      uint32_t s = tap;
      const uint32_t r = g.kernel_width.split(s);
      column.x = static_cast<uint32_t>((c * g.x.c + r * g.dilation[0] * g.x.h + s * g.dilation[1] * g.x.w) * sizeof(T));
      column.bit = uint32_t{1} << tap;
    }
    columns[i] = column;
  }
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);
  auto prepare = [&](uint32_t first, Place* to) {
    if (threadIdx.x >= kDepth) return;
    int64_t dy_offset;
    const Tap at = g.position_at(first + threadIdx.x, end, &dy_offset);
    Place place{kNowhere, 0, 0};
    if (at.h != kOutside) {
      place.dy = static_cast<uint32_t>(dy_offset * sizeof(T));
      place.x = static_cast<uint32_t>(at.offset * static_cast<int64_t>(sizeof(T)) + before);
      const int width = static_cast<int>(g.kernel_width.divisor);
      uint32_t inside = 0;  // of a row of taps
      for (int s = 0, w = at.w; s < width; ++s, w += g.dilation[1])
        inside |= static_cast<uint32_t>(within(w, g.in_width)) << s;
      for (int r = 0, h = at.h; r < g.kernel_height; ++r, h += g.dilation[0])
        if (within(h, g.in_height)) place.taps |= inside << (r * width);
    }
    to[threadIdx.x] = place;
  };

  T left[Left::kCount], right[Right::kCount];
  float bias[Left::kCount] = {};
  auto fetch = [&](const Place* from) {
#pragma unroll
    for (int i = 0; i < Left::kCount; ++i) {
      const uint32_t row = Left::row(i), at = from[Left::depth(i)].dy;
      const bool counts = Left::inside(i) && first_row + row < g.rows && at != kNowhere;
      left[i] = counts ? load_global<T>(gradients + at + row * row_step) : T(0.0f);
    }
    if constexpr (kByChannel) {  // a column for the elements of a piece
#pragma unroll
      for (int i = 0; i < Right::kCount; ++i) {
        const Column column = columns[Right::row(i)];
        const Place place = from[Right::depth(i)];
        const char* const corner = whole(images + column.x);
        right[i] = place.taps & column.bit ? load_global<T>(corner + place.x) : T(0.0f);
      }
    } else {  // a place for all elements
      const Place place = from[Right::depth(0)];
      const char* const corner = whole(images + place.x);
#pragma unroll
      for (int i = 0; i < Right::kCount; ++i) {
        const Column column = columns[Right::row(i)];
        right[i] = place.taps & column.bit ? load_global<T>(corner + column.x) : T(0.0f);
      }
    }
  };
  auto put = [&](typename Tile::Shared& tile) {
    Left::template put<kMode>(left, tile.left);
    Right::template put<kMode>(right, tile.right);
#pragma unroll
    for (int i = 0; i < Left::kCount; ++i) bias[i] += static_cast<float>(left[i]);
  };

  MmaTile<kMode, T> engine;
  prepare(begin, places);
  prepare(begin + kDepth, places + kDepth);
  __syncthreads();
  fetch(places);
  put(tiles[0]);
  __syncthreads();
  int buffer = 0;
  for (uint32_t first = begin; first < end; first += kDepth, buffer ^= 1) {
    const bool more = first + kDepth < end;
    if (more) fetch(places + (buffer ^ 1) * kDepth);
    prepare(first + 2 * kDepth, places + buffer * kDepth);
    const typename Tile::Shared& tile = tiles[buffer];
    engine.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
    if (more) put(tiles[buffer ^ 1]);
    __syncthreads();
  }

  float* const out = partial + (static_cast<int64_t>(split) * gridDim.y + group) * g.rows * g.columns;
  engine.for_each([&](int row, int column, float sum) {
    const uint32_t r = first_row + Tile::first_row() + row, c = first_column + Tile::first_column() + column;
    if (r < g.rows && c < g.taps) out[static_cast<int64_t>(r) * g.columns + c] = sum;
  });
  if (first_column > 0 || g.columns == g.taps) return;
  auto* sums = reinterpret_cast<float(*)[kDepth + 1]>(memory);
#pragma unroll
  for (int i = 0; i < Left::kCount; ++i)
    if (Left::inside(i)) sums[Left::row(i)][Left::depth(i)] = bias[i];
  __syncthreads();
  for (int row = threadIdx.x; row < Tile::kRows && first_row + row < g.rows; row += kThreads) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kDepth; ++k) sum += sums[row][k];
    out[static_cast<int64_t>(first_row + row) * g.columns + g.taps] = sum;
  }
}

}  // namespace

void implicit_weight_gradient(const WeightCall& call, const Launch& launch) {
  const WeightGradient& g = call.product;
  visit_math_mode(call.problem.dtype, call.plan.math_mode, [&]<MathMode kMode, class T>() {
    visit_tiles<BlockTile<1, 5>, BlockTile<2, 3>>(call.plan.tile, [&]<class Tile>() {
      constexpr size_t kShared =
          2 * sizeof(typename Tile::Shared) + 2 * kRowDepth<T> * sizeof(Place) + Tile::kColumns * sizeof(Column);
      launch.with_shared(
          call.plan.vectorized ? implicit_kernel<kMode, T, Tile, true> : implicit_kernel<kMode, T, Tile, false>,
          dim3(call.tiles(g.taps), call.groups(), call.plan.split_k), Tile::kThreads, kShared, g, Divisor(g.channels),
          call.dy, call.x, call.partial);
    });
  });
}

}  // namespace gradus::cuda_detail
