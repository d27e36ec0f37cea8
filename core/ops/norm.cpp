#include <gradus/core/ops/norm.h>

#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>

namespace gradus::ops {
namespace {

DType wide_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

void check_parameter(const Array& x, const Array& parameter, const char* name) {
  if (!parameter.defined()) return;
  const bool wider = parameter.dtype() == wide_type(x.dtype());
  if (!wider) check_same_dtype(x, "input", parameter, name);
}

}  // namespace

Normalized normalize(const Array& x, uint32_t axes, const Array& weight, const Array& bias, double eps,
                     const Array& mean, const Array& variance) {
  check_same_device({&x, &weight, &bias, &mean, &variance});
  check_floating(x, "input");
  check_parameter(x, weight, "weight");
  check_parameter(x, bias, "bias");
  const DType wide = wide_type(x.dtype());
  const Shape shape = reduced_shape(x.shape(), axes, true);
  const bool fixed = mean.defined();
  Normalized result = {Array::empty_like(x), fixed ? cast(mean, wide) : Array::empty(shape, wide, x.device()),
                       fixed ? cast(variance, wide) : Array::empty(shape, wide, x.device())};
  if (x.numel() == 0) return result;
  const View w = weight.defined() ? View(weight.expand(x.shape())) : View();
  const View b = bias.defined() ? View(bias.expand(x.shape())) : View();
  backend_of(x).normalize(x, axes, weight.defined() ? &w : nullptr, bias.defined() ? &b : nullptr, eps, fixed, result.y,
                          result.mean, result.variance);
  return result;
}

NormalizeGradients normalize_backward(const Array& dy, const Array& x, const Array& mean, const Array& variance,
                                      uint32_t axes, const Array& weight, const Shape& parameters, double eps,
                                      bool fixed_statistics, bool want_dx, bool want_dweight, bool want_dbias) {
  NormalizeGradients result;
  const DType wide = wide_type(x.dtype());
  if (want_dx) result.dx = Array::empty_like(x);
  if (want_dweight) result.dweight = Array::empty(parameters, wide, x.device());
  if (want_dbias) result.dbias = Array::empty(parameters, wide, x.device());
  if (x.numel() == 0) {
    for (const Array* gradient : {&result.dweight, &result.dbias})
      if (gradient->defined()) fill(*gradient, 0);
    return result;
  }
  Array aligned = dy;  // like x in memory: the kernel walks both at once
  if (x.is_dense() && !(dy.strides() == x.strides())) {
    aligned = Array::empty_like(x, dy.dtype());
    copy_into(aligned, dy);
  }
  const View w = weight.defined() ? View(weight.expand(x.shape())) : View();
  const auto view = [](const Array& array) { return array.defined() ? MutableView(array) : MutableView(); };
  const MutableView dx = view(result.dx), dweight = view(result.dweight), dbias = view(result.dbias);
  backend_of(x).normalize_backward(aligned, x, mean, variance, axes, weight.defined() ? &w : nullptr, eps,
                                   fixed_statistics, want_dx ? &dx : nullptr, want_dweight ? &dweight : nullptr,
                                   want_dbias ? &dbias : nullptr);
  return result;
}

void update_running_statistics(const Array& mean, const Array& variance, const Array& batch_mean,
                               const Array& batch_variance, double count, double momentum) {
  MutableView running[2];
  const Array* const arrays[2] = {&mean, &variance};
  for (int i = 0; i < 2; ++i) {
    if (!arrays[i]->defined()) continue;
    arrays[i]->bump_version();
    running[i] = *arrays[i];
  }
  backend_of(batch_mean)
      .update_running_statistics(batch_mean, batch_variance, count / (count - 1), momentum,
                                 mean.defined() ? &running[0] : nullptr, variance.defined() ? &running[1] : nullptr);
}

}  // namespace gradus::ops
