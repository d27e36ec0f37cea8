// The element-wise part of an LSTM step (Backend::lstm_cell) and its gradient, each written once. C is a number on host
// or device, or a vector of numbers (core/formulas/scalar_math.h).
#pragma once

#include <gradus/core/formulas/scalar_math.h>

namespace gradus::scalar {

/// The state after a step: input gate, forget gate, candidate and output gate in `gates`, the cell state c and the
/// hidden state h.
template <class C>
struct LstmCell {
  C gates[4], c, h;
};

/// Computes an LSTM step from the pre-activations of the gates: i, f, o = sigmoid and g = tanh of their
/// pre-activations, then c = f c_before + i g and h = o tanh(c).
template <class C>
GRADUS_HOST_DEVICE LstmCell<C> lstm_cell(C input, C forget, C candidate, C output, C c_before) {
  const C i = logistic(input), f = logistic(forget), g = tanh(candidate), o = logistic(output);
  const C c = f * c_before + i * g;
  return {{i, f, g, o}, c, o * tanh(c)};
}

/// Gradients of the four pre-activations and of c_before.
template <class C>
struct LstmCellGradient {
  C sums[4], dc_before;
};

/// Computes these gradients. dh is the gradient of h, and dc the part of the gradient of c that comes from later steps.
template <class C>
GRADUS_HOST_DEVICE LstmCellGradient<C> lstm_cell_backward(C i, C f, C g, C o, C c_before, C c, C dh, C dc) {
  const C one(1), t = tanh(c), dcell = dc + dh * o * (one - t * t);
  return {
      {dcell * g * i * (one - i), dcell * c_before * f * (one - f), dcell * i * (one - g * g), dh * t * o * (one - o)},
      dcell * f};
}

}  // namespace gradus::scalar
