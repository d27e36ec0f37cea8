// An LSTM over a whole sequence: what can be computed for all steps at once is, and the steps do the rest.
#pragma once

#include <gradus/core/ops/common.h>

namespace gradus::ops {

/// The weights of one direction: w_ih (4 H, I), w_hh (4 H, H), biases (4 H) or both undefined; gates in the order i, f,
/// g, o, as PyTorch has them.
struct LstmWeights {
  const Array &w_ih, &w_hh, &b_ih, &b_hh;
};

/// What lstm computes: the hidden states and, for backward, the cell states (L, N, H) and the gates (L, N, 4 H).
struct LstmStates {
  Array hidden, cells, gates;
};

/// x (L, N, I), h0 and c0 (N, H). `reverse` goes from the last step to the first.
LstmStates lstm(const Array& x, const Array& h0, const Array& c0, const LstmWeights& weights, bool reverse);

/// Gradients of lstm with respect to its arguments; dbias is either bias's.
struct LstmGradients {
  Array dx, dh0, dc0, dw_ih, dw_hh, dbias;
};

/// From the gradients of the hidden states and of the last cell state (N, H); each may be undefined. dx only where it
/// is wanted.
LstmGradients lstm_backward(const Array& dhidden, const Array& dlast_cell, const Array& x, const Array& h0,
                            const Array& c0, const LstmWeights& weights, const LstmStates& states, bool reverse,
                            bool need_dx);

}  // namespace gradus::ops
