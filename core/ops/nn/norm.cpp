#include <gradus/core/ops/nn/nn.h>

#include <gradus/core/op_lists.h>

namespace gradus::ops {

using enum BinaryOp;
namespace {

DType wide_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

void check_parameter(const Array& x, const Array& parameter, const char* name) {
  if (!parameter.defined()) return;
  const bool wider = parameter.dtype() == wide_type(x.dtype());
  if (!wider) check_same_dtype(x, "input", parameter, name);
}

// Expands a weight or bias to x's shape; an absent one stays absent.
View broadcast(const Array& parameter, const Array& x) {
  return parameter.defined() ? parameter.expand(x.shape()) : parameter;
}

// Returns an uninitialised result with x's layout. As in LibTorch, a slice of channels-last images gives a
// channels-last result.
Array empty_result(const Array& x) {
  const bool slice = x.ndim() == 4 && !x.is_dense() && x.strides()[1] == 1 && x.shape()[1] > 1;
  return slice ? x.new_empty(x.shape(), MemoryFormat::channels_last) : Array::empty_like(x);
}

// Returns `array` with x's strides, copied if necessary, because kernels address both with the same index.
Array aligned_with(const Array& x, const Array& array) {
  if (!x.is_dense() || array.strides() == x.strides()) return array;
  Array aligned = Array::empty_like(x, array.dtype());
  copy_into(aligned, array);
  return aligned;
}

// Views of the running statistics for a kernel that writes them; increments their version counters.
RunningStatistics running_of(const KeptStatistics& kept, double correction) {
  for (const Array* statistic : {&kept.mean, &kept.variance, &kept.batches}) statistic->bump_version();
  return {.mean = kept.mean,
          .variance = kept.variance,
          .batches = kept.batches,
          .momentum = kept.momentum,
          .correction = correction};
}

}  // namespace

Normalized normalize(const Array& x, uint32_t axes, const Array& weight, const Array& bias, double eps,
                     const Array& mean, const Array& variance, bool relu, const Array& residual,
                     const KeptStatistics& kept) {
  check_same_device({&x, &weight, &bias, &mean, &variance, &residual, &kept.mean, &kept.variance, &kept.batches});
  check_floating(x, "input");
  check_parameter(x, weight, "weight");
  check_parameter(x, bias, "bias");
  if (residual.defined()) {
    check_same_dtype(x, "input", residual, "residual");
    GRADUS_CHECK(residual.shape() == x.shape(), ShapeError, "residual must have the input's shape ", x.shape(),
                 ", got ", residual.shape());
  }
  const DType wide = wide_type(x.dtype());
  const Shape shape = reduced_shape(x.shape(), axes, true);
  const bool fixed = mean.defined();
  Normalized result = {empty_result(x), fixed ? cast(mean, wide) : x.new_empty(shape, wide),
                       fixed ? cast(variance, wide) : x.new_empty(shape, wide)};
  if (x.numel() == 0) {
    if (kept.batches.defined()) binary_scalar(add, kept.batches, 1, false, &kept.batches);
    return result;
  }
  const Array aligned = relu && residual.defined() ? aligned_with(x, residual) : Array();
  // Number of elements of x that each mean is taken over.
  const double count = static_cast<double>(x.numel()) / static_cast<double>(result.mean.numel());
  backend_of(x).normalize({.x = x,
                           .axes = axes,
                           .weight = broadcast(weight, x),
                           .bias = broadcast(bias, x),
                           .residual = aligned,
                           .relu = relu,
                           .eps = eps,
                           .fixed_statistics = fixed,
                           .y = result.y,
                           .mean = result.mean,
                           .variance = result.variance,
                           .running = running_of(kept, count / (count - 1))});
  return result;
}

void update_running_statistics(const KeptStatistics& kept, const Array& mean, const Array& variance) {
  const auto row = [](const Array& statistic) { return statistic.view({1, statistic.numel()}); };
  backend_of(mean).update_running_statistics(row(mean), row(variance), running_of(kept, 1));
}

NormalizeGradients normalize_backward(const Array& dy, const Array& x, const Array& mean, const Array& variance,
                                      uint32_t axes, const Array& weight, const Shape& parameters, double eps,
                                      bool fixed_statistics, bool want_dx, bool want_dweight, bool want_dbias,
                                      const NormalizeRelu& relu) {
  NormalizeGradients result;
  const DType wide = wide_type(x.dtype());
  if (want_dx) result.dx = empty_result(x);
  if (want_dweight) result.dweight = x.new_empty(parameters, wide);
  if (want_dbias) result.dbias = x.new_empty(parameters, wide);
  const auto aligned = [&](const Array& of) { return of.defined() ? aligned_with(x, of) : of; };
  const Array gradient = aligned(dy), addend = aligned(relu.addend), y = aligned(relu.y);
  if (relu.want_dresidual) result.dresidual = relu.may_overwrite ? gradient : empty_result(x);
  if (x.numel() == 0) {
    for (const Array* sum : {&result.dweight, &result.dbias})
      if (sum->defined()) fill(*sum, 0);
    return result;
  }
  backend_of(x).normalize_backward({.dy = gradient,
                                    .x = x,
                                    .mean = mean,
                                    .variance = variance,
                                    .weight = broadcast(weight, x),
                                    .y = y,
                                    .addend = addend,
                                    .bias = broadcast(relu.bias, x),
                                    .alone = relu.alone,
                                    .axes = axes,
                                    .eps = eps,
                                    .fixed_statistics = fixed_statistics,
                                    .dx = result.dx,
                                    .dweight = result.dweight,
                                    .dbias = result.dbias,
                                    .dresidual = result.dresidual});
  return result;
}

std::tuple<Array, Array> dropout(const Array& x, double p, Generator& generator) {
  check_floating(x, "input");
  GRADUS_CHECK(p >= 0 && p <= 1, ValueError, "dropout probability must be in [0, 1], got ", p);
  Array y = Array::empty_like(x), mask = Array::empty_like(x, DType::boolean);
  const RandomState state = generator.next();
  if (x.numel() > 0) backend_of(x).dropout(x, p, state, mask, y);
  return {y, mask};
}

Array dropout_backward(const Array& dy, const Array& mask, double p) {
  Array dx = Array::empty_like(mask, dy.dtype());
  if (dx.numel() > 0) backend_of(dy).dropout_backward(dy, mask, p, dx);
  return dx;
}

}  // namespace gradus::ops
