// conv2d wgrad, few channels (C <= 6, no stride or dilation; 3x3, K <= 128; 5x5, K <= 16); float32 or half types, on
// the FMA units.
// dw[k,c,r,s] = sum over n,p,q of dy[n,k,p,q] x[n,c,p+r,q+s];  dbias[k] = sum over n,p,q of dy[n,k,p,q].
// Layout: any strides of x; dy in whole aligned vectors of pixels or, where filters are innermost, of filters.
// Grid: x = split-K blocks that share the tiles, y = tiles of channels x tiles of filters, z = groups.  Block: 128 to
// 384 threads; a thread computes all R S sums of some filters and channels over 4 neighbouring pixels a step, and the
// window of x that it loads for these pixels serves all of the sums.
// Pipeline: dy and mask are copied by cp.async, 1 or 2 steps ahead; a thread reads only what it has copied itself, so
// that threads do not wait for each other. The rows of x of a tile are double-buffered in shared memory, with zeros for
// padding.
// Deterministic: the sums of lanes and warps are added in a fixed order, and those of blocks by conv2d.cu.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/cp_async.cuh>
#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kQuad = 4;  // a quad: positions of a row that a thread processes in a step

/// The constants of the kernel with the sizes kDirectWgradSizes[kIndex]. Vectors of dy run along filters or pixels.
template <int kIndex>
struct Shape {
  static constexpr DirectWgradSizes kSizes = kDirectWgradSizes[kIndex];
  static constexpr bool kAlongFilters = kSizes.along_filters;
  static constexpr int kSide = kSizes.side, kChannels = kSizes.channels, kFilters = kSizes.filters;
  static constexpr int kGroups = kSizes.groups, kThreads = kSizes.threads, kWarps = kThreads / 32;
  static constexpr int kVec = kSizes.vec, kVecs = kQuad * kFilters / kVec;       // elements of a vector; vectors a step
  static constexpr int kAhead = kSizes.ahead, kStages = kAhead + 1;              // steps copied ahead; their buffers
  static constexpr int kTaps = kChannels * kSide * kSide, kColumns = kTaps + 1;  // the last column is the bias's
  // Neighbouring lanes take neighbouring filters if these are adjacent in memory, otherwise neighbouring pixels.
  static constexpr int kLaneGroups = kSizes.lane_groups(), kWarpGroups = kGroups / kLaneGroups;
  static_assert(kWarps % kWarpGroups == 0);
  static constexpr int kSums = kFilters * kColumns, kSharers = 32 / kLaneGroups;  // kSharers: lanes that share a group
  static constexpr int kPadded = round_up(kSums, kSharers);
  // The first column of a quad is a multiple of four. If kMayCut, a row may end in the middle of a quad, at kCutAt.
  static constexpr int kCutAt = kSizes.row_unit();
  static constexpr bool kMayCut = kCutAt < kQuad;

  // The group of filters of this thread, and its index among the threads of that group.
  static __device__ uint32_t group() { return lane() % kLaneGroups + warp() % kWarpGroups * kLaneGroups; }
  static __device__ uint32_t slot() { return lane() / kLaneGroups + warp() / kWarpGroups * kSharers; }
  static __device__ uint32_t warp() { return threadIdx.x / 32; }
  static __device__ uint32_t lane() { return threadIdx.x % 32; }
};
/// The argument of the kernel: the tiles and the convolution.
struct DirectWgradArgs : DirectWgradTiling {
  ImplicitGemm g;
};
constexpr uint32_t kNowhere = UINT32_MAX, kCut = 1;  // values of `windows`: no window; flag: a row ends inside the quad

