// Gradients of normalize. With g = dy w, s = 1 / sqrt(variance + eps), h = (x - mean) s:
//   dx = s (g - avg(g) - h avg(g h)),   dw = sum(dy h),   dbias = sum(dy)
// One kind of launch takes the pair of sums (a, a h) over some axes, with a = g for dx and a = dy for the parameters;
// where both are over the same axes, as in batch norm, one serves all. A last one writes dx.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/norm/normalize_channels.h>
#include <gradus/backends/cuda/norm/normalize_rows.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/norm/normalize.cuh>

namespace gradus {
namespace {

using cuda_detail::Either;
using cuda_detail::Geometry;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Nest;
using cuda_detail::ReducePlan;
using cuda_detail::SumResults;
using cuda_detail::Sums;

// What is read: dy, x, the statistics (of the same strides), and the weight of g.
template <class T>
struct Operands {
  using C = compute_t<T>;
  const T *dy, *x;
  Either<T> mean, variance, weight;
  C eps;

  __device__ C inverse_deviation(int64_t at) const { return C(1) / ::sqrt(variance.at(at) + eps); }
};

// Views of `outer`: dy, x, statistics, weight, plain, along; of `inner` the first four. kConstant: the statistics do
// not vary within a sum.
template <bool kConstant, class T>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(Operands<T> operands, Geometry<6> outer, Geometry<4> inner, ReducePlan plan,
                Sums<compute_t<T>>* partial, SumResults results) {
  using C = compute_t<T>;
  __shared__ Sums<C> shared[kThreads];
  const uint32_t lane = plan.lane(), output = plan.output();
  int64_t base[6] = {};
  Sums<C> total{0, 0};
  if (output < outer.numel) {
    outer.offsets(output, base);
    const uint32_t begin = blockIdx.y * plan.per_split, end = min(begin + plan.per_split, inner.numel);
    const bool straight = inner.ndim <= 1;
    C mean = operands.mean.at(base[2]), s = operands.inverse_deviation(base[2]);
#pragma unroll 4
    for (uint32_t i = begin + lane; i < end; i += plan.lanes) {
      int64_t at[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) at[k] = i * inner.strides[k][0];
      if (!straight) inner.offsets(i, at);
      C a = static_cast<C>(operands.dy[base[0] + at[0]]);
      if (operands.weight.data) a *= operands.weight.at(base[3] + at[3]);
      if constexpr (!kConstant) {
        mean = operands.mean.at(base[2] + at[2]);
        s = operands.inverse_deviation(base[2] + at[2]);
      }
      total.plain += a;
      total.along += a * ((static_cast<C>(operands.x[base[1] + at[1]]) - mean) * s);
    }
  }
  total = cuda_detail::fold_lanes(plan, total, shared, Sums<C>::join);
  if (lane != 0 || output >= outer.numel) return;
  if (partial) partial[static_cast<int64_t>(blockIdx.y) * outer.numel + output] = total;
  else results.store(base, total);
}

// Views: dx, dy, x, statistics, weight, sums. With null sums the statistics were fixed. `sums_of_dy`: they are to be
// multiplied with the weight.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    dx_kernel(Geometry<6> geometry, T* dx, Operands<T> operands, const compute_t<T>* plain, const compute_t<T>* along,
              bool sums_of_dy, compute_t<T> count) {
  using C = compute_t<T>;
  const int last = geometry.ndim - 1;
  int64_t step[6];
#pragma unroll
  for (int k = 0; k < 6; ++k) step[k] = last < 0 ? 0 : geometry.strides[k][last];
  for (uint32_t i = kWidth * cuda_detail::thread_index(); i < geometry.numel;
       i += kWidth * cuda_detail::thread_count()) {
    int64_t at[6];
    geometry.offsets(i, at);
    C g[kWidth], x[kWidth], mean[kWidth], s[kWidth], weight[kWidth], g_sum[kWidth], h_sum[kWidth];
    cuda_detail::load_dense<kWidth>(g, operands.dy + at[1]);
    cuda_detail::load_dense<kWidth>(x, operands.x + at[2]);
    cuda_detail::load_broadcast(mean, step[3], [&](int64_t j) { return operands.mean.at(at[3] + j); });
    cuda_detail::load_broadcast(s, step[3], [&](int64_t j) { return operands.inverse_deviation(at[3] + j); });
    cuda_detail::load_broadcast(weight, step[4], [&](int64_t j) { return operands.weight.at_or(C(1), at[4] + j); });
    if (plain) {
      cuda_detail::load_broadcast(g_sum, step[5], [&](int64_t j) { return plain[at[5] + j]; });
      cuda_detail::load_broadcast(h_sum, step[5], [&](int64_t j) { return along[at[5] + j]; });
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      g[j] *= weight[j];
      if (plain) {
        const C scale = sums_of_dy ? weight[j] / count : C(1) / count;
        g[j] -= g_sum[j] * scale + (x[j] - mean[j]) * s[j] * (h_sum[j] * scale);
      }
      g[j] *= s[j];
    }
    cuda_detail::store_dense<kWidth>(dx + at[0], g);
  }
}

/// Broadcast strides: 0 where `view` has size 1.
Strides broadcast_strides(const View& view) {
  Strides strides = view.strides;
  for (int i = 0; i < view.ndim(); ++i)
    if (view.shape[i] == 1) strides[i] = 0;
  return strides;
}

/// The pair of sums over `axes` into views that have size 1 there; either may be null.
template <class T>
void take_sums(const Operands<T>& operands, const View& dy, const View& x, const Strides& statistics,
               const Strides& weight, uint32_t axes, const MutableView* plain, const MutableView* along) {
  using C = compute_t<T>;
  const Strides& plain_strides = plain ? plain->strides : along->strides;
  const Strides& along_strides = along ? along->strides : plain->strides;
  const Nest<6> outer(StridedLoop<6>(cuda_detail::with_ones(x.shape, axes),
                                     {&dy.strides, &x.strides, &statistics, &weight, &plain_strides, &along_strides}));
  const SumResults results(plain, along);
  const Launch launch(x.device);
  const Nest<4> inner(
      StridedLoop<4>(cuda_detail::with_ones(x.shape, axes, true), {&dy.strides, &x.strides, &statistics, &weight}));
  bool constant = true;
  for (int axis = 0; axis < inner.ndim; ++axis) constant = constant && inner.strides[2][axis] == 0;
  const ReducePlan plan(outer, inner, launch.multiprocessors());
  cuda_detail::reduce_by_parts<Sums<C>>(x.device, outer, plan.splits, results, [&](Sums<C>* partial) {
    launch(constant ? sums_kernel<true, T> : sums_kernel<false, T>, dim3(plan.blocks(outer.numel), plan.splits),
           kThreads, operands, outer.geometry(), inner.geometry(), plan, partial, results);
  });
}

// Axes at which a view of x's rank has size 1.
uint32_t axes_of_size_one(const View& view) {
  uint32_t axes = 0;
  for (int i = 0; i < view.ndim(); ++i) axes |= static_cast<uint32_t>(view.shape[i] == 1) << i;
  return axes;
}

}  // namespace

