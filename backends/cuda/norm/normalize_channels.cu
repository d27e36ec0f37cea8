// Batch norm of images by channels: y = (x - mean) s w + b or relu((x - mean) s w + b + residual), with
// s = 1 / sqrt(variance + eps).  Layout, grid, block, pipeline and order: channels.cuh.
// The moments are those of x minus the channel's first element, so that they are accurate also if the mean is large.
// The error in units in the last place is at most the number of the channel's elements, and negligible unless the first
// element is an outlier.
//
// Gradients of batch norm by channels. With s = 1 / sqrt(variance + eps), n elements of a channel, P = sum(dy) and
// Q = sum(dy (x - mean)):
//   dx = s w (dy - P / n - (x - mean) s^2 Q / n),   dw = s Q,   dbias = P,   dresidual = dy where y > 0
// For relu(batch norm + residual), dy is replaced by dresidual.  Layout, grid, block, pipeline and order: channels.cuh.
// With two launches, the first stores dresidual, if it is requested, and the second reads dresidual instead of dy and
// y. Without a residual, both launches recompute from x where y > 0, because reading y twice would take longer. If a
// single launch computes everything (channel_resident_kernel), it reads y. For NHWC images the gradient may be given in
// two parts (dy and addend), which are added when they are read.
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
  C eps, *mean, *variance;  // mean and variance: results, or operands if fixed
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
  using Known = C;  // the channel's first element, which terms() subtracts
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

// ---- gradients ----

namespace {

/// The elements of dy that pass the ReLU after batch norm. The other elements are replaced by 0.
enum class Mask : uint8_t {
  none,  ///< all elements: there was no ReLU
  y,     ///< where y > 0; dresidual is stored if it is requested
  x,     ///< where batch norm of x, which is computed again, is positive; only without a residual
};

/// The Op (channels.cuh) of the gradients. kInParts: the gradient of y is dy + addend.
template <class T, Mask kMask, bool kInParts = false>
struct Backward {
  using Element = T;
  using C = compute_t<T>;

  T *out, *dresidual;  // `out` is dx; both may be null
  const T *dy, *addend, *y, *x;
  const C *mean, *variance;
  Parameter<T> weight, bias;
  C eps;
  bool fixed_statistics;
  C *dweight, *dbias;  // may be null

  explicit Backward(const NormalizeBackwardArgs& p)
      : out(p.dx.as<T>()), dresidual(p.dresidual.as<T>()), dy(p.dy.as<T>()), addend(p.addend.as<T>()), y(p.y.as<T>()),
        x(p.x.as<T>()), mean(p.mean.as<C>()), variance(p.variance.as<C>()), weight(p.weight), bias(p.bias),
        eps(static_cast<C>(p.eps)), fixed_statistics(p.fixed_statistics), dweight(p.dweight.as<C>()),
        dbias(p.dbias.as<C>()) {}

  /// y = affine(x, centre, scale, shift).
  struct Known {
    C centre, scale, shift;
  };
  struct Own {
    Known known;
    C s;
  };
  /// dx = dy scale - constant - (x - centre) of_x
  struct Line {
    Known known;
    C constant, of_x;
  };
  template <uint32_t kCount, int kVec>
  struct Vectors {
    Vec<T, kVec> dy[kCount], x[kCount];
  };

