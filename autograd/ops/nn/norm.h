// Normalisation: y = (x - mean) / sqrt(variance + eps) * weight + bias. The functions differ in the elements over which
// they compute mean and variance.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Statistics of each channel of x (N, C), (N, C, L) or (N, C, H, W), over all other dimensions (Ioffe and Szegedy
/// 2015). In training they are those of the batch, with the biased variance. If defined, running_mean and running_var
/// (C) move towards them by `momentum`, with the unbiased variance, and num_batches_tracked (int64 scalar) is
/// incremented. Outside of training the running statistics are used. weight and bias (C) may be undefined.
/// (torch.nn.functional.batch_norm)
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, bool training = false, double momentum = 0.1, double eps = 1e-5,
                  const Tensor& num_batches_tracked = {}, Loc where = Loc::current());
/// relu(batch_norm(…) + residual), where residual is optional and has x's shape and type. Runs as one kernel forward
/// and one kernel backward if the backend has them, and saves only x and the result for backward. Under autocast, if
/// the residual's type differs from x's, batch_norm, the addition and the ReLU run as three operators.
Tensor batch_norm_relu(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                       const Tensor& weight = {}, const Tensor& bias = {}, bool training = false, double momentum = 0.1,
                       double eps = 1e-5, const Tensor& residual = {}, const Tensor& num_batches_tracked = {},
                       Loc where = Loc::current());
/// Statistics of each sample, over its last dimensions, which must equal `normalized_shape`. weight and bias have that
/// shape or are undefined (Ba et al. 2016).
Tensor layer_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Loc where = Loc::current());
/// Statistics of each of `num_groups` groups of channels of each sample of x (N, C, …). weight and bias (C) may be
/// undefined (Wu and He 2018).
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Loc where = Loc::current());
/// Statistics of each channel of each sample of x (N, C, …). With `use_input_stats`, the running statistics move, as in
/// batch_norm, towards the average of these statistics over the samples; otherwise the running statistics are used
/// instead of those of x.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {}, bool use_input_stats = true,
                     double momentum = 0.1, double eps = 1e-5, const Tensor& num_batches_tracked = {},
                     Loc where = Loc::current());

/// x / max(‖x‖_p, eps) along `dim`.
Tensor normalize(const Tensor& x, double p = 2, int64_t dim = 1, double eps = 1e-12, Loc where = Loc::current());
/// x / (k + alpha avg(x²))^beta, where avg is the average over `size` neighbouring channels (Krizhevsky et al. 2012).
Tensor local_response_norm(const Tensor& x, int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1,
                           Loc where = Loc::current());

}  // namespace gradus
