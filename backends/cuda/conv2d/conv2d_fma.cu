// The implicit gather of conv2d_implicit.cu for exact float32 whose channels do not lie side by side, where the FMA
// units must not wait: elements go from global to shared memory past the registers, two steps ahead. Of the input,
// eight neighbouring threads take eight neighbouring positions, and the next eight the next channel: no two meet in a
// bank.
#include <gradus/backends/cuda/conv2d/conv2d_implicit.cuh>
#include <gradus/backends/cuda/device/cp_async.cuh>

namespace gradus::cuda_detail {
namespace {

template <class Tile>
struct FmaGather {
  static constexpr int kStages = 3, kBlocks = fma_blocks(Tile::kThreads / 32);
  static constexpr size_t kShared = kStages * sizeof(typename Tile::Shared);
};

// Grid: tiles of positions, tiles of rows, groups x splits; `partial` as in conv2d_implicit.cu. All channels of a step
// exist.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, FmaGather<Tile>::kBlocks)
    fma_gather_kernel(Gather gather, Steps steps, const float* __restrict__ input, const Vec16* __restrict__ packed,
                      const float* __restrict__ bias, bool relu, float* __restrict__ output,
                      float* __restrict__ partial) {
  constexpr int kThreads = Tile::kThreads, kStages = FmaGather<Tile>::kStages;
  constexpr int kWarpShare = Tile::kColumns / (kThreads / 32), kSpots = kWarpShare / 8;
  constexpr int kLeft = Tile::kRows * kRowVecs / kThreads, kLeftRest = Tile::kRows * kRowVecs % kThreads;
  extern __shared__ Vec16 memory[];
  auto* tiles = reinterpret_cast<typename Tile::Shared*>(memory);  // kStages of them
  const uint32_t group = blockIdx.z / steps.splits, split = blockIdx.z % steps.splits;
  const uint32_t first_step = split * steps.per_split, end_step = min(first_step + steps.per_split, steps.count);
  const uint32_t first_row = blockIdx.y * Tile::kRows, first_position = blockIdx.x * Tile::kColumns;
  packed += ((static_cast<int64_t>(group) * steps.count + first_step) * steps.packed_rows + first_row) * kRowVecs;

  __shared__ int places[Tile::kColumns];  // where the positions' results go, in elements; negative: nowhere
  __shared__ float biases[Tile::kRows];
  for (int i = threadIdx.x; i < Tile::kColumns; i += kThreads) {
    uint32_t w = first_position + i;
    const bool exists = w < gather.positions;
    uint32_t h = gather.out_width.split(w);
    const uint32_t n = gather.out_height.split(h);
    places[i] = exists ? static_cast<int>(n * gather.out.n + h * gather.out.h + w * gather.out.w) : -1;
  }
  for (int i = threadIdx.x; i < Tile::kRows; i += kThreads)
    biases[i] = bias && first_row + i < gather.rows ? bias[group * gather.rows + first_row + i] : 0.0f;
  __syncthreads();

  const int position = threadIdx.x / 32 * kWarpShare + threadIdx.x % 8, channel = threadIdx.x / 8 % 4;
  const char* const images = reinterpret_cast<const char*>(input) +
                             static_cast<int64_t>(group) * gather.in_channels * steps.in_c + channel * steps.in_c;
  uint32_t at[kSpots];  // where a position reads before the tap is added, in bytes
  int at_h[kSpots], at_w[kSpots];
#pragma unroll
  for (int i = 0; i < kSpots; ++i) {
    uint32_t w = first_position + position + 8 * i;
    at[i] = 0, at_h[i] = kOutside, at_w[i] = 0;
    if (w < gather.positions) {
      uint32_t h = gather.out_width.split(w);
      const uint32_t n = gather.out_height.split(h);
      at_h[i] = static_cast<int>(h) * gather.step[0] + gather.origin[0];
      at_w[i] = static_cast<int>(w) * gather.step[1] + gather.origin[1];
      at[i] = static_cast<uint32_t>(n * gather.in.n * sizeof(float)) + at_h[i] * steps.in_h + at_w[i] * steps.in_w;
    }
  }
  uint32_t chunk = first_step % steps.chunks, s = first_step / steps.chunks;  // of the step that is fetched next
  uint32_t r = s / steps.tap_columns;
  s %= steps.tap_columns;
  const int64_t channel_step = int64_t{kRowVecs} * steps.in_c;
  auto fetch = [&](typename Tile::Shared& tile) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const int e = threadIdx.x + i * kThreads;
      cp_async<16>(&tile.left[e / kRowVecs][e % kRowVecs], packed + e, true);
    }
    if (kLeftRest != 0 && threadIdx.x < kLeftRest) {
      const int e = threadIdx.x + kLeft * kThreads;
      cp_async<16>(&tile.left[e / kRowVecs][e % kRowVecs], packed + e, true);
    }
    packed += steps.packed_rows * kRowVecs;
    const int tap_h = static_cast<int>(r) * gather.tap_step[0], tap_w = static_cast<int>(s) * gather.tap_step[1];
    const uint32_t tap = tap_h * steps.in_h + tap_w * steps.in_w + chunk * kRowDepth<float> * steps.in_c;
#pragma unroll
    for (int i = 0; i < kSpots; ++i) {
      const bool inside = within(at_h[i] + tap_h, gather.in_height) && within(at_w[i] + tap_w, gather.in_width);
      const char* from = images + (inside ? at[i] + tap : 0);
      auto* const to = reinterpret_cast<float*>(tile.right[position + 8 * i]) + channel;
#pragma unroll
      for (int c = 0; c < kRowDepth<float>; c += kRowVecs, from += channel_step) cp_async<4>(to + c, from, inside);
    }
    if (++chunk == steps.chunks) {
      chunk = 0;
      if (++s == steps.tap_columns) s = 0, ++r;
    }
  };

