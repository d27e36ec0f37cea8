// Scaled dot-product attention, and an LSTM over a whole sequence, whose products with the input are computed for all
// steps at once.
#pragma once

#include <gradus/core/ops/operands.h>
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

/// The weights of one direction: w_ih (4 H, I), w_hh (4 H, H), and biases (4 H) that are both defined or both
/// undefined. The gates are in PyTorch's order i, f, g, o.
struct LstmWeights {
  const Array &w_ih, &w_hh, &b_ih, &b_hh;
};

/// What lstm computes: the hidden states and, for backward, the cell states (L, N, H) and the gates (L, N, 4 H).
struct LstmStates {
  Array hidden, cells, gates;
};

/// x (L, N, I), h0 and c0 (N, H). With `reverse` the steps run from the last to the first.
LstmStates lstm(const Array& x, const Array& h0, const Array& c0, const LstmWeights& weights, bool reverse);

/// Gradients of lstm with respect to its arguments. dbias is the gradient of b_ih and of b_hh, which are equal.
struct LstmGradients {
  Array dx, dh0, dc0, dw_ih, dw_hh, dbias;
};

/// Takes the gradients of the hidden states and of the last cell state (N, H), either of which may be undefined.
/// Computes dx only if `need_dx`.
LstmGradients lstm_backward(const Array& dhidden, const Array& dlast_cell, const Array& x, const Array& h0,
                            const Array& c0, const LstmWeights& weights, const LstmStates& states, bool reverse,
                            bool need_dx);

}  // namespace gradus::ops
