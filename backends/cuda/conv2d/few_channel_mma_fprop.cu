// conv2d fprop, few channels (C < 8), K a multiple of 8, no groups, on tensor cores: half types (C R S <= 64) or TF32
// (C R S <= 32); y NHWC.
// y[(n,p,q), k] = relu(bias[k] + sum over t = (c,r,s) of x[(n,p,q), t] w[k,t])
// Grid: x = blocks that share the tiles, y = groups of 32 or 64 filters.  Block: 128 threads; a warp multiplies 16
// pixels by the block's filters at a time (mma.m16n8k16, TF32: m16n8k8), and a thread keeps 4 sums of each block of 16
// pixels x 8 filters. Weights and bias stay in registers for all tiles of the block.
// Pipeline: rows of x by cp.async, one tile ahead (few_channel_mma.cuh).
// Deterministic: one warp computes all of a sum.
#include <gradus/backends/cuda/conv2d/few_channel_mma.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kGroup = kFewChannelFilters;

/// Packs two sums into a word of two elements, rounded to nearest, after ReLU if `relu` is true.
template <class T>
__device__ uint32_t round_pair(float low, float high, bool relu) {
  uint32_t word = 0;
#if __CUDA_ARCH__ >= 800
  if (relu) asm("cvt.rn.relu.%3x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low), "C"(kPtxType<T>));
  else asm("cvt.rn.%3x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low), "C"(kPtxType<T>));
#endif
  return word;
}

/// 4 bytes of depth: two half-type elements, or one element rounded to TF32.
template <class T>
__device__ uint32_t word_of(const T (&elements)[4 / sizeof(T)]) {
  if constexpr (sizeof(T) == 2) return pair(elements[0], elements[1]);
  else return __float_as_uint(multiplicand<MathMode::tf32>(elements[0]));
}

/// The filter, in its group, of element e of a lane's sums of the j-th product. Filters are numbered so that a lane
/// ends with whole vectors, adjacent to those of the other lanes of its pixel.
template <class T>
__device__ int filter_of(int j, int part, int e) {
  return sizeof(T) == 2 ? part * 8 + j * 2 + e : j / 2 * 16 + part * 4 + j % 2 * 2 + e;
}

template <class T, int kSteps, int kGroups>
__global__ void __launch_bounds__(kFewChannelThreads, kFewChannelBlocks)
    few_channel_mma_fprop_kernel(FewChannelArgs args, const T* __restrict__ x, const T* __restrict__ weight,
                                 const T* __restrict__ bias, bool relu, T* __restrict__ y) {
  extern __shared__ Vec16 memory[];
  char* const buffers = reinterpret_cast<char*>(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, part = lane % 4;
  const uint32_t filters = args.g.rows, first_filter = blockIdx.y * kGroup * kGroups;

  clear_buffers(args, memory);
  args.copy_lines(args.tile_at(blockIdx.x), x, buffers);

  // The taps of a lane are two words: 2 part + {0, 1, 8, 9} in a step of 16 taps (half types), part + {0, 4} in a step
  // of 8 (TF32).
  constexpr int kOfWord = 4 / sizeof(T), kDepth = 8 * kOfWord;
  const auto tap_number = [&](int step, int i) {
    return kDepth * step + kOfWord * part + i % kOfWord + i / kOfWord * kDepth / 2;
  };
  uint32_t taps[kSteps][2 * kOfWord], inside[2] = {};
  uint32_t weights[kSteps][4 * kGroups][2];
  float biases[kGroups][8];
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 2 * kOfWord; ++i) taps[step][i] = args.tap_at(tap_number(step, i));
#pragma unroll
  for (int i = 0; i < 2 * kOfWord; ++i)  // only the last step may reach beyond the taps
    if (tap_number(kSteps - 1, i) < args.g.depth)
      inside[i / kOfWord] |= kOfWord == 1 ? ~0u : 0xffffu << i % kOfWord * 16;
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int64_t offsets[kOfWord];
      bool exist[kOfWord];
#pragma unroll
      for (int e = 0; e < kOfWord; ++e) {
        const uint32_t tap = tap_number(step, kOfWord * i + e);
        exist[e] = tap < args.g.depth;
        offsets[e] = args.g.weight_offset(0, args.g.place_of_tap(tap));
      }
#pragma unroll
      for (int j = 0; j < 4 * kGroups; ++j) {  // the lane holds column `row` of the product
        const uint32_t filter = first_filter + j / 4 * kGroup + filter_of<T>(j % 4, row / 2, row % 2);
        const T* const from = weight + filter * args.g.weight.n;
        T elements[kOfWord];
#pragma unroll
        for (int e = 0; e < kOfWord; ++e) elements[e] = exist[e] && filter < filters ? from[offsets[e]] : T(0.0f);
        weights[step][j][i] = word_of<T>(elements);
      }
    }
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t filter = first_filter + group * kGroup + filter_of<T>(i / 2, part, i % 2);
      biases[group][i] = bias && filter < filters ? static_cast<float>(bias[filter * args.g.bias_step]) : 0.0f;
    }

  uint32_t buffer = 0;
  for (uint32_t index = blockIdx.x; index < args.tile_count; index += gridDim.x, buffer = args.size - buffer) {
    finish_copies();
    if (index + gridDim.x < args.tile_count)
      args.copy_lines(args.tile_at(index + gridDim.x), x, buffers + args.size - buffer);
    const FewChannelArgs::Tile tile = args.tile_at(index);
    for (uint32_t first = warp * kFewChannelStep; first < tile.count; first += kFewChannelWarps * kFewChannelStep) {
      const char* const upper = buffers + buffer + args.pixel_at(first + row, tile);
      const char* const lower = buffers + buffer + args.pixel_at(first + row + 8, tile);
      float sums[4 * kGroups][4];
#pragma unroll
      for (int j = 0; j < 4 * kGroups; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[j][e] = biases[j / 4][j % 4 * 2 + e % 2];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          T above[kOfWord], below[kOfWord];
#pragma unroll
          for (int e = 0; e < kOfWord; ++e) {
            above[e] = element<T>(upper, taps[step][kOfWord * i + e]);
            below[e] = element<T>(lower, taps[step][kOfWord * i + e]);
          }
          a[2 * i] = word_of<T>(above), a[2 * i + 1] = word_of<T>(below);
          if (step == kSteps - 1) a[2 * i] &= inside[i], a[2 * i + 1] &= inside[i];
        }
#pragma unroll
        for (int j = 0; j < 4 * kGroups; ++j) mma_m16n8<T>(sums[j], a, weights[step][j][0], weights[step][j][1]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t pixel = first + row + 8 * half;
        T* const to = y + (tile.first + pixel) * filters;
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          constexpr int kVecs = 8 / kVec16Size<T>;
#pragma unroll
          for (int i = 0; i < kVecs; ++i) {
            Vec16 vec;
#pragma unroll
            for (int w = 0; w < 4; ++w) {
              const float(&of)[4] = sums[4 * group + (kVecs == 1 ? w : 2 * i + w / 2)];
              if constexpr (kVecs == 1) vec.value[w] = round_pair<T>(of[2 * half], of[2 * half + 1], relu);
              else vec.value[w] = __float_as_uint(relu && of[2 * half + w % 2] < 0 ? 0 : of[2 * half + w % 2]);
            }
            const uint32_t filter = first_filter + group * kGroup + filter_of<T>(2 * i, part, 0);
            if (pixel < tile.count && filter < filters) *reinterpret_cast<Vec16*>(to + filter) = vec;
          }
        }
      }
    }
  }
}

}  // namespace

void few_channel_mma_fprop(const ConvCall& call, const Launch& launch) {
  const ConvPlan& plan = call.plan;
  visit_narrow(call.problem.dtype, [&]<class T>() {
    const auto run = [&]<int kSteps, int kGroups>() {
      const uint32_t groups = ceil_div(call.gemm.rows, kGroup * kGroups);
      launch.with({plan.shared_bytes}, few_channel_mma_fprop_kernel<T, kSteps, kGroups>, dim3(plan.blocks, groups),
                  kFewChannelThreads, FewChannelArgs{plan.few_channel, call.gemm}, call.in, call.weight, call.bias,
                  call.problem.relu, call.out);
    };
    const auto of_groups = [&]<int kSteps>() {
      if constexpr (sizeof(T) == 2)
        if (plan.tile.rows > kGroup) return run.template operator()<kSteps, 2>();
      run.template operator()<kSteps, 1>();
    };
    switch (ceil_div(call.gemm.depth * sizeof(T), 32u)) {  // steps
      case 1: return of_groups.template operator()<1>();
      case 2: return of_groups.template operator()<2>();
      case 3: return run.template operator()<3, 1>();
      default: run.template operator()<4, 1>();
    }
  });
}

}  // namespace gradus::cuda_detail
