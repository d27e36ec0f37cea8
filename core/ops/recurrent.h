// An LSTM over a whole sequence. The products with the input are computed for all steps at once, the rest step by step.
#pragma once

#include <gradus/core/ops/common.h>

namespace gradus::ops {

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