/// Starts to copy the lines of x that a tile reads.
template <class T, class S>
__device__ void load_lines(const DirectWgradArgs& args, const DirectWgradTiling::Tile& tile, const T* x,
                           float* buffer) {
  if (tile.image >= args.images) return;
  const uint32_t plane_size = args.lines.divisor * args.pitch;
  const uint32_t threads = 1u << args.line_bits, first = threadIdx.x & (threads - 1);
  const uint32_t planes = args.interleaved ? 1 : S::kChannels;
  const uint32_t count = args.tile_images * planes * args.lines.divisor;
  for (uint32_t i = threadIdx.x >> args.line_bits; i < count; i += S::kThreads >> args.line_bits) {
    uint32_t row = i;
    const uint32_t plane = args.lines.split(row), image = plane / planes, channel = plane % planes;
    const int h = static_cast<int>(tile.row + row) + args.g.origin[0];
    const bool inside = within(h, args.g.in_height) && tile.image + image < args.images;
    const T* const from = inside ? x + (tile.image + image) * args.g.in.n + channel * args.g.in.c + h * args.g.in.h : x;
    float* const to = buffer + (image * S::kChannels + channel) * plane_size + row * args.pitch - args.g.origin[1];
    for (uint32_t at = first; at < args.line; at += threads) {
      float* const place = to + (args.interleaved ? at % S::kChannels * plane_size + at / S::kChannels : at);
      const T* const element = inside ? from + at * args.line_step : x;
      if constexpr (sizeof(T) == sizeof(float)) cp_async<sizeof(float)>(place, element, inside);
      else *place = inside ? static_cast<float>(*element) : 0.0f;
    }
  }
}

/// Copies a thread's quads of dy and mask, step by step, into shared memory that no other thread uses.
template <class T, class S, bool kMasked>
struct GradientLoader {
  using DyVec = Vec<T, S::kVec>;
  static constexpr int kStageVecs = (kMasked ? 2 : 1) * S::kVecs, kAhead = S::kAhead;
  struct Position {
    uint32_t image, row, column;
  };
  struct Steps {  // the strides of dy, whose offsets fit in 31 bits
    uint32_t n, c, h, w;
  };
  const DirectWgradArgs& args;
  const Steps steps{u32(args.g.out.n), u32(args.g.out.c), u32(args.g.out.h), u32(args.g.out.w)};
  const T *dy, *mask;  // addresses for the first filter of this thread
  DyVec* own;          // the shared memory of this thread for copies of dy and mask, (stages, vectors)
  uint32_t filters;    // number of filters from the thread's first filter on
  Position first, quad;
  DirectWgradTiling::Tile tile;
  uint32_t tile_index = blockIdx.x, step = 0;
  uint32_t windows[kAhead];  // where the windows of the steps in flight begin in a buffer of x

  __device__ GradientLoader(const DirectWgradArgs& args, const T* dy, const T* mask, float* memory, uint32_t filter)
      : args(args), dy(dy), mask(mask), own(reinterpret_cast<DyVec*>(memory) + threadIdx.x),
        filters(filter < args.g.rows ? args.g.rows - filter : 0), first{0, 0, S::slot()},
        tile(args.tile_at(blockIdx.x)) {
    first.row = args.quads.split(first.column), first.image = args.band.split(first.row);
    quad = first;
  }
  /// Starts to copy the quad of the next step.
  __device__ void load_quad(int stage) {
    const bool exists = quad.image < args.tile_images && tile.image + quad.image < args.images &&
                        tile.row + quad.row < args.g.out_height.divisor;
    const uint32_t column = kQuad * quad.column;
    const uint32_t offset =
        exists ? (tile.image + quad.image) * steps.n + (tile.row + quad.row) * steps.h + column * steps.w : 0;
    const bool cut = S::kMayCut && column + S::kCutAt >= args.g.out_width.divisor;
    const uint32_t plane_size = args.lines.divisor * args.pitch;
#pragma unroll
    for (int i = 1; i < kAhead; ++i) windows[i - 1] = windows[i];
    windows[kAhead - 1] =
        exists ? (quad.image * S::kChannels * plane_size + quad.row * args.pitch + column) | (cut ? kCut : 0)
               : kNowhere;
    DyVec* const to = own + stage * kStageVecs * S::kThreads;
#pragma unroll
    for (int vec = 0; vec < S::kVecs; ++vec) {
      constexpr int kAcross = S::kAlongFilters ? S::kFilters : kQuad;
      const int outer = vec * S::kVec / kAcross, inner = vec * S::kVec % kAcross;
      const uint32_t f = S::kAlongFilters ? inner : outer, i = S::kAlongFilters ? outer : inner;
      const bool counts = exists && f < filters && (i < S::kCutAt || !cut);
      const int at = static_cast<int>(offset + f * steps.c + i * steps.w);
      cp_async<sizeof(DyVec)>(to + vec * S::kThreads, dy + at, counts);
      if constexpr (kMasked) cp_async<sizeof(DyVec)>(to + (S::kVecs + vec) * S::kThreads, mask + at, counts);
    }
    cp_async_commit();
    advance();
  }
  __device__ void advance() {
    if (++step == args.steps) {
      step = 0, tile = args.tile_at(tile_index += gridDim.x), quad = first;
    } else {
      quad.column += args.advance[2], quad.row += args.advance[1], quad.image += args.advance[0];
      if (quad.column >= args.quads.divisor) quad.column -= args.quads.divisor, ++quad.row;
      if (quad.row >= args.band.divisor) quad.row -= args.band.divisor, ++quad.image;
    }
  }
  /// Reads the quad of a stage into `gradient`, which becomes 0 where the mask is not positive.
  __device__ void read_quad(float (&gradient)[S::kFilters][kQuad], int stage) const {
    const DyVec* const from = own + stage * kStageVecs * S::kThreads;
#pragma unroll
    for (int vec = 0; vec < S::kVecs; ++vec) {
      const DyVec values = from[vec * S::kThreads];
      DyVec keeps;
      if constexpr (kMasked) keeps = from[(S::kVecs + vec) * S::kThreads];
#pragma unroll
      for (int e = 0; e < S::kVec; ++e) {
        const int at = vec * S::kVec + e;
        float& value =
            S::kAlongFilters ? gradient[at % S::kFilters][at / S::kFilters] : gradient[at / kQuad][at % kQuad];
        value = static_cast<float>(values.value[e]);
        if constexpr (kMasked)
          if (!(static_cast<float>(keeps.value[e]) > 0)) value = 0;
      }
    }
  }
};

