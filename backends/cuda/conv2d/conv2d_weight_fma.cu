// The weights' gradient of exact float32 for images in NCHW: the product of conv2d_weight_implicit.cu, gathered input
// (columns, positions) times dy (rows, positions), where the FMA units must not wait. Elements go from global to shared
// memory past the registers, two steps ahead: dy in pieces of four positions, input one by one, as a tap shifts it. The
// columns that a warp fetches belong to one tap, so that what lies outside the image is decided once a step.
#include <gradus/backends/cuda/conv2d/conv2d_weight.cuh>
#include <gradus/backends/cuda/device/cp_async.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kStages = 3, kDepth = kRowDepth<float>;  // positions of a step

/// Blocks of a multiprocessor: 12 warps. With 16 a thread has registers for one multiplication at a time, no more.
template <class Tile>
inline constexpr int kBlocks = fma_blocks(Tile::kThreads / 32);

// The engine's left is the gathered input, its right dy. Grid: tiles of columns x tiles of rows, groups, splits.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, kBlocks<Tile>)
    fma_kernel(WeightGradient g, Divisor channels, Divisor image, const float* __restrict__ dy,
               const float* __restrict__ x, float* __restrict__ partial) {
  constexpr int kWarps = Tile::kThreads / 32, kColumns = Tile::kRows, kRows = Tile::kColumns;
  extern __shared__ Vec16 memory[];
  auto* tiles = reinterpret_cast<typename Tile::Shared*>(memory);  // kStages of them
  const uint32_t group = blockIdx.y, split = blockIdx.z, row_tiles = (g.rows + kRows - 1) / kRows;
  const uint32_t first_row = blockIdx.x % row_tiles * kRows, first_column = blockIdx.x / row_tiles * kColumns;
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);

  // Input: half a warp takes a column, each lane its position; the other half the column four rows on, in other banks.
  constexpr int kWarpShare = kColumns / kWarps, kFetched = kWarpShare / 2;
  const int warp = threadIdx.x / 32, half = threadIdx.x / kDepth % 2, slot = threadIdx.x % kDepth;
  uint32_t channel = first_column + warp * kWarpShare;
  const bool column_exists = channel < g.taps;
  uint32_t s = channels.split(channel);
  const int r = static_cast<int>(g.kernel_width.split(s));
  const int tap_h = r * g.dilation[0] - g.padding[0], tap_w = static_cast<int>(s) * g.dilation[1] - g.padding[1];
  const auto column_step = g.x.c * static_cast<int64_t>(sizeof(float));
  const char* const images =
      reinterpret_cast<const char*>(x) + (static_cast<int64_t>(group) * g.channels + channel + 4 * half) * column_step;
  // dy: four neighbouring threads take a row.
  constexpr int kRowStep = Tile::kThreads / kRowVecs, kPasses = (kRows + kRowStep - 1) / kRowStep;
  const int piece = threadIdx.x % kRowVecs, row = threadIdx.x / kRowVecs;
  const auto row_step = g.dy.c * static_cast<int64_t>(sizeof(float));
  const char* const gradients =
      reinterpret_cast<const char*>(dy) + (static_cast<int64_t>(group) * g.rows + first_row + row) * row_step;

  auto fetch = [&](typename Tile::Shared& tile, uint32_t first) {
    {
      uint32_t q = first + slot;
      const bool exists = column_exists && q < end;
      uint32_t p = g.out_width.split(q);
      const uint32_t n = g.out_height.split(p);
      const int h = static_cast<int>(p) * g.stride[0] + tap_h, w = static_cast<int>(q) * g.stride[1] + tap_w;
      const bool inside = exists && within(h, g.in_height) && within(w, g.in_width);
      const int at =
          static_cast<int>(n) * static_cast<int>(g.x.n) + h * static_cast<int>(g.x.h) + w * static_cast<int>(g.x.w);
      const char* from = images + (inside ? int64_t{at} * static_cast<int64_t>(sizeof(float)) : 0);
      TileRow* const to = tile.left + warp * kWarpShare + 4 * half;
#pragma unroll
      for (int i = 0; i < kFetched; ++i) {  // rows 0 to 3, 8 to 11, …
        cp_async<4>(reinterpret_cast<float*>(to[i / 4 * 8 + i % 4]) + slot, from, inside);
        from += i % 4 == 3 ? 5 * column_step : column_step;
      }
    }
    uint32_t at = first + piece * kVec16Size<float>;
    const bool exists = at < end;
    const uint32_t n = image.split(at);
    const char* from = gradients + (exists ? (n * g.dy.n + at) * static_cast<int64_t>(sizeof(float)) : 0);
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int to = row + i * kRowStep;
      const bool counts = exists && first_row + to < g.rows;
      if (kRows % kRowStep == 0 || to < kRows) cp_async<16>(&tile.right[to][piece], counts ? from : gradients, counts);
      from += kRowStep * row_step;
    }
  };

  const bool sums_bias = first_column == 0 && g.columns > g.taps;
  float bias[kPasses] = {};
  MmaTile<MathMode::fma, float> engine;
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (begin + stage * kDepth < end) fetch(tiles[stage], begin + stage * kDepth);
    cp_async_commit();
  }
  int stage = 0;
  for (uint32_t first = begin; first < end; first += kDepth) {
    cp_async_wait<kStages - 2>();
    __syncthreads();
    const uint32_t ahead = first + (kStages - 1) * kDepth;
    if (ahead < end) fetch(tiles[stage == 0 ? kStages - 1 : stage - 1], ahead);
    cp_async_commit();
    const typename Tile::Shared& tile = tiles[stage];
    if (sums_bias) {
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        if (kRows % kRowStep != 0 && row + i * kRowStep >= kRows) break;
        const auto& four = reinterpret_cast<const float4&>(tile.right[row + i * kRowStep][piece]);
        bias[i] += (four.x + four.y) + (four.z + four.w);
      }
    }
    engine.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }

  float* const out = partial + (static_cast<int64_t>(split) * gridDim.y + group) * g.rows * g.columns;
  engine.for_each([&](int column, int k, float sum) {
    const uint32_t c = first_column + Tile::first_row() + column, to = first_row + Tile::first_column() + k;
    if (to < g.rows && c < g.taps) out[static_cast<int64_t>(to) * g.columns + c] = sum;
  });
  if (!sums_bias) return;
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    for (int other = 1; other < kRowVecs; other *= 2) bias[i] += __shfl_xor_sync(0xffffffffu, bias[i], other);
    const uint32_t to = row + i * kRowStep;
    if (piece == 0 && to < kRows && first_row + to < g.rows)
      out[static_cast<int64_t>(first_row + to) * g.columns + g.taps] = bias[i];
  }
}

}  // namespace

void fma_weight_gradient(const WeightCall& call, const Launch& launch) {
  const WeightGradient& g = call.product;
  const auto [rows, columns] = call.plan.tile;  // the other way round in the engine
  visit_tiles<BlockTile<3, 2>, BlockTile<3, 1>>({columns, rows}, [&]<class Tile>() {
    launch.with_shared(fma_kernel<Tile>, dim3(call.tiles(g.taps), call.groups(), call.plan.split_k), Tile::kThreads,
                       kStages * sizeof(typename Tile::Shared), g, Divisor(g.channels),
                       Divisor(int64_t{g.out_height.divisor} * g.out_width.divisor), call.dy, call.x, call.partial);
  });
}

}  // namespace gradus::cuda_detail
