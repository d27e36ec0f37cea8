// Gradients of batch norm by channels, or of relu(batch norm + residual), which are those of batch norm for dy where y > 0.
// With s = 1 / sqrt(variance + eps), n elements of a channel, P = sum(dy) and Q = sum(dy (x - mean)):
//   dx = s w (dy - P / n - (x - mean) s^2 Q / n),   dw = s Q,   dbias = P
// The first launch takes the sums of every split and writes the residual's gradient, which is dy where y > 0; the second
// joins the sums and writes the others.
#include <gradus/backends/cuda/normalize_channels.h>
#include <gradus/backends/cuda/channel_walk.cuh>

namespace gradus::cuda_detail {
namespace {

/// dy where y > 0, or all of it.
template <bool kMasked, class T>
__device__ Packet<T> masked(Packet<T> dy, const Packet<T>& y) {
  if constexpr (kMasked) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (!(static_cast<compute_t<T>>(y.value[j]) > compute_t<T>(0))) dy.value[j] = static_cast<T>(0.0f);
  }
  return dy;
}

template <class T>
struct Gradient {
  const T *dy, *y, *x;
};

// Null dresidual where it is not wanted.
template <bool kMasked, bool kColumns, class T>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<T>)
    channel_sums_kernel(Gradient<T> from, ChannelWalk<kColumns> walk, PerChannel<T> mean, T* dresidual,
                        Sums<compute_t<T>>* parts) {
  using C = compute_t<T>;
  constexpr int kChannels = walk.kChannels;
  constexpr uint32_t kPackets = kMasked && sizeof(T) > 2 ? 2 : 4;
  __shared__ Sums<C> shared[kChannels * kChannelThreads];
  __shared__ C means[32 * kChannels];
  if (walk.speaks()) means[threadIdx.x] = mean.at_or(C(0), walk.own_channel());
  __syncthreads();
  C centre[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) centre[c] = means[walk.slot(c)];
  Sums<C> sums[kChannels] = {};
  walk.template for_packets<kPackets, false>([&](uint32_t i, uint32_t number) {
    Packet<T> dy[kPackets], y[kPackets], x[kPackets];
    walk.load(dy, from.dy, i, number);
    walk.load(x, from.x, i, number);
    if constexpr (kMasked) walk.load(y, from.y, i, number);
#pragma unroll
    for (uint32_t k = 0; k < kPackets; ++k) {
      if (k >= number) break;
      const Packet<T> a = masked<kMasked>(dy[k], y[k]);
      if (kMasked && dresidual) walk.store(dresidual, a, i + (k << walk.lanes_log2));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int c = j % kChannels;
        const C value = static_cast<C>(a.value[j]);
        sums[c] = Sums<C>::join(sums[c], {value, value * (static_cast<C>(x[k].value[j]) - centre[c])});
      }
    }
  });
  const Sums<C> total = walk.fold(sums, shared);
  if (walk.speaks()) parts[static_cast<int64_t>(blockIdx.y) * walk.channels + walk.own_channel()] = total;
}

/// What a channel's gradient depends on.
template <class T>
struct ChannelGradient {
  PerChannel<T> mean, variance, weight;
  compute_t<T> eps;
  bool fixed_statistics;
  ChannelResult dweight, dbias;
};

