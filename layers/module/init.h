// Weight initialisation. Each function fills its tensor in place without recording and returns the tensor.
#pragma once

#include <utility>

#include <gradus/autograd/tensor.h>

namespace gradus {

namespace nn::init {
/// The pass in which the variance is preserved: forward (fan in) or backward (fan out).
enum class FanMode : uint8_t { fan_in, fan_out };
/// The function that follows the layer and determines the gain.
enum class Nonlinearity : uint8_t { linear, conv2d, sigmoid, tanh, relu, leaky_relu, gelu };
}  // namespace nn::init

/// LibTorch's names for these constants.
inline constexpr nn::init::FanMode kFanIn = nn::init::FanMode::fan_in, kFanOut = nn::init::FanMode::fan_out;
inline constexpr nn::init::Nonlinearity kLinear = nn::init::Nonlinearity::linear,
                                        kConv1D = nn::init::Nonlinearity::conv2d,
                                        kConv2D = nn::init::Nonlinearity::conv2d,
                                        kConvTranspose1D = nn::init::Nonlinearity::conv2d,
                                        kConvTranspose2D = nn::init::Nonlinearity::conv2d,
                                        kSigmoid = nn::init::Nonlinearity::sigmoid,
                                        kTanh = nn::init::Nonlinearity::tanh, kReLU = nn::init::Nonlinearity::relu,
                                        kLeakyReLU = nn::init::Nonlinearity::leaky_relu,
                                        kGELU = nn::init::Nonlinearity::gelu;

namespace nn::init {

/// Returns the factor for a weight's standard deviation that compensates for the nonlinearity after the layer. `param`
/// is the negative slope of leaky_relu.
double calculate_gain(Nonlinearity nonlinearity, double param = 0.01);
/// Returns the fan in and the fan out of a weight (out, in, kernel…): in and out, each times the number of elements of
/// the kernel. Fewer than two dimensions are a ShapeError.
std::pair<int64_t, int64_t> calculate_fan_in_and_fan_out(const Tensor& tensor);

Tensor constant_(Tensor tensor, const Scalar& value);
Tensor zeros_(Tensor tensor);
Tensor ones_(Tensor tensor);
Tensor uniform_(Tensor tensor, double low = 0, double high = 1);
Tensor normal_(Tensor tensor, double mean = 0, double std = 1);
/// Draws from N(mean, std²), truncated to [low, high]; low > high is a ValueError. As in torch.nn.init, low and high
/// are values of the result, not multiples of std.
Tensor trunc_normal_(Tensor tensor, double mean = 0, double std = 1, double low = -2, double high = 2);
/// Sets the diagonal of a matrix to 1 and all other elements to 0; other shapes are a ShapeError.
Tensor eye_(Tensor tensor);
/// Makes a convolution weight (out, in, kernel…) that passes its input through: in each of `groups`, the kernel from
/// input channel i to output channel i is 1 at its centre, and all other elements are 0. Two dimensions or fewer are a
/// ShapeError; out not divisible by groups is a ValueError.
Tensor dirac_(Tensor tensor, int64_t groups = 1);
/// Draws random orthonormal rows or columns, whichever are fewer, and multiplies them by gain. All dimensions after the
/// first are treated as one. Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning in
/// deep linear neural networks", 2014.
Tensor orthogonal_(Tensor tensor, double gain = 1);
/// Draws a matrix from N(0, std²), then sets ceil(sparsity * rows) random elements of each column to 0. Martens, "Deep
/// learning via Hessian-free optimization", 2010. A sparsity outside of [0, 1] is a ValueError.
Tensor sparse_(Tensor tensor, double sparsity, double std = 0.01);
/// Draws from U(-b, b) with b = gain sqrt(6 / (fan in + fan out)). Glorot and Bengio 2010.
Tensor xavier_uniform_(Tensor tensor, double gain = 1);
/// Draws from N(0, gain² 2 / (fan in + fan out)).
Tensor xavier_normal_(Tensor tensor, double gain = 1);
/// Draws from U(-b, b) with b = gain sqrt(3 / fan), where gain is calculate_gain(nonlinearity, a) and fan is the fan in
/// or the fan out, as `mode` says. He et al. 2015.
Tensor kaiming_uniform_(Tensor tensor, double a = 0, FanMode mode = kFanIn, Nonlinearity nonlinearity = kLeakyReLU);
/// Draws from N(0, gain² / fan), with gain and fan as in kaiming_uniform_.
Tensor kaiming_normal_(Tensor tensor, double a = 0, FanMode mode = kFanIn, Nonlinearity nonlinearity = kLeakyReLU);

/// Initialises the parameters of linear and convolution layers as PyTorch does: the weight by kaiming_uniform_ with a =
/// sqrt(5), which draws from U(-b, b) with b = 1 / sqrt(fan in), then the bias, if defined, from the same U(-b, b).
void reset_weight_and_bias(const Tensor& weight, const Tensor& bias);

}  // namespace nn::init
}  // namespace gradus
