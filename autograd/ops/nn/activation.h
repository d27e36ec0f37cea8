// Activation functions (torch.nn.functional), applied to each element unless stated otherwise. relu, sigmoid, tanh and
// clamp are in elementwise.h, softmax and log_softmax in loss.h. Functions whose names end in _ change x in place.
#pragma once

#include <string_view>

#include <gradus/autograd/tensor.h>

namespace gradus {

/// x for x > 0, else negative_slope x
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01, Loc where = Loc::current());
/// scale x for x > 0, else scale alpha (exp(input_scale x) - 1)  (Clevert et al. 2015)
Tensor elu(const Tensor& x, double alpha = 1, double scale = 1, double input_scale = 1, Loc where = Loc::current());
/// elu scaled so that activations keep mean 0 and variance 1  (Klambauer et al. 2017)
Tensor selu(const Tensor& x, Loc where = Loc::current());
/// x for x > 0, else alpha (exp(x / alpha) - 1)  (Barron 2017)
Tensor celu(const Tensor& x, double alpha = 1, Loc where = Loc::current());
/// x Phi(x), where Phi is the cumulative distribution function of the standard normal distribution (Hendrycks and
/// Gimpel 2016). approximate: "none", or "tanh" for x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
Tensor gelu(const Tensor& x, std::string_view approximate = "none", Loc where = Loc::current());
/// x sigmoid(x), also called swish
Tensor silu(const Tensor& x, Loc where = Loc::current());
/// log(1 + exp(beta x)) / beta, and x itself where beta x > threshold
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20, Loc where = Loc::current());
/// x tanh(softplus(x))  (Misra 2019)
Tensor mish(const Tensor& x, Loc where = Loc::current());
/// log(sigmoid(x)) without overflow
Tensor log_sigmoid(const Tensor& x, Loc where = Loc::current());
/// x / (1 + |x|)
Tensor softsign(const Tensor& x, Loc where = Loc::current());
/// x clamped to [min_val, max_val], with gradient 0 at the bounds
Tensor hardtanh(const Tensor& x, double min_val = -1, double max_val = 1, Loc where = Loc::current());
/// min(max(x, 0), 6)
Tensor relu6(const Tensor& x, Loc where = Loc::current());
/// relu6(x + 3) / 6, and its product with x  (Howard et al. 2019)
Tensor hardsigmoid(const Tensor& x, Loc where = Loc::current());
Tensor hardswish(const Tensor& x, Loc where = Loc::current());
/// x moved towards 0 by lambda, and 0 within [-lambda, lambda]
Tensor softshrink(const Tensor& x, double lambda = 0.5, Loc where = Loc::current());
/// x outside [-lambda, lambda], else 0
Tensor hardshrink(const Tensor& x, double lambda = 0.5, Loc where = Loc::current());
/// x - tanh(x)
Tensor tanhshrink(const Tensor& x, Loc where = Loc::current());
/// x where x > threshold, else value
Tensor threshold(const Tensor& x, double threshold, double value, Loc where = Loc::current());
/// x for x > 0, else weight x. There is one weight, or one for each channel (dimension 1 of x).
Tensor prelu(const Tensor& x, const Tensor& weight, Loc where = Loc::current());
/// x for x > 0, else r x. In training, r is drawn from [lower, upper) for each element; otherwise r is (lower + upper)
/// / 2.
Tensor rrelu(const Tensor& x, double lower = 1.0 / 8, double upper = 1.0 / 3, bool training = false,
             Loc where = Loc::current());
/// a sigmoid(b), where a and b are the halves of x along `dim`  (Dauphin et al. 2017)
Tensor glu(const Tensor& x, int64_t dim = -1, Loc where = Loc::current());
/// softmax(-x, dim)
Tensor softmin(const Tensor& x, int64_t dim, Loc where = Loc::current());

const Tensor& leaky_relu_(const Tensor& x, double negative_slope = 0.01, Loc where = Loc::current());
const Tensor& elu_(const Tensor& x, double alpha = 1, double scale = 1, double input_scale = 1,
                   Loc where = Loc::current());
const Tensor& selu_(const Tensor& x, Loc where = Loc::current());
const Tensor& celu_(const Tensor& x, double alpha = 1, Loc where = Loc::current());
const Tensor& silu_(const Tensor& x, Loc where = Loc::current());
const Tensor& mish_(const Tensor& x, Loc where = Loc::current());
const Tensor& hardtanh_(const Tensor& x, double min_val = -1, double max_val = 1, Loc where = Loc::current());
const Tensor& relu6_(const Tensor& x, Loc where = Loc::current());
const Tensor& hardsigmoid_(const Tensor& x, Loc where = Loc::current());
const Tensor& hardswish_(const Tensor& x, Loc where = Loc::current());
const Tensor& threshold_(const Tensor& x, double threshold, double value, Loc where = Loc::current());
const Tensor& rrelu_(const Tensor& x, double lower = 1.0 / 8, double upper = 1.0 / 3, bool training = false,
                     Loc where = Loc::current());

}  // namespace gradus
