// Gradients of batch norm by channels, or of relu(batch norm + residual), which are those of batch norm for dy where y
// > 0. With s = 1 / sqrt(variance + eps), n elements of a channel, P = sum(dy) and Q = sum(dy (x - mean)):
//   dx = s w (dy - P / n - (x - mean) s^2 Q / n),   dw = s Q,   dbias = P
// The first launch takes the sums of every split and writes the residual's gradient, which is dy where y > 0; the
// second joins the sums and writes the others.
#include <gradus/backends/cuda/norm/normalize_channels.h>
#include <gradus/backends/cuda/norm/channel_walk.cuh>

namespace gradus::cuda_detail {
namespace {

/// dy where y > 0, or all of it.
template <bool kMasked, class T>
__device__ Vec<T, 4> masked(Vec<T, 4> dy, const Vec<T, 4>& y) {
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
  constexpr uint32_t kVectors = kMasked && sizeof(T) > 2 ? 2 : 4;
  __shared__ Sums<C> shared[kChannels * kChannelThreads];
  __shared__ C means[32 * kChannels];
  if (walk.speaks()) means[threadIdx.x] = mean.at_or(C(0), walk.own_channel());
  __syncthreads();
  C centre[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) centre[c] = means[walk.slot(c)];
  Sums<C> sums[kChannels] = {};
  walk.template for_packets<kVectors, false>([&](uint32_t i, uint32_t number) {
    Vec<T, 4> dy[kVectors], y[kVectors], x[kVectors];
    walk.load(dy, from.dy, i, number);
    walk.load(x, from.x, i, number);
    if constexpr (kMasked) walk.load(y, from.y, i, number);
#pragma unroll
    for (uint32_t k = 0; k < kVectors; ++k) {
      if (k >= number) break;
      const Vec<T, 4> a = masked<kMasked>(dy[k], y[k]);
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

/// What a channel's gradient depends on, and where those of its weight and bias go.
template <class T>
struct ChannelGradient {
  using C = compute_t<T>;
  PerChannel<T> mean, variance, weight;
  C eps;
  bool fixed_statistics;
  ChannelResult dweight, dbias;
};

/// A channel's dx = dy of_dy - constant - (x - centre) of_x.
template <class C>
struct Line {
  C centre, of_dy, constant, of_x;
};

/// The numbers of the channel that a thread speaks for.
template <class T>
struct OwnChannel {
  using C = compute_t<T>;
  uint32_t channel = 0;
  C mean = 0, weight = 0, s = 0;

  OwnChannel() = default;
  __device__ OwnChannel(const ChannelGradient<T>& gradient, uint32_t own) : channel(own) {
    mean = gradient.mean.at_or(C(0), channel), weight = gradient.weight.at_or(C(1), channel);
    s = C(1) / ::sqrt(gradient.variance.at_or(C(0), channel) + gradient.eps);
  }
  __device__ void store(const ChannelGradient<T>& gradient, const Sums<C>& total) const {
    gradient.dweight.store(channel, total.along * s), gradient.dbias.store(channel, total.plain);
  }
  /// `elements` of a channel.
  __device__ Line<C> line(const ChannelGradient<T>& gradient, const Sums<C>& total, uint32_t elements) const {
    const C scale = gradient.fixed_statistics ? C(0) : s * weight / static_cast<C>(elements);
    return {mean, s * weight, total.plain * scale, total.along * s * s * scale};
  }
};

template <class T, int kChannels>
__device__ Vec<T, 4> dx_of(const Vec<T, 4>& dy, const Vec<T, 4>& x, const Line<compute_t<T>> (&line)[kChannels]) {
  using C = compute_t<T>;
  Vec<T, 4> dx;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const Line<C>& by = line[j % kChannels];
    dx.value[j] = static_cast<T>(static_cast<C>(dy.value[j]) * by.of_dy - by.constant -
                                 (static_cast<C>(x.value[j]) - by.centre) * by.of_x);
  }
  return dx;
}

// Null `parts` where no sums are needed, null dx where it is not wanted.
template <bool kMasked, bool kColumns, class T>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<T>)
    channel_dx_kernel(T* dx, Gradient<T> from, ChannelWalk<kColumns> walk, ChannelGradient<T> gradient,
                      const Sums<compute_t<T>>* parts) {
  using C = compute_t<T>;
  constexpr int kChannels = walk.kChannels;
  constexpr uint32_t kVectors = kMasked ? 2 : 4;
  __shared__ Sums<C> shared[kChannelThreads];
  __shared__ Line<C> lines[32 * kChannels];
  const bool speaks = walk.speaks();
  OwnChannel<T> own;
  if (speaks) own = OwnChannel<T>(gradient, walk.own_channel());
  Sums<C> total{0, 0};
  if (parts) total = walk.join(parts, shared, [](const Sums<C>& part, uint32_t) { return part; });
  if (speaks) {
    if (blockIdx.y == 0) own.store(gradient, total);
    lines[threadIdx.x] = own.line(gradient, total, walk.elements(walk.count));
  }
  if (!dx) return;
  __syncthreads();
  Line<C> line[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) line[c] = lines[walk.slot(c)];
  walk.template for_packets<kVectors, true>([&](uint32_t i, uint32_t number) {
    Vec<T, 4> dy[kVectors], y[kVectors], x[kVectors];
    walk.load(dy, from.dy, i, number);
    walk.load(x, from.x, i, number);
    if constexpr (kMasked) walk.load(y, from.y, i, number);
#pragma unroll
    for (uint32_t k = 0; k < kVectors; ++k) {
      if (k >= number) break;
      walk.store(dx, dx_of(masked<kMasked>(dy[k], y[k]), x[k], line), i + (k << walk.lanes_log2));
    }
  });
}

// Both at once, where channels are whole, and a thread has at most kVectors, which stay in registers.
template <bool kMasked, uint32_t kVectors, bool kColumns, class T>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<T>*(kVectors == 1 ? 2 : 1))
    channel_gradients_kernel(T* dx, Gradient<T> from, ChannelWalk<kColumns> walk, ChannelGradient<T> gradient,
                             T* dresidual) {
  using C = compute_t<T>;
  constexpr int kChannels = walk.kChannels;
  __shared__ Sums<C> shared[kChannels * kChannelThreads], of_blocks[32 * kChannels];
  __shared__ Line<C> lines[32 * kChannels];
  __shared__ C means[32 * kChannels];
  Vec<T, 4> dy[kVectors], x[kVectors];
  uint32_t first = 0, count = 0;
  walk.template for_packets<kVectors, false>([&](uint32_t i, uint32_t number) {
    first = i, count = number;
    walk.load(dy, from.dy, i, number);
    walk.load(x, from.x, i, number);
    if constexpr (kMasked) {
      Vec<T, 4> y[kVectors];
      walk.load(y, from.y, i, number);
#pragma unroll
      for (uint32_t k = 0; k < kVectors; ++k) dy[k] = masked<kMasked>(dy[k], y[k]);
    }
  });
  const bool speaks = walk.speaks();
  OwnChannel<T> own;
  if (speaks) own = OwnChannel<T>(gradient, walk.own_channel());
  if (speaks) means[threadIdx.x] = own.mean;
  __syncthreads();
  Sums<C> sums[kChannels] = {};
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    const C centre = means[walk.slot(c)];
#pragma unroll
    for (uint32_t k = 0; k < kVectors; ++k)
#pragma unroll
      for (int j = c; j < 4; j += kChannels) {
        const C value = k < count ? static_cast<C>(dy[k].value[j]) : C(0);
        const C distance = k < count ? static_cast<C>(x[k].value[j]) - centre : C(0);
        sums[c] = Sums<C>::join(sums[c], {value, value * distance});
      }
  }
  const Sums<C> total = walk.over_cluster(walk.fold(sums, shared), of_blocks);
  if (speaks) {
    if (blockIdx.y == 0) own.store(gradient, total);
    lines[threadIdx.x] = own.line(gradient, total, walk.elements(walk.count));
  }
  __syncthreads();
  Line<C> line[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) line[c] = lines[walk.slot(c)];
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    if (k >= count) break;
    const uint32_t i = first + (k << walk.lanes_log2);
    if (kMasked && dresidual) walk.store(dresidual, dy[k], i);
    if (dx) walk.store(dx, dx_of(dy[k], x[k], line), i);
  }
  walk.leave_cluster();
}

}  // namespace

