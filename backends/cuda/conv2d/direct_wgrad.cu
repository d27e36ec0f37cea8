// conv2d weight gradient, few channels (C <= 6, 3x3 and 5x5, no stride or dilation), on the FMA units.
// dw[k,c,r,s] = sum over n,p,q of dy[k,n,p,q] x[n,c,p+r,q+s];  dbias[k] = sum of dy[k].
// Grid: x = blocks that share the tiles (split-K), y = tiles of channels x of filters, z = groups.  Block: 128 to 384
// threads; one computes all R S sums of some filters and channels over 4 neighbouring pixels a step: the window of x
// that they slide over serves all of them.
// Pipeline: dy and mask by cp.async, 1 or 2 steps ahead, each element to the thread that asked for it, so that nobody
// waits for others; x, with zeros for padding, as the rows of a tile, double-buffered in shared memory.
// Deterministic: the sums of lanes, warps and blocks are added in a fixed order.
#include <gradus/backends/cuda/conv2d/wgrad.cuh>
#include <gradus/backends/cuda/device/cp_async.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kQuad = 4;  // neighbouring positions

/// What a block makes and how. dy's pieces of kPiece elements lie along its filters or along its positions.
template <class T, int kSide_, int kChannels_, int kFilters_, int kGroups_, bool kAlongFilters_, int kPiece_,
          int kThreads_, int kBlocks_, int kAhead_>
struct DirectWgradShape {
  using Type = T;
  static constexpr int kSide = kSide_;                                // of the taps' square
  static constexpr int kChannels = kChannels_, kFilters = kFilters_;  // of a thread
  static constexpr int kGroups = kGroups_;                            // of filters in a block
  static constexpr bool kAlongFilters = kAlongFilters_;
  static constexpr int kPiece = kPiece_, kPieces = kQuad * kFilters / kPiece;
  static constexpr int kThreads = kThreads_, kWarps = kThreads / 32;
  static constexpr int kBlocks = kBlocks_;                      // that a multiprocessor has registers for
  static constexpr int kAhead = kAhead_, kStages = kAhead + 1;  // steps
  static constexpr int kTaps = kChannels * kSide * kSide, kColumns = kTaps + 1;  // the last that of the bias
  // Lanes side by side take neighbouring filters where these are neighbours in memory, else neighbouring positions.
  static constexpr int kLaneGroups = kAlongFilters ? kGroups : 1, kWarpGroups = kGroups / kLaneGroups;
  static_assert(kWarps % kWarpGroups == 0);
  static constexpr int kSums = kFilters * kColumns, kSharers = 32 / kLaneGroups;  // lanes that share a group
  static constexpr int kPadded = (kSums + kSharers - 1) / kSharers * kSharers;
};

