// The fused recurrent layers compared with the composition of their steps.
#include <functional>
#include <string>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/autograd/ops/nn/sequence.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

constexpr int64_t kLength = 5, kBatch = 3, kInput = 4, kHidden = 6;

/// A layer and its inputs. Tensors that the cell does not have are undefined.
struct Layer {
  RecurrentCell cell;
  bool reverse;
  Tensor x;
  RecurrentState first;
  RecurrentWeights weights;

  TensorList all() const {
    TensorList tensors = {x, first.hidden, weights.w_ih, weights.w_hh, weights.b_ih, weights.b_hh};
    for (const Tensor& tensor : {first.cell, weights.w_hr})
      if (tensor.defined()) tensors.push_back(tensor);
    return tensors;
  }
};

Layer random_layer(RecurrentCell cell, bool reverse, int64_t projection = 0) {
  manual_seed(3);
  auto make = [&](IntArrayRef size) { return (randn(size, kDouble) * 0.5).detach().set_requires_grad(true); };
  const int64_t rows = gates_of(cell) * kHidden, state = projection > 0 ? projection : kHidden;
  const bool is_lstm = cell == RecurrentCell::lstm;
  return {cell,
          reverse,
          make({kLength, kBatch, kInput}),
          {make({kBatch, state}), is_lstm ? make({kBatch, kHidden}) : Tensor()},
          {make({rows, kInput}), make({rows, state}), make({rows}), make({rows}),
           projection > 0 ? make({projection, kHidden}) : Tensor()}};
}

/// Layers of all cells, in both directions, and an LSTM that projects its outputs.
std::vector<Layer> layers() {
  std::vector<Layer> all;
  for (bool reverse : {false, true}) {
    for (RecurrentCell cell :
         {RecurrentCell::rnn_tanh, RecurrentCell::rnn_relu, RecurrentCell::lstm, RecurrentCell::gru})
      all.push_back(random_layer(cell, reverse));
    all.push_back(random_layer(RecurrentCell::lstm, reverse, 2));
  }
  return all;
}

/// The hidden states, and the last state.
TensorList listed(const Tensor& hidden, const RecurrentState& last) {
  return last.cell.defined() ? TensorList{hidden, last.hidden, last.cell} : TensorList{hidden, last.hidden};
}

TensorList fused(const Layer& layer) {
  RecurrentState state = layer.first;
  const Tensor hidden = recurrent_sequence(layer.cell, layer.x, state, layer.weights, layer.reverse);
  return listed(hidden, state);
}

/// The message of a sequence whose arguments `change` has changed.
std::string message_of(RecurrentCell cell, int64_t projection, const std::function<void(Layer&)>& change) {
  Layer layer = random_layer(cell, false, projection);
  change(layer);
  try {
    fused(layer);
  } catch (const Error& error) { return error.what(); }
  return "none";
}

// recurrent_sequence as a composition of other operators, one time step after another.
TensorList composed(const Layer& layer) {
  RecurrentState state = layer.first;
  TensorList hidden(kLength);
  for (int64_t i = 0; i < kLength; ++i) {
    const int64_t t = layer.reverse ? kLength - 1 - i : i;
    state =
        recurrent_step(layer.cell, linear(layer.x[t], layer.weights.w_ih, layer.weights.b_ih), state, layer.weights);
    hidden[static_cast<size_t>(t)] = state.hidden;
  }
  return listed(stack(hidden), state);
}

// A scalar that depends on the outputs whose bit is set in `used`, with a different weight for each element.
Tensor total(const TensorList& outputs, unsigned used = ~0u) {
  Tensor sum = zeros({}, kDouble);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!(used >> i & 1)) continue;
    const Tensor weights = arange(1, 1 + outputs[i].numel(), 1, TensorOptions(kDouble)).view(outputs[i].sizes()).cos();
    sum = sum + (outputs[i] * weights).sum();
  }
  return sum;
}

void check_close(const TensorList& ours, const TensorList& wanted, double tolerance) {
  REQUIRE(ours.size() == wanted.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    INFO("tensor " << i);
    REQUIRE(ours[i].defined() == wanted[i].defined());
    if (ours[i].defined()) CHECK(ours[i].allclose(wanted[i], tolerance, tolerance / 100));
  }
}

}  // namespace

