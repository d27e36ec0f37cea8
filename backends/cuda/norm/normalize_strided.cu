// Normalisation over any axes of arrays with any strides, and its gradients (formulas: normalize.cu).
// Sums, grid: x = blocks of outputs, y = splits of the elements of each; block: 256 threads, of which `lanes` share an
// output (ReducePlan); a second launch joins the splits. Results, grid: the elements; one thread computes four
// neighbours, or one where vectors do not fit.
// Moments are taken of eight elements in a thread's registers, less the output's first element, around their own mean,
// and joined by the formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing
// sample variances", 1979): right also where the mean is large. Gradients take pairs of sums (a, a h), with a = g for
// dx and a = dy for the parameters; where both are over the same axes, one pair serves all.
// Deterministic: the order of all sums depends on shapes and device alone.
#include <gradus/backends/cuda/norm/normalize.cuh>

namespace gradus::cuda_detail {
namespace {

/// kWidth neighbours of the last axis, as C; one value for all where the step is 0.
template <int kWidth, class C, class At>
__device__ void load_broadcast(C (&values)[kWidth], int64_t step, At&& at) {
  values[0] = at(0);
#pragma unroll
  for (int j = 1; j < kWidth; ++j) values[j] = step == 0 ? values[0] : at(j * step);
}

/// Where moments go; offsets are those of x and of the statistics. They are of the distances from the output's first
/// element: where the mean is large, its own digits would leave few for those of partial means.
template <class T>
struct Statistics {
  using C = compute_t<T>;
  const T* x;
  C *mean, *variance;

  __device__ C origin(const int64_t (&at)[2]) const { return static_cast<C>(x[at[0]]); }
  __device__ void store(const int64_t (&at)[2], const Moments<C>& moments) const {
    mean[at[1]] = origin(at) + moments.mean;
    variance[at[1]] = moments.spread / moments.count;
  }
};

/// Offsets of element i of a sum, most of which have one axis.
template <int N>
__device__ void offsets_within(const Geometry<N>& inner, uint32_t i, int64_t (&at)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) at[k] = i * inner.strides[k][0];
  if (inner.ndim > 1) inner.offsets(i, at);
}

/// What a block's threads have of an output goes to `partial`, or is the result.
template <class A, int N, class Results>
__device__ void fold_and_store(const ReducePlan& plan, const A& value, A* shared, const Geometry<N>& outer,
                               const int64_t (&base)[N], A* partial, const Results& results) {
  const A total = fold_lanes(plan, value, shared, A::join);
  if (plan.lane() != 0 || plan.output() >= outer.numel) return;
  if (partial) partial[static_cast<int64_t>(blockIdx.y) * outer.numel + plan.output()] = total;
  else results.store(base, total);
}

// Views of `outer`: x, statistics; of `inner`: x. With `partial` the moments of the splits go there.
template <class T>
__global__ void __launch_bounds__(kThreads) moments_kernel(Geometry<2> outer, Geometry<1> inner, ReducePlan plan,
                                                           Moments<compute_t<T>>* partial, Statistics<T> statistics) {
  using C = compute_t<T>;
  constexpr int kValues = 8;
  __shared__ Moments<C> shared[kThreads];
  const uint32_t lane = plan.lane(), output = plan.output();
  int64_t base[2] = {};
  Moments<C> total{0, 0, 0};
  if (output < outer.numel) {
    outer.offsets(output, base);
    const uint32_t begin = blockIdx.y * plan.per_split, end = min(begin + plan.per_split, inner.numel);
    const C origin = statistics.origin(base);
    for (uint32_t first = begin + lane; first < end; first += kValues * plan.lanes) {
      C values[kValues];
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        int64_t at[1];
        offsets_within(inner, min(first + k * plan.lanes, end - 1), at);
        values[k] = static_cast<C>(statistics.x[base[0] + at[0]]) - origin;
      }
      const uint32_t count = min((end - first + plan.lanes - 1) / plan.lanes, static_cast<uint32_t>(kValues));
      C sum = 0;
#pragma unroll
      for (int k = 0; k < kValues; ++k) sum += k < count ? values[k] : C(0);
      Moments<C> part{static_cast<C>(count), sum / static_cast<C>(count), 0};
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        const C distance = k < count ? values[k] - part.mean : C(0);
        part.spread += distance * distance;
      }
      total = Moments<C>::join(total, part);
    }
  }
  fold_and_store(plan, total, shared, outer, base, partial, statistics);
}

