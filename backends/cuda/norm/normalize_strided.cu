// Normalisation over any axes of arrays with any strides, and its gradients (formulas: normalize.cu).
// Sums: a second launch adds up those of splits (grid, block and order: reduce_kernel.cuh). Results, grid: the
// elements; block: 256 threads, of which one computes four neighbours, or one element where vectors do not fit.
// Moments are taken of numbers less the output's first one, as in normalize_channels.cu. Gradients take pairs of sums
// (a, a h), with a = g for dx and a = dy for the parameters; where both are over the same axes, one pair serves all.
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

/// The terms of moments, and where these go. Views: x; of results x twice and the statistics.
template <class T>
struct Distances {
  using C = compute_t<T>;
  using Element = Sums<C>;
  const T* x;
  C *mean, *variance, count, origin = 0;

  __device__ void begin(const int64_t (&at)[3]) { origin = static_cast<C>(x[at[0]]); }
  template <int>
  __device__ Vec<Element, 1> load(const int64_t (&at)[1]) const {
    const C distance = static_cast<C>(x[at[0]]) - origin;
    return {{{distance, distance * distance}}};
  }
  __device__ void store(const int64_t (&at)[3], const Sums<C>& sums) const {
    const Sums<C> moments = sums.moments(count);
    mean[at[2]] = static_cast<C>(x[at[1]]) + moments.plain, variance[at[2]] = moments.along;
  }
};

/// What results are of: mean and variance have the same strides. dy: of gradients.
template <class T>
struct Operands {
  using C = compute_t<T>;
  const T *x, *dy;
  const C *mean, *variance;
  Parameter<T> weight, bias;
  C eps;

  __device__ C s(int64_t at) const { return C(1) / ::sqrt(variance[at] + eps); }
};

/// The terms (a, a h). Views: dy, x, statistics, weight. kConstant: the statistics do not vary within a sum.
template <bool kConstant, class T>
struct GradientTerms : Operands<T> {
  using C = compute_t<T>;
  using Element = Sums<C>;
  C centre = 0, scale = 0;

  __device__ void take(int64_t at) { centre = this->mean[at], scale = this->s(at); }
  __device__ void begin(const int64_t (&at)[5]) { take(at[2]); }
  template <int>
  __device__ Vec<Element, 1> load(const int64_t (&at)[4]) {
    if constexpr (!kConstant) take(at[2]);
    const C a = static_cast<C>(this->dy[at[0]]) * this->weight.at_or(C(1), at[3]);
    return {{{a, a * ((static_cast<C>(this->x[at[1]]) - centre) * scale)}}};
  }
};

// y, or dx from the sums that it needs, null where the statistics were fixed; `sums_of_dy`: they are to be multiplied
// with the weight. Views: elements_of().
template <bool kBackward, int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    result_kernel(Geometry<6> elements, T* result, Operands<T> operands, SumResults<compute_t<T>> sums, bool sums_of_dy,
                  compute_t<T> count) {
  using C = compute_t<T>;
  const int last = elements.ndim - 1;
  for (uint32_t i = kWidth * thread_index(); i < elements.numel; i += kWidth * thread_count()) {
    int64_t at[6];
    elements.offsets(i, at);
    const auto step = [&](int k) { return last < 0 ? 0 : elements.strides[k][last]; };
    C x[kWidth], mean[kWidth], s[kWidth], weight[kWidth], values[kWidth];
    load_dense<kWidth>(x, operands.x + at[1]);
    load_broadcast(mean, step(3), [&](int64_t j) { return operands.mean[at[3] + j]; });
    load_broadcast(s, step(3), [&](int64_t j) { return operands.s(at[3] + j); });
    load_broadcast(weight, step(4), [&](int64_t j) { return operands.weight.at_or(C(1), at[4] + j); });
    if constexpr (kBackward) {
      C g_sum[kWidth], h_sum[kWidth];
      load_dense<kWidth>(values, operands.dy + at[2]);
      if (sums.plain) {
        load_broadcast(g_sum, step(3), [&](int64_t j) { return sums.plain[at[3] + j]; });
        load_broadcast(h_sum, step(3), [&](int64_t j) { return sums.along[at[3] + j]; });
      }
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        values[j] *= weight[j];
        const C scale = sums_of_dy ? weight[j] / count : C(1) / count;
        if (sums.plain) values[j] -= g_sum[j] * scale + (x[j] - mean[j]) * s[j] * (h_sum[j] * scale);
        values[j] *= s[j];
      }
    } else {
      C shift[kWidth];
      load_broadcast(shift, step(5), [&](int64_t j) { return operands.bias.at_or(C(0), at[5] + j); });
#pragma unroll
      for (int j = 0; j < kWidth; ++j) values[j] = (x[j] - mean[j]) * s[j] * weight[j] + shift[j];
    }
    store_dense<kWidth>(result + at[0], values);
  }
}

