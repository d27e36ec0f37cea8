// Normalisation and its gradients: from views to plans (select.h), and to the kernels that they name.
//   y = (x - mean) s w + b,  s = 1 / sqrt(variance + eps): the one formula of batch, layer, group and instance norm.
// With g = dy w and h = (x - mean) s:
//   dx = s (g - avg(g) - h avg(g h)),   dw = sum(dy h),   dbias = sum(dy)
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/norm/normalize.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

template <class Args>
NormPlan plan_of(const Args& args) {
  return select(args, device_properties(args.x.device.index));
}

template <class Args>
void run(const Args& args, const NormPlan& plan) {
  const Launch launch(args.x.device);
  const Scratch workspace(plan.workspace_bytes, args.x.device);
  if (plan.algorithm == NormAlgorithm::rows) normalize_rows(args, plan, launch, workspace.data());
  else if (plan.algorithm == NormAlgorithm::channels) normalize_channels(args, plan, launch, workspace.data());
  else normalize_strided(args, plan, launch, workspace.data());
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    running_statistics_kernel(const C* mean, const C* variance, RunningChannels<C> running, uint32_t rows,
                              uint32_t channels) {
  const uint32_t channel = thread_index();
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
  const int64_t rows = batch_mean.shape[0], channels = batch_mean.shape[1];
  if (channels == 0 || !is_kept_dense(running, dtype) || !is_contiguous(batch_mean) || !is_contiguous(batch_variance))
    return Backend::update_running_statistics(batch_mean, batch_variance, running);
  EventScope event("update_running_statistics", "cuda", "moments", {&batch_mean, &batch_variance},
                   4 * batch_mean.numel());
  const Launch launch(batch_mean.device);
  visit_floating(dtype, [&]<class T>() {
    using C = compute_t<T>;
    launch(running_statistics_kernel<C>, static_cast<uint32_t>(ceil_div(channels, kThreads)), kThreads,
           static_cast<const C*>(batch_mean.data), static_cast<const C*>(batch_variance.data),
           RunningChannels<C>(running), static_cast<uint32_t>(rows), static_cast<uint32_t>(channels));
  });
}

void CudaBackend::normalize(const NormalizeArgs& args) {
  const NormPlan plan = plan_of(args);
  if (plan.algorithm == NormAlgorithm::composite) return Backend::normalize(args);
  EventScope event(args.relu ? "normalize_relu" : "normalize", "cuda", plan.name(), {&args.x, &args.y},
                   (args.relu ? 9 : 8) * args.x.numel());
  run(args, plan);
}

void CudaBackend::normalize_backward(const NormalizeBackwardArgs& args) {
  // Kernels write dense sums of the type that they compute in; others are copied from such.
  NormalizeBackwardArgs dense = args;
  Array wide[2];
  for (int i = 0; i < 2; ++i) {
    MutableView& sum = i == 0 ? dense.dweight : dense.dbias;
    if (sum && (sum.dtype != args.mean.dtype || !is_contiguous(sum)))
      sum = wide[i] = Array::empty(sum.shape, args.mean.dtype, args.x.device);
  }
  const NormPlan plan = plan_of(dense);
  if (plan.algorithm == NormAlgorithm::composite) return Backend::normalize_backward(args);
  EventScope event(args.y ? "normalize_relu_backward" : "normalize_backward", "cuda", plan.name(),
                   {&args.dy, &args.y, &args.x}, (args.y ? 13 : 12) * args.x.numel());
  run(dense, plan);
  if (wide[0].defined()) copy(wide[0], args.dweight);
  if (wide[1].defined()) copy(wide[1], args.dbias);
}

}  // namespace gradus
