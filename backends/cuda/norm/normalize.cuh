// What normalisation and its gradient share: walks over images beside statistics and parameters that are broadcast to
// them, four neighbours at a time where they lie so.
#pragma once

#include <gradus/backends/cuda/device/reduce_plan.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus::cuda_detail {

template <int kWidth, class T>
__device__ void load_dense(compute_t<T> (&values)[kWidth], const T* x) {
  const auto vector = *reinterpret_cast<const Vec<T, kWidth>*>(x);
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

/// Elements of T or, where `wide`, of the type that T computes in; read as the latter. Statistics, weights and biases
/// may be either. Null data reads as what the caller says.
template <class T>
struct Either {
  using C = compute_t<T>;
  const void* data = nullptr;
  bool wide = false;

  Either() = default;
  explicit Either(const View* view) {
    if (view) data = view->data, wide = view->dtype == dtype_of<C>;
  }
  __device__ C at(int64_t i) const {
    C value[1];
    load(value, i);
    return value[0];
  }
  /// Neighbours, aligned as a Vec of either type. Nothing is converted before all is loaded: loads that a branch waits
  /// for follow each other instead of being under way together.
  template <int kWidth>
  __device__ void load(C (&values)[kWidth], int64_t i) const {
    if constexpr (std::is_same_v<T, C>) return load_dense<kWidth>(values, static_cast<const T*>(data) + i);
    Vec<C, kWidth> as_wide{};
    Vec<T, kWidth> as_narrow{};
    if (wide) as_wide = *reinterpret_cast<const Vec<C, kWidth>*>(static_cast<const C*>(data) + i);
    else as_narrow = *reinterpret_cast<const Vec<T, kWidth>*>(static_cast<const T*>(data) + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = wide ? as_wide.value[j] : static_cast<C>(as_narrow.value[j]);
  }
  __device__ C at_or(C otherwise, int64_t i) const { return data ? at(i) : otherwise; }
  Either shifted(int64_t by) const {
    Either moved = *this;
    if (data) moved.data = static_cast<const char*>(data) + by * static_cast<int64_t>(wide ? sizeof(C) : sizeof(T));
    return moved;
  }
};

/// Strides of a view, of zeros where there is none.
inline Strides strides_or_zero(const View* view, int ndim) { return view ? view->strides : Dims::filled(ndim, 0); }

/// kWidth neighbours of the last axis, as C; one value for all where the step is 0.
template <int kWidth, class C, class At>
__device__ void load_broadcast(C (&values)[kWidth], int64_t step, At&& at) {
  values[0] = at(0);
#pragma unroll
  for (int j = 1; j < kWidth; ++j) values[j] = step == 0 ? values[0] : at(j * step);
}

/// True when the first `dense` views of the nest can be walked in aligned vectors of four along the last axis.
template <int N>
bool in_packets(const Nest<N>& nest, int dense) {
  if (nest.ndim == 0 || nest.shape[nest.ndim - 1] % 4 != 0) return false;
  for (int k = 0; k < dense; ++k) {
    if (nest.strides[k][nest.ndim - 1] != 1) return false;
    for (int axis = 0; axis + 1 < nest.ndim; ++axis)
      if (nest.strides[k][axis] % 4 != 0) return false;
  }
  return true;
}

/// x's shape with size 1 at the axes in `axes`, or at all others.
inline Shape with_ones(Shape shape, uint32_t axes, bool at_the_others = false) {
  for (int i = 0; i < shape.size(); ++i)
    if ((axes >> i & 1) != static_cast<uint32_t>(at_the_others)) shape[i] = 1;
  return shape;
}

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

/// Where such pairs go; either may be null. They are the last two of the views whose offsets are given.
struct SumResults {
  void *plain = nullptr, *along = nullptr;
  DType plain_dtype = DType::f32, along_dtype = DType::f32;

  SumResults(const MutableView* plain_view, const MutableView* along_view) {
    if (plain_view) plain = plain_view->data, plain_dtype = plain_view->dtype;
    if (along_view) along = along_view->data, along_dtype = along_view->dtype;
  }
  template <class C, int N>
  __device__ void store(const int64_t (&at)[N], const Sums<C>& sums) const {
    if (plain) store_as(plain, plain_dtype, at[N - 2], sums.plain);
    if (along) store_as(along, along_dtype, at[N - 1], sums.along);
  }
};

/// Joins the partial results of an output's splits: lane by lane every plan.lanes-th, then by a tree. Outputs that are
/// neighbours lie side by side in `partial`.
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

/// Results for every element of `outer` from a Partial for each split, which run(partial) launches the kernel for.
/// Partial{} joined with another is the other.
template <class Partial, int N, class Results, class Run>
void join_parts(Device device, const Nest<N>& outer, uint32_t splits, const Results& results, Run&& run) {
  const Scratch partial(sizeof(Partial) * splits * static_cast<size_t>(outer.numel), device);
  run(partial.as<Partial>());
  ReducePlan plan;
  plan.outputs_adjacent = true;
  plan.outputs = 8;  // neighbours fill sectors, and even 64 channels occupy several multiprocessors
  plan.lanes = kThreads / plan.outputs;
  const Launch launch(device);
  launch(join_kernel<Partial, N, Results>, plan.blocks(outer.numel), kThreads,
         static_cast<const Partial*>(partial.as<Partial>()), splits, plan, outer.geometry(), results);
}

/// The same by one launch where there is one split: run(nullptr) stores the results.
template <class Partial, int N, class Results, class Run>
void reduce_by_parts(Device device, const Nest<N>& outer, uint32_t splits, const Results& results, Run&& run) {
  if (splits == 1) run(static_cast<Partial*>(nullptr));
  else join_parts<Partial>(device, outer, splits, results, run);
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
  static bool serve(const RunningStatistics& running, DType dtype) {
    for (const MutableView* view : {&running.mean, &running.variance})
      if (view->data && (view->dtype != dtype || view->strides != contiguous_strides(view->shape))) return false;
    return true;
  }

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
