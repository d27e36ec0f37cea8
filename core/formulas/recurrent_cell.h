// The element-wise part of a step of each recurrent cell (Backend::recurrent_cell) and its gradient, each written once.
// C is a number on host or device, a vector of numbers (core/formulas/scalar_math.h), or another type with the
// operators and functions that the formulas use. The state that a cell keeps besides its output h is c; cells other
// than the LSTM have only one state, so their c is h.
#pragma once

#include <gradus/core/element_ops.h>
#include <gradus/core/formulas/scalar_math.h>

namespace gradus::scalar {

/// The result of a step: the values of the gates, which backward needs, and the states.
template <class C>
struct CellStep {
  C gates[4], c, h;
};
/// Gradients of the sums, and the part of the gradient of c_before that does not come through the sums.
template <class C>
struct CellGradient {
  C sums[4], dc_before;
};

template <class C>
GRADUS_HOST_DEVICE C relu(C x) {
  return select(x < C(0), C(0), x);
}

/// The formulas of a step. The first function computes a gate from its sum, the second the states from all gates:
///   RNN   h = tanh(sum), or relu
///   LSTM  i, f, o = sigmoid and g = tanh of the sums, which are in the order i, f, g, o; c = f c_before + i g and
///         h = o tanh(c)
///   GRU   r, z = sigmoid of the first sums, n = tanh(x + r u) and h = (1 - z) n + z h_before. u and x, the last sums,
///         are those over the hidden state and over the input. The gates contain n in the place of x.
template <RecurrentCell cell, class C>
GRADUS_HOST_DEVICE C recurrent_gate(int k, const C& sum) {
  if constexpr (cell == RecurrentCell::lstm) return k == 2 ? tanh(sum) : logistic(sum);
  else if constexpr (cell == RecurrentCell::gru) return k < 2 ? logistic(sum) : sum;
  else return cell == RecurrentCell::rnn_relu ? relu(sum) : tanh(sum);
}
template <RecurrentCell cell, class C>
GRADUS_HOST_DEVICE CellStep<C> recurrent_cell(const C* gates, const C& c_before) {
  if constexpr (cell == RecurrentCell::lstm) {
    const C &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
    const C c = f * c_before + i * g;
    return {{i, f, g, o}, c, o * tanh(c)};
  } else if constexpr (cell == RecurrentCell::gru) {
    const C &r = gates[0], &z = gates[1], &u = gates[2], &x = gates[3];
    const C n = tanh(x + r * u), h = n + z * (c_before - n);
    return {{r, z, u, n}, h, h};
  } else {
    return {{gates[0]}, gates[0], gates[0]};
  }
}

/// Computes the gradients. dh is the gradient of h, and dc the part of the gradient of c that comes from later steps.
template <RecurrentCell cell, class C>
GRADUS_HOST_DEVICE CellGradient<C> recurrent_cell_backward(const C* gates, const C& c_before, const C& c, const C& dh,
                                                           const C& dc) {
  [[maybe_unused]] const C one(1);
  if constexpr (cell == RecurrentCell::lstm) {
    const C &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
    const C t = tanh(c), dcell = dc + dh * o * (one - t * t);
    return {{dcell * g * i * (one - i), dcell * c_before * f * (one - f), dcell * i * (one - g * g),
             dh * t * o * (one - o)},
            dcell * f};
  } else if constexpr (cell == RecurrentCell::gru) {
    const C &r = gates[0], &z = gates[1], &u = gates[2], &n = gates[3];
    const C dstate = dh + dc, dx = dstate * (one - z) * (one - n * n);
    return {{dx * u * r * (one - r), dstate * (c_before - n) * z * (one - z), dx * r, dx}, dstate * z};
  } else {
    const C& h = gates[0];
    return {{cell == RecurrentCell::rnn_relu ? select(h <= C(0), C(0), dh) : dh * (one - h * h)}, dc};
  }
}

/// Returns f.operator()<cell>() for a cell that is known when the program runs.
template <class F>
decltype(auto) visit_cell(RecurrentCell cell, F&& f) {
  using enum RecurrentCell;
  switch (cell) {
    case rnn_tanh: return f.template operator()<rnn_tanh>();
    case rnn_relu: return f.template operator()<rnn_relu>();
    case lstm: return f.template operator()<lstm>();
    default: return f.template operator()<gru>();
  }
}

}  // namespace gradus::scalar
