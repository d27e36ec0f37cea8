// conv2d weight gradient, implicit GEMM, exact float32 on the FMA units; dy in whole aligned vectors of pixels.
// dw[k, (r,s,c)] = sum over (n,p,q) of dy[k, (n,p,q)] x[n, c, p, q shifted by (r,s)];  dbias[k] = sum of dy[k].
// Grid: x = tiles of K x tiles of C R S, y = groups, z = split-K.  Block: 96 or 192 threads, a warp makes 32 x 64
// results, a thread 64 of them, C R S (BM) by K (BN); the depth is 16 pixels a step.
// Pipeline: cp.async past the registers, 3 stages; dy in vectors of four pixels, x one by one, as a tap shifts it. The
// columns that a warp loads belong to one tap, so that what is outside the image is decided once a step.
// Deterministic: each split leaves its sums in the workspace, see wgrad.cu.
#include <gradus/backends/cuda/conv2d/wgrad.cuh>
#include <gradus/backends/cuda/device/cp_async.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kStages = 3, kDepth = kRowDepth<float>;  // pixels of a step
constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

/// x: half a warp takes a column, each lane its pixel; the other half the column four rows on, in other banks.
template <class Tile>
struct ImageLoader {
  static constexpr int kWarpShare = Tile::kRows / (Tile::kThreads / 32), kLoaded = kWarpShare / 2;
  const int warp = threadIdx.x / 32, half = threadIdx.x / kDepth % 2, pixel = threadIdx.x % kDepth;
  bool exists;       // the warp's columns
  int tap_h, tap_w;  // theirs
  const char* images;

  __device__ ImageLoader(const WeightGradient& g, const Divisor& channels, const float* x, uint32_t first_column) {
    uint32_t channel = first_column + warp * kWarpShare;
    exists = channel < g.taps;
    uint32_t s = channels.split(channel);
    const int r = static_cast<int>(g.kernel_width.split(s));
    tap_h = r * g.dilation[0] - g.padding[0], tap_w = static_cast<int>(s) * g.dilation[1] - g.padding[1];
    images = reinterpret_cast<const char*>(x) +
             (static_cast<int64_t>(blockIdx.y) * g.channels + channel + 4 * half) * g.x.c * kFloat;
  }
  __device__ void load_tile(const WeightGradient& g, TileRow* to, uint32_t first, uint32_t end) const {
    uint32_t q = first + pixel;
    const bool counts = exists && q < end;
    uint32_t p = g.out_width.split(q);
    const uint32_t n = g.out_height.split(p);
    const int h = static_cast<int>(p) * g.stride[0] + tap_h, w = static_cast<int>(q) * g.stride[1] + tap_w;
    const bool inside = counts && within(h, g.in_height) && within(w, g.in_width);
    const int at =
        static_cast<int>(n) * static_cast<int>(g.x.n) + h * static_cast<int>(g.x.h) + w * static_cast<int>(g.x.w);
    const char* from = images + (inside ? int64_t{at} * kFloat : 0);
    to += warp * kWarpShare + 4 * half;
#pragma unroll
    for (int i = 0; i < kLoaded; ++i) {  // rows 0 to 3, 8 to 11, …
      cp_async<4>(reinterpret_cast<float*>(to[i / 4 * 8 + i % 4]) + pixel, from, inside);
      from += (i % 4 == 3 ? 5 : 1) * g.x.c * kFloat;
    }
  }
};

/// dy: four neighbouring threads take a row.
template <class Tile>
struct GradientLoader {
  static constexpr int kRows = Tile::kColumns, kRowStep = Tile::kThreads / kRowVecs;
  static constexpr int kPasses = ceil_div(kRows, kRowStep);
  const int vec = threadIdx.x % kRowVecs, row = threadIdx.x / kRowVecs;
  const char* gradients;
  uint32_t rows;  // that exist
  float bias[kPasses] = {};

  __device__ GradientLoader(const WeightGradient& g, const float* dy, uint32_t first_row) : rows(g.rows - first_row) {
    gradients = reinterpret_cast<const char*>(dy) +
                (static_cast<int64_t>(blockIdx.y) * g.rows + first_row + row) * g.dy.c * kFloat;
  }
  /// Is the row of this pass in the tile?
  __device__ bool in_tile(int pass) const { return kRows % kRowStep == 0 || row + pass * kRowStep < kRows; }

