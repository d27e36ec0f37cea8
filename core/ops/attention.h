// Scaled dot-product attention of arrays.
#pragma once

#include <gradus/core/ops/common.h>
#include <gradus/core/runtime/random.h>

namespace gradus::ops {

/// The result (N, H, L, V) and what its gradient needs: the softmax weights (N, H, L, S) and, with dropout, a boolean
/// mask of the weights that were kept.
struct AttentionResult {
  Array y, weights, kept;
};

/// dropout(softmax(scale q kᵀ + mask)) v for q (N, H, L, E), k (N, H, S, E), v (N, H, S, V). `mask` may be undefined;
/// it broadcasts to (N, H, L, S) and is boolean (false: the pair is masked out) or of q's type (added to the scores).
/// Dropout draws from `generator`. y's axes have the same order in memory as q's.
AttentionResult attention(const Array& q, const Array& k, const Array& v, const Array& mask, AttentionRule rule,
                          Generator& generator = default_generator());
/// Writes the gradients into dq, dk and dv, which have the shapes of q, k and v.
void attention_backward(const Array& dy, const Array& q, const Array& k, const Array& v, const AttentionResult& result,
                        const AttentionRule& rule, const Array& dq, const Array& dk, const Array& dv);

}  // namespace gradus::ops
