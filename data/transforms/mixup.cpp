#include <gradus/data/transforms/mixup.h>

#include <gradus/core/io/array_bytes.h>
#include <gradus/data/transforms/draw.h>

#include <algorithm>
#include <cmath>

namespace gradus::data::transforms {
namespace {

using data::detail::draw_normal;
using data::detail::draw_uniform;

// Draws from Gamma(shape, 1) by Marsaglia and Tsang, "A simple method for generating gamma variables" (2000). Returns
// the logarithm, because small shapes give numbers too small for a double.
double draw_log_gamma(double shape) {
  if (shape < 1) return draw_log_gamma(shape + 1) + std::log(1 - draw_uniform(0, 1)) / shape;
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = draw_normal(), t = 1 + c * x;
    if (t <= 0) continue;
    const double v = t * t * t;
    if (std::log(1 - draw_uniform(0, 1)) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d) + std::log(v);
  }
}

// Draws from Beta(alpha, alpha) as a / (a + b) with two gamma variables.
double draw_beta(double alpha) {
  const double a = draw_log_gamma(alpha), b = draw_log_gamma(alpha);
  return 1 / (1 + std::exp(b - a));
}

}  // namespace

MixUp::MixUp(int64_t num_classes, double alpha) : classes_(num_classes), alpha_(alpha) {
  GRADUS_CHECK(num_classes > 0, ValueError, "MixUp needs at least one class, got ", num_classes);
  GRADUS_CHECK(alpha > 0 && std::isfinite(alpha), ValueError, "MixUp needs an alpha above 0, got ", alpha);
}

Example<> MixUp::apply_batch(Example<> batch) {
  const Array x = io::contiguous_on_cpu(batch.data.array()), y = io::contiguous_on_cpu(batch.target.array());
  GRADUS_CHECK(x.dtype() == DType::f32 && y.dtype() == DType::i64, DTypeError,
               "MixUp needs float32 data and int64 classes, got ", x.dtype(), " and ", y.dtype());
  GRADUS_CHECK(x.ndim() >= 1 && y.ndim() == 1 && x.size(0) == y.size(0), ShapeError,
               "MixUp needs data (N, …) and classes (N), got shapes ", x.shape(), " and ", y.shape());
  const float lambda = static_cast<float>(draw_beta(alpha_)), rest = 1 - lambda;
  const int64_t count = x.size(0), size = count ? x.numel() / count : 0;
  const Array mixed = Array::empty(x.shape()), targets = Array::empty({count, classes_});
  std::fill_n(targets.data<float>(), targets.numel(), 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t other = i ? i - 1 : count - 1;
    const float *a = x.data<float>() + i * size, *b = x.data<float>() + other * size;
    float* to = mixed.data<float>() + i * size;
    for (int64_t k = 0; k < size; ++k) to[k] = lambda * a[k] + rest * b[k];
    const int64_t label = y.data<int64_t>()[i], other_label = y.data<int64_t>()[other];
    GRADUS_CHECK(label >= 0 && label < classes_ && other_label >= 0 && other_label < classes_, IndexError, "MixUp for ",
                 classes_, " classes got class ", label < 0 || label >= classes_ ? label : other_label);
    targets.data<float>()[i * classes_ + label] += lambda;
    targets.data<float>()[i * classes_ + other_label] += rest;
  }
  return {Tensor(mixed), Tensor(targets)};
}

std::string MixUp::describe() const {
  return "MixUp(" + std::to_string(classes_) + " classes, alpha " + data::detail::join_numbers({alpha_}) + ")";
}

}  // namespace gradus::data::transforms
