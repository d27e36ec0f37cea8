// The weights' gradient of exact float32 for few columns: the first layer of a net, whose images have three channels.
// There is so little arithmetic for every dy that memory may never wait: elements go to shared memory past the
// registers, a step ahead. All warps of a block make the same 32 x 32 results, each from its positions, half a warp
// from every other four of them; a lane makes 8 x 8, rows and columns four apart.
#include <gradus/backends/cuda/conv2d/conv2d_weight.cuh>
#include <gradus/backends/cuda/device/cp_async.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kSide = kNarrowColumns;  // rows, too, of a block
constexpr int kWarps = 4, kBlock = 32 * kWarps;
constexpr int kPiece = 4, kWarpDepth = 16, kDepth = kNarrowPositions;  // positions
static_assert(kDepth == kWarps * kWarpDepth);
constexpr int kStages = 2;
// The padding puts four lines into every other group of four banks: half a warp reads from these, half from those
// between.
using Line = float[kDepth + 8];

struct Stage {
  Line x[kSide], dy[kSide];
};
struct Column {
  int offset;  // from a position's corner in x
  uint32_t bit;
};
template <bool kMasked>
struct Shared {
  Stage stages[kStages];
  Line masks[kMasked ? kStages : 1][kMasked ? kSide : 1];
  Column columns[kSide];
};

