// Scaled dot-product attention of arrays.
#pragma once

#include <gradus/core/ops/common.h>
#include <gradus/core/runtime/random.h>

namespace gradus::ops {

/// The result (N, H, L, V), and what its gradient needs: the softmax's weights (N, H, L, S) and, with dropout, which of
/// them stayed.
struct AttentionResult {
  Array y, weights, kept;
};

/// dropout(softmax(scale q kᵀ + mask)) v of q (N, H, L, E), k (N, H, S, E), v (N, H, S, V). mask, which may be
/// undefined, broadcasts to (N, H, L, S) and is boolean (false: no attention) or of q's type (added). Draws for dropout
/// come from `generator`. y's axes lie in memory in the order of q's.
AttentionResult attention(const Array& q, const Array& k, const Array& v, const Array& mask, AttentionRule rule,
                          Generator& generator = default_generator());
/// Into dq, dk and dv, which have the shapes of q, k and v.
void attention_backward(const Array& dy, const Array& q, const Array& k, const Array& v, const AttentionResult& result,
                        const AttentionRule& rule, const Array& dq, const Array& dk, const Array& dv);

}  // namespace gradus::ops
