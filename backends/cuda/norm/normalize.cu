// y = (x - mean) s w + b with s = 1 / sqrt(variance + eps): the one formula of batch, layer, group and instance norm.
// One launch takes the moments (a second joins them where a group is cut into splits), one more writes y; contiguous
// rows need but one (normalize_rows.cu). Moments are taken of few elements in a thread's registers, less the group's
// first element, around their own mean, and joined by the formula of Chan, Golub and LeVeque ("Updating formulae and a
// pairwise algorithm for computing sample variances", 1979): right also where the mean is large. Dense images are
// walked channel by channel, which spares most of the index arithmetic; all else by loop nests.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/norm/normalize_channels.h>
#include <gradus/backends/cuda/norm/normalize_rows.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/norm/normalize.cuh>

namespace gradus {
namespace {

using cuda_detail::Either;
using cuda_detail::Geometry;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Moments;
using cuda_detail::Nest;
using cuda_detail::ReducePlan;
using cuda_detail::RunningChannels;

// Where the results go: their dtypes may differ from x's. Offsets are those of the views x, mean, variance.
template <class T>
struct Statistics {
  using C = compute_t<T>;
  const T* x;
  void *mean, *variance;
  DType mean_dtype, variance_dtype;

  // Moments are taken of the distances from the group's first element: where the mean is large, its own digits would
  // leave few for those of partial means.
  __device__ C origin(const int64_t (&at)[3]) const { return static_cast<C>(x[at[0]]); }
  __device__ void store(const int64_t (&at)[3], const Moments<C>& moments) const {
    cuda_detail::store_as(mean, mean_dtype, at[1], origin(at) + moments.mean);
    cuda_detail::store_as(variance, variance_dtype, at[2], moments.spread / moments.count);
  }
};

// Views of `outer`: x, mean, variance; of `inner`: x. With `partial` the moments of the splits go there.
template <class T>
__global__ void __launch_bounds__(kThreads)
    moments_kernel(const T* x, Geometry<3> outer, Geometry<1> inner, ReducePlan plan, Moments<compute_t<T>>* partial,
                   Statistics<T> statistics) {
  using C = compute_t<T>;
  constexpr int kValues = 8;
  __shared__ Moments<C> shared[kThreads];
  const uint32_t lane = plan.lane(), output = plan.output();
  int64_t base[3] = {};
  Moments<C> total{0, 0, 0};
  if (output < outer.numel) {
    outer.offsets(output, base);
    const uint32_t begin = blockIdx.y * plan.per_split, end = min(begin + plan.per_split, inner.numel);
    const bool straight = inner.ndim <= 1;
    const C origin = statistics.origin(base);
    for (uint32_t first = begin + lane; first < end; first += kValues * plan.lanes) {
      C values[kValues];
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        const uint32_t i = min(first + k * plan.lanes, end - 1);
        int64_t at[1] = {i * inner.strides[0][0]};
        if (!straight) inner.offsets(i, at);
        values[k] = static_cast<C>(x[base[0] + at[0]]) - origin;
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
  total = cuda_detail::fold_lanes(plan, total, shared, Moments<C>::join);
  if (lane != 0 || output >= outer.numel) return;
  if (partial) partial[static_cast<int64_t>(blockIdx.y) * outer.numel + output] = total;
  else statistics.store(base, total);
}

// Views: y, x, mean, variance, weight, bias.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    normalize_kernel(Geometry<6> geometry, T* y, const T* x, Either<T> mean, Either<T> variance, Either<T> weight,
                     Either<T> bias, compute_t<T> eps) {
  using C = compute_t<T>;
  const int last = geometry.ndim - 1;
  int64_t step[6];
#pragma unroll
  for (int k = 0; k < 6; ++k) step[k] = last < 0 ? 0 : geometry.strides[k][last];
  for (uint32_t i = kWidth * cuda_detail::thread_index(); i < geometry.numel;
       i += kWidth * cuda_detail::thread_count()) {
    int64_t at[6];
    geometry.offsets(i, at);
    C values[kWidth], centre[kWidth], spread[kWidth], scale[kWidth], shift[kWidth];
    cuda_detail::load_dense<kWidth>(values, x + at[1]);
    cuda_detail::load_broadcast(centre, step[2], [&](int64_t j) { return mean.at(at[2] + j); });
    cuda_detail::load_broadcast(spread, step[3],
                                [&](int64_t j) { return C(1) / ::sqrt(variance.at(at[3] + j) + eps); });
    cuda_detail::load_broadcast(scale, step[4], [&](int64_t j) { return weight.at_or(C(1), at[4] + j); });
    cuda_detail::load_broadcast(shift, step[5], [&](int64_t j) { return bias.at_or(C(0), at[5] + j); });
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = (values[j] - centre[j]) * spread[j] * scale[j] + shift[j];
    cuda_detail::store_dense<kWidth>(y + at[0], values);
  }
}

template <class T>
void take_moments(const View& x, uint32_t axes, const MutableView& mean, const MutableView& variance) {
  using Part = Moments<compute_t<T>>;
  const Nest<3> outer(
      StridedLoop<3>(cuda_detail::with_ones(x.shape, axes), {&x.strides, &mean.strides, &variance.strides}));
  const Statistics<T> statistics{x.as<T>(), mean.data, variance.data, mean.dtype, variance.dtype};
  const Launch launch(x.device);
  const Nest<1> inner(StridedLoop<1>(cuda_detail::with_ones(x.shape, axes, true), {&x.strides}));
  const ReducePlan plan(outer, inner, launch.multiprocessors());
  cuda_detail::reduce_by_parts<Part>(x.device, outer, plan.splits, statistics, [&](Part* partial) {
    launch(moments_kernel<T>, dim3(plan.blocks(outer.numel), plan.splits), kThreads, x.as<T>(), outer.geometry(),
           inner.geometry(), plan, partial, statistics);
  });
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    running_statistics_kernel(const C* mean, const C* variance, RunningChannels<C> running, uint32_t rows,
                              uint32_t channels) {
  const uint32_t channel = cuda_detail::thread_index();
  if (channel >= channels) return;
  const auto before = running.before(channel);
  C means = 0, variances = 0;
  for (uint32_t row = 0; row < rows; ++row) {
    means += mean[static_cast<int64_t>(row) * channels + channel];
    variances += variance[static_cast<int64_t>(row) * channels + channel];
  }
  running.move(channel, before, means / static_cast<C>(rows), variances / static_cast<C>(rows));
}

}  // namespace

void CudaBackend::update_running_statistics(const View& batch_mean, const View& batch_variance,
                                            const RunningStatistics& running) {
  const DType dtype = batch_mean.dtype;
  const auto dense = [](const View& view) { return view.strides == contiguous_strides(view.shape); };
  const int64_t rows = batch_mean.shape[0], channels = batch_mean.shape[1];
  if (channels == 0 || !RunningChannels<float>::serve(running, dtype) || !dense(batch_mean) || !dense(batch_variance))
    return Backend::update_running_statistics(batch_mean, batch_variance, running);
  EventScope event("update_running_statistics", "cuda", "moments", {&batch_mean, &batch_variance},
                   4 * batch_mean.numel());
  const Launch launch(batch_mean.device);
  visit_floating(dtype, [&]<class T>() {
    using C = compute_t<T>;
    launch(running_statistics_kernel<C>, dim3(static_cast<uint32_t>((channels + kThreads - 1) / kThreads)), kThreads,
           static_cast<const C*>(batch_mean.data), static_cast<const C*>(batch_variance.data),
           RunningChannels<C>(running), static_cast<uint32_t>(rows), static_cast<uint32_t>(channels));
  });
}

void CudaBackend::normalize(const NormalizeArgs& args) {
  const View& x = args.x;
  const MutableView &y = args.y, &mean = args.mean, &variance = args.variance;
  const bool plain = !args.relu && !args.running;
  if (plain && (x.numel() == 0 || x.numel() > cuda_detail::kMaxChunk)) return Backend::normalize(args);
  EventScope event(args.relu ? "normalize_relu" : "normalize", "cuda", "moments", {&x, &y},
                   (args.relu ? 9 : 8) * x.numel());
  if (plain && !args.fixed_statistics && cuda_detail::normalize_rows(args)) return;
  if (RunningChannels<float>::serve(args.running, mean.dtype) && cuda_detail::normalize_channels(args)) return;
  if (!plain) return Backend::normalize(args);
  const View *const weight = if_present(args.weight), *const bias = if_present(args.bias);
  const int n = x.ndim();
  const Strides weight_strides = cuda_detail::strides_or_zero(weight, n);
  const Strides bias_strides = cuda_detail::strides_or_zero(bias, n);
  // Statistics have size 1 at the axes, and are read as if broadcast there.
  Strides mean_strides = mean.strides, variance_strides = variance.strides;
  for (int i = 0; i < n; ++i)
    if (mean.shape[i] == 1) mean_strides[i] = variance_strides[i] = 0;
  const Nest<6> nest(StridedLoop<6>(
      x.shape, {&y.strides, &x.strides, &mean_strides, &variance_strides, &weight_strides, &bias_strides}));
  visit_floating(x.dtype, [&]<class T>() {
    if (!args.fixed_statistics) take_moments<T>(x, args.axes, mean, variance);
    const Launch launch(x.device);
    const View mean_view = mean, variance_view = variance;
    const bool aligned = cuda_detail::aligned(x.as<T>()) && cuda_detail::aligned(y.as<T>());
    const bool vectors = aligned && cuda_detail::in_packets(nest, 2);
    launch(vectors ? normalize_kernel<4, T> : normalize_kernel<1, T>,
           launch.blocks(nest.numel, vectors ? 4 * kThreads : kThreads), kThreads, nest.geometry(), y.as<T>(),
           x.as<T>(), Either<T>(&mean_view), Either<T>(&variance_view), Either<T>(weight), Either<T>(bias),
           static_cast<compute_t<T>>(args.eps));
  });
}

}  // namespace gradus