  MmaTile<MathMode::fma, float> engine;
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (first_step + stage < end_step) fetch(tiles[stage]);
    cp_async_commit();
  }
  int stage = 0;
  for (uint32_t step = first_step; step < end_step; ++step) {
    cp_async_wait<kStages - 2>();
    __syncthreads();
    if (step + kStages - 1 < end_step) fetch(tiles[stage == 0 ? kStages - 1 : stage - 1]);
    cp_async_commit();
    const typename Tile::Shared& tile = tiles[stage];
    engine.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }

  const int first_column = Tile::first_column();
  const uint32_t row_base = first_row + Tile::first_row();
  if (partial) {
    const int64_t line = static_cast<int64_t>(split * (gridDim.z / steps.splits) + group) * gather.rows + row_base;
    float* const to = partial + line * gather.positions + first_position + first_column;
    engine.for_each([&](int row, int column, float sum) {
      if (row_base + row < gather.rows && places[first_column + column] >= 0) to[row * gather.positions + column] = sum;
    });
  } else {
    float* const to = output + static_cast<int64_t>(group * gather.rows + row_base) * gather.out.c;
    engine.for_each([&](int row, int column, float sum) {
      const int at = places[first_column + column];
      if (row_base + row >= gather.rows || at < 0) return;
      sum += biases[Tile::first_row() + row];
      if (relu && sum < 0.0f) sum = 0.0f;
      to[at + row * gather.out.c] = sum;
    });
  }
}

}  // namespace

// The gradient of a strided convolution is computed in phases: results whose distance is the stride read the same taps,
// and are a convolution without a stride.
void fma_gather(const GatherCall& call, const Launch& launch) {
  const Gather& whole = call.gather;
  for (const ConvPhase& phase : call.plan.phases) {
    const auto &h = phase.h, &w = phase.w;
    Gather gather = whole;
    gather.positions = static_cast<uint32_t>(call.problem.out().shape[0] * h.size * w.size);
    gather.depth = whole.in_channels * static_cast<uint32_t>(h.count * w.count);
    gather.out_height = Divisor(h.size), gather.out_width = Divisor(w.size);
    gather.taps = Divisor(h.count * w.count), gather.tap_width = Divisor(w.count);
    gather.origin[0] = h.origin, gather.origin[1] = w.origin;
    gather.tap_step[0] = h.step, gather.tap_step[1] = w.step;
    gather.stride[0] = gather.stride[1] = 1;
    gather.out.h *= whole.stride[0], gather.out.w *= whole.stride[1];
    gather.weight_r *= h.period, gather.weight_s *= w.period;
    float* const output = static_cast<float*>(call.output) + h.at * whole.out.h + w.at * whole.out.w;
    const float* const weight =
        static_cast<const float*>(call.weight) + h.first * whole.weight_r + w.first * whole.weight_s;
    const auto gemm = [&](const Steps& steps, dim3 grid, const Vec16* packed, float* partial) {
      visit_tiles<BlockTile<1, 3>, BlockTile<2, 1>, BlockTile<4, 1>>(call.plan.tile, [&]<class Tile>() {
        launch.with_shared(fma_gather_kernel<Tile>, grid, Tile::kThreads, FmaGather<Tile>::kShared, gather, steps,
                           call.input, packed, call.bias, call.problem.relu, output, partial);
      });
    };
    run_packed<MathMode::fma>(call, gather, weight, output, phase.split_k, phase.per_split, launch, gemm);
  }
}

}  // namespace gradus::cuda_detail
