#include <gradus/layers/module/init.h>

#include <algorithm>
#include <cmath>

#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/index.h>

namespace gradus::nn::init {

double calculate_gain(Nonlinearity nonlinearity, double param) {
  switch (nonlinearity) {
    case Nonlinearity::tanh: return 5.0 / 3.0;
    case Nonlinearity::relu: return std::sqrt(2.0);
    case Nonlinearity::leaky_relu: return std::sqrt(2.0 / (1 + param * param));
    default: return 1.0;
  }
}

std::pair<int64_t, int64_t> calculate_fan_in_and_fan_out(const Tensor& tensor) {
  GRADUS_CHECK(tensor.dim() >= 2, ShapeError, "fan in and fan out need a weight (out, in, …), got shape ",
               tensor.sizes());
  int64_t kernel = 1;
  for (int64_t axis = 2; axis < tensor.dim(); ++axis) kernel *= tensor.size(axis);
  return {tensor.size(1) * kernel, tensor.size(0) * kernel};
}

namespace {

double standard_deviation(const Tensor& tensor, double a, FanMode mode, Nonlinearity nonlinearity) {
  const auto [fan_in, fan_out] = calculate_fan_in_and_fan_out(tensor);
  const int64_t fan = mode == FanMode::fan_in ? fan_in : fan_out;
  return fan == 0 ? 0.0 : calculate_gain(nonlinearity, a) / std::sqrt(static_cast<double>(fan));
}

double xavier_deviation(const Tensor& tensor, double gain) {
  const auto [fan_in, fan_out] = calculate_fan_in_and_fan_out(tensor);
  const int64_t fans = fan_in + fan_out;
  return fans == 0 ? 0.0 : gain * std::sqrt(2.0 / static_cast<double>(fans));
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// Returns the x with normal_cdf(x) = p for 0 < p < 1: Winitzki's closed form ("A handy approximation for the error
/// function and its inverse", 2008), refined to rounding error by two of Halley's steps.
double normal_quantile(double p) {
  const double z = 2 * p - 1, a = 0.147, log_term = std::log(4 * p * (1 - p)), pi = std::acos(-1.0);  // ln(1 - z²)
  const double b = 2 / (pi * a) + log_term / 2;
  double x = std::copysign(std::sqrt(2 * (std::sqrt(b * b - log_term / a) - b)), z);
  for (int step = 0; step < 2; ++step) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * pi);
    const double newton = (normal_cdf(x) - p) / density;
    x -= newton / (1 + x * newton / 2);
  }
  return x;
}

/// Makes the columns of q (rows, columns), row-major with rows >= columns, orthonormal one after another. Each column
/// is orthogonalised twice, because a single pass leaves errors that grow with the condition number (Giraud, Langou,
/// Rozloznik 2005).
void orthonormalize_columns(double* q, int64_t rows, int64_t columns) {
  for (int64_t j = 0; j < columns; ++j) {
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t k = 0; k < j; ++k) {
        double product = 0;
        for (int64_t i = 0; i < rows; ++i) product += q[i * columns + j] * q[i * columns + k];
        for (int64_t i = 0; i < rows; ++i) q[i * columns + j] -= product * q[i * columns + k];
      }
    double square = 0;
    for (int64_t i = 0; i < rows; ++i) square += q[i * columns + j] * q[i * columns + j];
    for (int64_t i = 0; i < rows; ++i) q[i * columns + j] /= std::sqrt(square);
  }
}

}  // namespace

Tensor constant_(Tensor tensor, const Scalar& value) {
  NoGradGuard no_grad;
  return tensor.fill_(value);
}
Tensor zeros_(Tensor tensor) { return constant_(std::move(tensor), 0); }
Tensor ones_(Tensor tensor) { return constant_(std::move(tensor), 1); }

Tensor uniform_(Tensor tensor, double low, double high) {
  NoGradGuard no_grad;
  return tensor.uniform_(low, high);
}
Tensor normal_(Tensor tensor, double mean, double std) {
  NoGradGuard no_grad;
  return tensor.normal_(mean, std);
}

Tensor trunc_normal_(Tensor tensor, double mean, double std, double low, double high) {
  GRADUS_CHECK(low <= high && std > 0, ValueError, "trunc_normal_ needs low <= high and std > 0, got [", low, ", ",
               high, "] and ", std);
  NoGradGuard no_grad;
  // normal_cdf is more precise in the lower tail, so an interval above the mean is mirrored.
  const double side = low > mean ? -1 : 1;
  double from = (low - mean) / std * side, to = (high - mean) / std * side;
  if (side < 0) std::swap(from, to);
  const double mass_below = normal_cdf(from), mass = normal_cdf(to) - mass_below;
  const Tensor numbers = rand(tensor.sizes(), kDouble);
  double* data = numbers.data_ptr<double>();
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    const double p = mass_below + mass * data[i];
    // The quantile is infinite at p = 0 and p = 1: use `from` or `to`. If the interval is so far from the mean that its
    // mass is 0 in double precision, use `to`, the end nearer to the mean.
    const double x = p > 0 && p < 1 ? std::clamp(normal_quantile(p), from, to) : p > 0 || mass == 0 ? to : from;
    data[i] = mean + std * side * x;
  }
  return tensor.copy_(numbers);
}

