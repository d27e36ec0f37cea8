// Softmax and the losses of classification.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/backend.h>

namespace gradus {

Tensor softmax(const Tensor& x, int64_t dim, Loc where = Loc::current());
Tensor log_softmax(const Tensor& x, int64_t dim, Loc where = Loc::current());
/// Negative log likelihood of log-probabilities x (N, C) or (C) at int64 classes target (N) or ().
Tensor nll_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                int64_t ignore_index = -100, Loc where = Loc::current());
/// nll_loss(log_softmax(x, 1), target) in one kernel: logits x (N, C) or (C).
Tensor cross_entropy(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                     int64_t ignore_index = -100, Loc where = Loc::current());

}  // namespace gradus