// Views: y, x, statistics, weight, bias.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    normalize_kernel(Geometry<5> elements, T* y, const T* x, const compute_t<T>* mean, const compute_t<T>* variance,
                     Parameter<T> weight, Parameter<T> bias, compute_t<T> eps) {
  using C = compute_t<T>;
  const int last = elements.ndim - 1;
  for (uint32_t i = kWidth * thread_index(); i < elements.numel; i += kWidth * thread_count()) {
    int64_t at[5];
    elements.offsets(i, at);
    const auto step = [&](int k) { return last < 0 ? 0 : elements.strides[k][last]; };
    C values[kWidth], centre[kWidth], s[kWidth], scale[kWidth], shift[kWidth];
    load_dense<kWidth>(values, x + at[1]);
    load_broadcast(centre, step(2), [&](int64_t j) { return mean[at[2] + j]; });
    load_broadcast(s, step(2), [&](int64_t j) { return C(1) / ::sqrt(variance[at[2] + j] + eps); });
    load_broadcast(scale, step(3), [&](int64_t j) { return weight.at_or(C(1), at[3] + j); });
    load_broadcast(shift, step(4), [&](int64_t j) { return bias.at_or(C(0), at[4] + j); });
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = (values[j] - centre[j]) * s[j] * scale[j] + shift[j];
    store_dense<kWidth>(y + at[0], values);
  }
}

/// What gradients are of: mean and variance have the same strides.
template <class T>
struct Operands {
  using C = compute_t<T>;
  const T *dy, *x;
  const C *mean, *variance;
  Parameter<T> weight;  // of g
  C eps;

  __device__ C s(int64_t at) const { return C(1) / ::sqrt(variance[at] + eps); }
};

// Views of `outer`: dy, x, statistics, weight, results; of `inner` the first four. kConstant: the statistics do not
// vary within a sum.
template <bool kConstant, class T>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(Operands<T> operands, Geometry<5> outer, Geometry<4> inner, ReducePlan plan,
                Sums<compute_t<T>>* partial, SumResults<compute_t<T>> results) {
  using C = compute_t<T>;
  __shared__ Sums<C> shared[kThreads];
  const uint32_t output = plan.output();
  int64_t base[5] = {};
  Sums<C> total{0, 0};
  if (output < outer.numel) {
    outer.offsets(output, base);
    const uint32_t begin = blockIdx.y * plan.per_split, end = min(begin + plan.per_split, inner.numel);
    C mean = operands.mean[base[2]], s = operands.s(base[2]);
#pragma unroll 4
    for (uint32_t i = begin + plan.lane(); i < end; i += plan.lanes) {
      int64_t at[4];
      offsets_within(inner, i, at);
      C a = static_cast<C>(operands.dy[base[0] + at[0]]) * operands.weight.at_or(C(1), base[3] + at[3]);
      if constexpr (!kConstant) mean = operands.mean[base[2] + at[2]], s = operands.s(base[2] + at[2]);
      total.plain += a;
      total.along += a * ((static_cast<C>(operands.x[base[1] + at[1]]) - mean) * s);
    }
  }
  fold_and_store(plan, total, shared, outer, base, partial, results);
}

// Views: dx, dy, x, statistics (and sums), weight. With null sums the statistics were fixed. `sums_of_dy`: they are to
// be multiplied with the weight.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    dx_kernel(Geometry<5> elements, T* dx, Operands<T> operands, SumResults<compute_t<T>> sums, bool sums_of_dy,
              compute_t<T> count) {
  using C = compute_t<T>;
  const int last = elements.ndim - 1;
  for (uint32_t i = kWidth * thread_index(); i < elements.numel; i += kWidth * thread_count()) {
    int64_t at[5];
    elements.offsets(i, at);
    const auto step = [&](int k) { return last < 0 ? 0 : elements.strides[k][last]; };
    C g[kWidth], x[kWidth], mean[kWidth], s[kWidth], weight[kWidth], g_sum[kWidth], h_sum[kWidth];
    load_dense<kWidth>(g, operands.dy + at[1]);
    load_dense<kWidth>(x, operands.x + at[2]);
    load_broadcast(mean, step(3), [&](int64_t j) { return operands.mean[at[3] + j]; });
    load_broadcast(s, step(3), [&](int64_t j) { return operands.s(at[3] + j); });
    load_broadcast(weight, step(4), [&](int64_t j) { return operands.weight.at_or(C(1), at[4] + j); });
    if (sums.plain) {
      load_broadcast(g_sum, step(3), [&](int64_t j) { return sums.plain[at[3] + j]; });
      load_broadcast(h_sum, step(3), [&](int64_t j) { return sums.along[at[3] + j]; });
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      g[j] *= weight[j];
      if (sums.plain) {
        const C scale = sums_of_dy ? weight[j] / count : C(1) / count;
        g[j] -= g_sum[j] * scale + (x[j] - mean[j]) * s[j] * (h_sum[j] * scale);
      }
      g[j] *= s[j];
    }
    store_dense<kWidth>(dx + at[0], g);
  }
}

