#include <gradus/core/ops/nn/nn.h>

#include <algorithm>

#include <gradus/core/binary_ops.h>

namespace gradus::ops {
namespace {

// An array of the given shape without gaps, whose axes have the same order in memory as x's.
Array empty_in_order_of(const Array& x, const Shape& shape) {
  const Dims order = axes_by_stride(x.strides());
  Strides strides = Dims::filled(x.ndim(), 1);
  int64_t step = 1;
  for (int i = order.size() - 1; i >= 0; --i) strides[order[i]] = step, step *= std::max<int64_t>(shape[order[i]], 1);
  return Array::empty_strided(shape, strides, x.dtype(), x.device());
}

}  // namespace

AttentionResult attention(const Array& q, const Array& k, const Array& v, const Array& mask, AttentionRule rule,
                          Generator& generator) {
  const Shape shape = {q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]};
  AttentionResult result;
  result.y = empty_in_order_of(q, {shape[0], shape[1], shape[2], v.shape()[3]});
  result.weights = Array::empty(shape, q.dtype(), q.device());
  if (rule.dropout > 0) {
    result.kept = Array::empty(shape, DType::boolean, q.device());
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
  backend_of(q).attention_backward({.dy = dy,
                                    .q = q,
                                    .k = k,
                                    .v = v,
                                    .weights = result.weights,
                                    .kept = result.kept,
                                    .y = result.y,
                                    .rule = rule,
                                    .dq = dq,
                                    .dk = dk,
                                    .dv = dv});
}

namespace {

// (L, N, C) reshaped to (L N, C).
Array flat(const Array& x) { return contiguous(x).view({x.shape()[0] * x.shape()[1], x.shape()[2]}); }

}  // namespace

LstmStates lstm(const Array& x, const Array& h0, const Array& c0, const LstmWeights& weights, bool reverse) {
  const Shape shape = {x.shape()[0], x.shape()[1], h0.shape()[1]};
  const Array bias = weights.b_ih.defined() ? binary(BinaryOp::add, weights.b_ih, weights.b_hh) : Array();
  const auto states_like = [&] { return Array::empty(shape, x.dtype(), x.device()); };
  LstmStates states{states_like(), states_like(), linear(x, weights.w_ih, bias)};
  backend_of(x).lstm_sequence({.gates = states.gates,
                               .w_hh = weights.w_hh,
                               .h0 = h0,
                               .c0 = c0,
                               .reverse = reverse,
                               .cells = states.cells,
                               .hidden = states.hidden});
  return states;
}

LstmGradients lstm_backward(const Array& dhidden, const Array& dlast_cell, const Array& x, const Array& h0,
                            const Array& c0, const LstmWeights& weights, const LstmStates& states, bool reverse,
                            bool need_dx) {
  const int64_t length = x.shape()[0], first = reverse ? length - 1 : 0;
  Backend& backend = backend_of(x);
  const Array dgates = Array::empty_like(states.gates);
  LstmGradients gradients;
  gradients.dh0 = Array::empty(h0.shape(), x.dtype(), x.device());
  gradients.dc0 = Array::empty(c0.shape(), x.dtype(), x.device());
  if (dlast_cell.defined()) backend.copy(dlast_cell, gradients.dc0);
  else backend.fill(gradients.dc0, 0);
  backend.lstm_sequence_backward({.dhidden = dhidden,
                                  .gates = states.gates,
                                  .w_hh = weights.w_hh,
                                  .c0 = c0,
                                  .cells = states.cells,
                                  .reverse = reverse,
                                  .dc = gradients.dc0,
                                  .dgates = dgates,
                                  .dh0 = gradients.dh0});

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