/// sums (filters, channels R S + 1) += gradient (filters, quad) times the windows of x; the last column sums gradient.
template <class S>
__device__ void multiply(float (&sums)[S::kPadded], const float (&gradient)[S::kFilters][kQuad], const float* window,
                         bool cut, uint32_t plane_size, uint32_t pitch) {
#pragma unroll
  for (int f = 0; f < S::kFilters; ++f)
    sums[f * S::kColumns + S::kTaps] += (gradient[f][0] + gradient[f][1]) + (gradient[f][2] + gradient[f][3]);
#pragma unroll
  for (int c = 0; c < S::kChannels; ++c, window += plane_size)
#pragma unroll
    for (int r = 0; r < S::kSide; ++r) {
      constexpr int kRest = S::kSide - 1;  // elements of the window beyond the quad
      float values[kQuad + kRest];
      const float* const line = window + r * pitch;
      const auto front = *reinterpret_cast<const Vec<float, kQuad>*>(line);
      const auto back = *reinterpret_cast<const Vec<float, kRest>*>(line + kQuad);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) values[i] = front.value[i];
#pragma unroll
      for (int i = 0; i < kRest; ++i) values[kQuad + i] = back.value[i];
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        if (S::kMayCut && i >= S::kCutAt && cut) break;
#pragma unroll
        for (int f = 0; f < S::kFilters; ++f)
#pragma unroll
          for (int s = 0; s < S::kSide; ++s)
            sums[f * S::kColumns + (c * S::kSide + r) * S::kSide + s] += gradient[f][i] * values[i + s];
      }
    }
}

/// Adds the sums of lanes, then of warps, and stores the block's sums in partial (blocks, groups, rows, columns).
template <class S>
__device__ void store_epilogue(const DirectWgradArgs& args, float (&sums)[S::kPadded], float* buffers,
                               uint32_t first_filter, uint32_t channel_tile, float* partial) {
  constexpr int kShare = S::kPadded / S::kSharers, kWarpSums = S::kLaneGroups * S::kPadded;
  const uint32_t lane = S::lane();
  warp_reduce_scatter<16, S::kLaneGroups, S::kPadded / 2>(sums, lane);
  cp_async_wait<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kShare; ++i)
    buffers[S::warp() * kWarpSums + lane % S::kLaneGroups * S::kPadded + lane / S::kLaneGroups * kShare + i] = sums[i];
  __syncthreads();
  float* const out =
      partial + (static_cast<int64_t>(blockIdx.x) * gridDim.z + blockIdx.z) * args.g.rows * args.g.columns;
  for (uint32_t i = threadIdx.x; i < S::kGroups * S::kSums; i += S::kThreads) {
    const uint32_t of = i / S::kSums, at = i % S::kSums, tap = at % S::kColumns;
    const uint32_t row = first_filter + of * S::kFilters + at / S::kColumns;
    const bool of_bias = tap == S::kTaps;
    if (row >= args.g.rows || (of_bias && (channel_tile > 0 || args.g.depth == args.g.columns))) continue;
    float sum = 0;
#pragma unroll
    for (int from = 0; from < S::kWarps; from += S::kWarpGroups)
      sum += buffers[(from + of / S::kLaneGroups) * kWarpSums + of % S::kLaneGroups * S::kPadded + at];
    out[static_cast<int64_t>(row) * args.g.columns + (of_bias ? args.g.depth : channel_tile * S::kTaps + tap)] = sum;
  }
}