/// One launch, or a second one for the splits: launch_sums(partial) with null `partial` stores the results itself.
template <class Partial, int N, class Results, class LaunchSums>
void sum_splits(const Launch& launch, const ReducePlan& plan, const Nest<N>& outer, void* workspace,
                const Results& results, LaunchSums&& launch_sums) {
  Partial* const partial = plan.splits > 1 ? static_cast<Partial*>(workspace) : nullptr;
  launch_sums(dim3(plan.blocks(outer.numel), plan.splits), partial);
  if (partial) join_splits(launch, static_cast<const Partial*>(partial), plan.splits, outer, results);
}

}  // namespace

void normalize_strided(const NormalizeArgs& p, const NormPlan& plan, const Launch& launch, void* workspace) {
  const Strides statistic_strides = broadcast_strides(p.mean);
  visit_floating(p.x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const Statistics<T> statistics{p.x.as<T>(), p.mean.as<C>(), p.variance.as<C>()};
    if (!p.fixed_statistics) {
      const Nest<2> outer(StridedLoop<2>(with_ones(p.x.shape, p.axes), {&p.x.strides, &statistic_strides}));
      const Nest<1> inner(StridedLoop<1>(with_ones(p.x.shape, p.axes, true), {&p.x.strides}));
      sum_splits<Moments<C>>(launch, plan.statistics, outer, workspace, statistics,
                             [&](dim3 grid, Moments<C>* partial) {
                               launch(moments_kernel<T>, grid, kThreads, outer.geometry(), inner.geometry(),
                                      plan.statistics, partial, statistics);
                             });
    }
    const Nest<5> elements(elements_of(p));
    const int width = plan.vectorized ? 4 : 1;
    launch(plan.vectorized ? normalize_kernel<4, T> : normalize_kernel<1, T>,
           launch.blocks(elements.numel, width * kThreads), kThreads, elements.geometry(), p.y.as<T>(), p.x.as<T>(),
           static_cast<const C*>(statistics.mean), static_cast<const C*>(statistics.variance), Parameter<T>(p.weight),
           Parameter<T>(p.bias), static_cast<C>(p.eps));
  });
}

void normalize_strided(const NormalizeBackwardArgs& p, const NormPlan& plan, const Launch& launch, void* workspace) {
  const Strides statistics = broadcast_strides(p.mean), zero = Dims::filled(p.x.ndim(), 0);
  const Strides& weight = p.weight ? p.weight.strides : zero;
  visit_floating(p.x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const Operands<T> of_g{p.dy.as<T>(),           p.x.as<T>(),          p.mean.as<C>(), p.variance.as<C>(),
                           Parameter<T>(p.weight), static_cast<C>(p.eps)};
    Operands<T> of_dy = of_g;
    of_dy.weight = Parameter<T>();
    const auto take_sums = [&](const auto kernel, const Operands<T>& operands, const ReducePlan& cut,
                               const StridedLayout& like, const SumResults<C>& results) {
      const uint32_t axes = axes_of_size_one(like.shape);
      const Nest<5> outer(StridedLoop<5>(with_ones(p.x.shape, axes),
                                         {&p.dy.strides, &p.x.strides, &statistics, &weight, &like.strides}));
      const Nest<4> inner(
          StridedLoop<4>(with_ones(p.x.shape, axes, true), {&p.dy.strides, &p.x.strides, &statistics, &weight}));
      void* const parts = static_cast<std::byte*>(workspace) + plan.sums_bytes;
      sum_splits<Sums<C>>(launch, cut, outer, parts, results, [&](dim3 grid, Sums<C>* partial) {
        launch(kernel, grid, kThreads, operands, outer.geometry(), inner.geometry(), cut, partial, results);
      });
    };
    const SumResults<C> parameters{p.dbias.as<C>(), p.dweight.as<C>()};
    SumResults<C> sums;
    if (plan.takes_sums) {  // the parameters' gradients are the sums themselves where they are over the same axes
      sums = {static_cast<C*>(workspace), static_cast<C*>(workspace) + p.mean.numel()};
      if (plan.shared_sums && p.dbias) sums.plain = parameters.plain;
      if (plan.shared_sums && p.dweight) sums.along = parameters.along;
      take_sums(sums_kernel<true, T>, plan.shared_sums ? of_dy : of_g, plan.statistics, p.mean, sums);
    }
    if ((p.dweight || p.dbias) && !plan.shared_sums)
      take_sums(sums_kernel<false, T>, of_dy, plan.parameters, p.dweight ? p.dweight : p.dbias, parameters);
    if (!p.dx) return;
    const Nest<5> elements(elements_of(p));
    const int width = plan.vectorized ? 4 : 1;
    launch(plan.vectorized ? dx_kernel<4, T> : dx_kernel<1, T>, launch.blocks(elements.numel, width * kThreads),
           kThreads, elements.geometry(), p.dx.as<T>(), of_g, sums, plan.shared_sums,
           static_cast<C>(p.x.numel() / p.mean.numel()));
  });
}

}  // namespace gradus::cuda_detail
