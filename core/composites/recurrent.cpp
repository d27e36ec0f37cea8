// Default bodies of the linear recurrence, of the LSTM cell, and of an LSTM over a sequence, whose steps are a matrix
// product and a cell each.
#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

namespace {

// Columns [part H, (part + 1) H) of a matrix (N, 4 H).
template <class AnyView>
AnyView gate(const AnyView& gates, int part) {
  const int64_t size = gates.shape[1] / 4;
  return narrow(gates, 1, part * size, size);
}

// The part of (L, N, …) that belongs to step t.
template <class AnyView>
AnyView at_step(const AnyView& view, int64_t t) {
  AnyView step = narrow(view, 0, t, 1);
  step.shape.erase(0), step.strides.erase(0);
  return step;
}

// steps[i] is the number of the step that is computed as the i-th.
struct Steps {
  int64_t count;
  bool reverse;
  int64_t operator[](int64_t i) const { return reverse ? count - 1 - i : i; }
};

// The state before the i-th computed step, from the initial state and the states after each step.
View before(const View& initial, const View& states, const Steps& steps, int64_t i) {
  return i == 0 ? initial : at_step(states, steps[i - 1]);
}

}  // namespace

void Backend::linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y) {
  if (y.numel() == 0) return;
  const Arithmetic math(*this);
  const Array weights = math.widen(a), sums = math.widen(b);
  const int64_t size = y.ndim() ? y.shape[axis] : 1, step = reverse ? -1 : 1;
  for (int64_t k = reverse ? size - 2 : 1; k >= 0 && k < size; k += step) {
    const MutableView sum = narrow(MutableView(sums), axis, k, 1);
    const Array product = math(mul, narrow(View(weights), axis, k, 1), narrow(View(sums), axis, k - step, 1));
    binary(add, sum, product, sum);
  }
  copy(sums, y);
}

void Backend::lstm_cell(const MutableView& gates, const View& c_before, const MutableView& c, const MutableView& h) {
  const Arithmetic math(*this);
  Array active[4];
  for (int k = 0; k < 4; ++k) {
    active[k] = math(k == 2 ? UnaryOp::tanh : UnaryOp::sigmoid, math.widen(gate(View(gates), k)));
    copy(active[k], gate(gates, k));
  }
  const auto& [i, f, g, o] = active;
  const Array cell = math(add, math(mul, f, math.widen(c_before)), math(mul, i, g));
  copy(cell, c);
  copy(math(mul, o, math(UnaryOp::tanh, cell)), h);
}

void Backend::lstm_cell_backward(const View& dh, const View& gates, const View& c_before, const View& c,
                                 const MutableView& dc, const MutableView& dgates) {
  const Arithmetic math(*this);
  Array active[4];
  for (int k = 0; k < 4; ++k) active[k] = math.widen(gate(gates, k));
  const auto& [i, f, g, o] = active;
  const Array gradient = math.widen(dh), t = math(UnaryOp::tanh, math.widen(c));
  const auto one_minus = [&](const Array& x) { return math(sub, 1, x); };
  const Array through_h = math(mul, math(mul, gradient, o), one_minus(math(mul, t, t)));
  const Array dcell = math(add, math.widen(dc), through_h);
  copy(math(mul, math(mul, dcell, g), math(mul, i, one_minus(i))), gate(dgates, 0));
  copy(math(mul, math(mul, dcell, math.widen(c_before)), math(mul, f, one_minus(f))), gate(dgates, 1));
  copy(math(mul, math(mul, dcell, i), one_minus(math(mul, g, g))), gate(dgates, 2));
  copy(math(mul, math(mul, gradient, t), math(mul, o, one_minus(o))), gate(dgates, 3));
  copy(math(mul, dcell, f), dc);
}

void Backend::lstm_sequence(const LstmArgs& args) {
  const auto& [gates, w_hh, h0, c0, reverse, cells, hidden] = args;
  // Copied to row-major order, because the matrix product of each step reads it.
  const Array w = Arithmetic(*this).cast(transposed(w_hh), w_hh.dtype);
  const Steps steps{gates.shape[0], reverse};
  for (int64_t i = 0; i < steps.count; ++i) {
    const MutableView sums = at_step(gates, steps[i]);
    matmul(before(h0, hidden, steps, i), w, sums, /*accumulate=*/true);
    lstm_cell(sums, before(c0, cells, steps, i), at_step(cells, steps[i]), at_step(hidden, steps[i]));
  }
}

void Backend::lstm_sequence_backward(const LstmBackwardArgs& args) {
  const auto& [dhidden, gates, w_hh, c0, cells, reverse, dc, dgates, dh0] = args;
  const Steps steps{gates.shape[0], reverse};
  // sums[t] is the gradient of hidden state t: dhidden[t], plus the part that comes from step t + 1. Without dhidden
  // only the second part exists, and dh0 holds it for one step at a time.
  Array sums;
  if (dhidden) {
    sums = Array::empty(dhidden.shape, dhidden.dtype, dhidden.device);
    copy(dhidden, sums);
  } else {
    fill(dh0, 0);
  }
  for (int64_t i = steps.count - 1; i >= 0; --i) {
    const int64_t t = steps[i];
    const MutableView dh = dhidden ? at_step(MutableView(sums), t) : dh0;
    if (i + 1 < steps.count)
      matmul(at_step(View(dgates), steps[i + 1]), w_hh, dh, /*accumulate=*/static_cast<bool>(dhidden));
    lstm_cell_backward(dh, at_step(gates, t), before(c0, cells, steps, i), at_step(cells, t), dc, at_step(dgates, t));
  }
  matmul(at_step(View(dgates), steps[0]), w_hh, dh0, /*accumulate=*/false);
}

}  // namespace gradus