  template <uint32_t kCount, int kVec>
  __device__ void load_x(Vectors<kCount, kVec>& in, const auto& it, auto run) const {
    it.load_x(in.x, x, run);
  }
  template <uint32_t kCount, int kVec>
  __device__ void load_rest(Vectors<kCount, kVec>& in, const auto& it, auto run) const {
    Vec<T, kVec> more[kInParts ? kCount : 1], results[kMask == Mask::y ? kCount : 1];
    it.template load<kMask == Mask::y>(in.dy, dy, run);
    if constexpr (kInParts) it.template load<kMask == Mask::y>(more, addend, run);
    if constexpr (kMask == Mask::y) it.template load<true>(results, y, run);
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k)
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        T& value = in.dy[k].value[j];
        if constexpr (kInParts) value = static_cast<T>(static_cast<C>(value) + static_cast<C>(more[k].value[j]));
        if constexpr (kMask == Mask::y)
          if (!(static_cast<C>(results[k].value[j]) > C(0))) value = static_cast<T>(0.0f);
      }
  }
  __device__ Known known(uint32_t channel) const {
    // These are the same expressions as in forward, so that the results are bit-identical.
    return {mean[channel], weight.at_or(C(1), channel) / ::sqrt(variance[channel] + eps), bias.at_or(C(0), channel)};
  }
  __device__ Known known(const auto& it, int c) const { return known(it.channel(c)); }
  /// An element of dy, or 0 where the mask excludes it.
  __device__ C gradient(const auto& in, uint32_t k, int j, const Known& by) const {
    const C value = static_cast<C>(in.dy[k].value[j]);
    if constexpr (kMask != Mask::x) return value;
    const C result = affine(static_cast<C>(in.x[k].value[j]), by.centre, by.scale, by.shift);
    return static_cast<C>(static_cast<T>(result)) > C(0) ? value : C(0);
  }
  __device__ Sums<C> terms(const auto& in, uint32_t k, int j, const Known& by) const {
    const C value = gradient(in, k, j, by);
    return {value, value * (static_cast<C>(in.x[k].value[j]) - by.centre)};
  }
  __device__ C result(const auto& in, uint32_t k, int j, const Line& by) const {
    return gradient(in, k, j, by.known) * by.known.scale - by.constant -
           (static_cast<C>(in.x[k].value[j]) - by.known.centre) * by.of_x;
  }
  __device__ Own load_own(const auto& it, bool) const {
    const uint32_t channel = it.own_channel();
    return {known(channel), C(1) / ::sqrt(variance[channel] + eps)};
  }
  __device__ Line own_line(const Own& own, const auto& it, const Sums<C>& total, bool, bool writes_stats) const {
    if (writes_stats && dweight) dweight[it.own_channel()] = total.along * own.s;
    if (writes_stats && dbias) dbias[it.own_channel()] = total.plain;
    const C scale = fixed_statistics ? C(0) : own.known.scale / static_cast<C>(it.elements());
    return {own.known, total.plain * scale, total.along * own.s * own.s * scale};
  }
  template <uint32_t kCount, int kVec>
  __device__ void store_residual(const Vectors<kCount, kVec>& in, const auto& it, auto run) const {
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k)
      if (kMask == Mask::y && dresidual && k < run.number) it.store(dresidual, in.dy[k], run, k);
  }
};

template <class T, bool kInParts>
void run_behind_relu(const NormalizeBackwardArgs& p, const NormPlan& plan, const Launch& launch, void* workspace) {
  constexpr uint32_t kMost = sizeof(T) > 2 ? 2 : 4;  // vectors for which a thread has registers
  const Backward<T, Mask::y, kInParts> by_y(p);
  const Backward<T, Mask::x, kInParts> by_x(p);
  Backward<T, Mask::none> of_residual(p);
  of_residual.dy = p.dresidual.as<T>();
  if (p.alone) launch_channels<kMost, kMost, kInParts>(launch, plan, workspace, by_y, by_x, by_x);
  else if (p.dresidual) launch_channels<kMost, 4, kInParts>(launch, plan, workspace, by_y, by_y, of_residual);
  else launch_channels<kMost, 2, kInParts>(launch, plan, workspace, by_y, by_y, by_y);
}

}  // namespace

void normalize_channels(const NormalizeBackwardArgs& p, const NormPlan& plan, const Launch& launch, void* workspace) {
  visit_floating(p.x.dtype, [&]<class T>() {
    const Backward<T, Mask::none> plain(p);
    if (!p.y) launch_channels<4, 4>(launch, plan, workspace, plain, plain, plain);
    else if (!p.addend) run_behind_relu<T, false>(p, plan, launch, workspace);
    else if constexpr (sizeof(T) < 8) run_behind_relu<T, true>(p, plan, launch, workspace);
  });
}

}  // namespace gradus::cuda_detail