// Grid: blocks that share the tiles, tiles of channels x of filters, groups.
template <class S, bool kMasked>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    direct_wgrad_kernel(DirectWgradTiling walk, const typename S::Type* __restrict__ dy,
                        const typename S::Type* __restrict__ mask, const typename S::Type* __restrict__ x,
                        float* __restrict__ partial) {
  using T = typename S::Type;
  using DyVec = Vec<T, S::kPiece>;
  constexpr int kChannels = S::kChannels, kFilters = S::kFilters, kSide = S::kSide;
  // Where a window begins is a multiple of four. A row may end amid a quad where its pieces are shorter.
  constexpr uint32_t kNowhere = UINT32_MAX, kCut = 1;
  constexpr bool kMayCut = !S::kAlongFilters && S::kPiece < kQuad;
  extern __shared__ float4 memory[];
  float* const buffers = reinterpret_cast<float*>(memory);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t group = lane % S::kLaneGroups + warp % S::kWarpGroups * S::kLaneGroups;
  const uint32_t slot = lane / S::kLaneGroups + warp / S::kWarpGroups * S::kSharers;  // among those of a group
  const uint32_t channel_tile = blockIdx.y % walk.channel_tiles;
  const uint32_t first_filter = blockIdx.y / walk.channel_tiles * (kFilters * S::kGroups);
  const uint32_t filter = first_filter + group * kFilters;
  x += (static_cast<int64_t>(blockIdx.z) * walk.channels + channel_tile * kChannels) * walk.x.c;
  dy += (static_cast<int64_t>(blockIdx.z) * walk.rows + filter) * walk.dy_channel;
  if constexpr (kMasked) mask += (static_cast<int64_t>(blockIdx.z) * walk.rows + filter) * walk.dy_channel;

  const uint32_t plane_size = walk.lines.divisor * walk.pitch;
  const auto copy_lines = [&](const DirectWgradTiling::Tile& tile, float* buffer) {
    if (tile.image >= walk.images) return;
    const uint32_t threads = 1u << walk.line_bits, first = threadIdx.x & (threads - 1);
    const uint32_t planes = walk.interleaved ? 1 : kChannels;
    const uint32_t count = walk.tile_images * planes * walk.lines.divisor;
    for (uint32_t i = threadIdx.x >> walk.line_bits; i < count; i += S::kThreads >> walk.line_bits) {
      uint32_t row = i;
      const uint32_t plane = walk.lines.split(row), image = plane / planes, channel = plane % planes;
      const int h = static_cast<int>(tile.row + row) - walk.padding[0];
      const bool inside = within(h, walk.in_height) && tile.image + image < walk.images;
      const T* const from = inside ? x + (tile.image + image) * walk.x.n + channel * walk.x.c + h * walk.x.h : x;
      float* const to = buffer + (image * kChannels + channel) * plane_size + row * walk.pitch + walk.padding[1];
      for (uint32_t at = first; at < walk.line; at += threads) {
        float* const place = to + (walk.interleaved ? at % kChannels * plane_size + at / kChannels : at);
        const T* const element = inside ? from + at * walk.line_step : x;
        if constexpr (sizeof(T) == sizeof(float)) cp_async<sizeof(float)>(place, element, inside);
        else *place = inside ? static_cast<float>(*element) : 0.0f;
      }
    }
  };

  // The quad of the step that is fetched, and where the windows of those under way begin.
  struct Position {
    uint32_t image, row, column;
  };
  Position first{0, 0, slot};
  first.row = walk.quads.split(first.column), first.image = walk.band.split(first.row);
  Position quad = first;
  DirectWgradTiling::Tile fetched = walk.tile_at(blockIdx.x);
  uint32_t fetched_index = blockIdx.x, fetched_step = 0;
  uint32_t windows[S::kAhead];
  DyVec* const own = reinterpret_cast<DyVec*>(buffers + 2 * walk.size) + threadIdx.x;  // pieces by stage
  constexpr int kStagePieces = (kMasked ? 2 : 1) * S::kPieces;
  const auto fetch = [&](int stage) {
    const bool exists = quad.image < walk.tile_images && fetched.image + quad.image < walk.images &&
                        fetched.row + quad.row < walk.out_height;
    const uint32_t column = kQuad * quad.column;
    const int64_t offset = exists ? (fetched.image + quad.image) * walk.dy_image +
                                        (fetched.row + quad.row) * walk.dy_row + column * walk.dy_column
                                  : 0;
    const bool cut = kMayCut && column + S::kPiece >= walk.out_width;
#pragma unroll
    for (int i = 1; i < S::kAhead; ++i) windows[i - 1] = windows[i];
    windows[S::kAhead - 1] =
        exists ? (quad.image * kChannels * plane_size + quad.row * walk.pitch + column) | (cut ? kCut : 0) : kNowhere;
    DyVec* const to = own + stage * kStagePieces * S::kThreads;
#pragma unroll
    for (int piece = 0; piece < S::kPieces; ++piece) {
      constexpr int kAcross = S::kAlongFilters ? kFilters : kQuad;
      const int outer = piece * S::kPiece / kAcross, inner = piece * S::kPiece % kAcross;
      const uint32_t f = S::kAlongFilters ? inner : outer, i = S::kAlongFilters ? outer : inner;
      const bool counts = exists && filter + f < walk.rows && (i == 0 || !cut);
      const int64_t at = offset + (f * walk.dy_channel + i * walk.dy_column);
      cp_async<sizeof(DyVec)>(to + piece * S::kThreads, dy + at, counts);
      if constexpr (kMasked) cp_async<sizeof(DyVec)>(to + (S::kPieces + piece) * S::kThreads, mask + at, counts);
    }
    cp_async_commit();
    if (++fetched_step == walk.steps) {
      fetched_step = 0, fetched = walk.tile_at(fetched_index += gridDim.x), quad = first;
    } else {
      quad.column += walk.advance[2], quad.row += walk.advance[1], quad.image += walk.advance[0];
      if (quad.column >= walk.quads.divisor) quad.column -= walk.quads.divisor, ++quad.row;
      if (quad.row >= walk.band.divisor) quad.row -= walk.band.divisor, ++quad.image;
    }
  };

  for (uint32_t i = threadIdx.x; i < 2 * walk.size / 4; i += S::kThreads) memory[i] = float4{0, 0, 0, 0};
  __syncthreads();
  copy_lines(fetched, buffers);
#pragma unroll
  for (int i = 0; i < S::kAhead; ++i) fetch(i);
  float sums[S::kPadded] = {};
  int stage = 0;
  uint32_t buffer = 0;
  for (uint32_t index = blockIdx.x; index < walk.tiles; index += gridDim.x, buffer = walk.size - buffer) {
    for (uint32_t step = 0; step < walk.steps; ++step) {
      if (step > 0) {
        cp_async_wait<S::kAhead - 1>();
      } else {  // this tile's lines came with the first step after the last tile began
        if (walk.steps < S::kAhead || index == blockIdx.x) cp_async_wait<0>();
        else cp_async_wait<S::kAhead - 1>();
        __syncthreads();
        copy_lines(walk.tile_at(index + gridDim.x), buffers + walk.size - buffer);
      }
      float gradient[kFilters][kQuad];
      const DyVec* const from = own + stage * kStagePieces * S::kThreads;
#pragma unroll
      for (int piece = 0; piece < S::kPieces; ++piece) {
        const DyVec values = from[piece * S::kThreads];
        DyVec keeps;
        if constexpr (kMasked) keeps = from[(S::kPieces + piece) * S::kThreads];
#pragma unroll
        for (int e = 0; e < S::kPiece; ++e) {
          const int at = piece * S::kPiece + e;
          float& value = S::kAlongFilters ? gradient[at % kFilters][at / kFilters] : gradient[at / kQuad][at % kQuad];
          value = static_cast<float>(values.value[e]);
          if constexpr (kMasked)
            if (!(static_cast<float>(keeps.value[e]) > 0)) value = 0;
        }
      }
      const uint32_t start = windows[0];
      fetch(stage == 0 ? S::kStages - 1 : stage - 1);
      stage = stage == S::kStages - 1 ? 0 : stage + 1;
      if (start == kNowhere) continue;
#pragma unroll
      for (int f = 0; f < kFilters; ++f)
        sums[f * S::kColumns + S::kTaps] += (gradient[f][0] + gradient[f][1]) + (gradient[f][2] + gradient[f][3]);
      const bool cut = kMayCut && (start & kCut);
      const float* window = buffers + buffer + (start & ~kCut);
#pragma unroll
      for (int c = 0; c < kChannels; ++c, window += plane_size)
#pragma unroll
        for (int r = 0; r < kSide; ++r) {
          constexpr int kRest = kSide - 1;  // beyond the quad
          float values[kQuad + kRest];
          const float* const line = window + r * walk.pitch;
          const auto front = *reinterpret_cast<const Vec<float, kQuad>*>(line);
          const auto back = *reinterpret_cast<const Vec<float, kRest>*>(line + kQuad);
#pragma unroll
          for (int i = 0; i < kQuad; ++i) values[i] = front.value[i];
#pragma unroll
          for (int i = 0; i < kRest; ++i) values[kQuad + i] = back.value[i];
#pragma unroll
          for (int i = 0; i < kQuad; ++i) {
            if (kMayCut && i >= S::kPiece && cut) break;
#pragma unroll
            for (int f = 0; f < kFilters; ++f)
#pragma unroll
              for (int s = 0; s < kSide; ++s)
                sums[f * S::kColumns + (c * kSide + r) * kSide + s] += gradient[f][i] * values[i + s];
          }
        }
    }
  }

  constexpr int kShare = S::kPadded / S::kSharers, kWarpSums = S::kLaneGroups * S::kPadded;
  warp_reduce_scatter<16, S::kLaneGroups, S::kPadded / 2>(sums, lane);
  cp_async_wait<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kShare; ++i)
    buffers[warp * kWarpSums + lane % S::kLaneGroups * S::kPadded + lane / S::kLaneGroups * kShare + i] = sums[i];
  __syncthreads();
  float* const out = partial + (static_cast<int64_t>(blockIdx.x) * gridDim.z + blockIdx.z) * walk.rows * walk.columns;
  for (uint32_t i = threadIdx.x; i < S::kGroups * S::kSums; i += S::kThreads) {
    const uint32_t of = i / S::kSums, at = i % S::kSums, tap = at % S::kColumns;
    const uint32_t row = first_filter + of * kFilters + at / S::kColumns;
    const bool of_bias = tap == S::kTaps;
    if (row >= walk.rows || (of_bias && (channel_tile > 0 || walk.taps == walk.columns))) continue;
    float sum = 0;
#pragma unroll
    for (int from = 0; from < S::kWarps; from += S::kWarpGroups)
      sum += buffers[(from + of / S::kLaneGroups) * kWarpSums + of % S::kLaneGroups * S::kPadded + at];
    out[static_cast<int64_t>(row) * walk.columns + (of_bias ? walk.taps : channel_tile * S::kTaps + tap)] = sum;
  }
}

