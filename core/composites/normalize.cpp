// Normalisation over any axes, with its gradient, and batch norm's running statistics.
#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

void Backend::normalize(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                        bool fixed_statistics, const MutableView& y, const MutableView& mean,
                        const MutableView& variance) {
  const Arithmetic math(*this);
  const Array wide = math.widen(x);
  const Array average = fixed_statistics ? math.cast(mean, wide.dtype()) : math.reduce(ReduceOp::mean, wide, axes);
  const Array centred = math(sub, wide, average);
  const Array spread = fixed_statistics ? math.cast(variance, wide.dtype())
                                        : math.reduce(ReduceOp::mean, math(mul, centred, centred), axes);
  if (!fixed_statistics) copy(average, mean), copy(spread, variance);
  Array result = math(div, centred, math(UnaryOp::sqrt, math(add, spread, eps)));
  if (weight) result = math(mul, result, math.cast(*weight, wide.dtype()));
  if (bias) result = math(add, result, math.cast(*bias, wide.dtype()));
  copy(result, y);
}

void Backend::update_running_statistics(const View& batch_mean, const View& batch_variance,
                                        const RunningStatistics& running) {
  const Arithmetic math(*this);
  const auto move = [&](const View& batch, double scale, const MutableView& statistic) {
    if (!statistic.data) return;
    Array average = math.reduce(ReduceOp::mean, batch, 1);
    if (scale != 1) average = math(mul, average, scale);
    const View row = along(View(statistic), 1, 2);
    const Array kept = math(mul, row, 1 - running.momentum);
    binary(add, kept, math(mul, math.cast(average, statistic.dtype), running.momentum), along(statistic, 1, 2));
  };
  move(batch_mean, 1, running.mean);
  move(batch_variance, running.correction, running.variance);
  if (running.batches.data) binary_scalar(add, running.batches, 1, /*scalar_first=*/false, running.batches);
}

void Backend::normalize_backward(const View& dy, const View& x, const View& mean, const View& variance, uint32_t axes,
                                 const View* weight, double eps, bool fixed_statistics, const MutableView* dx,
                                 const MutableView* dweight, const MutableView* dbias) {
  const Arithmetic math(*this);
  const Array wide = math.widen(x), gradient = math.cast(dy, wide.dtype());
  const Array average = math.cast(mean, wide.dtype()), spread = math.cast(variance, wide.dtype());
  const Array s = math(UnaryOp::reciprocal, math(UnaryOp::sqrt, math(add, spread, eps)));
  const Array h = math(mul, math(sub, wide, average), s);
  const auto sum_into = [&](const View& terms, const MutableView& sum) {
    uint32_t summed = 0;
    for (int i = 0; i < sum.ndim(); ++i)
      if (sum.shape[i] == 1) summed |= 1u << i;
    copy(math.reduce(ReduceOp::sum, terms, summed), sum);
  };
  if (dweight) sum_into(math(mul, gradient, h), *dweight);
  if (dbias) sum_into(gradient, *dbias);
  if (!dx) return;
  Array g = weight ? math(mul, gradient, math.cast(*weight, wide.dtype())) : gradient;
  if (!fixed_statistics) {
    const Array along_h = math(mul, h, math.reduce(ReduceOp::mean, math(mul, g, h), axes));
    g = math(sub, math(sub, g, math.reduce(ReduceOp::mean, g, axes)), along_h);
  }
  copy(math(mul, g, s), *dx);
}

void Backend::normalize_relu(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                             bool fixed_statistics, const View* residual, const MutableView& y, const MutableView& mean,
                             const MutableView& variance) {
  normalize(x, axes, weight, bias, eps, fixed_statistics, y, mean, variance);
  if (residual) binary(add, y, *residual, y);
  unary(UnaryOp::relu, y, y, {});
}

void Backend::normalize_relu_backward(const View& dy, const View& y, const View& x, const View& mean,
                                      const View& variance, uint32_t axes, const View* weight, double eps,
                                      bool fixed_statistics, const MutableView* dx, const MutableView* dweight,
                                      const MutableView* dbias, const MutableView* dresidual) {
  Array scratch;
  const View masked = masked_by_relu(dy, y, dresidual, scratch);
  if (dx || dweight || dbias)
    normalize_backward(masked, x, mean, variance, axes, weight, eps, fixed_statistics, dx, dweight, dbias);
}

void Backend::normalize_training(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                                 bool relu, const View* residual, const MutableView& y, const MutableView& mean,
                                 const MutableView& variance, const RunningStatistics& running) {
  if (relu) normalize_relu(x, axes, weight, bias, eps, /*fixed_statistics=*/false, residual, y, mean, variance);
  else normalize(x, axes, weight, bias, eps, /*fixed_statistics=*/false, y, mean, variance);
  const auto rows = [](const View& statistic) {
    return reshaped(statistic, {statistic.shape[0], statistic.shape[1]}, {statistic.strides[0], statistic.strides[1]});
  };
  update_running_statistics(rows(mean), rows(variance), running);
}

}  // namespace gradus
