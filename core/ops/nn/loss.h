// Softmax and classification losses of arrays.
#pragma once

#include <tuple>

#include <gradus/core/ops/operands.h>

namespace gradus::ops {

/// softmax or log_softmax along `axis`, for floating types.
Array softmax(const Array& x, int axis, bool log);
Array softmax_backward(const Array& dy, const Array& y, int axis, bool log);

/// Checks that x (N, C) holds logits or log-probabilities and that target is int64 (N).
void check_classes(const Array& x, const Array& target);
/// x[i, target[i]]; 0 in ignored rows.
Array pick(const Array& x, const Array& target, int64_t ignore_index);
Array pick_backward(const Array& dy, const Array& target, int64_t ignore_index, const Shape& x_shape);
/// Number of rows whose target is not ignore_index, as a scalar of type `dtype`.
Array count_targets(const Array& target, int64_t ignore_index, DType dtype);

struct CrossEntropyResult {
  Array loss;               // () or, for Reduction::none, (N)
  Array log_probabilities;  // (N, C)
  Array weight_sum;         // (), number of rows not ignored
};
CrossEntropyResult cross_entropy(const Array& x, const Array& target, int64_t ignore_index, Reduction reduction);
Array cross_entropy_backward(const Array& dloss, const CrossEntropyResult& saved, const Array& target,
                             int64_t ignore_index, Reduction reduction);

}  // namespace gradus::ops
