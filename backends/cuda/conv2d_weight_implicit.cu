// The weights' gradient as a product of matrices that are never built, dy (rows, positions) times gathered input
// (columns, positions), with positions as the contiguous depth of tile_engine.cuh. Which taps of a position lie in the
// image is a bit mask, made once per position and block. Columns go tap by tap, channels innermost. The bias's gradient is
// summed beside from the dy that a thread fetches anyway.
#include <gradus/backends/cuda/conv2d_weight.cuh>
#include <gradus/backends/cuda/tile_engine.cuh>

namespace gradus::cuda_detail {
namespace {

/// A position of the depth: where dy and the corner in x lie (dy < 0: beyond the end), and which taps are inside.
struct Place {
  int dy, x;
  uint32_t taps;
};
/// A column: the distance of its channel and tap from the corner, and the tap's number; beyond the last a tap that is
/// never inside.
struct Column {
  int x;
  uint32_t tap;
};

// Grid: tiles of columns x tiles of rows, groups, splits. The next step is fetched into registers while this one is
// multiplied; the places of the one after are prepared meanwhile.
template <Multiplier kMultiplier, class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    implicit_kernel(WeightGradient g, Divisor channels, bool by_channel, const T* dy, const T* x, float* partial) {
  constexpr int kThreads = Tile::kThreads, kSize = kPieceSize<T>, kDepth = kRowDepth<T>;
  constexpr int kLeft = (Tile::kRows * kPieces + kThreads - 1) / kThreads, kRight = Tile::kColumns * kPieces / kThreads;
  extern __shared__ Piece memory[];
  auto* tiles = reinterpret_cast<typename Tile::Shared*>(memory);  // two of them
  auto* places = reinterpret_cast<Place*>(tiles + 2);              // of this step and the next
  auto* columns = reinterpret_cast<Column*>(places + 2 * kDepth);

  const uint32_t group = blockIdx.y, split = blockIdx.z, row_tiles = (g.rows + Tile::kRows - 1) / Tile::kRows;
  const uint32_t first_row = blockIdx.x % row_tiles * Tile::kRows;
  const uint32_t first_column = blockIdx.x / row_tiles * Tile::kColumns;
  dy += static_cast<int64_t>(group) * g.rows * g.dy.c;
  x += static_cast<int64_t>(group) * g.channels * g.x.c;
  for (int i = threadIdx.x; i < Tile::kColumns; i += kThreads) {
    uint32_t c = first_column + i;
    Column column{0, 31};  // at most 31 taps: the last bit of a mask is 0
    if (c < g.taps) {
      column.tap = channels.split(c);
      uint32_t s = column.tap;
      const uint32_t r = g.kernel_width.split(s);
      column.x = static_cast<int>(c * g.x.c + r * g.dilation[0] * g.x.h + s * g.dilation[1] * g.x.w);
    }
    columns[i] = column;
  }
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);
  auto prepare = [&](uint32_t first, Place* to) {
    if (threadIdx.x >= kDepth) return;
    int64_t dy_offset;
    const Tap at = g.position_at(first + threadIdx.x, end, &dy_offset);
    Place place{-1, static_cast<int>(at.offset), 0};
    if (at.h != kOutside) {
      place.dy = static_cast<int>(dy_offset);
      uint32_t bit = 1;
      for (int r = 0, h = at.h; r < g.kernel_height; ++r, h += g.dilation[0])
        for (int s = 0, w = at.w; s < static_cast<int>(g.kernel_width.divisor); ++s, w += g.dilation[1], bit <<= 1)
          if (within(h, g.in_height) && within(w, g.in_width)) place.taps |= bit;
    }
    to[threadIdx.x] = place;
  };

  // Which piece of a tile with `size` rows a thread fetches: neighbouring threads, neighbours in memory.
  const auto row_of = [&](int e, int size) { return by_channel ? e % size : e / kPieces; };
  const auto piece_of = [&](int e, int size) { return by_channel ? e / size : e % kPieces; };
  T left[kLeft][kSize], right[kRight][kSize];
  float bias[kLeft] = {};
  auto fetch = [&](const Place* from) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const int e = threadIdx.x + i * kThreads, piece = piece_of(e, Tile::kRows);
      const uint32_t row = first_row + row_of(e, Tile::kRows);
      const bool there = row < g.rows && e < Tile::kRows * kPieces;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const int at = there ? from[piece * kSize + j].dy : -1;
        left[i][j] = at >= 0 ? dy[at + row * g.dy.c] : T(0.0f);
      }
    }
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      const int e = threadIdx.x + i * kThreads, piece = piece_of(e, Tile::kColumns);
      const Column column = columns[row_of(e, Tile::kColumns)];
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const Place place = from[piece * kSize + j];
        right[i][j] = place.taps >> column.tap & 1 ? x[place.x + column.x] : T(0.0f);
      }
    }
  };
  auto put = [&](typename Tile::Shared& tile) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const int e = threadIdx.x + i * kThreads;
      if (e < Tile::kRows * kPieces)
        tile.left[row_of(e, Tile::kRows)][piece_of(e, Tile::kRows)] = make_piece<kMultiplier, T>(left[i]);
#pragma unroll
      for (int j = 0; j < kSize; ++j) bias[i] += static_cast<float>(left[i][j]);
    }
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      const int e = threadIdx.x + i * kThreads;
      tile.right[row_of(e, Tile::kColumns)][piece_of(e, Tile::kColumns)] = make_piece<kMultiplier, T>(right[i]);
    }
  };

  TileEngine<kMultiplier, T> engine;
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
  auto* sums = reinterpret_cast<float(*)[kPieces]>(memory);
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const int e = threadIdx.x + i * kThreads;
    if (e < Tile::kRows * kPieces) sums[row_of(e, Tile::kRows)][piece_of(e, Tile::kRows)] = bias[i];
  }
  __syncthreads();
  for (int row = threadIdx.x; row < Tile::kRows && first_row + row < g.rows; row += kThreads)
    out[static_cast<int64_t>(first_row + row) * g.columns + g.taps] =
        (sums[row][0] + sums[row][1]) + (sums[row][2] + sums[row][3]);
}

}  // namespace

ImplicitTile implicit_weight_tile(int64_t rows) {
  if (rows <= kWarpRows) return {BlockTile<1, 5>::kRows, BlockTile<1, 5>::kColumns};
  return {BlockTile<2, 3>::kRows, BlockTile<2, 3>::kColumns};
}

void implicit_weight_gradient(const WeightCall& call, Multiplier multiplier, const Launch& launch) {
  const WeightGradient& g = call.product;
  visit_engine(call.dtype, multiplier, [&]<Multiplier kMultiplier, class T>() {
    const auto run = [&]<class Tile>() {
      const uint32_t row_tiles = (g.rows + Tile::kRows - 1) / Tile::kRows;
      const dim3 grid(row_tiles * ((g.taps + Tile::kColumns - 1) / Tile::kColumns), call.groups, call.splits);
      constexpr size_t kShared =
          2 * sizeof(typename Tile::Shared) + 2 * kRowDepth<T> * sizeof(Place) + Tile::kColumns * sizeof(Column);
      launch.with_shared(implicit_kernel<kMultiplier, T, Tile>, grid, Tile::kThreads, kShared, g, Divisor(g.channels),
                         g.x.c == 1, static_cast<const T*>(call.dy), static_cast<const T*>(call.x),
                         static_cast<float*>(call.partial));
    };
    if (g.rows <= kWarpRows) run.template operator()<BlockTile<1, 5>>();
    else run.template operator()<BlockTile<2, 3>>();
  });
}

}  // namespace gradus::cuda_detail
