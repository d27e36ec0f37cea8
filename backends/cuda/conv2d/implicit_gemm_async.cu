// conv2d forward and data gradient, implicit GEMM tap by tap, exact float32 on the FMA units, channels not innermost.
// out[k, (n,p,q)] = sum over (r,s), c of w[k,c,r,s] in[n, c, p, q shifted by (r,s)], see conv2d.cuh.
// Grid: x = tiles of N P Q (BN), y = tiles of rows (BM), z = groups x split-K.  Block: 64 to 128 threads, a warp makes
// 32 x 64 results, a thread 64 of them.
// Pipeline: cp.async past the registers, 3 stages. Eight neighbouring threads load eight neighbouring pixels, the next
// eight the next channel: no two store to the same bank.
// Deterministic: splits are summed in order.
#include <gradus/backends/cuda/conv2d/implicit_gemm.cuh>
#include <gradus/backends/cuda/device/cp_async.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kStages = 3;

/// A thread's share of a step: BN / warps pixels a warp, in eights.
template <class Tile>
struct AsyncLoader {
  static constexpr int kThreads = Tile::kThreads, kWarpShare = Tile::kColumns / (kThreads / 32);
  static constexpr int kPixels = kWarpShare / 8, kLeft = Tile::kRows * kRowVecs;

  const int column = threadIdx.x / 32 * kWarpShare + threadIdx.x % 8, channel = threadIdx.x / 8 % 4;
  const Vec16* packed;
  const char* input;  // of the group, at the thread's first channel
  TapIterator tap;
  OutCoord coords[kPixels];  // with `image` the offset of (h, w)

  __device__ AsyncLoader(const Vec16* packed, const char* group_input, TapIterator tap, const Steps& steps,
                         const OutCoord* block_coords)
      : packed(packed), input(group_input + channel * steps.in_c), tap(tap) {
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      coords[i] = block_coords[column + 8 * i];
      coords[i].image += coords[i].h * steps.in_h + coords[i].w * steps.in_w;
    }
  }

  __device__ void load_tile(const Gather& gather, const Steps& steps, typename Tile::Shared& tile) {
#pragma unroll
    for (int i = 0; i < kLeft; i += kThreads) {
      const int e = i + threadIdx.x;
      if (kLeft % kThreads == 0 || e < kLeft) cp_async<16>(&tile.left[e / kRowVecs][e % kRowVecs], packed + e, true);
    }
    packed += steps.packed_rows * kRowVecs;
    const int tap_h = static_cast<int>(tap.r) * gather.tap_step[0],
              tap_w = static_cast<int>(tap.s) * gather.tap_step[1];
    const uint32_t offset = tap_h * steps.in_h + tap_w * steps.in_w + tap.chunk * kRowDepth<float> * steps.in_c;
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const OutCoord& at = coords[i];
      const bool inside = within(at.h + tap_h, gather.in_height) && within(at.w + tap_w, gather.in_width);
      const char* from = input + (inside ? at.image + offset : 0);
      auto* const to = reinterpret_cast<float*>(tile.right[column + 8 * i]) + channel;
#pragma unroll
      for (int c = 0; c < kRowDepth<float>; c += kRowVecs, from += int64_t{kRowVecs} * steps.in_c)
        cp_async<4>(to + c, from, inside);
    }
    tap.advance(steps);
  }
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, fma_blocks(Tile::kThreads / 32))
    implicit_gemm_async_kernel(Gather gather, Steps steps, const float* __restrict__ input,
                               const Vec16* __restrict__ packed, const float* __restrict__ bias, bool relu,
                               float* __restrict__ output, float* __restrict__ partial) {
  extern __shared__ Vec16 memory[];
  auto& shared = *reinterpret_cast<GatherShared<Tile, kStages>*>(memory);
  const GatherBlock<Tile> block(steps);
  shared.prepare(gather, block, bias);

  const auto group_channels = static_cast<int64_t>(block.group) * gather.in_channels;
  AsyncLoader<Tile> loader(block.weights(steps, packed),
                           reinterpret_cast<const char*>(input) + group_channels * steps.in_c,
                           TapIterator(steps, block.first_step), steps, shared.coords);
  MmaTile<MathMode::fma, float> mma;
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (block.first_step + stage < block.end_step) loader.load_tile(gather, steps, shared.stages[stage]);
    cp_async_commit();
  }
  int stage = 0;
  for (uint32_t step = block.first_step; step < block.end_step; ++step) {
    cp_async_wait<kStages - 2>();
    __syncthreads();
    if (step + kStages - 1 < block.end_step)
      loader.load_tile(gather, steps, shared.stages[stage == 0 ? kStages - 1 : stage - 1]);
    cp_async_commit();
    const typename Tile::Shared& tile = shared.stages[stage];
    mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
  shared.store_epilogue(gather, steps, block, mma, relu, output, partial);
}

/// Of the gradient of a strided convolution the results whose distance is the stride: they read the same taps, and are
/// a convolution without a stride.
Gather phase_of(const Gather& whole, const ConvPhase& phase, int64_t images) {
  const auto &h = phase.h, &w = phase.w;
  Gather gather = whole;
  gather.positions = u32(images * h.size * w.size);
  gather.depth = whole.in_channels * static_cast<uint32_t>(h.count * w.count);
  gather.out_height = Divisor(h.size), gather.out_width = Divisor(w.size);
  gather.taps = Divisor(h.count * w.count), gather.tap_width = Divisor(w.count);
  gather.origin[0] = h.origin, gather.origin[1] = w.origin;
  gather.tap_step[0] = h.step, gather.tap_step[1] = w.step;
  gather.stride[0] = gather.stride[1] = 1;
  gather.out.h *= whole.stride[0], gather.out.w *= whole.stride[1];
  gather.weight_r *= h.period, gather.weight_s *= w.period;
  return gather;
}

}  // namespace

void implicit_gemm_async(const GatherCall& call, const Launch& launch) {
  const Gather& whole = call.gather;
  for (const ConvPhase& phase : call.plan.phases) {
    const auto &h = phase.h, &w = phase.w;
    const Gather gather = phase_of(whole, phase, call.problem.out().shape[0]);
    float* const output = static_cast<float*>(call.output) + h.at * whole.out.h + w.at * whole.out.w;
    const float* const weight =
        static_cast<const float*>(call.weight) + h.first * whole.weight_r + w.first * whole.weight_s;
    const auto gemm = [&](const Steps& steps, dim3 grid, const Vec16* packed, float* partial) {
      visit_tiles<BlockTile<1, 3>, BlockTile<2, 1>, BlockTile<4, 1>>(call.plan.tile, [&]<class Tile>() {
        launch.with_shared(implicit_gemm_async_kernel<Tile>, grid, Tile::kThreads, sizeof(GatherShared<Tile, kStages>),
                           gather, steps, call.input, packed, call.bias, call.problem.relu, output, partial);
      });
    };
    run_packed<MathMode::fma>(call, gather, weight, output, phase.split_k, phase.per_split, launch, gemm);
  }
}

}  // namespace gradus::cuda_detail
