// y = (x - mean) s w + b by channels, s = 1 / sqrt(variance + eps); or relu(that + residual). The first launch takes the
// moments of every split, the second joins them and writes y. A split's numbers are taken less its first one, which is
// one of them: that loses at most as many units of the last place as it has numbers, and next to none where the first one
// is no outlier.
#include <gradus/backends/cuda/normalize_channels.h>
#include <gradus/backends/cuda/channel_walk.cuh>

namespace gradus::cuda_detail {
namespace {

/// The moments of a split's numbers, less the channel's first one: where the mean is large, its own digits would leave few
/// for those of partial means.
template <class C>
struct alignas(2 * sizeof(C)) MomentsPart {
  C mean, spread;
};

template <bool kColumns, class T>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<T>)
    channel_moments_kernel(const T* x, ChannelWalk<kColumns> walk, MomentsPart<compute_t<T>>* parts) {
  using C = compute_t<T>;
  constexpr int kChannels = walk.kChannels;
  constexpr uint32_t kPackets = 4;
  __shared__ Sums<C> shared[kChannels * kChannelThreads];
  const uint32_t begin = walk.begin(blockIdx.y);
  C origin = 0, own_first = 0;
  if (walk.speaks()) {
    origin = static_cast<C>(x[walk.own_offset(0)]);
    own_first = static_cast<C>(x[walk.own_offset(begin)]);
  }
  const Packet<T> firsts = walk.idle() ? Packet<T>{} : *reinterpret_cast<const Packet<T>*>(x + walk.offset(begin));
  Sums<C> sums[kChannels] = {};
  walk.template for_packets<kPackets, false>([&](uint32_t i, uint32_t number) {
    Packet<T> values[kPackets];
    walk.load(values, x, i, number);
#pragma unroll
    for (uint32_t k = 0; k < kPackets; ++k)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int c = j % kChannels;
        const C distance = k < number ? static_cast<C>(values[k].value[j]) - static_cast<C>(firsts.value[c]) : C(0);
        sums[c] = Sums<C>::join(sums[c], {distance, distance * distance});
      }
  });
  const Sums<C> total = walk.fold(sums, shared);
  if (!walk.speaks()) return;
  const C average = total.plain / static_cast<C>(walk.elements(walk.size(blockIdx.y)));
  const C spread = total.along - total.plain * average;
  parts[static_cast<int64_t>(blockIdx.y) * walk.channels + walk.own_channel()] = {
      own_first - origin + average, spread < C(0) ? C(0) : spread};  // all alike: 0 but for rounding
}

/// What a channel is normalised with; mean and variance are read where they are fixed.
template <class T>
struct ChannelNorm {
  PerChannel<T> weight, bias, mean, variance;
  compute_t<T> eps;
};

// With null `parts` the statistics are fixed.
template <bool kRelu, bool kResidual, bool kColumns, class T>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<T>)
    channel_normalize_kernel(T* y, const T* x, const T* residual, ChannelWalk<kColumns> walk, ChannelNorm<T> norm,
                             const MomentsPart<compute_t<T>>* parts, ChannelResult mean_result,
                             ChannelResult variance_result) {
  using C = compute_t<T>;
  constexpr int kChannels = walk.kChannels;
  constexpr uint32_t kPackets = kResidual ? 2 : 4;
  struct Line {
    C centre, scale, shift;
  };
  __shared__ Moments<C> shared[kChannelThreads];
  __shared__ Line lines[32 * kChannels];
  const bool speaks = walk.speaks();
  const uint32_t channel = walk.own_channel();
  const C origin = parts && speaks ? static_cast<C>(x[walk.own_offset(0)]) : C(0);
  const C weight = speaks ? norm.weight.at_or(C(1), channel) : C(1);
  const C bias = speaks ? norm.bias.at_or(C(0), channel) : C(0);
  C mean = 0, variance = 0;
  if (parts) {
    const Moments<C> total = walk.join(parts, shared, [&](const MomentsPart<C>& part, uint32_t split) {
      return Moments<C>{static_cast<C>(walk.elements(walk.size(split))), part.mean, part.spread};
    });
    mean = origin + total.mean, variance = total.spread / total.count;
    if (speaks && blockIdx.y == 0) mean_result.store(channel, mean), variance_result.store(channel, variance);
  } else if (speaks) {
    mean = norm.mean.at_or(C(0), channel), variance = norm.variance.at_or(C(0), channel);
  }
  if (speaks) lines[threadIdx.x] = {mean, weight / ::sqrt(variance + norm.eps), bias};
  __syncthreads();
  Line line[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) line[c] = lines[walk.slot(c)];
  walk.template for_packets<kPackets, true>([&](uint32_t i, uint32_t number) {
    Packet<T> values[kPackets], added[kPackets];
    walk.load(values, x, i, number);
    if constexpr (kResidual) walk.load(added, residual, i, number);
#pragma unroll
    for (uint32_t k = 0; k < kPackets; ++k) {
      if (k >= number) break;
      Packet<T> result;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const Line& by = line[j % kChannels];
        C value = (static_cast<C>(values[k].value[j]) - by.centre) * by.scale + by.shift;
        if constexpr (kResidual) value += static_cast<C>(added[k].value[j]);
        if constexpr (kRelu) value = value < C(0) ? C(0) : value;
        result.value[j] = static_cast<T>(value);
      }
      walk.store(y, result, i + (k << walk.lanes_log2));
    }
  });
}

}  // namespace

bool normalize_channels(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                        bool fixed_statistics, bool relu, const View* residual, const MutableView& y,
                        const MutableView& mean, const MutableView& variance) {
  if (!all_but_channels(axes, x.ndim()) || !vary_by_channel(x.shape, {weight, bias})) return false;
  const Launch launch(x.device);
  const View y_view = y, mean_view = mean, variance_view = variance;
  return visit_floating(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    return with_channel_walk<T>(
        x, {&y_view, residual}, launch.multiprocessors(), [&]<bool kColumns>(ChannelWalk<kColumns> walk) {
          std::optional<Scratch> parts;
          if (!fixed_statistics) {
            parts.emplace(sizeof(MomentsPart<C>) * walk.splits * walk.channels, x.device);
            launch(channel_moments_kernel<kColumns, T>, walk.grid(), kChannelThreads, x.as<T>(), walk,
                   parts->as<MomentsPart<C>>());
          }
          const ChannelNorm<T> norm{PerChannel<T>(weight), PerChannel<T>(bias), PerChannel<T>(&mean_view),
                                    PerChannel<T>(&variance_view), static_cast<C>(eps)};
          const auto kernel = !relu      ? channel_normalize_kernel<false, false, kColumns, T>
                              : residual ? channel_normalize_kernel<true, true, kColumns, T>
                                         : channel_normalize_kernel<true, false, kColumns, T>;
          launch(kernel, walk.grid(), kChannelThreads, y.as<T>(), x.as<T>(), residual ? residual->as<T>() : nullptr,
                 walk, norm, parts ? parts->as<MomentsPart<C>>() : nullptr, ChannelResult(&mean),
                 ChannelResult(&variance));
        });
  });
}

}  // namespace gradus::cuda_detail
