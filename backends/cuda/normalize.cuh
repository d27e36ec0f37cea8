// What normalisation and its gradient share: walks over images beside statistics and parameters that are broadcast to
// them, four neighbours at a time where they lie so.
#pragma once

#include <gradus/backends/cuda/reduce_plan.cuh>

namespace gradus::cuda_detail {

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
    return wide ? static_cast<const C*>(data)[i] : static_cast<C>(static_cast<const T*>(data)[i]);
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

template <int kWidth, class T>
__device__ void load_dense(compute_t<T> (&values)[kWidth], const T* x) {
  if constexpr (kWidth == 4) {
    const auto packet = *reinterpret_cast<const Packet<T>*>(x);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = static_cast<compute_t<T>>(packet.value[j]);
  } else {
    values[0] = static_cast<compute_t<T>>(*x);
  }
}

template <int kWidth, class T>
__device__ void store_dense(T* y, const compute_t<T> (&values)[kWidth]) {
  if constexpr (kWidth == 4) {
    Packet<T> packet;
#pragma unroll
    for (int j = 0; j < 4; ++j) packet.value[j] = static_cast<T>(values[j]);
    *reinterpret_cast<Packet<T>*>(y) = packet;
  } else {
    *y = static_cast<T>(values[0]);
  }
}

/// True when the first `dense` views of the nest can be walked in aligned packets of four along the last axis.
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

/// A warp per output joins the partial results of its splits: each lane every 32nd, then a tree joins the lanes.
template <class Partial, int N, class Results>
__global__ void __launch_bounds__(kThreads)
    join_kernel(const Partial* partial, uint32_t splits, Geometry<N> outer, Results results) {
  const uint32_t output = thread_index() / 32, lane = threadIdx.x % 32;
  if (output >= outer.numel) return;
  Partial total{};
  for (uint32_t split = lane; split < splits; split += 32)
    total = Partial::join(total, partial[static_cast<int64_t>(split) * outer.numel + output]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) total = Partial::join(total, total.of_lane_behind(step));
  if (lane != 0) return;
  int64_t at[N];
  outer.offsets(output, at);
  results.store(at, total);
}

/// Results for every element of `outer`: run(partial) launches the kernel that stores a Partial for each split or, where
/// `partial` is null, the results. Partial{} joined with another is the other.
template <class Partial, int N, class Results, class Run>
void reduce_by_parts(Device device, const Nest<N>& outer, uint32_t splits, const Results& results, Run&& run) {
  if (splits == 1) return run(static_cast<Partial*>(nullptr));
  const Scratch partial(sizeof(Partial) * splits * static_cast<size_t>(outer.numel), device);
  run(partial.as<Partial>());
  const Launch launch(device);
  launch(join_kernel<Partial, N, Results>, static_cast<uint32_t>((outer.numel + 7) / 8), kThreads,
         static_cast<const Partial*>(partial.as<Partial>()), splits, outer.geometry(), results);
}

}  // namespace gradus::cuda_detail