void CudaBackend::normalize_backward(const NormalizeBackwardArgs& args) {
  const View &dy = args.dy, &x = args.x, &mean = args.mean, &variance = args.variance;
  const MutableView *const dx = if_present(args.dx), *const dweight = if_present(args.dweight),
                           *const dbias = if_present(args.dbias);
  const bool same_statistics = mean.strides == variance.strides && mean.dtype == variance.dtype;
  const bool same_sums = !dweight || !dbias || dweight->shape == dbias->shape;
  if (!args.y && (x.numel() == 0 || x.numel() > cuda_detail::kMaxChunk || !same_statistics || !same_sums))
    return Backend::normalize_backward(args);
  EventScope event(args.y ? "normalize_relu_backward" : "normalize_backward", "cuda", "sums", {&dy, &args.y, &x},
                   (args.y ? 13 : 12) * x.numel());
  if (!args.y && dx && !args.fixed_statistics && cuda_detail::normalize_rows_backward(args)) return;
  if (cuda_detail::normalize_channels_backward(args)) return;
  if (args.y) return Backend::normalize_backward(args);
  const View* const weight = if_present(args.weight);
  const int n = x.ndim();
  const Strides statistics = broadcast_strides(mean);
  const Strides weight_strides = cuda_detail::strides_or_zero(weight, n);
  visit_floating(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const Operands<T> operands{dy.as<T>(),           x.as<T>(),         Either<T>(&mean),
                               Either<T>(&variance), Either<T>(weight), static_cast<C>(args.eps)};
    Operands<T> of_dy = operands;
    of_dy.weight = Either<T>();
    const bool parameters = dweight || dbias, sums = dx && !args.fixed_statistics;
    const MutableView* parameter = dweight ? dweight : dbias;
    const uint32_t statistic_axes = axes_of_size_one(mean);
    // One pair of sums serves both where they are over the same axes.
    const bool shared = parameters && sums && axes_of_size_one(*parameter) == statistic_axes;
    const Shape sums_shape = cuda_detail::with_ones(x.shape, statistic_axes);
    Array memory[2];
    MutableView plain, along;
    if (sums) {
      // The parameters' gradients are the sums themselves where they lie as these do.
      const auto place = [&](const MutableView* gradient, Array& own) {
        own = Array::empty(sums_shape, dtype_of<C>, x.device);
        const bool fits = shared && gradient && gradient->dtype == own.dtype() && gradient->strides == own.strides();
        return fits ? *gradient : MutableView(own);
      };
      plain = place(dbias, memory[0]), along = place(dweight, memory[1]);
      take_sums(shared ? of_dy : operands, dy, x, statistics, weight_strides, statistic_axes, &plain, &along);
      if (shared && dbias && plain.data != dbias->data) copy(plain, *dbias);
      if (shared && dweight && along.data != dweight->data) copy(along, *dweight);
    }
    if (parameters && !shared)
      take_sums(of_dy, dy, x, statistics, weight_strides, axes_of_size_one(*parameter), dbias, dweight);
    if (!dx) return;
    const Strides sum_strides = sums ? broadcast_strides(plain) : Dims::filled(n, 0);
    const Nest<6> nest(
        StridedLoop<6>(x.shape, {&dx->strides, &dy.strides, &x.strides, &statistics, &weight_strides, &sum_strides}));
    const Launch launch(x.device);
    const int64_t count = sums ? x.numel() / plain.numel() : 1;
    const bool vectors = cuda_detail::in_packets(nest, 3) && cuda_detail::aligned(x.as<T>()) &&
                         cuda_detail::aligned(dy.as<T>()) && cuda_detail::aligned(dx->as<T>());
    launch(vectors ? dx_kernel<4, T> : dx_kernel<1, T>, launch.blocks(nest.numel, vectors ? 4 * kThreads : kThreads),
           kThreads, nest.geometry(), dx->as<T>(), operands, static_cast<const C*>(plain.data),
           static_cast<const C*>(along.data), shared, static_cast<C>(count));
  });
}

}  // namespace gradus
