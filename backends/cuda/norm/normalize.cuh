// Declarations of the kernels of normalisation, and types that these kernels share.
#pragma once

#include <gradus/backends/cuda/norm/select.h>
#include <gradus/backends/cuda/device/reduce_kernel.cuh>

namespace gradus::cuda_detail {

// The kernels, launched as planned, with the workspace of the plan.
void normalize_rows(const NormalizeArgs& problem, const NormPlan& plan, const Launch& launch, void*);
void normalize_rows(const NormalizeBackwardArgs& problem, const NormPlan& plan, const Launch& launch, void* workspace);
void normalize_channels(const NormalizeArgs& problem, const NormPlan& plan, const Launch& launch, void* workspace);
void normalize_channels(const NormalizeBackwardArgs& problem, const NormPlan& plan, const Launch& launch,
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

/// A weight or bias, broadcast to the shape of x. Its elements are of type T or, if `wide` is set, of type
/// compute_t<T>. They are converted to compute_t<T> when they are loaded.
template <class T>
struct Parameter {
  using C = compute_t<T>;
  const void* data = nullptr;
  bool wide = false;
  int64_t step = 0;  // distance between the elements of neighbouring channels

  explicit Parameter(const View& view)
      : data(view.data), wide(view.dtype == dtype_of<C>), step(view.ndim() > 1 ? view.strides[1] : 0) {}
  /// Loads kWidth neighbours, which must be aligned as a Vec of their type. The conversion to C is outside of the
  /// branches: inside a branch it would wait for the load, and then the loads of a thread would not overlap.
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
  /// The parameter of a channel, or `otherwise` if there is no parameter.
  __device__ C at_or(C otherwise, uint32_t channel) const {
    if (!data) return otherwise;
    C value[1];
    load(value, channel * step);
    return value[0];
  }
};

/// Two sums that are computed together: plain = sum(a) and along = sum(a b).
template <class C>
struct alignas(2 * sizeof(C)) Sums {
  C plain, along;

  /// Returns {mean, variance} of `count` numbers if this object has the sums of the numbers and of their squares.
  __device__ Sums moments(C count) const {
    const C mean = plain / count, variance = along / count - mean * mean;
    return {mean, variance < C(0) ? C(0) : variance};  // rounding can make the variance of equal numbers negative
  }
  static __device__ Sums join(const Sums& a, const Sums& b) { return {a.plain + b.plain, a.along + b.along}; }
  __device__ Sums shfl_xor(int step) const {
    return {__shfl_xor_sync(0xffffffffu, plain, step), __shfl_xor_sync(0xffffffffu, along, step)};
  }
};

/// RunningStatistics as a kernel argument: dense arrays of the type C in which statistics are computed. Null arrays are
/// not updated.
template <class C>
struct RunningChannels {
  C *mean = nullptr, *variance = nullptr;
  int64_t* batches = nullptr;
  C momentum = 0, correction = 1;

  explicit RunningChannels(const RunningStatistics& running)
      : mean(running.mean.as<C>()), variance(running.variance.as<C>()), batches(running.batches.as<int64_t>()),
        momentum(static_cast<C>(running.momentum)), correction(static_cast<C>(running.correction)) {}

  /// The running statistics of a channel before the update. They can be loaded before the batch's statistics are known.
  struct Before {
    C mean, variance;
  };
  __device__ Before before(uint32_t channel) const {
    return {mean ? mean[channel] : C(0), variance ? variance[channel] : C(0)};
  }
  /// Updates a channel; exactly one thread calls it for each channel.
  __device__ void move(uint32_t channel, const Before& before, C batch_mean, C batch_variance) const {
    if (mean) mean[channel] = before.mean * (C(1) - momentum) + batch_mean * momentum;
    if (variance) variance[channel] = before.variance * (C(1) - momentum) + batch_variance * correction * momentum;
    // The addition is atomic because an atomic addition, unlike a load and a store, lets the thread continue at once.
    if (batches && channel == 0) atomicAdd(reinterpret_cast<unsigned long long*>(batches), 1ull);
  }
};

}  // namespace gradus::cuda_detail