  __device__ void load_tile(const WeightGradient& g, const Divisor& image, TileRow* to, uint32_t first,
                            uint32_t end) const {
    uint32_t at = first + vec * kVec16Size<float>;
    const bool exists = at < end;
    const uint32_t n = image.split(at);
    const char* from = gradients + (exists ? (n * g.dy.n + at) * kFloat : 0);
#pragma unroll
    for (int i = 0; i < kPasses; ++i, from += kRowStep * g.dy.c * kFloat) {
      const bool counts = exists && row + i * kRowStep < rows;
      if (in_tile(i)) cp_async<16>(&to[row + i * kRowStep][vec], counts ? from : gradients, counts);
    }
  }
  __device__ void add_bias(const TileRow* tile) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (!in_tile(i)) break;
      const auto& four = reinterpret_cast<const float4&>(tile[row + i * kRowStep][vec]);
      bias[i] += (four.x + four.y) + (four.z + four.w);
    }
  }
  __device__ void store_bias(const WeightGradient& g, float* to) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      for (int other = 1; other < kRowVecs; other *= 2) bias[i] += __shfl_xor_sync(0xffffffffu, bias[i], other);
      if (vec == 0 && in_tile(i) && row + i * kRowStep < rows)
        to[static_cast<int64_t>(row + i * kRowStep) * g.columns + g.taps] = bias[i];
    }
  }
};

// 12 warps a multiprocessor: with 16 a thread has registers for one multiplication at a time, no more.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, fma_blocks(Tile::kThreads / 32))
    implicit_gemm_async_wgrad_kernel(WeightGradient g, Divisor channels, Divisor image, const float* __restrict__ dy,
                                     const float* __restrict__ x, float* __restrict__ partial) {
  extern __shared__ Vec16 memory[];
  auto* stages = reinterpret_cast<typename Tile::Shared*>(memory);  // left: x (BM, BK), right: dy (BN, BK)
  const uint32_t group = blockIdx.y, split = blockIdx.z, row_tiles = ceil_div(g.rows, Tile::kColumns);
  const uint32_t first_row = blockIdx.x % row_tiles * Tile::kColumns;
  const uint32_t first_column = blockIdx.x / row_tiles * Tile::kRows;
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);
  const ImageLoader<Tile> columns(g, channels, x, first_column);
  GradientLoader<Tile> rows(g, dy, first_row);
  const auto load_tile = [&](typename Tile::Shared& tile, uint32_t first) {
    columns.load_tile(g, tile.left, first, end);
    rows.load_tile(g, image, tile.right, first, end);
  };

  const bool sums_bias = first_column == 0 && g.columns > g.taps;
  MmaTile<MathMode::fma, float> mma;
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (begin + stage * kDepth < end) load_tile(stages[stage], begin + stage * kDepth);
    cp_async_commit();
  }
  int stage = 0;
  for (uint32_t first = begin; first < end; first += kDepth) {
    cp_async_wait<kStages - 2>();
    __syncthreads();
    const uint32_t ahead = first + (kStages - 1) * kDepth;
    if (ahead < end) load_tile(stages[stage == 0 ? kStages - 1 : stage - 1], ahead);
    cp_async_commit();
    const typename Tile::Shared& tile = stages[stage];
    if (sums_bias) rows.add_bias(tile.right);
    mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }

  float* const out = g.partial_of(partial, split, group);
  mma.for_each([&](int column, int row, float sum) {
    g.store_partial(out, first_row + Tile::first_column() + row, first_column + Tile::first_row() + column, sum);
  });
  if (sums_bias) rows.store_bias(g, out + static_cast<int64_t>(first_row) * g.columns);
}

}  // namespace

void implicit_gemm_async_wgrad(const WeightCall& call, const Launch& launch) {
  const WeightGradient& g = call.product;
  const auto [rows, columns] = call.plan.tile;  // the other way round in the kernel
  visit_tiles<BlockTile<3, 2>, BlockTile<3, 1>>({columns, rows}, [&]<class Tile>() {
    launch.with_shared(implicit_gemm_async_wgrad_kernel<Tile>,
                       dim3(call.tiles(g.taps), call.groups(), call.plan.split_k), Tile::kThreads,
                       kStages * sizeof(typename Tile::Shared), g, Divisor(g.channels),
                       Divisor(int64_t{g.out_height.divisor} * g.out_width.divisor), call.dy, call.x, call.partial);
  });
}

}  // namespace gradus::cuda_detail
