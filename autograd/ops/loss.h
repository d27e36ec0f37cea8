// Softmax and classification losses.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/backend.h>

namespace gradus {

/// Along `dim`. If `dtype` is given, x is converted to it first.
Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current());
Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current());
/// Negative log likelihood of log-probabilities x (N, C), (C) or (N, C, d1, …) for int64 classes target (N), () or (N,
/// d1, …). `weight` (C), if defined, weights each row by its class, and the mean becomes a weighted mean. Rows whose
/// target is ignore_index are skipped.
Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight = {}, Reduction reduction = Reduction::mean,
                int64_t ignore_index = -100, Loc where = Loc::current());
/// nll_loss(log_softmax(x, 1), target, …) of logits x, in one kernel for plain (N, C) inputs. With label_smoothing e,
/// the target class has probability 1 - e + e / C and every other class e / C. A floating target of x's shape contains
/// class probabilities, and ignore_index has no effect.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                     Reduction reduction = Reduction::mean, int64_t ignore_index = -100, double label_smoothing = 0,
                     Loc where = Loc::current());

}  // namespace gradus
