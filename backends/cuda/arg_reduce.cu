// Value and index of the extreme element along an axis: `lanes` threads per result scan every lanes-th element, a tree
// in shared memory picks among them. Of equals the first, NaN counts as extreme.
#include <bit>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/launch.cuh>

namespace gradus {
namespace {

using cuda_detail::Geometry;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Nest;

template <class C>
struct Candidate {
  C value;
  int64_t index;  // -1: none
};

template <bool kMax, class C>
__device__ bool beats(const Candidate<C>& a, const Candidate<C>& b) {
  if (a.index < 0 || b.index < 0) return b.index < 0;
  const bool a_nan = scalar::is_nan(a.value), b_nan = scalar::is_nan(b.value);
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.value != b.value) return kMax ? a.value > b.value : a.value < b.value;
  return a.index < b.index;
}

// Views of `outer`: x, indices, values.
template <bool kMax, class T>
__global__ void __launch_bounds__(kThreads) arg_reduce_kernel(const T* x, Geometry<3> outer, int64_t size, int64_t step,
                                                              uint32_t lanes, int64_t* indices, T* values) {
  using C = compute_t<T>;
  __shared__ Candidate<C> shared[kThreads];
  const uint32_t lane = threadIdx.x % lanes, output = blockIdx.x * (kThreads / lanes) + threadIdx.x / lanes;
  Candidate<C> best{C(0), -1};
  int64_t base[3] = {};
  if (output < outer.numel) {
    outer.offsets(output, base);
    for (int64_t i = lane; i < size; i += lanes) {
      const Candidate<C> next{static_cast<C>(x[base[0] + i * step]), i};
      if (beats<kMax>(next, best)) best = next;
    }
  }
  shared[threadIdx.x] = best;
  for (uint32_t width = lanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (lane < width && beats<kMax>(shared[threadIdx.x + width], shared[threadIdx.x]))
      shared[threadIdx.x] = shared[threadIdx.x + width];
  }
  if (lane != 0 || output >= outer.numel) return;
  const int64_t index = shared[threadIdx.x].index;
  indices[base[1]] = index;
  if (values) values[base[2]] = x[base[0] + index * step];
}

}  // namespace

void CudaBackend::arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                             const MutableView& indices) {
  EventScope event(op == ArgReduceOp::argmax ? "argmax" : "argmin", "cuda", "tree", {&x}, x.numel());
  const int64_t size = x.ndim() ? x.shape[axis] : 1, step = x.ndim() ? x.strides[axis] : 0;
  const Strides& value_strides = values.data ? values.strides : indices.strides;
  const Nest<3> outer(StridedLoop<3>(indices.shape, {&x.strides, &indices.strides, &value_strides}));
  if (outer.numel == 0) return;
  const Launch launch(x.device);
  const auto lanes = static_cast<uint32_t>(std::min<uint64_t>(std::bit_ceil(static_cast<uint64_t>(size)), kThreads));
  visit(x.dtype, [&]<class T>() {
    const auto kernel = op == ArgReduceOp::argmax ? arg_reduce_kernel<true, T> : arg_reduce_kernel<false, T>;
    cuda_detail::for_each_chunk(outer, [&](const Nest<3>& piece, int64_t, const int64_t* at) {
      const auto blocks = static_cast<uint32_t>((piece.numel + kThreads / lanes - 1) / (kThreads / lanes));
      launch(kernel, blocks, kThreads, x.as<T>() + at[0], piece.geometry(), size, step, lanes,
             indices.as<int64_t>() + at[1], values.data ? values.as<T>() + at[2] : static_cast<T*>(nullptr));
    });
  });
}

}  // namespace gradus