/// The kernel's shape for kDirectWgradSizes[kIndex].
template <class T, size_t kIndex, DirectWgradSizes s = kDirectWgradSizes[kIndex]>
using ShapeOf =
    DirectWgradShape<T, s.side, s.channels, s.filters, s.groups, s.along_filters, s.vec, s.threads, s.blocks, s.ahead>;

/// Calls f.template operator()<Shape>() for the one of kDirectWgradSizes.
template <class T, class F>
void visit_shape(int index, F&& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (void)((kIndex == index && (f.template operator()<ShapeOf<T, kIndex>>(), true)) || ...);
  }
  (std::make_integer_sequence<int, static_cast<int>(std::size(kDirectWgradSizes))>());
}

}  // namespace

void direct_wgrad(const WeightCall& call, const Launch& launch) {
  const DirectWgradTiling& walk = call.plan.direct_wgrad;
  const auto run = [&]<class T>() {
    visit_shape<T>(call.plan.shape, [&]<class S>() {
      launch.with_shared(call.mask ? direct_wgrad_kernel<S, true> : direct_wgrad_kernel<S, false>,
                         dim3(call.plan.split_k, call.tiles(walk.taps), call.groups()), S::kThreads,
                         call.plan.shared_bytes, walk, call.dy, call.mask, call.x, call.partial);
    });
  };
  switch (call.problem.dtype) {
    case DType::f16: return run.template operator()<Half>();
    case DType::bf16: return run.template operator()<BFloat16>();
    default: run.template operator()<float>();
  }
}

}  // namespace gradus::cuda_detail
