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

LstmStates lstm(const Array& x, const Array& h0, const Array& c0, const LstmWeights& weights, bool reverse) {
  const Shape shape = {x.shape()[0], x.shape()[1], h0.shape()[1]};
  const Array bias = weights.b_ih.defined() ? binary(add, weights.b_ih, weights.b_hh) : Array();
  const auto states_like = [&] { return x.new_empty(shape); };
  LstmStates states{states_like(), states_like(), linear(x, weights.w_ih, bias)};
  backend_of(x).lstm_sequence({states.gates, weights.w_hh, h0, c0, reverse, states.cells, states.hidden});
  return states;
}

LstmGradients lstm_backward(const Array& dhidden, const Array& dlast_cell, const Array& x, const Array& h0,
                            const Array& c0, const LstmWeights& weights, const LstmStates& states, bool reverse,
                            bool need_dx) {
  const int64_t length = x.shape()[0], first = reverse ? length - 1 : 0;
  Backend& backend = backend_of(x);
  const Array dgates = Array::empty_like(states.gates);
  LstmGradients gradients;
  gradients.dh0 = x.new_empty(h0.shape());
  gradients.dc0 = x.new_empty(c0.shape());
  if (dlast_cell.defined()) backend.copy(dlast_cell, gradients.dc0);
  else backend.fill(gradients.dc0, 0);
  backend.lstm_sequence_backward(
      {dhidden, states.gates, weights.w_hh, c0, states.cells, reverse, gradients.dc0, dgates, gradients.dh0});

  const Array all = flat(dgates), all_transposed = all.transpose(0, 1);
  if (need_dx) gradients.dx = matmul(dgates, weights.w_ih);
  gradients.dw_ih = matmul(all_transposed, flat(x));
  // The state input of a step is the hidden state of the step before; for the first step it is h0.
  gradients.dw_hh = matmul(dgates.select(0, first).transpose(0, 1), h0);
  if (length > 1) {
    const int64_t from = reverse ? 0 : 1, to = reverse ? length - 1 : length, earlier = reverse ? 1 : -1;
    backend.matmul(flat(dgates.slice(0, from, to)).transpose(0, 1),
                   flat(states.hidden.slice(0, from + earlier, to + earlier)), gradients.dw_hh, /*accumulate=*/true);
  }
  if (weights.b_ih.defined()) gradients.dbias = reduce(ReduceOp::sum, all, 1u, false, x.dtype());
  return gradients;
}

}  // namespace gradus::ops
