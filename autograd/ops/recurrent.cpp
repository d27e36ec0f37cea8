#include <gradus/autograd/ops/recurrent.h>

#include <gradus/autograd/composed.h>
#include <gradus/autograd/engine.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/matmul.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/ops/nn/sequence.h>

namespace gradus {
namespace {

// lstm_sequence composed of differentiable operators, for second derivatives.
std::tuple<Tensor, Tensor> lstm_by_steps(const TensorList& in, bool reverse) {
  const TensorList steps = unbind(linear(in[0], in[3], in[5]));
  TensorList hidden(steps.size());
  Tensor h = in[1], c = in[2];
  for (size_t i = 0; i < steps.size(); ++i) {
    const size_t t = reverse ? steps.size() - 1 - i : i;
    std::tie(h, c) = lstm_step(steps[t], h, c, in[4], in[6]);
    hidden[t] = h;
  }
  return {stack(hidden), c};
}

struct Lstm final : Node {
  Saved x{this, "x"}, h0{this, "h0"}, c0{this, "c0"}, w_ih{this, "w_ih"}, w_hh{this, "w_hh"};
  Saved b_ih{this, "b_ih"}, b_hh{this, "b_hh"}, hidden{this, "hidden"}, cells{this, "cells"}, gates{this, "gates"};
  bool reverse = false;

  std::tuple<Array, Array> forward(const Array& X, const Array& H0, const Array& C0, const Array& W_ih,
                                   const Array& W_hh, const Array& B_ih, const Array& B_hh, bool reverse) {
    const ops::LstmStates states = ops::lstm(X, H0, C0, {W_ih, W_hh, B_ih, B_hh}, reverse);
    if (!edges().empty()) {
      Saved* const inputs[] = {&x, &h0, &c0, &w_ih, &w_hh, &b_ih, &b_hh};
      for (size_t i = 0; i < std::size(inputs); ++i) *inputs[i] = input(i);
      hidden = own(states.hidden), cells = states.cells, gates = states.gates;
      this->reverse = reverse;
    }
    return {states.hidden, states.cells.select(0, reverse ? 0 : -1)};
  }

  Grads backward_all(const Grads& dys) override {
    if (GradMode::is_enabled()) return backward_by_steps(dys);
    const auto numbers = [](const Tensor& dy) { return dy.defined() ? dy.array() : Array(); };
    const ops::LstmGradients gradients =
        ops::lstm_backward(numbers(dys[0]), numbers(dys[1]), x.array(), h0.array(), c0.array(),
                           {w_ih.array(), w_hh.array(), b_ih.array(), b_hh.array()},
                           {hidden.array(), cells.array(), gates.array()}, reverse, needs_grad(0));
    const Array* const results[] = {&gradients.dx,    &gradients.dh0,   &gradients.dc0,  &gradients.dw_ih,
                                    &gradients.dw_hh, &gradients.dbias, &gradients.dbias};
    Grads wanted(std::size(results));
    for (size_t i = 0; i < wanted.size(); ++i)
      if (needs_grad(i)) wanted[i] = Tensor(*results[i]);
    return wanted;
  }

  // Computes gradients that are differentiable, through lstm_by_steps. Differentiating with respect to views of the
  // inputs gives a separate gradient for each, even if the same tensor was passed as several inputs.
  Grads backward_by_steps(const Grads& dys) {
    TensorList inputs, wanted;
    for (const Saved* saved : {&x, &h0, &c0, &w_ih, &w_hh, &b_ih, &b_hh}) {
      const Tensor tensor = (*saved)();
      inputs.push_back(tensor.defined() ? tensor.view(tensor.sizes()) : tensor);
      if (needs_grad(inputs.size() - 1)) wanted.push_back(inputs.back());
    }
    const auto [all_hidden, last_cell] = lstm_by_steps(inputs, reverse);
    TensorList outputs, gradients;
    if (dys[0].defined()) outputs.push_back(all_hidden), gradients.push_back(dys[0]);
    if (dys[1].defined()) outputs.push_back(last_cell), gradients.push_back(dys[1]);
    const TensorList found = autograd::grad(outputs, wanted, gradients, /*retain_graph=*/true, /*create_graph=*/true,
                                            /*allow_unused=*/true);
    Grads result(inputs.size());
    for (size_t i = 0, next = 0; i < inputs.size(); ++i)
      if (needs_grad(i)) result[i] = found[next++];
    return result;
  }
};

}  // namespace

std::tuple<Tensor, Tensor> lstm_step(const Tensor& from_input, const Tensor& h, const Tensor& c, const Tensor& w_hh,
                                     const Tensor& b_hh) {
  OpScope op("lstm_step", Loc{});
  const auto next = [](const Tensor& from_input, const Tensor& from_state, const Tensor& c) {
    const TensorList gates = chunk(from_input + from_state, 4, -1);
    const Tensor input = sigmoid(gates[0]), forget = sigmoid(gates[1]), output = sigmoid(gates[3]);
    const Tensor cell = forget * c + input * tanh(gates[2]);
    return std::tuple{output * tanh(cell), cell};
  };
  return composed(op, next, from_input, linear(h, w_hh, b_hh), c);
}

std::tuple<Tensor, Tensor> lstm_sequence(const Tensor& x, const Tensor& h0, const Tensor& c0, const Tensor& w_ih,
                                         const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, bool reverse,
                                         Loc where) {
  OpScope op("lstm", where);
  GRADUS_CHECK(x.dim() == 3 && x.size(0) > 0, ShapeError, "x must be (L, N, I) with steps, got shape ", x.sizes());
  GRADUS_CHECK(w_ih.dim() == 2 && w_ih.size(0) % 4 == 0 && w_ih.size(1) == x.size(2), ShapeError, "w_ih must be (4 H, ",
               x.size(2), ") for x of shape ", x.sizes(), ", got shape ", w_ih.sizes());
  const int64_t size = w_ih.size(0) / 4;
  const auto check = [](const Tensor& tensor, const Shape& wanted, const char* name) {
    GRADUS_CHECK(tensor.sizes() == wanted, ShapeError, name, " must be ", wanted, ", got shape ", tensor.sizes());
  };
  check(w_hh, {4 * size, size}, "w_hh");
  check(h0, {x.size(1), size}, "h0");
  check(c0, {x.size(1), size}, "c0");
  GRADUS_CHECK(b_ih.defined() == b_hh.defined(), ValueError, "give both biases or none");
  if (b_ih.defined()) check(b_ih, {4 * size}, "b_ih"), check(b_hh, {4 * size}, "b_hh");
  for (const Tensor* tensor : {&h0, &c0, &w_ih, &w_hh, &b_ih, &b_hh})
    GRADUS_CHECK(!tensor->defined() || op.type_of(*tensor) == op.type_of(x), DTypeError, "x is ", x.dtype(),
                 " but another argument ", tensor->dtype());
  return apply<Lstm>(op, x, h0, c0, w_ih, w_hh, b_ih, b_hh, reverse);
}

}  // namespace gradus
