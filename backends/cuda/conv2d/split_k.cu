// conv2d, split-K: adds the partial sums that the convolution kernels store in the workspace.
//   fprop, dgrad: out[i] = sum over splits of partial[split, i], then bias and ReLU;  partial: (splits, groups,
//   rows, positions).
//   wgrad: dw[i] = sum over splits of partial[split, i];  partial: (splits, groups, K, C R S), with one more column if
//   dbias is asked for. The columns have the order (c, r, s); those of implicit_gemm_wgrad and wgmma_im2col (r, s, c).
// Grid: x = blocks of 256 / kLanes results.  Block: 256 threads; kLanes threads (1, 8 or 32) compute a result: each
// adds every kLanes-th part, with eight loads in flight, and a tree in shared memory adds the threads.
// Deterministic: parts are added in a fixed order.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>

namespace gradus::cuda_detail {
namespace {

// `to` is the output or, for wgrad, dw (K, C / groups, R, S). `bias` (K) is added to the output; for wgrad, dbias is
// stored there. If one thread computes a result, neighbouring threads compute neighbours in dw, and the cache holds
// whole lines of the parts for the block; otherwise neighbouring threads read neighbours in the parts.
template <class T, uint32_t kLanes, bool kOfWeight>
__global__ void __launch_bounds__(kThreads)
    split_k_reduce_kernel(ImplicitGemm g, const compute_t<T>* partial, uint32_t splits, uint32_t results,
                          Divisor columns, Divisor channels, bool channels_innermost, bool relu, T* to, T* bias) {
  using C = compute_t<T>;
  constexpr uint32_t kOutputs = kThreads / kLanes, kBatch = 8;
  __shared__ C shared[kLanes][kOutputs];
  const uint32_t slot = threadIdx.x % kOutputs, lane = threadIdx.x / kOutputs;
  const uint32_t result = blockIdx.x * kOutputs + slot;
  uint32_t column = result, place = result;  // place: index in the parts of a split
  const uint32_t k = columns.split(column);
  const bool follows_dw = kOfWeight && kLanes == 1 && channels_innermost && g.weight.c != 1;
  if (follows_dw && column < g.depth) {
    uint32_t tap = column;
    const uint32_t channel = g.taps.split(tap);
    place += tap * channels.divisor + channel - column;
  }
  C sum = 0;
  for (uint32_t first = lane; first < splits; first += kBatch * kLanes) {
    C parts[kBatch];  // all loads are in flight at once
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      const uint32_t split = first + i * kLanes;
      parts[i] = split < splits && result < results ? partial[static_cast<int64_t>(split) * results + place] : C(0);
    }
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) sum += parts[i];
  }
  shared[lane][slot] = sum;
  for (uint32_t width = kLanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (lane < width) shared[lane][slot] += shared[lane + width][slot];
  }
  if (lane != 0 || result >= results) return;
  sum = shared[0][slot];
  if constexpr (!kOfWeight) {
    g.store(to, bias, relu, 0, k, column, sum);
  } else if (column == g.depth) {
    bias[k * g.bias_step] = static_cast<T>(sum);
  } else {
    if (channels_innermost && !follows_dw) {
      const uint32_t tap = channels.split(column);
      column = column * g.taps.divisor + tap;
    }
    to[g.weight_offset(k, g.place_of_tap(column))] = static_cast<T>(sum);
  }
}

}  // namespace

void add_parts(const ConvCall& call, const Launch& launch, bool channels_innermost) {
  const ImplicitGemm& g = call.gemm;
  const ConvPlan& plan = call.plan;
  const bool of_weight = call.problem.pass == ConvPass::backward_weight;
  const uint32_t columns = of_weight ? g.columns : g.positions, lines = call.groups() * g.rows;
  const uint32_t parts = call.phase.split_k, results = lines * columns;
  const Address partial{call.workspace + plan.partial_offset};
  visit_floating(call.problem.dtype, [&]<class T>() {
    const auto sum = [&]<int kLanes, bool kOfWeight>() {
      launch(split_k_reduce_kernel<T, kLanes, kOfWeight>, ceil_div(results, kThreads / kLanes), kThreads, g, partial,
             parts, results, Divisor(columns), Divisor(g.in_channels), channels_innermost, call.problem.relu,
             kOfWeight ? call.weight : call.out, call.bias);
    };
    if (!of_weight) return sum.template operator()<1, false>();
    visit_constant<1, 8, 32>(static_cast<int>(plan.reduce_lanes),
                             [&]<int kLanes>() { sum.template operator()<kLanes, true>(); });
  });
}

}  // namespace gradus::cuda_detail