Tensor eye_(Tensor tensor) {
  GRADUS_CHECK(tensor.dim() == 2, ShapeError, "eye_ needs a matrix, got shape ", tensor.sizes());
  NoGradGuard no_grad;
  tensor.zero_();
  tensor.diagonal().fill_(1);
  return tensor;
}

Tensor dirac_(Tensor tensor, int64_t groups) {
  GRADUS_CHECK(tensor.dim() >= 3, ShapeError, "dirac_ needs a convolution weight (out, in, kernel…), got shape ",
               tensor.sizes());
  GRADUS_CHECK(groups > 0 && tensor.size(0) % groups == 0, ValueError, tensor.size(0),
               " output channels cannot be divided into ", groups, " groups");
  NoGradGuard no_grad;
  tensor.zero_();
  const int64_t out = tensor.size(0) / groups, shared = std::min(out, tensor.size(1));
  for (int64_t group = 0; group < groups; ++group)
    for (int64_t channel = 0; channel < shared; ++channel) {
      Tensor kernel = tensor[group * out + channel][channel];
      while (kernel.dim() > 0) kernel = kernel[kernel.size(0) / 2];
      kernel.fill_(1);
    }
  return tensor;
}

Tensor orthogonal_(Tensor tensor, double gain) {
  GRADUS_CHECK(tensor.dim() >= 2, ShapeError, "orthogonal_ needs at least two dimensions, got shape ", tensor.sizes());
  NoGradGuard no_grad;
  if (tensor.numel() == 0) return tensor;
  const int64_t rows = tensor.size(0), columns = tensor.numel() / rows;
  // Orthonormalised normal columns are uniformly distributed over all matrices with orthonormal columns.
  Tensor numbers = randn({std::max(rows, columns), std::min(rows, columns)}, kDouble);
  orthonormalize_columns(numbers.data_ptr<double>(), numbers.size(0), numbers.size(1));
  if (rows < columns) numbers = numbers.t();
  return tensor.copy_((numbers * gain).reshape(tensor.sizes()));
}

Tensor sparse_(Tensor tensor, double sparsity, double std) {
  GRADUS_CHECK(tensor.dim() == 2, ShapeError, "sparse_ needs a matrix, got shape ", tensor.sizes());
  GRADUS_CHECK(sparsity >= 0 && sparsity <= 1, ValueError, "sparsity must be in [0, 1], got ", sparsity);
  NoGradGuard no_grad;
  const Tensor numbers = randn(tensor.sizes(), kDouble) * std;
  const int64_t rows = tensor.size(0), zeros = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(rows)));
  auto data = numbers.accessor<double, 2>();
  for (int64_t column = 0; column < tensor.size(1); ++column) {
    const Tensor order = randperm(rows);
    for (int64_t i = 0; i < zeros; ++i) data[order.data_ptr<int64_t>()[i]][column] = 0;
  }
  return tensor.copy_(numbers);
}

Tensor xavier_uniform_(Tensor tensor, double gain) {
  const double bound = std::sqrt(3.0) * xavier_deviation(tensor, gain);
  return uniform_(std::move(tensor), -bound, bound);
}
Tensor xavier_normal_(Tensor tensor, double gain) {
  const double deviation = xavier_deviation(tensor, gain);
  return normal_(std::move(tensor), 0, deviation);
}

Tensor kaiming_uniform_(Tensor tensor, double a, FanMode mode, Nonlinearity nonlinearity) {
  const double bound = std::sqrt(3.0) * standard_deviation(tensor, a, mode, nonlinearity);
  return uniform_(std::move(tensor), -bound, bound);
}
Tensor kaiming_normal_(Tensor tensor, double a, FanMode mode, Nonlinearity nonlinearity) {
  const double deviation = standard_deviation(tensor, a, mode, nonlinearity);
  return normal_(std::move(tensor), 0, deviation);
}

void reset_weight_and_bias(const Tensor& weight, const Tensor& bias) {
  kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const int64_t fan_in = calculate_fan_in_and_fan_out(weight).first;
  const double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0.0;
  uniform_(bias, -bound, bound);
}

}  // namespace gradus::nn::init
