// Default bodies of normalisation and its gradient, and of the update of batch norm's running statistics.
#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

// Running statistics, residual and ReLU are handled first, around a nested call for the plain normalisation. The nested
// call is virtual: a backend may override normalize() for the plain case only.
void Backend::normalize(const NormalizeArgs& args) {
  const auto& [x, axes, weight, bias, residual, relu, eps, fixed_statistics, y, mean, variance, running] = args;
  if (running) {
    NormalizeArgs batch = args;
    batch.running = {};
    normalize(batch);
    const auto rows = [](const View& statistic) {
      const Strides& strides = statistic.strides;
      return reshaped(statistic, {statistic.shape[0], statistic.shape[1]}, {strides[0], strides[1]});
    };
    return update_running_statistics(rows(mean), rows(variance), running);
  }
  if (relu) {
    NormalizeArgs plain = args;
    plain.relu = false;
    plain.residual = {};
    if (residual && y.dtype != wide_type(y.dtype)) {  // in float32, to round only once, after the sum
      const Arithmetic math(*this);
      const Array wide = math.widen(x), sum = Array::empty(y.shape, wide.dtype(), y.device);
      const Array w = weight ? math.widen(weight) : Array(), b = bias ? math.widen(bias) : Array();
      plain.x = wide;
      plain.weight = w;
      plain.bias = b;
      plain.y = sum;
      normalize(plain);
      return copy(math(UnaryOp::relu, math(add, sum, math.widen(residual))), y);
    }
    normalize(plain);
    if (residual) binary(add, y, residual, y);
    return unary(UnaryOp::relu, y, y, {});
  }
  const Arithmetic math(*this);
  const Array wide = math.widen(x);
  const Array average = fixed_statistics ? math.cast(mean, wide.dtype()) : math.reduce(ReduceOp::mean, wide, axes);
  const Array centred = math(sub, wide, average);
  const Array spread = fixed_statistics ? math.cast(variance, wide.dtype())
                                        : math.reduce(ReduceOp::mean, math(mul, centred, centred), axes);
  if (!fixed_statistics) copy(average, mean), copy(spread, variance);
  Array result = math(div, centred, math(UnaryOp::sqrt, math(add, spread, eps)));
  if (weight) result = math(mul, result, math.cast(weight, wide.dtype()));
  if (bias) result = math(add, result, math.cast(bias, wide.dtype()));
  copy(result, y);
}

void Backend::update_running_statistics(const View& batch_mean, const View& batch_variance,
                                        const RunningStatistics& running) {
  const Arithmetic math(*this);
  const auto move = [&](const View& batch, double scale, const MutableView& statistic) {
    if (!statistic.data) return;
    const MutableView row = along(statistic, 1, 2);
    Array average = math.cast(math.reduce(ReduceOp::mean, batch, 1), wide_type(statistic.dtype));
    if (scale != 1) average = math(mul, average, scale);
    const Array kept = math(mul, math.widen(row), 1 - running.momentum);
    copy(math(add, kept, math(mul, average, running.momentum)), row);
  };
  move(batch_mean, 1, running.mean);
  move(batch_variance, running.correction, running.variance);
  if (running.batches.data) binary_scalar(add, running.batches, 1, /*scalar_first=*/false, running.batches);
}

void Backend::normalize_backward(const NormalizeBackwardArgs& args) {
  const auto& [dy, x, mean, variance, weight, y, addend, bias, alone, axes, eps, fixed_statistics, dx, dweight, dbias,
               dresidual] = args;
  if (addend) {
    NormalizeBackwardArgs summed = args;
    const Array sum = empty_like(dy);
    binary(add, dy, addend, sum);
    summed.dy = sum;
    summed.addend = {};
    return normalize_backward(summed);
  }
  if (y) {
    Array scratch;
    NormalizeBackwardArgs plain = args;
    plain.dy = masked_by_relu(dy, y, dresidual, scratch);
    plain.y = {};
    plain.dresidual = {};
    return normalize_backward(plain);
  }
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
  if (dweight) sum_into(math(mul, gradient, h), dweight);
  if (dbias) sum_into(gradient, dbias);
  if (!dx) return;
  Array g = weight ? math(mul, gradient, math.cast(weight, wide.dtype())) : gradient;
  if (!fixed_statistics) {
    const Array along_h = math(mul, h, math.reduce(ReduceOp::mean, math(mul, g, h), axes));
    g = math(sub, math(sub, g, math.reduce(ReduceOp::mean, g, axes)), along_h);
  }
  copy(math(mul, g, s), dx);
}

}  // namespace gradus
