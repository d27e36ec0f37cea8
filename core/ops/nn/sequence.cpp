#include <gradus/core/ops/nn/nn.h>

#include <algorithm>

#include <gradus/core/op_lists.h>

namespace gradus::ops {

using enum BinaryOp;

// An uninitialised dense array of this shape, whose axes have the same order in memory as the axes of x.
static Array empty_in_order_of(const Array& x, const Shape& shape) {
  const Dims order = axes_by_stride(x.strides());
  Strides strides = Dims::filled(x.ndim(), 1);
  int64_t step = 1;
  for (int i = order.size() - 1; i >= 0; --i) strides[order[i]] = step, step *= std::max<int64_t>(shape[order[i]], 1);
  return Array::empty_strided(shape, strides, x.dtype(), x.device());
}

AttentionResult attention(const Array& q, const Array& k, const Array& v, const Array& mask, AttentionRule rule,
                          Generator& generator) {
  const Shape shape = {q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]};
  AttentionResult result;
  result.y = empty_in_order_of(q, {shape[0], shape[1], shape[2], v.shape()[3]});
  result.weights = q.new_empty(shape);
  if (rule.dropout > 0) {
    result.kept = q.new_empty(shape, DType::boolean);
    rule.random = generator.next();
  }
  backend_of(q).attention({.q = q,
                           .k = k,
                           .v = v,
                           .mask = mask.defined() ? mask.expand(shape) : mask,
                           .rule = rule,
                           .weights = result.weights,
                           .kept = result.kept,
                           .y = result.y});
  return result;
}

void attention_backward(const Array& dy, const Array& q, const Array& k, const Array& v, const AttentionResult& result,
                        const AttentionRule& rule, const Array& dq, const Array& dk, const Array& dv) {
  backend_of(q).attention_backward({dy, q, k, v, result.weights, result.kept, result.y, rule, dq, dk, dv});
}

// (L, N, C) reshaped to (L N, C).
static Array flat(const Array& x) { return contiguous(x).view({x.shape()[0] * x.shape()[1], x.shape()[2]}); }

RecurrentStates recurrent(RecurrentCell cell, const Array& x, const Array& h0, const Array& c0,
                          const RecurrentWeights& weights, bool reverse) {
  check_same_device({&x, &h0, &c0, &weights.w_ih, &weights.w_hh, &weights.b_ih, &weights.b_hh, &weights.w_hr});
  const int64_t length = x.shape()[0], batch = x.shape()[1], rows = weights.w_hh.shape()[0];
  const int64_t size = rows / gates_of(cell);
  const bool is_lstm = cell == RecurrentCell::lstm, is_gru = cell == RecurrentCell::gru;
  const bool biased = weights.b_ih.defined();
  Array bias = biased ? binary(add, weights.b_ih, weights.b_hh) : Array();
  // The reset gate applies to the candidate's second bias, so that this bias belongs to the sum over the hidden state.
  if (is_gru && biased) bias = cat({bias.slice(0, 0, 2 * size), weights.b_ih.slice(0, 2 * size, rows)}, 0);
  RecurrentStates states;
  states.gates = linear(x, weights.w_ih, bias);
  if (is_gru) {
    const Array second = biased ? weights.b_hh.slice(0, 2 * size, rows) : zeros({size}, x.dtype(), x.device());
    states.gates = cat({states.gates.slice(2, 0, 2 * size), second.expand({length, batch, size}),
                        states.gates.slice(2, 2 * size, rows)},
                       2);
  }
  // An RNN's only gate is its hidden state.
  states.hidden = is_lstm || is_gru ? x.new_empty({length, batch, h0.shape()[1]}) : states.gates;
  states.cells = is_lstm ? x.new_empty({length, batch, size}) : states.hidden;
  states.outputs = weights.w_hr.defined() ? x.new_empty({length, batch, size}) : states.hidden;
  backend_of(x).recurrent_sequence({cell, states.gates, weights.w_hh, weights.w_hr, h0, is_lstm ? c0 : h0, reverse,
                                    states.cells, states.outputs, states.hidden});
  return states;
}

RecurrentGradients recurrent_backward(RecurrentCell cell, const Array& dhidden, const Array& dlast_cell, const Array& x,
                                      const Array& h0, const Array& c0, const RecurrentWeights& weights,
                                      const RecurrentStates& states, bool reverse, bool need_dx) {
  const int64_t length = x.shape()[0], batch = x.shape()[1], rows = weights.w_hh.shape()[0];
  const int64_t size = rows / gates_of(cell);
  const bool is_lstm = cell == RecurrentCell::lstm, is_gru = cell == RecurrentCell::gru;
  Backend& backend = backend_of(x);
  const Array dgates = Array::empty_like(states.gates);
  RecurrentGradients gradients;
  gradients.dh0 = x.new_empty(h0.shape());
  gradients.dc0 = x.new_empty({batch, size});
  if (dlast_cell.defined()) backend.copy(dlast_cell, gradients.dc0);
  else backend.fill(gradients.dc0, 0);
  const Array dprojected = weights.w_hr.defined() ? Array::empty_like(states.hidden) : Array();
  backend.recurrent_sequence_backward({cell, dhidden, states.gates, weights.w_hh, weights.w_hr, is_lstm ? c0 : h0,
                                       states.cells, reverse, gradients.dc0, dgates, dprojected, gradients.dh0});

  // The columns of a GRU's gradients that belong to sums over the hidden state and over the input.
  const Array all = flat(dgates), of_state = all.slice(1, 0, rows);
  const Array of_input = is_gru ? cat({all.slice(1, 0, 2 * size), all.slice(1, 3 * size, 4 * size)}, 1) : all;
  if (need_dx) gradients.dx = matmul(of_input, weights.w_ih).view(x.shape());
  gradients.dw_ih = matmul(of_input.transpose(0, 1), flat(x));
  if (weights.b_ih.defined()) {
    const auto sum = [&](const Array& rows) { return reduce(ReduceOp::sum, rows, 1u, false, x.dtype()); };
    gradients.db_ih = sum(of_input);
    gradients.db_hh = is_gru ? sum(of_state) : gradients.db_ih;
  }
  // The state input of a step is the hidden state of the step before; for the first step it is h0.
  const auto steps = [&](const Array& all, int64_t from, int64_t to) { return all.slice(0, from * batch, to * batch); };
  const int64_t first = reverse ? length - 1 : 0;
  gradients.dw_hh = matmul(steps(of_state, first, first + 1).transpose(0, 1), h0);
  if (length > 1) {
    const int64_t from = reverse ? 0 : 1, to = reverse ? length - 1 : length, earlier = reverse ? 1 : -1;
    const Array before = steps(flat(states.hidden), from + earlier, to + earlier);
    backend.matmul(steps(of_state, from, to).transpose(0, 1), before, gradients.dw_hh, /*accumulate=*/true);
  }
  if (weights.w_hr.defined()) gradients.dw_hr = matmul(flat(dprojected).transpose(0, 1), flat(states.outputs));
  return gradients;
}

}  // namespace gradus::ops
