// What the kernels of normalisation share.
#pragma once

#include <gradus/backends/cuda/norm/select.h>
#include <gradus/backends/cuda/device/reduce_plan.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus::cuda_detail {

// What normalize.cu calls, one of them as the plan says, with its workspace.
void normalize_rows(const NormalizeArgs& problem, const NormPlan& plan, const Launch& launch, void*);
void normalize_rows(const NormalizeBackwardArgs& problem, const NormPlan& plan, const Launch& launch, void* workspace);
void normalize_channels(const NormalizeArgs& problem, const NormPlan& plan, const Launch& launch, void* workspace);
void normalize_channels(const NormalizeBackwardArgs& problem, const NormPlan& plan, const Launch& launch,
                        void* workspace);
void normalize_strided(const NormalizeArgs& problem, const NormPlan& plan, const Launch& launch, void* workspace);
void normalize_strided(const NormalizeBackwardArgs& problem, const NormPlan& plan, const Launch& launch,
                       void* workspace);

template <int kWidth, class T>
__device__ void load_dense(compute_t<T> (&values)[kWidth], const T* x) {
  const auto vector = load<kWidth>(x);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) values[j] = static_cast<compute_t<T>>(vector.value[j]);
}

template <int kWidth, class T>
__device__ void store_dense(T* y, const compute_t<T> (&values)[kWidth]) {
  Vec<T, kWidth> vector;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) vector.value[j] = static_cast<T>(values[j]);
  *reinterpret_cast<Vec<T, kWidth>*>(y) = vector;
}

/// A weight or bias: of T or, where `wide`, of the type that T computes in; read as the latter. Null data reads as what
/// the caller says.
template <class T>
struct Parameter {
  using C = compute_t<T>;
  const void* data = nullptr;
  bool wide = false;

  Parameter() = default;
  explicit Parameter(const View& view) : data(view.data), wide(view.dtype == dtype_of<C>) {}
  /// Neighbours, aligned as a Vec of either type. Nothing is converted before all is loaded: loads that a branch waits
  /// for follow each other instead of being under way together.
  template <int kWidth>
  __device__ void load(C (&values)[kWidth], int64_t i) const {
    if constexpr (std::is_same_v<T, C>) return load_dense<kWidth>(values, static_cast<const T*>(data) + i);
    Vec<C, kWidth> as_wide{};
    Vec<T, kWidth> as_narrow{};
    if (wide) as_wide = cuda_detail::load<kWidth>(static_cast<const C*>(data) + i);
    else as_narrow = cuda_detail::load<kWidth>(static_cast<const T*>(data) + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = wide ? as_wide.value[j] : static_cast<C>(as_narrow.value[j]);
  }
  __device__ C at_or(C otherwise, int64_t i) const {
    if (!data) return otherwise;
    C value[1];
    load(value, i);
    return value[0];
  }
};

/// Of `count` numbers: their mean and the sum of their squared distances from it.
template <class C>
struct Moments {
  C count, mean, spread;

  static __device__ Moments join(const Moments& a, const Moments& b) {
    const C count = a.count + b.count;
    if (b.count == C(0)) return a;
    const C share = b.count / count, step = b.mean - a.mean;
    return {count, a.mean + step * share, a.spread + b.spread + step * step * a.count * share};
  }
};

/// A pair of sums that are taken at once. Of a gradient: of a and of a h.
template <class C>
struct alignas(2 * sizeof(C)) Sums {
  C plain, along;

  static __device__ Sums join(const Sums& a, const Sums& b) { return {a.plain + b.plain, a.along + b.along}; }
  __device__ Sums shfl_xor(int step) const {
    return {__shfl_xor_sync(0xffffffffu, plain, step), __shfl_xor_sync(0xffffffffu, along, step)};
  }
};

/// Where such pairs go; either may be null. Their offset is the last of those of a sum.
template <class C>
struct SumResults {
  C *plain = nullptr, *along = nullptr;

  template <int N>
  __device__ void store(const int64_t (&at)[N], const Sums<C>& sums) const {
    if (plain) plain[at[N - 1]] = sums.plain;
    if (along) along[at[N - 1]] = sums.along;
  }
};

/// Joins the partial results of an output's splits: lane by lane every plan.lanes-th, then by a tree. Outputs that are
/// neighbours are side by side in `partial`. Partial{} joined with another is the other.
template <class Partial, int N, class Results>
__global__ void __launch_bounds__(kThreads)
    join_kernel(const Partial* partial, uint32_t splits, ReducePlan plan, Geometry<N> outer, Results results) {
  __shared__ Partial shared[kThreads];
  const uint32_t output = plan.output();
  Partial total{};
  if (output < outer.numel) {
#pragma unroll 8
    for (uint32_t split = plan.lane(); split < splits; split += plan.lanes)
      total = Partial::join(total, partial[static_cast<int64_t>(split) * outer.numel + output]);
  }
  total = fold_lanes(plan, total, shared, Partial::join);
  if (plan.lane() != 0 || output >= outer.numel) return;
  int64_t at[N];
  outer.offsets(output, at);
  results.store(at, total);
}

template <class Partial, int N, class Results>
void join_splits(const Launch& launch, const Partial* partial, uint32_t splits, const Nest<N>& outer,
                 const Results& results) {
  ReducePlan plan;
  plan.outputs_adjacent = true;
  plan.outputs = 8;  // neighbours fill sectors, and even 64 channels occupy several multiprocessors
  plan.lanes = kThreads / plan.outputs;
  launch(join_kernel<Partial, N, Results>, plan.blocks(outer.numel), kThreads, partial, splits, plan, outer.geometry(),
         results);
}

/// RunningStatistics as kernels move them: dense, of the type C that statistics are computed in; null ones are not
/// kept.
template <class C>
struct RunningChannels {
  C *mean = nullptr, *variance = nullptr;
  int64_t* batches = nullptr;
  C momentum = 0, correction = 1;

  RunningChannels() = default;
  explicit RunningChannels(const RunningStatistics& running)
      : mean(running.mean.as<C>()), variance(running.variance.as<C>()), batches(running.batches.as<int64_t>()),
        momentum(static_cast<C>(running.momentum)), correction(static_cast<C>(running.correction)) {}

  /// A channel's, which can be loaded before the batch's are known.
  struct Before {
    C mean, variance;
  };
  __device__ Before before(uint32_t channel) const {
    return {mean ? mean[channel] : C(0), variance ? variance[channel] : C(0)};
  }
  /// One thread does this for each channel.
  __device__ void move(uint32_t channel, const Before& before, C batch_mean, C batch_variance) const {
    if (mean) mean[channel] = before.mean * (C(1) - momentum) + batch_mean * momentum;
    if (variance) variance[channel] = before.variance * (C(1) - momentum) + batch_variance * correction * momentum;
    // Waits for no load.
    if (batches && channel == 0) atomicAdd(reinterpret_cast<unsigned long long*>(batches), 1ull);
  }
};

}  // namespace gradus::cuda_detail
