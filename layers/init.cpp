#include <gradus/layers/init.h>

#include <cmath>

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
