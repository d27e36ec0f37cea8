// y = (x - mean) s w + b by channels, s = 1 / sqrt(variance + eps); or relu(that + residual). The first launch takes
// the moments of every split, the second joins them and writes y. A split's numbers are taken less its first one, which
// is one of them: that loses at most as many units of the last place as it has numbers, and next to none where the
// first one is no outlier.
#include <gradus/backends/cuda/norm/normalize_channels.h>
#include <gradus/backends/cuda/norm/channel_walk.cuh>

namespace gradus::cuda_detail {
namespace {

/// The moments of a split's numbers, less the channel's first one: where the mean is large, its own digits would leave
/// few for those of partial means.
template <class C>
struct alignas(2 * sizeof(C)) MomentsPart {
  C mean, spread;
};

/// Adds the distances of `number` vectors from `firsts`, and their squares.
template <int kChannels, class C, class T, uint32_t kVectors>
__device__ void add_distances(Sums<C> (&sums)[kChannels], const Vec<T, 4> (&values)[kVectors], uint32_t number,
                              const Vec<T, 4>& firsts) {
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int c = j % kChannels;
      const C distance = k < number ? static_cast<C>(values[k].value[j]) - static_cast<C>(firsts.value[c]) : C(0);
      sums[c] = Sums<C>::join(sums[c], {distance, distance * distance});
    }
}

/// Moments of `count` numbers, less what the sums' distances are from.
template <class C>
__device__ MomentsPart<C> moments_of(const Sums<C>& total, uint32_t count) {
  const C average = total.plain / static_cast<C>(count), spread = total.along - total.plain * average;
  return {average, spread < C(0) ? C(0) : spread};  // all alike: 0 but for rounding
}

template <bool kColumns, class T>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<T>)
    channel_moments_kernel(const T* x, ChannelWalk<kColumns> walk, MomentsPart<compute_t<T>>* parts) {
  using C = compute_t<T>;
  constexpr int kChannels = walk.kChannels;
  constexpr uint32_t kVectors = 4;
  __shared__ Sums<C> shared[kChannels * kChannelThreads];
  const uint32_t begin = walk.begin(blockIdx.y);
  C origin = 0, own_first = 0;
  if (walk.speaks()) {
    origin = static_cast<C>(x[walk.own_offset(0)]);
    own_first = static_cast<C>(x[walk.own_offset(begin)]);
  }
  const Vec<T, 4> firsts = walk.idle() ? Vec<T, 4>{} : *reinterpret_cast<const Vec<T, 4>*>(x + walk.offset(begin));
  Sums<C> sums[kChannels] = {};
  walk.template for_packets<kVectors, false>([&](uint32_t i, uint32_t number) {
    Vec<T, 4> values[kVectors];
    walk.load(values, x, i, number);
    add_distances(sums, values, number, firsts);
  });
  const Sums<C> total = walk.fold(sums, shared);
  if (!walk.speaks()) return;
  const MomentsPart<C> part = moments_of(total, walk.elements(walk.size(blockIdx.y)));
  parts[static_cast<int64_t>(blockIdx.y) * walk.channels + walk.own_channel()] = {own_first - origin + part.mean,
                                                                                  part.spread};
}

/// What a channel is normalised with; mean and variance are read where they are fixed.
template <class T>
struct ChannelNorm {
  PerChannel<T> weight, bias, mean, variance;
  compute_t<T> eps;
};

/// What is left of that for each element: (x - centre) scale + shift.
template <class C>
struct Line {
  C centre, scale, shift;
};

template <bool kRelu, bool kResidual, class T, class C, int kChannels>
__device__ Vec<T, 4> normalized(const Vec<T, 4>& x, const Vec<T, 4>& added, const Line<C> (&line)[kChannels]) {
  Vec<T, 4> y;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const Line<C>& by = line[j % kChannels];
    C value = (static_cast<C>(x.value[j]) - by.centre) * by.scale + by.shift;
    if constexpr (kResidual) value += static_cast<C>(added.value[j]);
    if constexpr (kRelu) value = value < C(0) ? C(0) : value;
    y.value[j] = static_cast<T>(value);
  }
  return y;
}