bool normalize_channels_backward(const NormalizeBackwardArgs& args) {
  const View &dy = args.dy, &x = args.x, &mean = args.mean, &variance = args.variance;
  const View *const y = if_present(args.y), *const weight = if_present(args.weight);
  const MutableView *const dx = if_present(args.dx), *const dweight = if_present(args.dweight),
                           *const dbias = if_present(args.dbias), *const dresidual = if_present(args.dresidual);
  if (!all_but_channels(args.axes, x.ndim()) || !vary_by_channel(x.shape, {weight})) return false;
  for (const MutableView* parameter : {dweight, dbias})
    if (parameter && !(parameter->shape == mean.shape)) return false;
  const Launch launch(x.device);
  const View dx_view = dx ? View(*dx) : View(), dresidual_view = dresidual ? View(*dresidual) : View();
  return visit_floating(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const std::initializer_list<const View*> others = {&dy, y, dx ? &dx_view : nullptr,
                                                       dresidual ? &dresidual_view : nullptr};
    const ChannelGradient<T> gradient{PerChannel<T>(&mean),     PerChannel<T>(&variance), PerChannel<T>(weight),
                                      static_cast<C>(args.eps), args.fixed_statistics,    ChannelResult(dweight),
                                      ChannelResult(dbias)};
    T *const images = dx ? dx->as<T>() : nullptr, *const residual = dresidual ? dresidual->as<T>() : nullptr;
    const bool sums = (dx && !args.fixed_statistics) || dweight || dbias || residual;
    const bool clusters = has_clusters(channel_dx_kernel<true, true, float>, x.device);
    return with_channel_walk<T>(
        x, others, launch.multiprocessors(), clusters, [&]<bool kColumns>(ChannelWalk<kColumns> walk) {
          Gradient<T> from{dy.as<T>(), y ? y->as<T>() : nullptr, x.as<T>()};
          if (sums && walk.whole) {
            const auto run = [&]<uint32_t kVectors>() {
              launch.in_clusters(y ? channel_gradients_kernel<true, kVectors, kColumns, T>
                                   : channel_gradients_kernel<false, kVectors, kColumns, T>,
                                 dim3(1, walk.splits), walk.grid(), kChannelThreads, images, from, walk, gradient,
                                 residual);
            };
            return walk.of_thread(walk.per_split) == 1 ? run.template operator()<1>()
                                                       : run.template operator()<walk.kWhole>();
          }
          std::optional<Scratch> parts;
          if (sums) {
            parts.emplace(sizeof(Sums<C>) * walk.splits * walk.channels, x.device);
            launch(from.y ? channel_sums_kernel<true, kColumns, T> : channel_sums_kernel<false, kColumns, T>,
                   walk.grid(), kChannelThreads, from, walk, PerChannel<T>(&mean), residual, parts->as<Sums<C>>());
          }
          if (residual) from.dy = residual, from.y = nullptr;  // what is left of dy
          launch(from.y ? channel_dx_kernel<true, kColumns, T> : channel_dx_kernel<false, kColumns, T>,
                 dx ? walk.grid() : dim3(walk.groups()), kChannelThreads, images, from, walk, gradient,
                 parts ? parts->as<Sums<C>>() : nullptr);
        });
  });
}

}  // namespace gradus::cuda_detail