template <class T, class S, bool kMasked>
__global__ void __launch_bounds__(S::kThreads, S::kSizes.blocks)
    direct_wgrad_kernel(DirectWgradArgs args, const T* __restrict__ dy, const T* __restrict__ mask,
                        const T* __restrict__ x, float* __restrict__ partial) {
  constexpr int kAhead = S::kAhead;
  extern __shared__ float4 memory[];
  float* const buffers = reinterpret_cast<float*>(memory);  // two buffers of x, then the stages of dy and mask
  const uint32_t channel_tile = blockIdx.y % args.channel_tiles;
  const uint32_t first_filter = blockIdx.y / args.channel_tiles * (S::kFilters * S::kGroups);
  const uint32_t filter = first_filter + S::group() * S::kFilters, plane_size = args.lines.divisor * args.pitch;
  const int64_t dy_offset = (static_cast<int64_t>(blockIdx.z) * args.g.rows + filter) * args.g.out.c;
  x += (static_cast<int64_t>(blockIdx.z) * args.g.in_channels + channel_tile * S::kChannels) * args.g.in.c;
  GradientLoader<T, S, kMasked> loader(args, dy + dy_offset, kMasked ? mask + dy_offset : nullptr,
                                       buffers + 2 * args.size, filter);

  for (uint32_t i = threadIdx.x; i < 2 * args.size / 4; i += S::kThreads) memory[i] = float4{0, 0, 0, 0};
  __syncthreads();
  load_lines<T, S>(args, loader.tile, x, buffers);
#pragma unroll
  for (int i = 0; i < kAhead; ++i) loader.load_quad(i);
  float sums[S::kPadded] = {};
  int stage = 0;
  uint32_t buffer = 0;
  for (uint32_t index = blockIdx.x; index < args.tiles; index += gridDim.x, buffer = args.size - buffer)
    for (uint32_t step = 0; step < args.steps; ++step) {
      if (step > 0) {
        cp_async_wait<kAhead - 1>();
      } else {  // the lines of this tile were committed in the first step of the previous tile
        if (args.steps < kAhead || index == blockIdx.x) cp_async_wait<0>();
        else cp_async_wait<kAhead - 1>();
        __syncthreads();
        load_lines<T, S>(args, args.tile_at(index + gridDim.x), x, buffers + args.size - buffer);
      }
      float gradient[S::kFilters][kQuad];
      loader.read_quad(gradient, stage);
      const uint32_t window = loader.windows[0];
      loader.load_quad(stage == 0 ? S::kStages - 1 : stage - 1);
      stage = stage == S::kStages - 1 ? 0 : stage + 1;
      if (window != kNowhere)
        multiply<S>(sums, gradient, buffers + buffer + (window & ~kCut), S::kMayCut && (window & kCut), plane_size,
                    args.pitch);
    }
  store_epilogue<S>(args, sums, buffers, first_filter, channel_tile, partial);
}

}  // namespace

void direct_wgrad(const ConvCall& call, const Launch& launch) {
  const DirectWgradArgs args{call.tiling<DirectWgradTiling>(), call.gemm};
  visit_narrow(call.problem.dtype, [&]<class T>() {
    static_assert(std::size(kDirectWgradSizes) == 10);
    visit_constant<0, 1, 2, 3, 4, 5, 6, 7, 8, 9>(args.sizes, [&]<int kIndex>() {
      using S = Shape<kIndex>;
      launch.with({call.plan.shared_bytes},
                  call.mask ? direct_wgrad_kernel<T, S, true> : direct_wgrad_kernel<T, S, false>,
                  dim3(call.phase.split_k, call.tiles(args.g.depth), call.groups()), S::kThreads, args, call.out,
                  call.mask, call.in, call.partial());
    });
  });
  add_parts(call, launch, false);
}

}  // namespace gradus::cuda_detail