/// Where the statistics go.
template <class C>
struct StatisticsResult {
  ChannelResult mean, variance;
  RunningChannels<C> running;

  __device__ void store(uint32_t channel, const typename RunningChannels<C>::Before& before, C mean_value,
                        C variance_value) const {
    mean.store(channel, mean_value), variance.store(channel, variance_value);
    running.move(channel, before, mean_value, variance_value);
  }
};

// Where channels are whole, and a thread has at most kVectors: they stay in registers.
template <bool kRelu, bool kResidual, uint32_t kVectors, bool kColumns, class T>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<T>*(kVectors == 1 ? 2 : 1))
    channel_whole_kernel(T* y, const T* x, const T* residual, ChannelWalk<kColumns> walk, ChannelNorm<T> norm,
                         StatisticsResult<compute_t<T>> result) {
  using C = compute_t<T>;
  constexpr int kChannels = walk.kChannels;
  __shared__ Sums<C> shared[kChannels * kChannelThreads], of_blocks[32 * kChannels];
  __shared__ Line<C> lines[32 * kChannels];
  const bool speaks = walk.speaks(), tells = speaks && blockIdx.y == 0;
  const uint32_t channel = walk.own_channel();
  Vec<T, 4> values[kVectors], added[kVectors], firsts{};
  uint32_t first = 0, count = 0;
  walk.template for_packets<kVectors, false>([&](uint32_t i, uint32_t number) {
    first = i, count = number;
    walk.load(values, x, i, number);
    if constexpr (kResidual) walk.load(added, residual, i, number);
  });
  if (count > 0) firsts = *reinterpret_cast<const Vec<T, 4>*>(x + walk.offset(0));
  C origin = 0, weight = 0, bias = 0;
  typename RunningChannels<C>::Before before{};
  if (speaks) {
    origin = static_cast<C>(x[walk.own_offset(0)]);
    weight = norm.weight.at_or(C(1), channel), bias = norm.bias.at_or(C(0), channel);
  }
  if (tells) before = result.running.before(channel);
  Sums<C> sums[kChannels] = {};
  add_distances(sums, values, count, firsts);
  const Sums<C> total = walk.over_cluster(walk.fold(sums, shared), of_blocks);
  if (speaks) {
    const uint32_t elements = walk.elements(walk.count);
    const MomentsPart<C> moments = moments_of(total, elements);
    const C mean = origin + moments.mean, variance = moments.spread / static_cast<C>(elements);
    lines[threadIdx.x] = {mean, weight / ::sqrt(variance + norm.eps), bias};
    if (tells) result.store(channel, before, mean, variance);
  }
  __syncthreads();
  Line<C> line[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) line[c] = lines[walk.slot(c)];
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k)
    if (k < count)
      walk.store(y, normalized<kRelu, kResidual>(values[k], added[k], line), first + (k << walk.lanes_log2));
  walk.leave_cluster();
}

