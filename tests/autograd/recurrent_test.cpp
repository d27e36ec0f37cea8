// The fused LSTM compared with the composition of its steps.
#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/autograd/ops/nn/sequence.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

constexpr int64_t kLength = 5, kBatch = 3, kInput = 4, kHidden = 6;

struct Inputs {
  Tensor x, h0, c0, w_ih, w_hh, b_ih, b_hh;
  TensorList all() const { return {x, h0, c0, w_ih, w_hh, b_ih, b_hh}; }
};

Inputs random_inputs(DType dtype = kDouble) {
  manual_seed(3);
  auto make = [&](IntArrayRef size) { return (randn(size, dtype) * 0.5).detach().set_requires_grad(true); };
  return {
      make({kLength, kBatch, kInput}), make({kBatch, kHidden}), make({kBatch, kHidden}), make({4 * kHidden, kInput}),
      make({4 * kHidden, kHidden}),    make({4 * kHidden}),     make({4 * kHidden})};
}

// lstm_sequence as a composition of other operators, one time step after another.
std::tuple<Tensor, Tensor> composed(const Inputs& in, bool reverse) {
  Tensor h = in.h0, c = in.c0;
  TensorList hidden(kLength);
  for (int64_t i = 0; i < kLength; ++i) {
    const int64_t t = reverse ? kLength - 1 - i : i;
    std::tie(h, c) = lstm_step(linear(in.x[t], in.w_ih, in.b_ih), h, c, in.w_hh, in.b_hh);
    hidden[static_cast<size_t>(t)] = h;
  }
  return {stack(hidden), c};
}

std::tuple<Tensor, Tensor> fused(const Inputs& in, bool reverse) {
  return lstm_sequence(in.x, in.h0, in.c0, in.w_ih, in.w_hh, in.b_ih, in.b_hh, reverse);
}

// A scalar that depends on all outputs, with a different weight for each element.
Tensor total(const std::tuple<Tensor, Tensor>& outputs, bool of_hidden, bool of_cell) {
  const auto weighted = [](const Tensor& t) {
    return (t * arange(1, 1 + t.numel(), 1, TensorOptions(t.dtype())).view(t.sizes()).cos()).sum();
  };
  if (!of_cell) return weighted(std::get<0>(outputs));
  if (!of_hidden) return weighted(std::get<1>(outputs));
  return weighted(std::get<0>(outputs)) + weighted(std::get<1>(outputs));
}

}  // namespace

TEST_CASE("the fused LSTM has the values and gradients of its steps") {
  const Inputs in = random_inputs();
  for (bool reverse : {false, true})
    for (int used = 1; used < 4; ++used) {
      const auto ours = fused(in, reverse), wanted = composed(in, reverse);
      CHECK(std::get<0>(ours).allclose(std::get<0>(wanted), 1e-12, 1e-12));
      CHECK(std::get<1>(ours).allclose(std::get<1>(wanted), 1e-12, 1e-12));
      const bool of_hidden = used & 1, of_cell = used & 2;
      const TensorList a = autograd::grad({total(ours, of_hidden, of_cell)}, in.all());
      const TensorList b = autograd::grad({total(wanted, of_hidden, of_cell)}, in.all());
      for (size_t i = 0; i < a.size(); ++i) CHECK(a[i].allclose(b[i], 1e-10, 1e-12));
    }
}

TEST_CASE("gradients of the fused LSTM can be differentiated") {
  const Inputs in = random_inputs();
  for (bool reverse : {false, true}) {
    auto second = [&](const Tensor& loss) {
      const TensorList first = autograd::grad({loss}, in.all(), {}, true, true);
      Tensor sum = zeros({}, kDouble);
      for (const Tensor& gradient : first) sum = sum + gradient.square().sum();
      return autograd::grad({sum}, in.all());
    };
    const TensorList a = second(total(fused(in, reverse), true, true));
    const TensorList b = second(total(composed(in, reverse), true, true));
    for (size_t i = 0; i < a.size(); ++i) CHECK(a[i].allclose(b[i], 1e-9, 1e-11));
  }
}

TEST_CASE("one tensor as two arguments of the fused LSTM gets both gradients") {
  Inputs in = random_inputs();
  in.c0 = in.h0;
  in.b_hh = in.b_ih;
  const TensorList wanted_of = {in.h0, in.b_ih};
  for (bool create_graph : {false, true}) {
    const TensorList a = autograd::grad({total(fused(in, false), true, true)}, wanted_of, {}, true, create_graph);
    const TensorList b = autograd::grad({total(composed(in, false), true, true)}, wanted_of);
    for (size_t i = 0; i < a.size(); ++i) CHECK(a[i].allclose(b[i], 1e-10, 1e-12));
  }
}

TEST_CASE("the fused LSTM without biases, and with only some gradients required") {
  Inputs in = random_inputs();
  in.x = in.x.detach(), in.h0 = in.h0.detach();
  const auto [hidden, cell] = lstm_sequence(in.x, in.h0, in.c0, in.w_ih, in.w_hh);
  (hidden.sum() + cell.sum()).backward();
  CHECK_FALSE(in.x.grad().defined());
  CHECK(in.w_hh.grad().sizes() == in.w_hh.sizes());
  CHECK(in.c0.grad().defined());
  const Inputs zero_bias = {
      in.x, in.h0, in.c0, in.w_ih, in.w_hh, zeros({4 * kHidden}, kDouble), zeros({4 * kHidden}, kDouble)};
  CHECK(std::get<0>(composed(zero_bias, false)).allclose(hidden, 1e-12, 1e-12));
}

TEST_CASE("wrong arguments of the fused LSTM are named in errors") {
  const Inputs in = random_inputs();
  CHECK_THROWS_AS(lstm_sequence(in.x[0], in.h0, in.c0, in.w_ih, in.w_hh), ShapeError);
  CHECK_THROWS_AS(lstm_sequence(in.x, in.h0, in.c0, in.w_hh, in.w_hh), ShapeError);
  CHECK_THROWS_AS(lstm_sequence(in.x, in.h0.t(), in.c0, in.w_ih, in.w_hh), ShapeError);
  CHECK_THROWS_AS(lstm_sequence(in.x, in.h0, in.c0, in.w_ih, in.w_ih), ShapeError);
  CHECK_THROWS_AS(lstm_sequence(in.x, in.h0, in.c0, in.w_ih, in.w_hh, in.b_ih), ValueError);
  CHECK_THROWS_AS(lstm_sequence(in.x, in.h0, in.c0.to(kFloat), in.w_ih, in.w_hh), DTypeError);
}
