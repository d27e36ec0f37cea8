// Batch norm of dense images by channels (grid, block and pipeline: channels.cuh):
//   y = (x - mean) s w + b,  s = 1 / sqrt(variance + eps);  or relu(that + residual)
// The moments of a split are taken of its numbers less its first one, which is one of them: that loses at most as many
// units of the last place as it has numbers, and next to none where the first one is no outlier. Splits are joined by
// the formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing sample variances",
// 1979): right also where the mean is large.
#include <gradus/backends/cuda/norm/channels.cuh>

namespace gradus::cuda_detail {
namespace {

/// The moments of a split's numbers, less the channel's first one: where the mean is large, its own digits would leave
/// few for those of partial means.
template <class C>
struct alignas(2 * sizeof(C)) MomentsPart {
  C mean, spread;
};

template <class T, bool kRelu, bool kResidual>
struct Forward {
  using Element = T;
  using C = compute_t<T>;
  using Part = MomentsPart<C>;
  using Total = Moments<C>;

  T* out;  // y
  const T *x, *residual;
  Parameter<T> weight, bias;
  int64_t weight_stride, bias_stride;
  C eps, *mean, *variance;  // results or, where they are fixed, operands
  RunningChannels<C> running;

  struct Own {
    C origin, weight, bias;
    typename RunningChannels<C>::Before before;
  };
  /// y = (x - centre) scale + shift
  struct Line {
    C centre, scale, shift;
  };
  template <uint32_t kCount>
  struct Vectors {
    Vec<T, 4> x[kCount], residual[kResidual ? kCount : 1];
  };

  template <uint32_t kCount>
  __device__ void load(Vectors<kCount>& in, const auto& it, uint32_t i, uint32_t number) const {
    it.load(in.x, x, i, number);
    if constexpr (kResidual) it.load(in.residual, residual, i, number);
  }
  template <int kChannels>
  __device__ void load_centres(C (&centres)[kChannels], const auto& it, uint32_t i) const {
    const Vec<T, 4> first = *reinterpret_cast<const Vec<T, 4>*>(x + it.offset(i));
#pragma unroll
    for (int c = 0; c < kChannels; ++c) centres[c] = static_cast<C>(first.value[c]);
  }
  template <uint32_t kCount, int kChannels>
  __device__ void add(Sums<C> (&sums)[kChannels], const Vectors<kCount>& in, uint32_t k, bool inside,
                      const C (&centres)[kChannels]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int c = j % kChannels;
      const C distance = inside ? static_cast<C>(in.x[k].value[j]) - centres[c] : C(0);
      sums[c] = Sums<C>::join(sums[c], {distance, distance * distance});
    }
  }
  __device__ C own_shift(const auto& it) const {
    return static_cast<C>(x[it.own_offset(it.begin(blockIdx.y))]) - static_cast<C>(x[it.own_offset(0)]);
  }
  __device__ static Part part(C shift, const Sums<C>& sums, uint32_t elements) {
    const C average = sums.plain / static_cast<C>(elements), spread = sums.along - sums.plain * average;
    return {shift + average, spread < C(0) ? C(0) : spread};  // all alike: 0 but for rounding
  }
  __device__ static Total total(const Part& part, uint32_t elements) {
    return {static_cast<C>(elements), part.mean, part.spread};
  }
  __device__ Own load_own(const auto& it, bool writes_stats) const {
    const uint32_t channel = it.own_channel();
    Own own{static_cast<C>(x[it.own_offset(0)]), weight.at_or(C(1), channel * weight_stride),
            bias.at_or(C(0), channel * bias_stride)};
    if (writes_stats) own.before = running.before(channel);
    return own;
  }
  __device__ Line own_line(const Own& own, const auto& it, const Total& total, bool has_total,
                           bool writes_stats) const {
    const uint32_t channel = it.own_channel();
    const C centre = has_total ? own.origin + total.mean : mean[channel];
    const C spread = has_total ? total.spread / total.count : variance[channel];
    if (has_total && writes_stats) {
      mean[channel] = centre, variance[channel] = spread;
      running.move(channel, own.before, centre, spread);
    }
    return {centre, own.weight / ::sqrt(spread + eps), own.bias};
  }
  __device__ void store_residual(const auto&, const auto&, uint32_t, uint32_t) const {}
  template <uint32_t kCount, int kChannels>
  __device__ void store(const Vectors<kCount>& in, const auto& it, uint32_t i, uint32_t number,
                        const Line (&lines)[kChannels]) const {
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k) {
      if (k >= number) break;
      Vec<T, 4> result;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const Line& by = lines[j % kChannels];
        C value = (static_cast<C>(in.x[k].value[j]) - by.centre) * by.scale + by.shift;
        if constexpr (kResidual) value += static_cast<C>(in.residual[k].value[j]);
        if constexpr (kRelu) value = value < C(0) ? C(0) : value;
        result.value[j] = static_cast<T>(value);
      }
      it.store(out, result, i, k);
    }
  }
};

}  // namespace

void normalize_channels(const NormalizeArgs& p, const NormPlan& plan, const Launch& launch, void* workspace) {
  visit_floating(p.x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const auto op_of = [&]<bool kRelu, bool kResidual>() {
      return Forward<T, kRelu, kResidual>{.out = p.y.as<T>(),
                                          .x = p.x.as<T>(),
                                          .residual = p.residual.as<T>(),
                                          .weight = Parameter<T>(p.weight),
                                          .bias = Parameter<T>(p.bias),
                                          .weight_stride = channel_stride(p.weight),
                                          .bias_stride = channel_stride(p.bias),
                                          .eps = static_cast<C>(p.eps),
                                          .mean = p.mean.as<C>(),
                                          .variance = p.variance.as<C>(),
                                          .running = RunningChannels<C>(p.running)};
    };
    const auto run = [&]<bool kRelu, bool kResidual>() {
      const auto op = op_of.template operator()<kRelu, kResidual>();
      if (plan.channels.resident) return launch_resident(launch, plan.channels, op);
      const auto parts = static_cast<MomentsPart<C>*>(workspace);
      if (parts) launch_sums<4>(launch, plan.channels, op_of.template operator()<false, false>(), parts);
      launch_apply<kResidual ? 2 : 4>(launch, plan.channels, op, parts);
    };
    if (!p.relu) run.template operator()<false, false>();
    else if (p.residual) run.template operator()<true, true>();
    else run.template operator()<true, false>();
  });
}

}  // namespace gradus::cuda_detail
