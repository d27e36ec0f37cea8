#include <gradus/data/transforms/transforms.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <gradus/core/io/array_bytes.h>
#include <gradus/core/platform/process.h>
#include <gradus/data/sample.h>

namespace gradus::data {
namespace detail {

std::string short_name(const std::type_info& type) {
  std::string name = platform::demangled(type);
  for (const char* anonymous : {"lambda", "$_", "(*)", "std::function<"})  // clang numbers lambdas: $_0
    if (name.find(anonymous) != std::string::npos) return "function";
  name = name.substr(0, name.find('<'));
  const size_t scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

std::string plan_line(const std::type_info& type, std::optional<size_t> size) {
  return short_name(type) + (size ? ", " + std::to_string(*size) + " samples" : ", of unknown size");
}

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string join_numbers(const std::vector<double>& numbers) {
  std::string text;
  for (double number : numbers) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.6g", number);
    text += (text.empty() ? "" : ", ") + std::string(digits);
  }
  return text;
}

}  // namespace detail

namespace transforms {

template class Normalize<>;
template class Stack<>;

namespace detail {

void check_normalize(const std::vector<double>& mean, const std::vector<double>& deviation) {
  GRADUS_CHECK(!mean.empty() && mean.size() == deviation.size(), ValueError,
               "Normalize needs as many means as deviations, got ", mean.size(), " and ", deviation.size());
  for (double value : deviation) GRADUS_CHECK(value > 0, ValueError, "Normalize needs deviations above 0, got ", value);
}

// Computes without operators: this runs for every sample, on threads that must leave the cores to the kernels.
Tensor normalize(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& deviation) {
  const Array x = io::contiguous_on_cpu(images.array());
  const size_t channels = mean.size();
  GRADUS_CHECK(x.dtype() == DType::f32, DTypeError, "Normalize needs float32 images, got ", x.dtype());
  GRADUS_CHECK(channels == 1 || (x.ndim() >= 3 && x.size(-3) == static_cast<int64_t>(channels)), ShapeError,
               "Normalize has ", channels, " means, got images of shape ", x.shape());
  const Array y = Array::empty(x.shape(), DType::f32);
  const int64_t plane = channels == 1 ? x.numel() : x.size(-1) * x.size(-2);
  const float* from = x.data<float>();
  float* to = y.data<float>();
  size_t c = 0;
  for (int64_t begin = 0; begin < x.numel(); begin += plane, c = (c + 1) % channels) {
    const float m = static_cast<float>(mean[c]), d = static_cast<float>(deviation[c]);
    for (int64_t i = begin; i < begin + plane; ++i) to[i] = (from[i] - m) / d;
  }
  return Tensor(y);
}

Tensor stack(const std::vector<const Tensor*>& tensors) {
  GRADUS_CHECK(!tensors.empty(), ShapeError, "Stack needs at least one example");
  const Array& first = tensors[0]->array();
  Shape shape = first.shape();
  shape.insert(0, static_cast<int64_t>(tensors.size()));
  const Array out = Array::empty(shape, first.dtype());
  char* to = static_cast<char*>(out.data());
  for (const Tensor* tensor : tensors) {
    GRADUS_CHECK(tensor->sizes() == first.shape(), ShapeError, "Stack needs examples of one shape, got ", first.shape(),
                 " and ", tensor->sizes());
    GRADUS_CHECK(tensor->dtype() == first.dtype(), DTypeError, "Stack needs examples of one dtype, got ", first.dtype(),
                 " and ", tensor->dtype());
    const Array x = io::contiguous_on_cpu(tensor->array());
    if (x.nbytes() > 0) std::memcpy(to, x.data(), x.nbytes());
    to += x.nbytes();
  }
  return Tensor(out);
}

}  // namespace detail

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

}  // namespace transforms
}  // namespace gradus::data
