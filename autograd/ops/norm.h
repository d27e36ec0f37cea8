// Normalisation: y = (x - mean) / sqrt(variance + eps) * weight + bias, with the statistics of …
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// … each channel of x (N, C) or (N, C, L) or (N, C, H, W), over all the rest (Ioffe and Szegedy 2015). In training
/// they are the batch's (biased variance), and running_mean and running_var (C), where defined, move towards them
/// (unbiased variance) by `momentum`, and num_batches_tracked (int64 scalar), where defined, is counted up; else they
/// are the running ones. weight and bias (C) where defined. (torch.nn.functional.batch_norm)
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, bool training = false, double momentum = 0.1, double eps = 1e-5,
                  const Tensor& num_batches_tracked = {}, Loc where = Loc::current());
/// relu(batch_norm(…) + residual), the sum where residual, of x's shape and type, is defined: one kernel forward and
/// one backward, where the backend has them. It keeps x and its result, not what lies between. Under autocast a
/// residual of another type than x is added as three operators would.
Tensor batch_norm_relu(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                       const Tensor& weight = {}, const Tensor& bias = {}, bool training = false, double momentum = 0.1,
                       double eps = 1e-5, const Tensor& residual = {}, const Tensor& num_batches_tracked = {},
                       Loc where = Loc::current());
/// … each sample, over the last dimensions, which are `normalized_shape`; weight and bias of that shape where defined
/// (Ba et al. 2016).
Tensor layer_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Loc where = Loc::current());
/// … each of `num_groups` groups of channels of each sample of x (N, C, …); weight and bias (C) where defined (Wu and
/// He 2018).
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Loc where = Loc::current());
/// … each channel of each sample of x (N, C, …), or without `use_input_stats` the running ones, which otherwise move
/// towards the batch's average as in batch_norm.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {}, bool use_input_stats = true,
                     double momentum = 0.1, double eps = 1e-5, const Tensor& num_batches_tracked = {},
                     Loc where = Loc::current());

/// x / max(‖x‖_p, eps) along `dim`.
Tensor normalize(const Tensor& x, double p = 2, int64_t dim = 1, double eps = 1e-12, Loc where = Loc::current());
/// x / (k + alpha avg(x²))^beta, the average over `size` neighbouring channels (Krizhevsky et al. 2012).
Tensor local_response_norm(const Tensor& x, int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1,
                           Loc where = Loc::current());

}  // namespace gradus
