// Recurrent operators. The layers that are made of them: layers/rnn.h, where the formulas are.
#pragma once

#include <tuple>

#include <gradus/autograd/tensor.h>

namespace gradus {

/// One step of an LSTM from W x + b_ih, `from_input` (N, 4 H), and the states h (N, H or the size that w_hh takes) and
/// c (N, H): the new h and c. b_hh may be undefined.
std::tuple<Tensor, Tensor> lstm_step(const Tensor& from_input, const Tensor& h, const Tensor& c, const Tensor& w_hh,
                                     const Tensor& b_hh);

/// An LSTM in one direction over x (L, N, I), from h0 and c0 (N, H): the hidden states (L, N, H) and the last cell
/// state (N, H). w_ih (4 H, I), w_hh (4 H, H), gates in the order i, f, g, o; biases (4 H), or both undefined.
/// `reverse` goes from the last step to the first.
std::tuple<Tensor, Tensor> lstm_sequence(const Tensor& x, const Tensor& h0, const Tensor& c0, const Tensor& w_ih,
                                         const Tensor& w_hh, const Tensor& b_ih = {}, const Tensor& b_hh = {},
                                         bool reverse = false, Loc where = Loc::current());

}  // namespace gradus