TEST_CASE("each result of a recurrent layer has its own gradients, with and without a graph of them") {
  for (const Layer& layer : layers()) {
    const size_t results = fused(layer).size();
    for (size_t k = 0; k < results; ++k)
      for (const bool create_graph : {false, true}) {
        const auto gradients = [&](TensorList (*run)(const Layer&)) {
          return autograd::grad({run(layer)[k].square().sum()}, layer.all(), {}, create_graph, create_graph, true);
        };
        const TensorList found = gradients(fused), wanted = gradients(composed);
        for (size_t i = 0; i < found.size(); ++i) {
          CAPTURE(k, i, create_graph);
          REQUIRE(wanted[i].defined());
          CHECK(found[i].detach().allclose(wanted[i].detach(), 1e-10, 1e-12));
        }
      }
  }
}

TEST_CASE("a recurrent sequence names the argument that does not fit") {
  struct Wrong {
    RecurrentCell cell;
    int64_t projection;
    std::function<void(Layer&)> change;
    const char* message;
  };
  using enum RecurrentCell;
  const auto with = [](auto... sizes) { return ones({int64_t{sizes}...}, kDouble); };
  const std::vector<Wrong> table = {
      {lstm, 0, [&](Layer& l) { l.x = with(0, 3, 4); }, "[lstm] x must be (L, N, I) with steps, got shape (0, 3, 4)"},
      {gru, 0, [&](Layer& l) { l.x = with(5, 4); }, "[gru] x must be (L, N, I) with steps, got shape (5, 4)"},
      {lstm, 0, [&](Layer& l) { l.weights.w_ih = with(24); }, "w_ih must be (4 H, 4)"},
      {lstm, 0, [&](Layer& l) { l.weights.w_ih = with(23, 4); }, "w_ih must be (4 H, 4)"},
      {gru, 0, [&](Layer& l) { l.weights.w_ih = with(18, 5); }, "w_ih must be (3 H, 4) for x of shape (5, 3, 4)"},
      {rnn_tanh, 0, [&](Layer& l) { l.weights.w_hh = with(6, 5); }, "[rnn] w_hh must be (6, 6), got shape (6, 5)"},
      {lstm, 2, [&](Layer& l) { l.weights.w_hh = with(24, 6); }, "w_hh must be (24, 2), got shape (24, 6)"},
      {lstm, 2, [&](Layer& l) { l.weights.w_hr = with(2, 5); }, "w_hr must be (2, 6), got shape (2, 5)"},
      {lstm, 2, [&](Layer& l) { l.weights.w_hr = with(12); }, "w_hr must be (6, 6), got shape (12,)"},
      {gru, 0, [&](Layer& l) { l.weights.w_hr = with(6, 6); }, "only an LSTM projects its outputs"},
      {lstm, 2, [&](Layer& l) { l.first.hidden = with(3, 6); }, "h0 must be (3, 2), got shape (3, 6)"},
      {lstm, 2, [&](Layer& l) { l.first.cell = with(3, 2); }, "c0 must be (3, 6), got shape (3, 2)"},
      {lstm, 0, [&](Layer& l) { l.weights.b_ih = Tensor(); }, "give both biases or none"},
      {rnn_relu, 0, [&](Layer& l) { l.weights.b_hh = Tensor(); }, "give both biases or none"},
      {gru, 0, [&](Layer& l) { l.weights.b_ih = with(6); }, "b_ih must be (18,), got shape (6,)"},
      {gru, 0, [&](Layer& l) { l.weights.b_hh = with(6); }, "b_hh must be (18,), got shape (6,)"},
      {gru, 0, [&](Layer& l) { l.weights.b_hh = with(18).to(kFloat); }, "x is float64 but another argument float32"},
      {lstm, 0, [&](Layer& l) { l.first.cell = with(3, 6).to(kFloat); }, "x is float64 but another argument float32"},
      {lstm, 2, [&](Layer& l) { l.weights.w_hr = with(2, 6).to(kFloat); },
       "x is float64 but another argument float32"}};
  for (const Wrong& wrong : table)
    CHECK_THAT(message_of(wrong.cell, wrong.projection, wrong.change), test::contains(wrong.message));
  const auto without_biases = [](Layer& l) { l.weights.b_ih = l.weights.b_hh = Tensor(); };
  CHECK(message_of(lstm, 2, without_biases) == "none");
}