// With null `parts` the statistics are fixed. Else the first split's blocks write them.
template <bool kRelu, bool kResidual, bool kColumns, class T>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<T>)
    channel_normalize_kernel(T* y, const T* x, const T* residual, ChannelWalk<kColumns> walk, ChannelNorm<T> norm,
                             const MomentsPart<compute_t<T>>* parts, StatisticsResult<compute_t<T>> result) {
  using C = compute_t<T>;
  constexpr int kChannels = walk.kChannels;
  constexpr uint32_t kVectors = kResidual ? 2 : 4;
  __shared__ Moments<C> shared[kChannelThreads];
  __shared__ Line<C> lines[32 * kChannels];
  const bool speaks = walk.speaks(), tells = speaks && parts && blockIdx.y == 0;
  const uint32_t channel = walk.own_channel();
  const C origin = parts && speaks ? static_cast<C>(x[walk.own_offset(0)]) : C(0);
  const C weight = speaks ? norm.weight.at_or(C(1), channel) : C(1);
  const C bias = speaks ? norm.bias.at_or(C(0), channel) : C(0);
  typename RunningChannels<C>::Before before{};
  if (tells) before = result.running.before(channel);
  C mean = 0, variance = 0;
  if (parts) {
    const Moments<C> total = walk.join(parts, shared, [&](const MomentsPart<C>& part, uint32_t split) {
      return Moments<C>{static_cast<C>(walk.elements(walk.size(split))), part.mean, part.spread};
    });
    mean = origin + total.mean, variance = total.spread / total.count;
    if (tells) result.store(channel, before, mean, variance);
  } else if (speaks) {
    mean = norm.mean.at_or(C(0), channel), variance = norm.variance.at_or(C(0), channel);
  }
  if (speaks) lines[threadIdx.x] = {mean, weight / ::sqrt(variance + norm.eps), bias};
  __syncthreads();
  Line<C> line[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) line[c] = lines[walk.slot(c)];
  walk.template for_packets<kVectors, true>([&](uint32_t i, uint32_t number) {
    Vec<T, 4> values[kVectors], added[kVectors];
    walk.load(values, x, i, number);
    if constexpr (kResidual) walk.load(added, residual, i, number);
#pragma unroll
    for (uint32_t k = 0; k < kVectors; ++k) {
      if (k >= number) break;
      walk.store(y, normalized<kRelu, kResidual>(values[k], added[k], line), i + (k << walk.lanes_log2));
    }
  });
}

/// Calls f.template operator()<kRelu, kResidual>().
template <class F>
void visit_relu(bool relu, bool residual, F&& f) {
  if (!relu) f.template operator()<false, false>();
  else if (residual) f.template operator()<true, true>();
  else f.template operator()<true, false>();
}

}  // namespace

bool normalize_channels(const NormalizeArgs& args) {
  const View& x = args.x;
  const MutableView &y = args.y, &mean = args.mean, &variance = args.variance;
  const View *const weight = if_present(args.weight), *const bias = if_present(args.bias),
                    *const residual = if_present(args.residual);
  if (!all_but_channels(args.axes, x.ndim()) || !vary_by_channel(x.shape, {weight, bias})) return false;
  const Launch launch(x.device);
  const View y_view = y, mean_view = mean, variance_view = variance;
  return visit_floating(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const ChannelNorm<T> norm{PerChannel<T>(weight), PerChannel<T>(bias), PerChannel<T>(&mean_view),
                              PerChannel<T>(&variance_view), static_cast<C>(args.eps)};
    const StatisticsResult<C> result{ChannelResult(&mean), ChannelResult(&variance), RunningChannels<C>(args.running)};
    const T* const added = args.residual.as<T>();
    return with_channel_walk<T>(
        x, {&y_view, residual}, launch.multiprocessors(), has_clusters(channel_moments_kernel<true, float>, x.device),
        [&]<bool kColumns>(ChannelWalk<kColumns> walk) {
          visit_relu(args.relu, residual, [&]<bool kRelu, bool kResidual>() {
            if (!args.fixed_statistics && walk.whole)
              return launch.in_clusters(walk.of_thread(walk.per_split) == 1
                                            ? channel_whole_kernel<kRelu, kResidual, 1, kColumns, T>
                                            : channel_whole_kernel<kRelu, kResidual, walk.kWhole, kColumns, T>,
                                        dim3(1, walk.splits), walk.grid(), kChannelThreads, y.as<T>(), x.as<T>(), added,
                                        walk, norm, result);
            std::optional<Scratch> parts;
            if (!args.fixed_statistics) {
              parts.emplace(sizeof(MomentsPart<C>) * walk.splits * walk.channels, x.device);
              launch(channel_moments_kernel<kColumns, T>, walk.grid(), kChannelThreads, x.as<T>(), walk,
                     parts->as<MomentsPart<C>>());
            }
            launch(channel_normalize_kernel<kRelu, kResidual, kColumns, T>, walk.grid(), kChannelThreads, y.as<T>(),
                   x.as<T>(), added, walk, norm, parts ? parts->as<MomentsPart<C>>() : nullptr, result);
          });
        });
  });
}

}  // namespace gradus::cuda_detail
