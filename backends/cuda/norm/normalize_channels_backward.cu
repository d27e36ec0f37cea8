// Gradients of batch norm by channels, or of relu(batch norm + residual), which are those of batch norm for dy where y
// > 0. Block: 512 threads, of which one takes vectors or elements of its channels; grid and
// pipeline: channels.cuh. With s = 1 / sqrt(variance + eps), n elements of a channel, P = sum(dy)
// and Q = sum(dy (x - mean)):
//   dx = s w (dy - P / n - (x - mean) s^2 Q / n),   dw = s Q,   dbias = P,   dresidual = dy where y > 0
// In two launches the first one stores dresidual, which the second one reads in place of dy and y.
#include <gradus/backends/cuda/norm/channels.cuh>

namespace gradus::cuda_detail {
namespace {

/// kMasked: dy counts where y > 0.
template <class T, bool kMasked>
struct Backward {
  using Element = T;
  using C = compute_t<T>;

  T *out, *dresidual;  // dx; may be null
  const T *dy, *y, *x;
  const C *mean, *variance;
  Parameter<T> weight;
  C eps;
  bool fixed_statistics;
  C *dweight, *dbias;  // may be null

  explicit Backward(const NormalizeBackwardArgs& p)
      : out(p.dx.as<T>()), dresidual(p.dresidual.as<T>()), dy(p.dy.as<T>()), y(p.y.as<T>()), x(p.x.as<T>()),
        mean(p.mean.as<C>()), variance(p.variance.as<C>()), weight(p.weight), eps(static_cast<C>(p.eps)),
        fixed_statistics(p.fixed_statistics), dweight(p.dweight.as<C>()), dbias(p.dbias.as<C>()) {}

  struct Own {
    C mean, weight, s;
  };
  /// dx = dy of_dy - constant - (x - centre) of_x
  struct Line {
    C centre, of_dy, constant, of_x;
  };
  template <uint32_t kCount, int kVec>
  struct Vectors {
    Vec<T, kVec> dy[kCount], x[kCount];
  };

  template <uint32_t kCount, int kVec>
  __device__ void load(Vectors<kCount, kVec>& in, const auto& it, uint32_t i, uint32_t number) const {
    it.load(in.dy, dy, i, number);
    it.load_x(in.x, x, i, number);
    if constexpr (kMasked) {
      Vec<T, kVec> results[kCount];
      it.load(results, y, i, number);
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k)
#pragma unroll
        for (int j = 0; j < kVec; ++j)
          if (!(static_cast<C>(results[k].value[j]) > C(0))) in.dy[k].value[j] = static_cast<T>(0.0f);
    }
  }
  __device__ C centre(const auto& it, int c) const { return mean[it.channel(c)]; }
  __device__ Sums<C> terms(const auto& in, uint32_t k, int j, C centre) const {
    const C value = static_cast<C>(in.dy[k].value[j]);
    return {value, value * (static_cast<C>(in.x[k].value[j]) - centre)};
  }
  __device__ C result(const auto& in, uint32_t k, int j, const Line& by) const {
    return static_cast<C>(in.dy[k].value[j]) * by.of_dy - by.constant -
           (static_cast<C>(in.x[k].value[j]) - by.centre) * by.of_x;
  }
  __device__ Own load_own(const auto& it, bool) const {
    const uint32_t channel = it.own_channel();
    return {mean[channel], weight.at_or(C(1), channel), C(1) / ::sqrt(variance[channel] + eps)};
  }
  __device__ Line own_line(const Own& own, const auto& it, const Sums<C>& total, bool, bool writes_stats) const {
    if (writes_stats && dweight) dweight[it.own_channel()] = total.along * own.s;
    if (writes_stats && dbias) dbias[it.own_channel()] = total.plain;
    const C scale = fixed_statistics ? C(0) : own.s * own.weight / static_cast<C>(it.elements());
    return {own.mean, own.s * own.weight, total.plain * scale, total.along * own.s * own.s * scale};
  }
  template <uint32_t kCount, int kVec>
  __device__ void store_residual(const Vectors<kCount, kVec>& in, const auto& it, uint32_t i, uint32_t number) const {
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k)
      if (kMasked && dresidual && k < number) it.store(dresidual, in.dy[k], i, k);
  }
};

}  // namespace

void normalize_channels(const NormalizeBackwardArgs& p, const NormPlan& plan, const Launch& launch, void* workspace) {
  visit_floating(p.x.dtype, [&]<class T>() {
    const Backward<T, true> masked(p);
    Backward<T, false> plain(p);
    if (p.dresidual) plain.dy = p.dresidual.as<T>();
    constexpr uint32_t kMaskedSums = sizeof(T) > 2 ? 2 : 4;
    if (!p.y) launch_channels<4, 4>(launch, plan, workspace, plain, plain, plain);
    else if (p.dresidual) launch_channels<kMaskedSums, 4>(launch, plan, workspace, masked, masked, plain);
    else launch_channels<kMaskedSums, 2>(launch, plan, workspace, masked, masked, masked);
  });
}

}  // namespace gradus::cuda_detail