// Null `parts` where no sums are needed, null dx where it is not wanted.
template <bool kMasked, bool kColumns, class T>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<T>)
    channel_dx_kernel(T* dx, Gradient<T> from, ChannelWalk<kColumns> walk, ChannelGradient<T> gradient,
                      const Sums<compute_t<T>>* parts) {
  using C = compute_t<T>;
  constexpr int kChannels = walk.kChannels;
  constexpr uint32_t kPackets = kMasked ? 2 : 4;
  struct Line {
    C centre, of_dy, constant, of_x;
  };
  __shared__ Sums<C> shared[kChannelThreads];
  __shared__ Line lines[32 * kChannels];
  const bool speaks = walk.speaks();
  const uint32_t channel = walk.own_channel();
  const C mean = speaks ? gradient.mean.at_or(C(0), channel) : C(0);
  const C variance = speaks ? gradient.variance.at_or(C(0), channel) : C(0);
  const C weight = speaks ? gradient.weight.at_or(C(1), channel) : C(1);
  const C s = C(1) / ::sqrt(variance + gradient.eps);
  Sums<C> total{0, 0};
  if (parts) total = walk.join(parts, shared, [](const Sums<C>& part, uint32_t) { return part; });
  if (speaks) {
    if (blockIdx.y == 0) gradient.dweight.store(channel, total.along * s), gradient.dbias.store(channel, total.plain);
    const C scale = gradient.fixed_statistics ? C(0) : s * weight / static_cast<C>(walk.elements(walk.count));
    lines[threadIdx.x] = {mean, s * weight, total.plain * scale, total.along * s * s * scale};
  }
  if (!dx) return;
  __syncthreads();
  Line line[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) line[c] = lines[walk.slot(c)];
  walk.template for_packets<kPackets, true>([&](uint32_t i, uint32_t number) {
    Packet<T> dy[kPackets], y[kPackets], x[kPackets];
    walk.load(dy, from.dy, i, number);
    walk.load(x, from.x, i, number);
    if constexpr (kMasked) walk.load(y, from.y, i, number);
#pragma unroll
    for (uint32_t k = 0; k < kPackets; ++k) {
      if (k >= number) break;
      const Packet<T> a = masked<kMasked>(dy[k], y[k]);
      Packet<T> result;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const Line& by = line[j % kChannels];
        result.value[j] = static_cast<T>(static_cast<C>(a.value[j]) * by.of_dy - by.constant -
                                         (static_cast<C>(x[k].value[j]) - by.centre) * by.of_x);
      }
      walk.store(dx, result, i + (k << walk.lanes_log2));
    }
  });
}

}  // namespace

bool normalize_channels_backward(const View& dy, const View* y, const View& x, const View& mean, const View& variance,
                                 uint32_t axes, const View* weight, double eps, bool fixed_statistics,
                                 const MutableView* dx, const MutableView* dweight, const MutableView* dbias,
                                 const MutableView* dresidual) {
  if (!all_but_channels(axes, x.ndim()) || !vary_by_channel(x.shape, {weight})) return false;
  for (const MutableView* parameter : {dweight, dbias})
    if (parameter && !(parameter->shape == mean.shape)) return false;
  const Launch launch(x.device);
  const View dx_view = dx ? View(*dx) : View(), dresidual_view = dresidual ? View(*dresidual) : View();
  return visit_floating(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const std::initializer_list<const View*> others = {&dy, y, dx ? &dx_view : nullptr,
                                                       dresidual ? &dresidual_view : nullptr};
    return with_channel_walk<T>(x, others, launch.multiprocessors(), [&]<bool kColumns>(ChannelWalk<kColumns> walk) {
      Gradient<T> from{dy.as<T>(), y ? y->as<T>() : nullptr, x.as<T>()};
      T* const residual = dresidual ? dresidual->as<T>() : nullptr;
      std::optional<Scratch> parts;
      if ((dx && !fixed_statistics) || dweight || dbias || residual) {
        parts.emplace(sizeof(Sums<C>) * walk.splits * walk.channels, x.device);
        launch(from.y ? channel_sums_kernel<true, kColumns, T> : channel_sums_kernel<false, kColumns, T>, walk.grid(),
               kChannelThreads, from, walk, PerChannel<T>(&mean), residual, parts->as<Sums<C>>());
      }
      if (residual) from.dy = residual, from.y = nullptr;  // what is left of dy
      const ChannelGradient<T> gradient{PerChannel<T>(&mean), PerChannel<T>(&variance), PerChannel<T>(weight),
                                        static_cast<C>(eps),  fixed_statistics,         ChannelResult(dweight),
                                        ChannelResult(dbias)};
      launch(from.y ? channel_dx_kernel<true, kColumns, T> : channel_dx_kernel<false, kColumns, T>,
             dx ? walk.grid() : dim3(walk.groups()), kChannelThreads, dx ? dx->as<T>() : nullptr, from, walk, gradient,
             parts ? parts->as<Sums<C>>() : nullptr);
    });
  });
}

}  // namespace gradus::cuda_detail
