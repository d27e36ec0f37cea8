#include <gradus/data/transforms/transforms.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <gradus/autograd/autograd.h>
#include <gradus/core/io/array_bytes.h>
#include <gradus/core/platform/process.h>

namespace gradus::data {
namespace detail {

std::string short_name(const std::type_info& type) {
  std::string name = platform::demangled(type);
  for (const char* anonymous : {"lambda", "$_", "(*)", "std::function<"})  // clang names lambdas $_0, $_1, …
    if (name.find(anonymous) != std::string::npos) return "function";
  return platform::unqualified(name.substr(0, name.find('<')));
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

// Computes in plain loops instead of tensor operators, because it runs for every sample, and the overhead of several
// operators on one small image would take longer than the arithmetic.
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

Tensor stack(const TensorList& tensors) {
  GRADUS_CHECK(!tensors.empty(), ShapeError, "Stack needs at least one example");
  const Array& first = tensors[0].array();
  Shape shape = first.shape();
  shape.insert(0, std::ssize(tensors));
  const Array out = Array::empty(shape, first.dtype());
  char* to = static_cast<char*>(out.data());
  for (const Tensor& tensor : tensors) {
    GRADUS_CHECK(tensor.sizes() == first.shape(), ShapeError, "Stack needs examples of one shape, got ", first.shape(),
                 " and ", tensor.sizes());
    GRADUS_CHECK(tensor.dtype() == first.dtype(), DTypeError, "Stack needs examples of one dtype, got ", first.dtype(),
                 " and ", tensor.dtype());
    const Array x = io::contiguous_on_cpu(tensor.array());
    to = std::copy_n(static_cast<const char*>(x.data()), x.nbytes(), to);
  }
  return Tensor(out);
}

}  // namespace detail

namespace {

using data::detail::draw_normal;
using data::detail::draw_uniform;

// Draws from Gamma(shape, 1) by the method of Marsaglia and Tsang, "A simple method for generating gamma variables"
// (2000). Returns the logarithm of the draw, because for small shapes the draw itself would often be 0 in a double.
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

}  // namespace

MixUp::MixUp(int64_t num_classes, double alpha) : classes_(num_classes), alpha_(alpha) {
  GRADUS_CHECK(num_classes > 0, ValueError, "MixUp needs at least one class, got ", num_classes);
  GRADUS_CHECK(alpha > 0 && std::isfinite(alpha), ValueError, "MixUp needs an alpha above 0, got ", alpha);
}

Example<> MixUp::apply_batch(Example<> batch) {
  const NoGradGuard no_grad;
  const Tensor x = batch.data.cpu().contiguous(), y = batch.target.cpu().contiguous();
  GRADUS_CHECK(x.dtype() == kFloat && y.dtype() == kLong, DTypeError,
               "MixUp needs float32 data and int64 classes, got ", x.dtype(), " and ", y.dtype());
  GRADUS_CHECK(x.dim() >= 1 && y.dim() == 1 && x.size(0) == y.size(0), ShapeError,
               "MixUp needs data (N, …) and classes (N), got shapes ", x.sizes(), " and ", y.sizes());
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t label = y.data_ptr<int64_t>()[i];
    GRADUS_CHECK(label >= 0 && label < classes_, IndexError, "MixUp for ", classes_, " classes got class ", label);
  }
  // Draws from Beta(alpha, alpha) as a / (a + b), where a and b are drawn from Gamma(alpha, 1).
  const double log_a = draw_log_gamma(alpha_), log_b = draw_log_gamma(alpha_);
  const float lambda = static_cast<float>(1 / (1 + std::exp(log_b - log_a)));
  const auto mixed = [&](const Tensor& values) { return (values * lambda).add_(values.roll(1, 0), 1 - lambda); };
  return {mixed(x), mixed(one_hot(y, classes_).to(kFloat))};
}

std::string MixUp::describe() const {
  return "MixUp(" + std::to_string(classes_) + " classes, alpha " + data::detail::join_numbers({alpha_}) + ")";
}

}  // namespace transforms
}  // namespace gradus::data