template <bool kBackward, class T, class C>
void launch_results(const Launch& launch, const NormPlan& plan, const Nest<6>& elements, T* result,
                    const Operands<T>& operands, const SumResults<C>& sums, int64_t count) {
  const int width = plan.vectorized ? 4 : 1;
  launch(plan.vectorized ? result_kernel<kBackward, 4, T> : result_kernel<kBackward, 1, T>,
         launch.blocks(elements.numel, width * kThreads), kThreads, elements.geometry(), result, operands, sums,
         plan.shared_sums, static_cast<C>(count));
}

/// Sums over `axes` of x. Views: M of the terms, then those of the results.
template <int M, class C, class Terms, class Results, int N>
void take_sums(const View& x, uint32_t axes, const Terms& terms, const Strides* const (&views)[N],
               const Results& results) {
  const Strides* of_terms[M];
  std::copy_n(views, M, of_terms);
  reduce_vectors<AddSums<C>, AddSums<C>, 1, 1>(
      x.device, terms, Nest<N>(StridedLoop<N>(with_ones(x.shape, axes), views)),
      Nest<M>(StridedLoop<M>(with_ones(x.shape, axes, true), of_terms)), results);
}

}  // namespace

void normalize_strided(const NormalizeArgs& p, const NormPlan& plan, const Launch& launch, void*) {
  const Strides statistics = broadcast_strides(p.mean);
  visit_floating(p.x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const Distances<T> moments{p.x.as<T>(), p.mean.as<C>(), p.variance.as<C>(),
                               static_cast<C>(p.x.numel() / p.mean.numel())};
    if (!p.fixed_statistics) take_sums<1, C>(p.x, p.axes, moments, {&p.x.strides, &p.x.strides, &statistics}, moments);
    const Operands<T> operands{moments.x,
                               nullptr,
                               moments.mean,
                               moments.variance,
                               Parameter<T>(p.weight),
                               Parameter<T>(p.bias),
                               static_cast<C>(p.eps)};
    launch_results<false>(launch, plan, Nest<6>(elements_of(p)), p.y.as<T>(), operands, SumResults<C>(), 1);
  });
}

void normalize_strided(const NormalizeBackwardArgs& p, const NormPlan& plan, const Launch& launch, void* workspace) {
  const Strides statistics = broadcast_strides(p.mean), zero = Dims::filled(p.x.ndim(), 0);
  const Strides& weight = p.weight ? p.weight.strides : zero;
  visit_floating(p.x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const Operands<T> of_g{p.x.as<T>(),          p.dy.as<T>(),           p.mean.as<C>(),
                           p.variance.as<C>(),   Parameter<T>(p.weight), Parameter<T>(),
                           static_cast<C>(p.eps)};
    Operands<T> of_dy = of_g;
    of_dy.weight = Parameter<T>();
    const auto sums_like = [&](const StridedLayout& like, const auto& terms, const SumResults<C>& results) {
      take_sums<4, C>(p.x, axes_of_size_one(like.shape), terms,
                      {&p.dy.strides, &p.x.strides, &statistics, &weight, &like.strides}, results);
    };
    const SumResults<C> parameters{p.dbias.as<C>(), p.dweight.as<C>()};
    SumResults<C> sums;
    if (p.dx && !p.fixed_statistics) {  // the parameters' gradients are the sums themselves where the axes are the same
      sums = {static_cast<C*>(workspace), static_cast<C*>(workspace) + p.mean.numel()};
      if (plan.shared_sums && p.dbias) sums.plain = parameters.plain;
      if (plan.shared_sums && p.dweight) sums.along = parameters.along;
      sums_like(p.mean, GradientTerms<true, T>{plan.shared_sums ? of_dy : of_g}, sums);
    }
    if ((p.dweight || p.dbias) && !plan.shared_sums)
      sums_like(p.dweight ? p.dweight : p.dbias, GradientTerms<false, T>{of_dy}, parameters);
    if (p.dx)
      launch_results<true>(launch, plan, Nest<6>(elements_of(p)), p.dx.as<T>(), of_g, sums,
                           p.x.numel() / p.mean.numel());
  });
}

}  // namespace gradus::cuda_detail