TEST_CASE("fused recurrent layers have the values and gradients of their steps") {
  for (const Layer& layer : layers()) {
    INFO(kRecurrentCellNames[static_cast<size_t>(layer.cell)] << ", reverse " << layer.reverse);
    check_close(fused(layer), composed(layer), 1e-10);
    for (unsigned used = 1; used < 1u << composed(layer).size(); ++used) {
      const auto gradients = [&](const TensorList& outputs) {
        return autograd::grad({total(outputs, used)}, layer.all(), {}, std::nullopt, false, /*allow_unused=*/true);
      };
      const TensorList ours = gradients(fused(layer)), wanted = gradients(composed(layer));
      for (size_t i = 0; i < ours.size(); ++i)  // a gradient that is 0 may be undefined in the composition
        if (wanted[i].defined()) CHECK(ours[i].allclose(wanted[i], 1e-10, 1e-12));
    }
  }
}

TEST_CASE("gradients of fused recurrent layers can be differentiated") {
  for (const Layer& layer : layers()) {
    INFO(kRecurrentCellNames[static_cast<size_t>(layer.cell)] << ", reverse " << layer.reverse);
    auto second = [&](const Tensor& loss) {
      const TensorList first = autograd::grad({loss}, layer.all(), {}, true, true);
      Tensor sum = zeros({}, kDouble);
      for (const Tensor& gradient : first) sum = sum + gradient.square().sum();
      return autograd::grad({sum}, layer.all());
    };
    check_close(second(total(fused(layer))), second(total(composed(layer))), 1e-9);
  }
}

TEST_CASE("gradients of fused recurrent layers are the derivatives") {
  for (const Layer& layer : layers()) {
    if (layer.cell == RecurrentCell::rnn_relu) continue;  // finite differences may cross 0
    INFO(kRecurrentCellNames[static_cast<size_t>(layer.cell)] << ", reverse " << layer.reverse);
    CHECK(autograd::gradcheck([&](const TensorList&) { return fused(layer); }, layer.all()));
  }
}

TEST_CASE("one tensor as two arguments of a fused recurrent layer gets both gradients") {
  Layer layer = random_layer(RecurrentCell::lstm, false);
  layer.first.cell = layer.first.hidden;
  layer.weights.b_hh = layer.weights.b_ih;
  const TensorList wanted_of = {layer.first.hidden, layer.weights.b_ih};
  for (bool create_graph : {false, true})
    check_close(autograd::grad({total(fused(layer))}, wanted_of, {}, true, create_graph),
                autograd::grad({total(composed(layer))}, wanted_of), 1e-10);
}

TEST_CASE("fused recurrent layers without biases, and with only some gradients required") {
  for (Layer layer : layers()) {
    INFO(kRecurrentCellNames[static_cast<size_t>(layer.cell)] << ", reverse " << layer.reverse);
    layer.x = layer.x.detach(), layer.first.hidden = layer.first.hidden.detach();
    layer.weights.b_ih = layer.weights.b_hh = Tensor();
    const TensorList outputs = fused(layer);
    total(outputs).backward();
    CHECK_FALSE(layer.x.grad().defined());
    CHECK(layer.weights.w_hh.grad().sizes() == layer.weights.w_hh.sizes());
    layer.weights.b_ih = layer.weights.b_hh = zeros({gates_of(layer.cell) * kHidden}, kDouble);
    check_close(outputs, composed(layer), 1e-10);
  }
}

TEST_CASE("wrong arguments of a fused recurrent layer are named in errors") {
  const Layer good = random_layer(RecurrentCell::lstm, false);
  Layer layer = good;
  layer.x = good.x[0];
  CHECK_THROWS_AS(fused(layer), ShapeError);
  layer = good, layer.weights.w_ih = good.weights.w_hh;
  CHECK_THROWS_AS(fused(layer), ShapeError);
  layer = good, layer.first.hidden = good.first.hidden.t();
  CHECK_THROWS_AS(fused(layer), ShapeError);
  layer = good, layer.weights.w_hh = good.weights.w_ih;
  CHECK_THROWS_AS(fused(layer), ShapeError);
  layer = good, layer.weights.b_hh = Tensor();
  CHECK_THROWS_AS(fused(layer), ValueError);
  layer = good, layer.first.cell = good.first.cell.to(kFloat);
  CHECK_THROWS_AS(fused(layer), DTypeError);
  layer = random_layer(RecurrentCell::gru, false), layer.weights.w_hr = good.weights.w_hh;
  CHECK_THROWS_AS(fused(layer), ValueError);
}