// Grid: tiles of rows, groups, splits.
template <bool kMasked>
__global__ void __launch_bounds__(kBlock, kNarrowBlocks)
    narrow_kernel(WeightGradient g, Divisor image, const float* __restrict__ dy, const float* __restrict__ mask,
                  const float* __restrict__ x, float* __restrict__ partial) {
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<Shared<kMasked>*>(memory);
  const uint32_t group = blockIdx.y, split = blockIdx.z, first_row = blockIdx.x * kSide;
  const uint32_t begin = split * g.per_split, end = min(begin + g.per_split, g.positions);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  x += static_cast<int64_t>(group) * g.channels * g.x.c;
  if (threadIdx.x < g.taps) {
    const Tap tap = g.column_at(threadIdx.x);
    uint32_t rest = threadIdx.x;
    g.kernel.split(rest);
    shared.columns[threadIdx.x] = {static_cast<int>(tap.offset), uint32_t{1} << rest};
  }
  // Of the columns beyond the taps the first, if it exists, is that of ones.
  for (int i = threadIdx.x; i < kStages * kSide * kDepth; i += kBlock) {
    const int stage = i / (kSide * kDepth), c = i / kDepth % kSide;
    if (c >= static_cast<int>(g.taps))
      shared.stages[stage].x[c][i % kDepth] = c == static_cast<int>(g.taps) ? 1.0f : 0.0f;
  }
  __syncthreads();

  // Input: a warp takes 32 positions of every other column. dy and mask: sixteen threads take a row, four positions
  // each.
  constexpr int kRowPieces = kDepth / kPiece, kRowStep = kBlock / kRowPieces;
  const int slot = threadIdx.x % kDepth, piece = threadIdx.x % kRowPieces, top = threadIdx.x / kRowPieces;
  const int64_t first = static_cast<int64_t>(group) * g.rows + first_row;
  const auto fetch = [&](int stage, uint32_t from) {
    int64_t ignored;
    const Tap corner = g.position_at(from + slot, end, &ignored);
    uint32_t inside = 0;  // bits of the taps
    {
      uint32_t across = 0;  // of a row of taps
      const int width = static_cast<int>(g.kernel_width.divisor);
      for (int s = 0, w = corner.w; s < width; ++s, w += g.dilation[1])
        across |= static_cast<uint32_t>(within(w, g.in_width)) << s;
      for (int r = 0, h = corner.h; r < g.kernel_height; ++r, h += g.dilation[0])
        if (within(h, g.in_height)) inside |= across << (r * width);
    }
#pragma unroll
    for (int c = threadIdx.x / kDepth; c < kSide; c += kBlock / kDepth) {
      if (c >= static_cast<int>(g.taps)) break;
      const Column column = shared.columns[c];
      const bool counts = inside & column.bit;
      cp_async<4>(&shared.stages[stage].x[c][slot], x + (counts ? corner.offset + column.offset : 0), counts);
    }
    uint32_t at = from + piece * kPiece;
    const bool exists = at < end;
    const uint32_t n = image.split(at);
    const int64_t offset = exists ? n * g.dy.n + at : 0;
#pragma unroll
    for (int r = top; r < kSide; r += kRowStep) {
      const bool counts = exists && first_row + r < g.rows;
      const int64_t element = counts ? offset + (first + r) * g.dy.c : 0;
      cp_async<16>(&shared.stages[stage].dy[r][piece * kPiece], dy + element, counts);
      if constexpr (kMasked) cp_async<16>(&shared.masks[stage][r][piece * kPiece], mask + element, counts);
    }
  };
  const auto apply_mask = [&](int stage) {  // to what this thread has fetched
    if constexpr (kMasked) {
#pragma unroll
      for (int r = top; r < kSide; r += kRowStep) {
        auto& gradient = reinterpret_cast<float4&>(shared.stages[stage].dy[r][piece * kPiece]);
        const float4 kept = reinterpret_cast<const float4&>(shared.masks[stage][r][piece * kPiece]);
        float4 value = gradient;
        if (!(kept.x > 0)) value.x = 0;
        if (!(kept.y > 0)) value.y = 0;
        if (!(kept.z > 0)) value.z = 0;
        if (!(kept.w > 0)) value.w = 0;
        gradient = value;
      }
    }
  };

  float sums[8][8] = {};
  const int half = lane / 16, row = lane % 2 + lane / 8 % 2 * 2, column = lane / 2 % 4;
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (begin + s * kDepth < end) fetch(s, begin + s * kDepth);
    cp_async_commit();
  }
  int stage = 0;
  for (uint32_t from = begin; from < end; from += kDepth, stage = stage == kStages - 1 ? 0 : stage + 1) {
    cp_async_wait<kStages - 2>();
    apply_mask(stage);
    __syncthreads();
    const uint32_t ahead = from + (kStages - 1) * kDepth;
    if (ahead < end) fetch(stage == 0 ? kStages - 1 : stage - 1, ahead);
    cp_async_commit();
    const Stage& tile = shared.stages[stage];
#pragma unroll 1  // or registers run out
    for (int at = warp * kWarpDepth + half * kPiece; at < (warp + 1) * kWarpDepth; at += 2 * kPiece) {
      float4 l[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) l[i] = reinterpret_cast<const float4&>(tile.dy[row + 4 * i][at]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float4 r = reinterpret_cast<const float4&>(tile.x[column + 4 * j][at]);
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i][j] += l[i].x * r.x;
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i][j] += l[i].y * r.y;
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i][j] += l[i].z * r.z;
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i][j] += l[i].w * r.w;
      }
    }
  }

  // The halves' sums, then the warps', each in a fixed order.
  __syncthreads();
  auto* const results = reinterpret_cast<float(*)[kSide][kSide + 1]>(memory);  // of each warp
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float sum = sums[i][j] + __shfl_xor_sync(0xffffffffu, sums[i][j], 16);
      if (i / 4 == half) results[warp][row + 4 * i][column + 4 * j] = sum;
    }
  __syncthreads();
  float* const out = partial + (static_cast<int64_t>(split) * gridDim.y + group) * g.rows * g.columns;
  for (int i = threadIdx.x; i < kSide * kSide; i += kBlock) {
    const uint32_t r = i / kSide, c = i % kSide;
    if (first_row + r >= g.rows || c >= g.columns) continue;
    float sum = 0;
#pragma unroll
    for (int each = 0; each < kWarps; ++each) sum += results[each][r][c];
    out[static_cast<int64_t>(first_row + r) * g.columns + c] = sum;
  }
}

}  // namespace

void narrow_weight_gradient(const WeightCall& call, const Launch& launch) {
  const WeightGradient& g = call.product;
  const auto run = [&]<bool kMasked>() {
    launch.with_shared(narrow_kernel<kMasked>, dim3((g.rows + kSide - 1) / kSide, call.groups(), call.plan.split_k),
                       kBlock, sizeof(Shared<kMasked>), g, Divisor(int64_t{g.out_height.divisor} * g.out_width.divisor),
                       call.dy, call.mask, call.x, call.partial);
  };
  if (call.mask) run.template operator()<true>();
  else run.template operator()<false>();
}

}  // namespace gradus::cuda_detail
