#include <gradus/distributed/parallel/sync_batch_norm.h>

#include <gradus/autograd/checkpoint.h>
#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/nn/norm.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/nn/nn.h>

namespace gradus::nn {
namespace {

using dist::ProcessGroup;
using enum BinaryOp;

Array array_of(const Tensor& x) { return x.defined() ? x.array() : Array(); }

/// Statistics over the elements of all ranks, in float64. The mean and the variances have shape (C). `count` has shape
/// (1) and contains the number of elements of a channel.
struct Statistics {
  Array mean, variance, unbiased_variance, count;
};

/// Every rank merges the statistics of all ranks (Chan, Golub and LeVeque, "Algorithms for computing the sample
/// variance", 1983) in the same order, so that all ranks get the same bits. The counts stay on the device, so the host
/// does not wait.
Statistics statistics_of_all(const Array& x, uint32_t axes, ProcessGroup& group) {
  const int64_t channels = x.shape()[1], own_count = x.numel() / channels;
  const Array own = ops::zeros({1 + 2 * channels}, DType::f64, x.device());  // count, means, variances
  if (own_count > 0) {
    const ops::Normalized normalized = ops::normalize(x, axes, {}, {}, /*eps=*/1);
    ops::fill(own.slice(0, 0, 1), static_cast<double>(own_count));
    ops::copy_into(own.slice(0, 1, 1 + channels), normalized.mean.view({channels}));
    ops::copy_into(own.slice(0, 1 + channels, 1 + 2 * channels), normalized.variance.view({channels}));
  }
  const Array all = Array::empty({group.size(), 1 + 2 * channels}, DType::f64, x.device());
  group.all_gather(own, all);

  const Array counts = all.slice(1, 0, 1), means = all.slice(1, 1, 1 + channels),
              variances = all.slice(1, 1 + channels, 1 + 2 * channels);
  const auto weighted_sum = [&](const Array& of) { return ops::sum(ops::binary(mul, counts, of), 1); };
  const auto at_least_1 = [](const Array& of) { return ops::binary_scalar(maximum, of, 1); };
  Statistics result;
  result.count = at_least_1(ops::sum(counts, 1));
  result.mean = ops::binary(div, weighted_sum(means), result.count);
  const Array squares = ops::unary(UnaryOp::square, ops::binary(sub, means, result.mean));
  const Array deviations = weighted_sum(ops::binary(add, variances, squares));
  result.variance = ops::binary(div, deviations, result.count);
  result.unbiased_variance = ops::binary(div, deviations, at_least_1(ops::binary_scalar(sub, result.count, 1)));
  return result;
}

/// y = (x - mean) / sqrt(variance + eps) * weight + bias with the statistics of all ranks.
struct SyncNormalize final : Node {
  Saved x{this, "x"}, weight{this, "weight"}, mean{this, "mean"}, variance{this, "variance"}, count{this, "count"};
  dist::GroupPtr group;
  uint32_t axes = 0;
  Shape by_channel;  // (1, C, 1, …)
  double eps = 0;

  Array forward(const Array& X, const Array& w, const Array& b, const dist::GroupPtr& g, double epsilon,
                const ops::KeptStatistics& running) {
    group = g, eps = epsilon;
    axes = ((1u << X.ndim()) - 1) & ~2u;
    by_channel = reduced_shape(X.shape(), axes, true);
    const auto shaped = [&](const Array& of) { return of.defined() ? of.view(by_channel) : of; };
    const Statistics all = statistics_of_all(X, axes, *group);
    const ops::Normalized result =
        ops::normalize(X, axes, shaped(w), shaped(b), eps, shaped(all.mean), shaped(all.variance));
    // When a checkpointed function is recomputed, its first run has already counted this batch.
    if (running.mean.defined() && !autograd::is_recomputing())
      ops::update_running_statistics(running, ops::cast(all.mean, result.mean.dtype()),
                                     ops::cast(all.unbiased_variance, result.mean.dtype()));
    x = input(0), mean = result.mean, variance = result.variance, count = all.count;
    if (w.defined()) weight = input(1);
    return result.y;
  }

