// The element-wise part of an LSTM's step and its gradient (Backend::lstm_cell), each written once. C is a number on
// host or device, or a vector of them (core/formulas/scalar_math.h).
#pragma once

#include <gradus/core/formulas/scalar_math.h>

namespace gradus::scalar {

/// A cell after a step: its input gate, forget gate, candidate and output gate, and the states.
template <class C>
struct LstmCell {
  C gates[4], c, h;
};

/// c = f c_before + i g,  h = o tanh(c)  of what goes into the gates: i, f, o = sigmoid and g = tanh of their sums.
template <class C>
GRADUS_HOST_DEVICE LstmCell<C> lstm_cell(C input, C forget, C candidate, C output, C c_before) {
  using std::tanh;
  const C i = logistic(input), f = logistic(forget), g = tanh(candidate), o = logistic(output);
  const C c = f * c_before + i * g;
  return {{i, f, g, o}, c, o * tanh(c)};
}

/// Gradients of the gates' sums, and of the state before.
template <class C>
struct LstmCellGradient {
  C sums[4], dc_before;
};

/// From the gates, the gradient of h, and what later steps say of that of c.
template <class C>
GRADUS_HOST_DEVICE LstmCellGradient<C> lstm_cell_backward(C i, C f, C g, C o, C c_before, C c, C dh, C dc) {
  using std::tanh;
  const C one(1), t = tanh(c), dcell = dc + dh * o * (one - t * t);
  return {
      {dcell * g * i * (one - i), dcell * c_before * f * (one - f), dcell * i * (one - g * g), dh * t * o * (one - o)},
      dcell * f};
}

}  // namespace gradus::scalar
