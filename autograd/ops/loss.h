// Softmax and the losses of classification.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/backend.h>

namespace gradus {

/// Along `dim`; of x converted to `dtype` first, where given.
Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current());
Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current());
/// Negative log likelihood of log-probabilities x (N, C), (C) or (N, C, d1, …) at int64 classes target (N), () or
/// (N, d1, …). `weight` (C), where defined, weighs the rows by their class: the mean is the weighted one. Rows at
/// ignore_index do not count.
Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight = {}, Reduction reduction = Reduction::mean,
                int64_t ignore_index = -100, Loc where = Loc::current());
/// nll_loss(log_softmax(x, 1), target, …) of logits x; plain (N, C) in one kernel. With label_smoothing e, the target's
/// probability is 1 - e + e / C and that of the other classes e / C. A floating target of x's shape holds the classes'
/// probabilities themselves (and ignore_index means nothing).
Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                     Reduction reduction = Reduction::mean, int64_t ignore_index = -100, double label_smoothing = 0,
                     Loc where = Loc::current());

}  // namespace gradus