  // With s = 1 / sqrt(variance + eps), h = (x - mean) s and averages over the elements of all ranks:
  //   dx = s weight dy - s weight (avg(dy) + h avg(dy h))
  // The first term is the gradient for fixed statistics, the second one the gradient through the statistics.
  Grads backward(const Tensor& dy) override {
    GRADUS_CHECK(!GradMode::is_enabled(), AutogradError,
                 "SyncBatchNorm is not differentiable twice: convert no batch norm where create_graph is needed");
    const Array& X = x.array();
    const Array w = weight.defined() ? weight.array().view(by_channel) : Array();
    ops::NormalizeGradients gradients =
        ops::normalize_backward(dy.array(), X, mean.array(), variance.array(), axes, w, by_channel, eps,
                                /*fixed_statistics=*/true, needs_grad(0), /*want_dweight=*/true, /*want_dbias=*/true);
    if (needs_grad(0)) {
      const Array sums = ops::cast(ops::cat({gradients.dbias, gradients.dweight}, 0), DType::f64);
      group->all_reduce(sums);
      Array factor = ops::unary(UnaryOp::rsqrt, ops::binary_scalar(add, variance.array(), eps));
      if (w.defined()) factor = ops::binary(mul, factor, w);
      factor = ops::unary(UnaryOp::neg, ops::binary(div, factor, count.array()));
      const auto scaled = [&](int64_t row) {
        return ops::cast(ops::binary(mul, sums.slice(0, row, row + 1), factor), mean.array().dtype());
      };
      const Array through_statistics =
          ops::normalize(X, axes, scaled(1), scaled(0), eps, mean.array(), variance.array()).y;
      ops::binary(add, gradients.dx, through_statistics, &gradients.dx);
    }
    const auto parameter = [](const Array& gradient) { return Tensor(gradient.view({gradient.numel()})); };
    return {Tensor(gradients.dx), needs_grad(1) ? parameter(gradients.dweight) : Tensor(),
            needs_grad(2) ? parameter(gradients.dbias) : Tensor()};
  }
};

Tensor sync_batch_norm(const Tensor& x, const detail::BatchNormBase& norm, double momentum,
                       const dist::GroupPtr& group) {
  if (group->size() == 1)
    return batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, /*training=*/true, momentum,
                      norm.options.eps(), norm.num_batches_tracked);
  OpScope op("sync_batch_norm", Loc{});
  const int64_t channels = norm.options.num_features();
  GRADUS_CHECK(x.size(1) == channels, ShapeError, "x of shape ", x.sizes(), " has ", x.size(1), " channels, expected ",
               channels);
  const ops::KeptStatistics running = {array_of(norm.running_mean), array_of(norm.running_var),
                                       array_of(norm.num_batches_tracked), momentum};
  return apply<SyncNormalize>(op, x, norm.weight, norm.bias, group, norm.options.eps(), running);
}

void synchronize(detail::BatchNormBase& norm, const dist::GroupPtr& group) {
  GRADUS_CHECK(group, ValueError, "SyncBatchNorm needs a process group");
  norm.synchronized = [group](const Tensor& x, const detail::BatchNormBase& own, double momentum) {
    return sync_batch_norm(x, own, momentum, group);
  };
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const BatchNormOptions& options, const dist::GroupPtr& group)
    : Cloneable(options) {
  synchronize(*this, group);
}

Tensor SyncBatchNormImpl::forward(const Tensor& x) {
  const auto frame = enter();
  GRADUS_CHECK(x.dim() >= 2, ShapeError, "SyncBatchNorm needs x of shape (N, C) or (N, C, …), got ", x.sizes());
  return batch_normalized(x);
}

void convert_sync_batchnorm(Module& module, const dist::GroupPtr& group) {
  module.apply([&](Module& each) {
    if (auto* norm = each.as<detail::BatchNormBase>()) synchronize(*norm, group);
  });
}

}  // namespace gradus::nn
