// conv2d weight gradient: runs the plan's kernel (*_wgrad.cu), whose splits of the sum over pixels each leave their
// part in the workspace, and adds the parts in order.
// partial (splits, groups, K, C R S + 1), the last column that of the bias, if it is wanted; columns are (c, r, s), or
// (r, s, c) from the tap-by-tap kernels.
#include <gradus/backends/cuda/conv2d/wgrad.cuh>

namespace gradus::cuda_detail {
namespace {

// dw (K, C / groups, R, S) and dbias (K) from the parts, a result (group, row, column) per row of kLanes threads, which
// share its splits.
template <class T, uint32_t kLanes>
__global__ void __launch_bounds__(kThreads)
    split_k_reduce_kernel(const compute_t<T>* partial, uint32_t splits, uint32_t results, Divisor columns,
                          Divisor kernel, Divisor kernel_width, Divisor channels, bool channels_innermost,
                          uint32_t taps, T* dw, Strides4 dw_strides, T* dbias, int64_t dbias_step) {
  using C = compute_t<T>;
  constexpr uint32_t kOutputs = kThreads / kLanes, kBatch = 8;
  __shared__ C shared[kLanes][kOutputs];
  const uint32_t slot = threadIdx.x % kOutputs, lane = threadIdx.x / kOutputs;
  const uint32_t result = blockIdx.x * kOutputs + slot;
  C sum = 0;
  for (uint32_t first = lane; first < splits; first += kBatch * kLanes) {
    C parts[kBatch];  // all under way at once
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      const uint32_t split = first + i * kLanes;
      parts[i] = split < splits && result < results ? partial[static_cast<int64_t>(split) * results + result] : C(0);
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
  uint32_t s = result;
  const uint32_t k = columns.split(s);
  sum = shared[0][slot];
  if (s == taps) {
    dbias[k * dbias_step] = static_cast<T>(sum);
  } else {
    uint32_t c = s;
    if (channels_innermost) s = channels.split(c);
    else c = kernel.split(s);
    const uint32_t r = kernel_width.split(s);
    dw[k * dw_strides.n + c * dw_strides.c + r * dw_strides.h + s * dw_strides.w] = static_cast<T>(sum);
  }
}

// The same from parts whose columns go tap by tap, for few splits: a block transposes kTransposed channels of one
// row. Grid: rows of all groups, parts of the channels.
constexpr uint32_t kTransposed = 64, kTransposeThreads = 192;
template <class T>
__global__ void __launch_bounds__(kTransposeThreads)
    split_k_transpose_kernel(const float* partial, uint32_t splits, uint32_t results, uint32_t columns,
                             uint32_t channels, Divisor kernel, Divisor kernel_width, T* dw, Strides4 dw_strides,
                             T* dbias, int64_t dbias_step) {
  extern __shared__ float sums[];  // (channels, taps)
  const uint32_t row = blockIdx.x, first = blockIdx.y * kTransposed, taps = kernel.divisor;
  const uint32_t count = min(kTransposed, channels - first);
  partial += static_cast<int64_t>(row) * columns;
  const auto sum_of = [&](uint32_t column) {
    float sum = 0;
#pragma unroll 4
    for (uint32_t split = 0; split < splits; ++split) sum += partial[static_cast<int64_t>(split) * results + column];
    return sum;
  };
  for (uint32_t i = threadIdx.x; i < kTransposed * taps; i += kTransposeThreads) {
    const uint32_t tap = i / kTransposed, channel = i % kTransposed;
    if (channel < count) sums[channel * taps + tap] = sum_of(tap * channels + first + channel);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count * taps; i += kTransposeThreads) {
    uint32_t s = i;
    const uint32_t c = first + kernel.split(s), r = kernel_width.split(s);
    dw[row * dw_strides.n + c * dw_strides.c + r * dw_strides.h + s * dw_strides.w] = static_cast<T>(sums[i]);
  }
  if (dbias && first == 0 && threadIdx.x == 0) dbias[row * dbias_step] = static_cast<T>(sum_of(taps * channels));
}

WeightGradient make_product(const ConvProblem& p, const ConvPlan& plan) {
  const int64_t taps = p.w.shape[1] * p.w.shape[2] * p.w.shape[3];
  WeightGradient g{.rows = static_cast<uint32_t>(p.w.shape[0] / p.geometry.groups),
                   .taps = static_cast<uint32_t>(taps),
                   .columns = static_cast<uint32_t>(taps + (p.bias ? 1 : 0)),
                   .positions = static_cast<uint32_t>(p.y.shape[0] * p.y.shape[2] * p.y.shape[3]),
                   .per_split = plan.per_split,
                   .channels = static_cast<uint32_t>(p.w.shape[1]),
                   .in_height = static_cast<int>(p.x.shape[2]),
                   .in_width = static_cast<int>(p.x.shape[3]),
                   .kernel_height = static_cast<int>(p.w.shape[2]),
                   .out_height = Divisor(p.y.shape[2]),
                   .out_width = Divisor(p.y.shape[3]),
                   .kernel = Divisor(p.w.shape[2] * p.w.shape[3]),
                   .kernel_width = Divisor(p.w.shape[3]),
                   .dy = Strides4(p.y.strides),
                   .x = Strides4(p.x.strides)};
  for (int i = 0; i < 2; ++i) {
    g.stride[i] = static_cast<int>(p.geometry.stride[i]), g.padding[i] = static_cast<int>(p.geometry.padding[i]);
    g.dilation[i] = static_cast<int>(p.geometry.dilation[i]);
  }
  return g;
}

}  // namespace

void run_weight(const ConvProblem& problem, const ConvPlan& plan, const WeightOperands& operands, std::byte* workspace,
                const Launch& launch) {
  const View &dy = operands.dy, &x = operands.x;
  const MutableView& dw = operands.dw;
  const MutableView* const dbias = operands.dbias;
  const WeightGradient g = make_product(problem, plan);
  const void* image = x.numel() > 0 ? x.data : dy.data;  // an empty image is never inside, but something is read
  const WeightCall call{problem, plan, g, dy.data, operands.mask, image, workspace};
  switch (plan.algorithm) {
    case ConvAlgorithm::implicit_gemm_async: implicit_gemm_async_wgrad(call, launch); break;
    case ConvAlgorithm::implicit_gemm: implicit_gemm_wgrad(call, launch); break;
    case ConvAlgorithm::direct: direct_wgrad(call, launch); break;
    case ConvAlgorithm::few_channel_mma: few_channel_mma_wgrad(call, launch); break;
    default: implicit_gemm_generic_wgrad(call, launch);
  }
  const uint32_t parts = plan.split_k, lines = call.groups() * g.rows, results = lines * g.columns;
  visit_floating(problem.dtype, [&]<class T>() {
    T* const dbias_data = dbias ? dbias->as<T>() : nullptr;
    const int64_t dbias_step = dbias ? dbias->strides[0] : 0;
    const auto sum = [&]<uint32_t kLanes>() {
      constexpr uint32_t kOutputs = kThreads / kLanes;
      const bool channels_innermost =
          plan.algorithm == ConvAlgorithm::implicit_gemm_async || plan.algorithm == ConvAlgorithm::implicit_gemm;
      launch(split_k_reduce_kernel<T, kLanes>, ceil_div(results, kOutputs), kThreads, call.partial, parts, results,
             Divisor(g.columns), g.kernel, g.kernel_width, Divisor(g.channels), channels_innermost, g.taps, dw.as<T>(),
             Strides4(dw.strides), dbias_data, dbias_step);
    };
    switch (plan.reduce_lanes) {
      case 1: return sum.template operator()<1>();
      case 8: return sum.template operator()<8>();
      case 32: return sum.template operator()<32>();
    }
    launch.with_shared(split_k_transpose_kernel<T>, dim3(lines, ceil_div(g.channels, kTransposed)), kTransposeThreads,
                       sizeof(float) * kTransposed * g.kernel.divisor, call.partial, parts, results, g.columns,
                       g.channels, g.kernel, g.kernel_width, dw.as<T>(), Strides4(dw.strides), dbias_data, dbias_step);
  });
}

}  // namespace gradus::cuda_detail
