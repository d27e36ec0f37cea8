// conv2d forward and data gradient, implicit GEMM tap by tap, in any math mode (FMA, TF32, half).
// out[k, (n,p,q)] = sum over (r,s), c of w[k,c,r,s] in[n, c, p, q shifted by (r,s)], see conv2d.cuh; any strides.
// Grid: x = tiles of N P Q (BN), y = tiles of rows (BM), z = groups x split-K.  Block: 128 threads, a warp makes
// 32 x 64 results, a thread 64 of them.
// Pipeline: the next step is loaded into registers while this one is multiplied (2 stages of shared memory);
// 16 bytes of depth a load where channels are innermost (kVector), else neighbouring threads take neighbouring pixels.
// Deterministic: splits are summed in order.
#include <gradus/backends/cuda/conv2d/implicit_gemm.cuh>

namespace gradus::cuda_detail {
namespace {

template <MathMode kMode, class Tile>
inline constexpr uint32_t kBlocks = implicit_blocks(kMode, Tile::kThreads / 32);

/// A thread's share of a step, by way of registers. Of the input a column (pixel) has four vectors a step: with kVector
/// four neighbouring threads load one each, else one thread loads all four.
template <MathMode kMode, class T, class Tile, bool kVector>
struct RegisterLoader {
  static constexpr int kThreads = Tile::kThreads, kSize = kVec16Size<T>;
  static constexpr int kLeft = Tile::kRows * kRowVecs / kThreads, kRight = Tile::kColumns * kRowVecs / kThreads;
  static constexpr int kColumns = kVector ? kRight : Tile::kColumns / kThreads;  // of the tile, that the thread loads
  static constexpr int kColumnStep = kVector ? kThreads / kRowVecs : kThreads;

  const Vec16* packed;
  const T* input;  // of the group
  TapIterator tap;
  Vec16 left[kLeft];
  T right[kRight][kSize];

  static __device__ int column_of(int i) {
    return static_cast<int>(kVector ? threadIdx.x / kRowVecs : threadIdx.x) + i % kColumns * kColumnStep;
  }
  static __device__ int vec_of(int i) { return kVector ? static_cast<int>(threadIdx.x % kRowVecs) : i / kColumns; }

  __device__ void load_tile(const Gather& gather, const Steps& steps, const OutCoord* coords) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i)
      left[i] = load_global<Vec16>(reinterpret_cast<const char*>(packed + threadIdx.x + i * kThreads));
    packed += steps.packed_rows * kRowVecs;
    const int tap_h = static_cast<int>(tap.r) * gather.tap_step[0],
              tap_w = static_cast<int>(tap.s) * gather.tap_step[1];
    const uint32_t first_channel = tap.chunk * kRowDepth<T>;
    uint32_t offset[kColumns];  // of the step's first channel under the tap
    bool exists[kColumns];      // does the image have it?
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const OutCoord coord = coords[column_of(i)];
      int h = coord.h + tap_h, w = coord.w + tap_w;
      bool inside = true;
      if (gather.stride[0] > 1 || gather.stride[1] > 1) {  // backward: only multiples of the stride were read
        const int p = static_cast<int>(gather.stride_h.quotient(max(h, 0)));
        const int q = static_cast<int>(gather.stride_w.quotient(max(w, 0)));
        inside = p * gather.stride[0] == h && q * gather.stride[1] == w;
        h = p, w = q;
      }
      exists[i] = inside && within(h, gather.in_height) && within(w, gather.in_width);
      offset[i] = coord.image + h * steps.in_h + w * steps.in_w + first_channel * steps.in_c;
    }
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      const int channel = vec_of(i) * kSize, column = i % kColumns;
      const bool inside = exists[column] && first_channel + channel < gather.in_channels;
      const char* from = whole(reinterpret_cast<const char*>(input) + (offset[column] + channel * steps.in_c));
      if constexpr (kVector) {
        Vec16 loaded{};
        if (inside) loaded = load_global<Vec16>(from);
        memcpy(right[i], &loaded, sizeof loaded);
      } else {
#pragma unroll
        for (int j = 0; j < kSize; ++j, from += steps.in_c) right[i][j] = inside ? load_global<T>(from) : T(0.0f);
      }
    }
    tap.advance(steps);
  }

  __device__ void store_tile(typename Tile::Shared& tile) const {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const int e = threadIdx.x + i * kThreads;
      tile.left[e / kRowVecs][e % kRowVecs] = left[i];
    }
#pragma unroll
    for (int i = 0; i < kRight; ++i) tile.right[column_of(i)][vec_of(i)] = make_vec16<kMode, T>(right[i]);
  }
};

template <MathMode kMode, class T, class Tile, bool kVector>
__global__ void __launch_bounds__(Tile::kThreads, kBlocks<kMode, Tile>)
    implicit_gemm_kernel(Gather gather, Steps steps, const T* __restrict__ input, const Vec16* __restrict__ packed,
                         const T* __restrict__ bias, bool relu, T* __restrict__ output, float* __restrict__ partial) {
  extern __shared__ Vec16 memory[];
  auto& shared = *reinterpret_cast<GatherShared<Tile, 2>*>(memory);
  const GatherBlock<Tile> block(steps);
  shared.prepare(gather, block, bias);

  RegisterLoader<kMode, T, Tile, kVector> loader{block.weights(steps, packed),
                                                 input + block.group * gather.in_channels * gather.in.c,
                                                 TapIterator(steps, block.first_step)};
  MmaTile<kMode, T> mma;
  loader.load_tile(gather, steps, shared.coords);
  loader.store_tile(shared.stages[0]);
  __syncthreads();
  int stage = 0;
  for (uint32_t step = block.first_step; step < block.end_step; ++step, stage ^= 1) {
    const bool more = step + 1 < block.end_step;
    if (more) loader.load_tile(gather, steps, shared.coords);
    const typename Tile::Shared& tile = shared.stages[stage];
    mma.multiply(tile.left + Tile::first_row(), tile.right + Tile::first_column());
    if (more) loader.store_tile(shared.stages[stage ^ 1]);
    __syncthreads();
  }
  shared.store_epilogue(gather, steps, block, mma, relu, output, partial);
}

}  // namespace

void implicit_gemm(const GatherCall& call, const Launch& launch) {
  const ConvPlan& plan = call.plan;
  visit_math_mode(call.problem.dtype, plan.math_mode, [&]<MathMode kMode, class T>() {
    visit_tiles<BlockTile<1, 4>, BlockTile<2, 2>>(plan.tile, [&]<class Tile>() {
      const auto kernel =
          plan.vectorized ? implicit_gemm_kernel<kMode, T, Tile, true> : implicit_gemm_kernel<kMode, T, Tile, false>;
      const auto gemm = [&](const Steps& steps, dim3 grid, const Vec16* packed, float* partial) {
        launch.with_shared(kernel, grid, Tile::kThreads, sizeof(GatherShared<Tile, 2>), call.gather, steps, call.input,
                           packed, call.bias, call.problem.relu, call.output, partial);
      };
      run_packed<kMode, T>(call, call.gather, call.weight, call.output, plan.split_k, plan.per_split, launch, gemm);
    });
  });
}

}  // namespace gradus::cuda_detail
