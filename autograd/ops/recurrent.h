// Operators for recurrent nets. The layers that use them, and the formulas, are in layers/rnn.h.
#pragma once

#include <tuple>

#include <gradus/autograd/tensor.h>

namespace gradus {

/// One step of an LSTM. `from_input` (N, 4 H) is W x + b_ih; h (N, H, or the input size of w_hh) and c (N, H) are the
/// previous states. Returns the new h and c. b_hh may be undefined.
std::tuple<Tensor, Tensor> lstm_step(const Tensor& from_input, const Tensor& h, const Tensor& c, const Tensor& w_hh,
                                     const Tensor& b_hh);

/// Runs an LSTM in one direction over x (L, N, I) from h0 and c0 (N, H). Returns the hidden states (L, N, H) and the
/// last cell state (N, H). w_ih (4 H, I) and w_hh (4 H, H) contain the gates in the order i, f, g, o; the biases (4 H)
/// are both defined or both undefined. `reverse` runs from the last step to the first.
std::tuple<Tensor, Tensor> lstm_sequence(const Tensor& x, const Tensor& h0, const Tensor& c0, const Tensor& w_ih,
                                         const Tensor& w_hh, const Tensor& b_ih = {}, const Tensor& b_hh = {},
                                         bool reverse = false, Loc where = Loc::current());

}  // namespace gradus
