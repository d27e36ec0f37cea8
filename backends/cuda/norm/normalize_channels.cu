// Batch norm of images by channels: y = (x - mean) s w + b or relu((x - mean) s w + b + residual), with
// s = 1 / sqrt(variance + eps).  Layout, grid, block, pipeline and order: channels.cuh.
// Moments are computed of x minus the channel's first element, so that they stay accurate if the mean is large. The
// error is at most as many units in the last place as the channel has elements, and negligible unless the first element
// is an outlier.
#include <gradus/backends/cuda/norm/channels.cuh>

namespace gradus::cuda_detail {
namespace {

template <class T, bool kResidual>
struct Forward {
  using Element = T;
  using C = compute_t<T>;

  T* out;  // y
  const T *x, *residual;
  Parameter<T> weight, bias;
  C floor;                  // lower limit of results: 0 with ReLU, else -infinity
  C eps, *mean, *variance;  // results; with fixed statistics, operands
  RunningChannels<C> running;

  explicit Forward(const NormalizeArgs& p)
      : out(p.y.as<T>()), x(p.x.as<T>()), residual(p.residual.as<T>()), weight(p.weight), bias(p.bias),
        floor(p.relu ? C(0) : -C(INFINITY)), eps(static_cast<C>(p.eps)), mean(p.mean.as<C>()),
        variance(p.variance.as<C>()), running(p.running) {}

  struct Own {
    C origin, weight, bias;
    typename RunningChannels<C>::Before before;
  };
  /// y = (x - centre) scale + shift
  struct Line {
    C centre, scale, shift;
  };
  template <uint32_t kCount, int kVec>
  struct Vectors {
    Vec<T, kVec> x[kCount], residual[kResidual ? kCount : 1];
  };

  template <uint32_t kCount, int kVec>
  __device__ void load_x(Vectors<kCount, kVec>& in, const auto& it, auto run) const {
    it.load_x(in.x, x, run);
  }
  template <uint32_t kCount, int kVec>
  __device__ void load_rest(Vectors<kCount, kVec>& in, const auto& it, auto run) const {
    if constexpr (kResidual) it.template load<true>(in.residual, residual, run);
  }
  using Known = C;  // the first element, which is subtracted
  __device__ Known known(const auto& it, int c) const { return static_cast<C>(x[it.offset(0) + c]); }
  __device__ Sums<C> terms(const auto& in, uint32_t k, int j, const Known& centre) const {
    const C distance = static_cast<C>(in.x[k].value[j]) - centre;
    return {distance, distance * distance};
  }
  __device__ C result(const auto& in, uint32_t k, int j, const Line& by) const {
    C value = affine(static_cast<C>(in.x[k].value[j]), by.centre, by.scale, by.shift);
    if constexpr (kResidual) value += static_cast<C>(in.residual[k].value[j]);
    return value < floor ? floor : value;
  }
  __device__ Own load_own(const auto& it, bool writes_stats) const {
    const uint32_t channel = it.own_channel();
    Own own{static_cast<C>(x[it.own_offset()]), weight.at_or(C(1), channel), bias.at_or(C(0), channel)};
    if (writes_stats) own.before = running.before(channel);
    return own;
  }
  __device__ Line own_line(const Own& own, const auto& it, const Sums<C>& sums, bool has_sums,
                           bool writes_stats) const {
    const uint32_t channel = it.own_channel();
    const auto [distance, spread] = sums.moments(static_cast<C>(it.elements()));
    const C average = has_sums ? own.origin + distance : mean[channel], square = has_sums ? spread : variance[channel];
    if (has_sums && writes_stats) {
      mean[channel] = average, variance[channel] = square;
      running.move(channel, own.before, average, square);
    }
    return {average, own.weight / ::sqrt(square + eps), own.bias};
  }
  __device__ void store_residual(const auto&, const auto&, auto) const {}
};

}  // namespace

void normalize_channels(const NormalizeArgs& p, const NormPlan& plan, const Launch& launch, void* workspace) {
  visit_floating(p.x.dtype, [&]<class T>() {
    const Forward<T, false> plain(p);
    const Forward<T, true> adding(p);
    if (p.residual) launch_channels<4, 2>(launch, plan, workspace, adding, plain, adding);
    else launch_channels<4, 4>(launch, plan, workspace, plain, plain, plain);
  });
}

}  // namespace gradus::cuda_detail
