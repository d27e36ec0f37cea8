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

// Columns [first H, last H) of gates (N, 4 H).
Array columns(const Array& gates, int64_t first, int64_t last) {
  const int64_t size = gates.shape()[1] / 4;
  return gates.slice(1, first * size, last * size);
}

// The element-wise part of the steps, each kernel over the whole batch.
class Cell {
 public:
  explicit Cell(const Array& like) : backend_(backend_of(like)), room_(Array::empty_like(like)) {}

  // gates, the sums that go into i, f, g and o, become those: c = f c_before + i g,  t = tanh(c),  h = o t.
  void forward(const Array& gates, const Array& c_before, const Array& c, const Array& t, const Array& h) const {
    for (const Array& sigmoids : {columns(gates, 0, 2), columns(gates, 3, 4)})
      backend_.unary(UnaryOp::sigmoid, sigmoids, sigmoids, {});
    const Array i = columns(gates, 0, 1), f = columns(gates, 1, 2), g = columns(gates, 2, 3), o = columns(gates, 3, 4);
    backend_.unary(UnaryOp::tanh, g, g, {});
    backend_.binary(BinaryOp::mul, f, c_before, c);
    backend_.binary(BinaryOp::mul, i, g, room_);
    backend_.binary(BinaryOp::add, c, room_, c);
    backend_.unary(UnaryOp::tanh, c, t, {});
    backend_.binary(BinaryOp::mul, o, t, h);
  }

  // The sums' gradients from dh and from dc, c's by way of the next step, which becomes c_before's:
  // dc += dh o (1 - t²);  di = dc g,  df = dc c_before,  dg = dc i,  do = dh t, each times its function's slope.
  void backward(const Array& dh, const Array& gates, const Array& c_before, const Array& t, const Array& dc,
                const Array& dgates) const {
    const Array i = columns(gates, 0, 1), g = columns(gates, 2, 3), o = columns(gates, 3, 4);
    const Array di = columns(dgates, 0, 1), df = columns(dgates, 1, 2), dg = columns(dgates, 2, 3);
    const Array d_o = columns(dgates, 3, 4);
    backend_.binary(BinaryOp::mul, dh, t, d_o);
    backend_.binary(BinaryOp::mul, dh, o, room_);
    backend_.unary_backward(UnaryOp::tanh, room_, t, room_, {});
    backend_.binary(BinaryOp::add, dc, room_, dc);
    backend_.binary(BinaryOp::mul, dc, g, di);
    backend_.binary(BinaryOp::mul, dc, c_before, df);
    backend_.binary(BinaryOp::mul, dc, i, dg);
    backend_.binary(BinaryOp::mul, dc, columns(gates, 1, 2), dc);
    for (auto [first, last] : {std::pair(0, 2), std::pair(3, 4)})
      backend_.unary_backward(UnaryOp::sigmoid, columns(dgates, first, last), columns(gates, first, last),
                              columns(dgates, first, last), {});
    backend_.unary_backward(UnaryOp::tanh, dg, g, dg, {});
  }

 private:
  Backend& backend_;
  Array room_;  // (N, H)
};

}  // namespace

LstmStates lstm(const Array& x, const Array& h0, const Array& c0, const LstmWeights& weights, bool reverse) {
  const int64_t length = x.shape()[0], batch = x.shape()[1], size = h0.shape()[1];
  Backend& backend = backend_of(x);
  const Array bias = weights.b_ih.defined() ? binary(BinaryOp::add, weights.b_ih, weights.b_hh) : Array();
  const Array w = contiguous(weights.w_hh.transpose(0, 1));  // (H, 4 H): products read its rows as they are
  const auto states_like = [&] { return Array::empty({length, batch, size}, x.dtype(), x.device()); };
  LstmStates states{states_like(), states_like(), states_like(), linear(x, weights.w_ih, bias)};
  const Steps steps{length, reverse};
  const Cell cell(states.cells.select(0, 0));
  for (int64_t i = 0; i < length; ++i) {
    const Array gates = states.gates.select(0, steps[i]);
    backend.matmul(before(h0, states.hidden, steps, i), w, gates, /*accumulate=*/true);
    cell.forward(gates, before(c0, states.cells, steps, i), states.cells.select(0, steps[i]),
                 states.tanh_cells.select(0, steps[i]), states.hidden.select(0, steps[i]));
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
  Array& dh = gradients.dh0;  // of the state after the step at hand, in the end of the first one
  Array& dc = gradients.dc0;
  dh = Array::empty(h0.shape(), x.dtype(), x.device());
  dc = Array::empty(c0.shape(), x.dtype(), x.device());
  if (dlast_cell.defined()) backend.copy(dlast_cell, dc);
  else backend.fill(dc, 0);
  const Cell cell(dh);
  for (int64_t i = length - 1; i >= 0; --i) {
    const int64_t t = steps[i];
    const bool last = i + 1 == length;
    if (dhidden.defined()) backend.copy(dhidden.select(0, t), dh);
    else if (last) backend.fill(dh, 0);
    if (!last) backend.matmul(dgates.select(0, steps[i + 1]), weights.w_hh, dh, /*accumulate=*/dhidden.defined());
    cell.backward(dh, states.gates.select(0, t), before(c0, states.cells, steps, i), states.tanh_cells.select(0, t), dc,
                  dgates.select(0, t));
  }
  backend.matmul(dgates.select(0, steps[0]), weights.w_hh, dh, /*accumulate=*/false);

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
