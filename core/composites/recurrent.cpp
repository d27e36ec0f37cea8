// Default bodies of the linear recurrence, and of recurrent layers over a sequence, whose steps are a matrix product
// and a cell each.
#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

namespace {

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

void Backend::recurrent_sequence(const RecurrentArgs& args) {
  const Arithmetic math(*this);
  // Copied to row-major order, because the matrix products of each step read them.
  const Array w_hh = math.cast(transposed(args.w_hh), args.w_hh.dtype);
  const Array w_hr = args.w_hr ? math.cast(transposed(args.w_hr), args.w_hr.dtype) : Array();
  const Steps steps{args.gates.shape[0], args.reverse};
  for (int64_t i = 0; i < steps.count; ++i) {
    const MutableView sums = at_step(args.gates, steps[i]), output = at_step(args.outputs, steps[i]);
    matmul(before(args.h0, args.hidden, steps, i), w_hh, narrow(sums, 1, 0, args.w_hh.shape[0]), /*accumulate=*/true);
    recurrent_cell(args.cell, sums, before(args.c0, args.cells, steps, i), at_step(args.cells, steps[i]), output);
    if (args.w_hr) matmul(output, w_hr, at_step(args.hidden, steps[i]), /*accumulate=*/false);
  }
}

void Backend::recurrent_sequence_backward(const RecurrentBackwardArgs& args) {
  const int64_t batch = args.gates.shape[1], rows = args.w_hh.shape[0];
  const auto scratch = [&](const Shape& shape) { return Array::empty(shape, args.gates.dtype, args.gates.device); };
  const Steps steps{args.gates.shape[0], args.reverse};
  // dhidden[t] is the gradient of hidden state t: args.dhidden[t], plus the part that comes from step t + 1.
  const Array sums = args.w_hr ? Array() : scratch({steps.count, batch, args.w_hh.shape[1]});
  const MutableView dhidden = args.w_hr ? args.dprojected : MutableView(sums);
  if (args.dhidden) copy(args.dhidden, dhidden);
  else fill(dhidden, 0);
  const Array doutput = args.w_hr ? scratch(args.dc.shape) : Array();
  const auto dsums = [&](int64_t i) { return narrow(at_step(View(args.dgates), steps[i]), 1, 0, rows); };
  for (int64_t i = steps.count - 1; i >= 0; --i) {
    const int64_t t = steps[i];
    const MutableView dh = at_step(dhidden, t);
    if (i + 1 < steps.count) matmul(dsums(i + 1), args.w_hh, dh, /*accumulate=*/true);
    if (args.w_hr) matmul(dh, args.w_hr, doutput, /*accumulate=*/false);
    recurrent_cell_backward(args.cell, args.w_hr ? View(doutput) : View(dh), at_step(args.gates, t),
                            before(args.c0, args.cells, steps, i), at_step(args.cells, t), args.dc,
                            at_step(args.dgates, t));
  }
  const bool one_state = args.cell != RecurrentCell::lstm;
  if (one_state) copy(args.dc, args.dh0);
  matmul(dsums(0), args.w_hh, args.dh0, /*accumulate=*/one_state);
}

}  // namespace gradus
