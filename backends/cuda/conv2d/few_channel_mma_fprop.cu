// conv2d forward, few channels (C < 8, C R S <= 64), half types on tensor cores; y channels-last.
// y[(n,p,q), k] = relu(bias[k] + sum over t = (c,r,s) of x[(n,p,q), t] w[k,t])
// Grid: x = blocks that share the tiles, y = groups of 32 or 64 filters.  Block: 128 threads; a warp multiplies 16
// pixels by its filters at a time (mma.m16n8k16). Weights and bias stay in registers while a block goes through its
// tiles.
// Pipeline: rows of x by cp.async, a tile ahead (few_channel_mma.cuh). A lane's columns are numbered so that it ends
// with eight neighbouring filters of a pixel, which it stores at once.
// Deterministic: one thread makes a result.
#include <gradus/backends/cuda/conv2d/few_channel_mma.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kGroup = kFewChannelFilters;

/// Two sums as a word of two elements, rounded to nearest.
template <class T>
__device__ uint32_t round_pair(float low, float high, bool relu) {
  uint32_t word = 0;
#if __CUDA_ARCH__ >= 800
  if (relu) asm("cvt.rn.relu.%3x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low), "C"(kPtxType<T>));
  else asm("cvt.rn.%3x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low), "C"(kPtxType<T>));
#endif
  return word;
}

// Grid: blocks that share the tiles, kGroups groups of filters each.
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

  // A lane's taps in a step of 16 are 2 part + {0, 1, 8, 9}.
  const auto tap_number = [&](int step, int i) { return 16 * step + 2 * part + i % 2 + i / 2 * 8; };
  uint32_t taps[kSteps][4], inside[2];
  uint32_t weights[kSteps][4 * kGroups][2];
  float biases[kGroups][8];
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) taps[step][i] = args.tap_at(tap_number(step, i));
#pragma unroll
  for (int i = 0; i < 2; ++i)  // only the last step may reach beyond the taps
    inside[i] = (tap_number(kSteps - 1, 2 * i) < args.g.depth ? 0xffffu : 0) |
                (tap_number(kSteps - 1, 2 * i + 1) < args.g.depth ? 0xffff0000u : 0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      int64_t offsets[2];
      bool exist[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const uint32_t tap = tap_number(step, i + e);
        exist[e] = tap < args.g.depth;
        offsets[e] = args.g.weight_offset(0, args.g.place_of_tap(tap));
      }
#pragma unroll
      for (int j = 0; j < 4 * kGroups; ++j) {  // column c of eight is filter c / 2 * 8 + c % 2 + 2 (j % 4)
        const uint32_t filter = first_filter + j / 4 * kGroup + row / 2 * 8 + row % 2 + j % 4 * 2;
        const T* const from = weight + filter * args.g.weight.n;
        weights[step][j][i / 2] = pair(exist[0] && filter < filters ? from[offsets[0]] : T(0.0f),
                                       exist[1] && filter < filters ? from[offsets[1]] : T(0.0f));
      }
    }
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t filter = first_filter + group * kGroup + part * 8 + i;
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
          const uint32_t one = taps[step][2 * i], other = taps[step][2 * i + 1];
          a[2 * i] = pair(element<T>(upper, one), element<T>(upper, other));
          a[2 * i + 1] = pair(element<T>(lower, one), element<T>(lower, other));
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
          Vec16 vec;
#pragma unroll
          for (int i = 0; i < 4; ++i)
            vec.value[i] = round_pair<T>(sums[4 * group + i][2 * half], sums[4 * group + i][2 * half + 1], relu);
          const uint32_t filter = first_filter + group * kGroup + part * 8;
          if (pixel < tile.count && filter < filters) *reinterpret_cast<Vec16*>(to + filter) = vec;
        }
      }
    }
  }
}

}  // namespace

void few_channel_mma_fprop(const ConvCall& call, const Launch& launch) {
  const ConvPlan& plan = call.plan;
  visit_half(call.problem.dtype, [&]<class T>() {
    const auto run = [&]<int kSteps, int kGroups>() {
      const uint32_t groups = ceil_div(call.gather.rows, kGroup * kGroups);
      launch.with({plan.shared_bytes}, few_channel_mma_fprop_kernel<T, kSteps, kGroups>, dim3(plan.blocks, groups),
                  kFewChannelThreads, FewChannelArgs{plan.few_channel, call.gather}, call.in, call.weight, call.bias,
                  call.problem.relu, call.out);
    };
    const bool two = plan.tile.rows > kGroup;  // groups
    if (call.gather.depth > 32) run.template operator()<4, 1>();
    else if (call.gather.depth > 16) two ? run.template operator()<2, 2>() : run.template operator()<2, 1>();
    else two ? run.template operator()<1, 2>() : run.template operator()<1, 1>();
  });
}

}  // namespace gradus::cuda_detail
