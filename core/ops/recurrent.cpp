#include <gradus/core/ops/recurrent.h>

#include <utility>

#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/matmul.h>
#include <gradus/core/ops/reduce.h>

namespace gradus::ops {
namespace {

// The steps in the order in which they are computed.
struct Steps {
  int64_t count;
  bool reverse;
  int64_t operator[](int64_t i) const { return reverse ? count - 1 - i : i; }
};

// State before computed step i, of those after each step.
Array before(const Array& initial, const Array& states, const Steps& steps, int64_t i) {
  return i == 0 ? initial : states.select(0, steps[i - 1]);
}

// (L, N, C) as (L N, C).
Array flat(const Array& x) { return contiguous(x).view({x.shape()[0] * x.shape()[1], x.shape()[2]}); }

}  // namespace

LstmStates lstm(const Array& x, const Array& h0, const Array& c0, const LstmWeights& weights, bool reverse) {
  const int64_t length = x.shape()[0], batch = x.shape()[1], size = h0.shape()[1];
  Backend& backend = backend_of(x);
  const Array bias = weights.b_ih.defined() ? binary(BinaryOp::add, weights.b_ih, weights.b_hh) : Array();
  const Array w = contiguous(weights.w_hh.transpose(0, 1));  // (H, 4 H): products read its rows as they are
  const auto states_like = [&] { return Array::empty({length, batch, size}, x.dtype(), x.device()); };
  LstmStates states{states_like(), states_like(), linear(x, weights.w_ih, bias)};
  const Steps steps{length, reverse};
  for (int64_t i = 0; i < length; ++i) {
    const Array gates = states.gates.select(0, steps[i]);
    backend.matmul(before(h0, states.hidden, steps, i), w, gates, /*accumulate=*/true);
    backend.lstm_cell(gates, before(c0, states.cells, steps, i), states.cells.select(0, steps[i]),
                      states.hidden.select(0, steps[i]));
  }
  return states;
}

LstmGradients lstm_backward(const Array& dhidden, const Array& dlast_cell, const Array& x, const Array& h0,
                            const Array& c0, const LstmWeights& weights, const LstmStates& states, bool reverse) {
  const int64_t length = x.shape()[0];
  Backend& backend = backend_of(x);
  const Steps steps{length, reverse};
  const Array dgates = Array::empty_like(states.gates);
  LstmGradients gradients;
  Array& dc = gradients.dc0;  // of the cell after the step at hand, in the end of the first one
  gradients.dh0 = Array::empty(h0.shape(), x.dtype(), x.device());
  dc = Array::empty(c0.shape(), x.dtype(), x.device());
  if (dlast_cell.defined()) backend.copy(dlast_cell, dc);
  else backend.fill(dc, 0);
  // Of the states after each step; where none is given, one place serves all.
  const Array dstates = dhidden.defined() ? Array::empty(dhidden.shape(), x.dtype(), x.device()) : gradients.dh0;
  if (dhidden.defined()) backend.copy(dhidden, dstates);
  else backend.fill(dstates, 0);
  for (int64_t i = length - 1; i >= 0; --i) {
    const int64_t t = steps[i];
    const Array dh = dhidden.defined() ? dstates.select(0, t) : dstates;
    if (i + 1 < length)
      backend.matmul(dgates.select(0, steps[i + 1]), weights.w_hh, dh, /*accumulate=*/dhidden.defined());
    backend.lstm_cell_backward(dh, states.gates.select(0, t), before(c0, states.cells, steps, i),
                               states.cells.select(0, t), dc, dgates.select(0, t));
  }
  backend.matmul(dgates.select(0, steps[0]), weights.w_hh, gradients.dh0, /*accumulate=*/false);

  const Array all = flat(dgates), all_transposed = all.transpose(0, 1);
  gradients.dx = matmul(dgates, weights.w_ih);
  gradients.dw_ih = matmul(all_transposed, flat(x));
  // Step i had the state after step i - 1 as its input, the first one h0.
  gradients.dw_hh = matmul(dgates.select(0, steps[0]).transpose(0, 1), h0);
  if (length > 1) {
    const int64_t from = reverse ? 0 : 1, to = reverse ? length - 1 : length, earlier = reverse ? 1 : -1;
    backend.matmul(flat(dgates.slice(0, from, to)).transpose(0, 1),
                   flat(states.hidden.slice(0, from + earlier, to + earlier)), gradients.dw_hh, /*accumulate=*/true);
  }
  if (weights.b_ih.defined()) gradients.dbias = reduce(ReduceOp::sum, all, 1u, false, x.dtype());
  return gradients;
}

}  // namespace gradus::ops
