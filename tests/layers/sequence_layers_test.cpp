// Recurrent layers and attention: names, states, shapes and errors. Their values are tested by op cases.
#include <gradus/autograd/autograd.h>
#include <gradus/graph/recorder.h>
#include <gradus/layers/layers.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/layers/printed.h>

#include <cmath>

using namespace gradus;
using gradus::test::printed;
using test::contains;

namespace {

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a cell that is reset draws its own parameters alone") {
  nn::GRUCell cell(2, 3);
  nn::Linear head = cell->register_module("head", nn::Linear(3, 2));
  const Tensor own = cell->weight_ih.detach().clone(), of_head = head->weight.detach().clone();
  cell->reset_parameters();
  CHECK(head->weight.detach().equal(of_head));
  CHECK_FALSE(cell->weight_ih.detach().equal(own));
}

TEST_CASE("recurrent layers have PyTorch's parameters and their initial range") {
  manual_seed(1);
  nn::LSTM lstm(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true));
  CHECK(lstm->named_parameters().keys() == Names{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                                                 "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
                                                 "bias_hh_l0_reverse", "weight_ih_l1", "weight_hh_l1", "bias_ih_l1",
                                                 "bias_hh_l1", "weight_ih_l1_reverse", "weight_hh_l1_reverse",
                                                 "bias_ih_l1_reverse", "bias_hh_l1_reverse"});
  CHECK(lstm->named_parameters()["weight_ih_l1"].sizes() == Shape({16, 8}));
  CHECK(nn::GRU(3, 4)->named_parameters()["weight_hh_l0"].sizes() == Shape({12, 4}));
  CHECK(nn::LSTM(nn::LSTMOptions(3, 4).proj_size(2))->named_parameters()["weight_hr_l0"].sizes() == Shape({2, 4}));
  for (const Tensor& parameter : lstm->parameters()) {
    CHECK(parameter.max().item<double>() <= 0.5);
    CHECK(parameter.min().item<double>() >= -0.5);
    CHECK(parameter.detach().abs().max().item<double>() > 0.2);
  }
  CHECK(nn::GRUCell(3, 4)->named_parameters().keys() == Names{"weight_ih", "weight_hh", "bias_ih", "bias_hh"});
  CHECK(printed(nn::GRU(3, 4)) ==
        "gradus::nn::GRU(input_size=3, hidden_size=4, num_layers=1, bias=true, "
        "batch_first=false, dropout=0, bidirectional=false)");
  CHECK(printed(nn::LSTMCell(3, 4)) == "gradus::nn::LSTMCell(3, 4)");
}

TEST_CASE("shapes of outputs and states, batched, batch first and without a batch") {
  const Tensor x = randn({5, 2, 3});
  nn::GRU gru(nn::GRUOptions(3, 4).num_layers(2).bidirectional(true));
  const auto [output, state] = gru(x);
  CHECK(output.sizes() == Shape({5, 2, 8}));
  CHECK(state.sizes() == Shape({4, 2, 4}));
  // The state of the forward direction is its last output, that of the reverse direction its first.
  CHECK(output[4].slice(1, 0, 4).equal(state[2]));
  CHECK(output[0].slice(1, 4, 8).equal(state[3]));

  nn::LSTM lstm(nn::LSTMOptions(3, 4).batch_first(true));
  const auto [sequence, states] = lstm(x);
  CHECK(sequence.sizes() == Shape({5, 2, 4}));
  CHECK(std::get<1>(states).sizes() == Shape({1, 5, 4}));
  const auto [single, single_states] = lstm(x[0]);
  CHECK(single.allclose(sequence[0], 1e-5, 1e-6));
  CHECK(std::get<0>(single_states).sizes() == Shape({1, 4}));

  // Running the rest of a sequence from an intermediate state gives the same result.
  nn::RNN rnn(3, 4);
  const auto [all, last] = rnn(x);
  const auto [first, middle] = rnn(x.slice(0, 0, 2));
  const auto [rest, end] = rnn(x.slice(0, 2, 5), middle);
  CHECK(cat({first, rest}).allclose(all, 1e-5, 1e-6));
  CHECK(end.allclose(last, 1e-5, 1e-6));
  // A cell computes the same steps.
  nn::RNNCell cell(3, 4);
  cell->load_state_dict({{"weight_ih", rnn->named_parameters()["weight_ih_l0"].detach()},
                         {"weight_hh", rnn->named_parameters()["weight_hh_l0"].detach()},
                         {"bias_ih", rnn->named_parameters()["bias_ih_l0"].detach()},
                         {"bias_hh", rnn->named_parameters()["bias_hh_l0"].detach()}});
  Tensor h;
  for (int64_t t = 0; t < 5; ++t) h = cell(x[t], h);
  CHECK(h.allclose(last[0], 1e-5, 1e-6));
}

TEST_CASE("gradients of recurrent layers have the shapes of their parameters and inputs") {
  const auto check = [](auto layer, int64_t length) {
    const Tensor x = randn({length, 2, 3}, requires_grad());
    std::get<0>(layer(x)).square().sum().backward();
    CHECK(x.grad().sizes() == x.sizes());
    for (const auto& parameter : layer->named_parameters()) {
      INFO(parameter.key() << ", length " << length);
      CHECK(parameter->grad().sizes() == parameter->sizes());
    }
  };
  for (const int64_t length : {1, 5})
    for (const bool both : {false, true}) {
      check(nn::RNN(nn::RNNOptions(3, 4).bidirectional(both)), length);
      check(nn::GRU(nn::GRUOptions(3, 4).bidirectional(both)), length);
      check(nn::LSTM(nn::LSTMOptions(3, 4).bidirectional(both).num_layers(2)), length);
      check(nn::LSTM(nn::LSTMOptions(3, 4).bidirectional(both).proj_size(2)), length);
    }
}

TEST_CASE("dropout between recurrent layers is active only in training; clones and moves keep the weights") {
  manual_seed(2);
  nn::LSTM lstm(nn::LSTMOptions(3, 4).num_layers(2).dropout(0.5));
  const Tensor x = randn({5, 2, 3});
  CHECK_FALSE(std::get<0>(lstm(x)).equal(std::get<0>(lstm(x))));
  lstm->eval();
  const Tensor y = std::get<0>(lstm(x));
  CHECK(std::get<0>(lstm(x)).equal(y));
  auto copy = std::dynamic_pointer_cast<nn::LSTMImpl>(lstm->clone());
  CHECK(std::get<0>(copy->forward(x)).equal(y));
  nn::init::zeros_(lstm->parameters()[0]);
  CHECK(std::get<0>(copy->forward(x)).equal(y));
  copy->to(kDouble);
  CHECK(std::get<0>(copy->forward(x.to(kDouble))).to(kFloat).allclose(y, 1e-4, 1e-5));
}

TEST_CASE("errors of recurrent layers name the layer") {
  nn::Sequential holder;
  nn::LSTM lstm(3, 4);
  struct Outer : nn::Module {
    explicit Outer(nn::LSTM lstm) { register_module("encoder", lstm); }
  } outer(lstm);
  CHECK_THROWS_WITH(lstm(randn({5, 2, 4})), contains("[lstm] layer 'encoder'") && contains("input_size 3"));
  CHECK_THROWS_AS(lstm(randn({5})), ShapeError);
  CHECK_THROWS_AS(lstm(randn({0, 2, 3})), ShapeError);
  CHECK_THROWS_WITH(lstm(randn({5, 2, 3}), std::tuple(zeros({1, 3, 4}), zeros({1, 2, 4}))), contains("(1, 2, 4)"));
  CHECK_THROWS_AS(nn::GRUCell(3, 4)(randn({2, 4})), ShapeError);
  CHECK_THROWS_AS(nn::GRUCell(3, 4)(randn({2, 3}), zeros({2, 3})), ShapeError);
  CHECK_THROWS_AS(nn::RNN(nn::RNNOptions(3, 4).nonlinearity(kSigmoid)), ValueError);
  CHECK_THROWS_AS(nn::LSTM(nn::LSTMOptions(3, 4).proj_size(4)), ValueError);
  CHECK_THROWS_AS(nn::LSTM(nn::LSTMOptions(3, 4).dropout(1.5)), ValueError);
  CHECK_THROWS_AS(nn::LSTM(0, 4), ValueError);
}

TEST_CASE("attention is the same with and without weights, and respects masks") {
  manual_seed(3);
  nn::MultiheadAttention attention(8, 2);
  CHECK(attention->named_parameters().keys() ==
        Names{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"});
  CHECK(attention->in_proj_bias.detach().equal(zeros({24})));
  const Tensor query = randn({3, 2, 8}), keys = randn({5, 2, 8});
  const auto [output, weights] = attention(query, keys, keys);
  CHECK(output.sizes() == Shape({3, 2, 8}));
  CHECK(weights.sizes() == Shape({2, 3, 5}));
  CHECK(weights.sum(-1).detach().allclose(ones({2, 3})));
  const auto [fast, none] = attention(query, keys, keys, Tensor(), false);
  CHECK(fast.allclose(output, 1e-4, 1e-5));
  CHECK_FALSE(none.defined());

  // Masks the last two keys of the second sample, with booleans and with numbers.
  Tensor padding = zeros({2, 5}, kBool);
  padding[1].slice(0, 3, 5).fill_(true);
  const auto [masked, masked_weights] = attention(query, keys, keys, padding);
  CHECK(masked_weights[1].slice(-1, 3, 5).detach().equal(zeros({3, 2})));
  const Tensor shortened = std::get<0>(attention(query, keys.slice(0, 0, 3), keys.slice(0, 0, 3)));
  CHECK(masked.select(1, 1).allclose(shortened.select(1, 1), 1e-4, 1e-5));
  CHECK(masked.select(1, 0).allclose(output.select(1, 0), 1e-4, 1e-5));
  const Tensor numbers = where(padding, -INFINITY, zeros({2, 5}));
  CHECK(std::get<0>(attention(query, keys, keys, numbers)).allclose(masked, 1e-4, 1e-5));
  CHECK(std::get<0>(attention(query, keys, keys, padding, false)).allclose(masked, 1e-4, 1e-5));

  CHECK_THROWS_AS(nn::MultiheadAttention(8, 3), ValueError);
  CHECK_THROWS_AS(attention(query, keys, keys, zeros({2, 4}, kBool)), ShapeError);
  CHECK_THROWS_AS(attention(query, keys, keys, zeros({2, 5}, kLong)), DTypeError);
  CHECK_THROWS_AS(attention(query, keys, keys.slice(0, 0, 4)), ShapeError);
  CHECK_THROWS_AS(attention(query, keys, keys, Tensor(), true, zeros({3, 4})), ShapeError);
}

TEST_CASE("attention with and without weights is the same, whichever of its inputs are one tensor") {
  manual_seed(4);
  nn::MultiheadAttention attention(8, 2);
  const Tensor x = randn({3, 2, 8}), y = randn({3, 2, 8}), z = randn({3, 2, 8});
  for (const auto& [query, key, value] : {std::tuple(x, x, x), {x, x, y}, {x, y, x}, {x, y, y}, {x, y, z}}) {
    const Tensor with = std::get<0>(attention(query, key, value)),
                 without = std::get<0>(attention(query, key, value, Tensor(), false));
    CHECK(without.allclose(with, 1e-4, 1e-5));
  }
}

TEST_CASE("self-attention that projects queries, keys and values in one product equals general attention") {
  manual_seed(5);
  for (bool batch_first : {false, true}) {
    nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(8, 2).batch_first(batch_first));
    for (const Shape& shape : {Shape{4, 3, 8}, Shape{4, 8}}) {
      const Tensor x = randn(shape, TensorOptions().requires_grad(true)), copy = x.detach().clone();
      const int64_t length = batch_first && shape.size() == 3 ? 3 : 4;
      const Tensor later = triu(ones({length, length}, kBool), 1);
      const Tensor ours = std::get<0>(attention(x, x, x, Tensor(), false, later));
      const Tensor wanted = std::get<0>(attention(x, copy, copy, Tensor(), false, later));
      CHECK(ours.sizes() == wanted.sizes());
      CHECK(ours.allclose(wanted, 1e-4, 1e-6));
      const Tensor gradient = autograd::grad({ours.square().sum()}, {attention->in_proj_weight})[0];
      CHECK(gradient.allclose(autograd::grad({wanted.square().sum()}, {attention->in_proj_weight})[0], 1e-3, 1e-5));
    }
  }
}

TEST_CASE("a Transformer's encoder") {
  manual_seed(4);
  nn::TransformerEncoderLayer layer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16));
  nn::TransformerEncoder encoder(layer, 2);
  CHECK(encoder->named_parameters().contains("layers.1.self_attn.out_proj.weight"));
  CHECK(encoder->named_parameters().keys().front() == "layers.0.self_attn.in_proj_weight");
  encoder->eval();
  const Tensor x = randn({4, 2, 8});
  const Tensor y = encoder(x);
  CHECK(y.sizes() == x.sizes());
  CHECK(y.detach().mean(-1).allclose(zeros({4, 2}), 0, 1e-5));
  auto copy = std::dynamic_pointer_cast<nn::TransformerEncoderImpl>(encoder->clone());
  CHECK(copy->forward(x).equal(y));
  encoder->train();
  CHECK_FALSE(encoder(x).equal(y));
  CHECK_THROWS_AS(nn::TransformerEncoder(layer, 0), ValueError);
  CHECK_THROWS_AS(nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).activation(kTanh)), ValueError);
}

TEST_CASE("Transformer encoder and decoder end with their norm, and their layers are clones") {
  manual_seed(5);
  nn::TransformerEncoderLayer layer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0));
  nn::TransformerEncoder plain(layer, 2);
  CHECK(plain->layers->at<nn::TransformerEncoderLayer>(1).linear1->weight.equal(layer->linear1->weight));
  nn::LayerNorm norm(nn::LayerNormOptions({8}));
  nn::init::constant_(norm->bias, 3.0);
  nn::TransformerEncoder normed(nn::TransformerEncoderOptions(layer, 2).norm(nn::AnyModule(norm)));
  CHECK(normed->named_parameters().contains("norm.bias"));
  const Tensor x = randn({4, 2, 8});
  CHECK(normed(x).allclose(norm(plain(x)), 1e-5, 1e-5));

  nn::TransformerEncoderLayer with_function(
      nn::TransformerEncoderLayerOptions(8, 2).dropout(0).activation([](const Tensor& t) { return relu(t); }));
  with_function->load_state_dict(nn::TransformerEncoderLayer(8, 2)->state_dict());
  const Tensor by_function = with_function(x);
  with_function->options.activation(kReLU);
  CHECK(with_function(x).equal(by_function));
  with_function->options.activation(kGELU);
  CHECK_FALSE(with_function(x).equal(by_function));
}

TEST_CASE("a Transformer decoder attends to its input and to the memory") {
  manual_seed(6);
  nn::TransformerDecoderLayer layer(nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16).dropout(0));
  const Tensor tgt = randn({3, 2, 8}), memory = randn({5, 2, 8});
  const Tensor later = nn::TransformerImpl::generate_square_subsequent_mask(3);
  const Tensor y = layer(tgt, memory, later);
  const Tensor own = layer->norm1(tgt + std::get<0>(layer->self_attn(tgt, tgt, tgt, Tensor(), false, later)));
  const Tensor with = layer->norm2(own + std::get<0>(layer->multihead_attn(own, memory, memory)));
  CHECK(y.allclose(layer->norm3(with + layer->linear2(relu(layer->linear1(with)))), 1e-5, 1e-5));

  // Changing a later position of tgt does not affect earlier outputs; changing a masked position of memory affects
  // nothing.
  const Tensor other = tgt.clone(), other_memory = memory.clone();
  other[2].add_(1), other_memory[4].add_(1);
  CHECK(layer(other, memory, later).narrow(0, 0, 2).allclose(y.narrow(0, 0, 2), 1e-5, 1e-5));
  const Tensor hidden = zeros({2, 5}, kBool), none;
  hidden.select(1, 4).fill_(true);
  CHECK(layer(tgt, other_memory, none, none, none, hidden).equal(layer(tgt, memory, none, none, none, hidden)));
  CHECK_FALSE(layer(tgt, other_memory).allclose(layer(tgt, memory)));
  CHECK_THROWS_AS(nn::TransformerDecoder(layer, 0), ValueError);
}

TEST_CASE("a Transformer equals its encoder and decoder") {
  manual_seed(7);
  const auto options = nn::TransformerOptions(8, 2, 2, 1).dim_feedforward(16).dropout(0);
  nn::Transformer model(options);
  const Tensor src = randn({4, 2, 8}), tgt = randn({3, 2, 8});
  auto encoder = model->encoder.get<nn::TransformerEncoder>();
  auto decoder = model->decoder.get<nn::TransformerDecoder>();
  const Tensor y = model(src, tgt);
  CHECK(y.allclose(decoder(tgt, encoder(src)), 1e-5, 1e-5));
  CHECK(model->named_parameters().contains("decoder.layers.0.multihead_attn.in_proj_weight"));
  CHECK(model->named_parameters().contains("encoder.norm.weight"));
  CHECK_FALSE(encoder->layers->at<nn::TransformerEncoderLayer>(0).linear1->weight.equal(
      encoder->layers->at<nn::TransformerEncoderLayer>(1).linear1->weight));

  auto copy = std::dynamic_pointer_cast<nn::TransformerImpl>(model->clone());
  CHECK(copy->forward(src, tgt).equal(y));
  nn::init::zeros_(model->parameters()[0]);
  CHECK(copy->forward(src, tgt).equal(y));

  nn::Transformer custom(
      nn::TransformerOptions(8, 2).custom_encoder(nn::AnyModule(encoder)).custom_decoder(nn::AnyModule(decoder)));
  custom->load_state_dict(copy->state_dict());
  CHECK(custom(src, tgt).equal(y));
  CHECK_THROWS_AS(model(src, randn({3, 1, 8})), ShapeError);
  CHECK_THROWS_AS(model(src, randn({3, 8})), ShapeError);
  const Tensor mask = nn::TransformerImpl::generate_square_subsequent_mask(2);
  CHECK(mask[0][1].item<double>() == -std::numeric_limits<double>::infinity());
  CHECK(mask[1][0].item<double>() == 0);
}

TEST_CASE("a Transformer has PyTorch's values") {
  const auto wave = [](const Shape& shape, double step) {
    return (arange(0, numel_of(shape), kDouble) * step).sin().reshape(shape);
  };
  nn::Transformer model(nn::TransformerOptions(4, 2, 1, 1).dim_feedforward(8).dropout(0).activation(kGELU));
  model->to(kDouble);
  for (const auto& item : model->named_parameters()) {
    const bool is_scale =
        item.key().find("norm") != std::string::npos && item.key().find("weight") != std::string::npos;
    item->set_data(wave(item->sizes(), 0.31) * 0.5 + (is_scale ? 1.0 : 0.0));
  }
  const Tensor hidden = zeros({2, 3}, kBool);
  hidden[0][2].fill_(true);
  const Tensor later = nn::TransformerImpl::generate_square_subsequent_mask(2).to(kDouble);
  const Tensor y =
      model(wave({3, 2, 4}, 0.9), wave({2, 2, 4}, 1.1), Tensor(), later, Tensor(), hidden, Tensor(), hidden);
  const std::vector<double> wanted = {
      -0.6396761385783096, 0.5058871498254247,  2.19826458830533,    -1.2033944474431764,
      -0.741731599361778,  -0.9839480903707803, 0.4998163408956517,  2.593948905517135,
      0.9980777605634655,  -0.6240021313123466, -1.3608021007511772, 1.7389539728894723,
      0.666659835341335,   0.7582518558095195,  0.9837407498908816,  -2.0217311023081943};
  CHECK(y.reshape(-1).allclose(tensor(wanted, kDouble), 0, 1e-9));
}

TEST_CASE("attention prints as LibTorch's, with its child and nothing else") {
  CHECK(test::printed(nn::MultiheadAttention(4, 2)) ==
        "gradus::nn::MultiheadAttention(\n"
        "  (out_proj): gradus::nn::Linear(in_features=4, out_features=4, bias=true)\n)");
}

TEST_CASE("a recurrent layer calls the backend as often for 64 steps as for 2") {
  const auto calls = [](auto layer, int64_t length) {
    const Tensor x = randn({length, 2, 3});
    graph::Recorder recorder;
    std::get<0>(layer->forward(x)).sum().backward();
    return recorder.size();
  };
  const auto check = [&](auto layer) {
    const size_t short_calls = calls(layer, 2);
    layer->zero_grad();
    CHECK(calls(layer, 64) == short_calls);
    CHECK(short_calls < 40);
  };
  check(nn::RNN(3, 4));
  check(nn::RNN(nn::RNNOptions(3, 4).nonlinearity(kReLU)));
  check(nn::GRU(3, 4));
  check(nn::LSTM(3, 4));
  check(nn::LSTM(nn::LSTMOptions(3, 4).proj_size(2)));
}

TEST_CASE("the weights of recurrent cells and layers are within 1 / sqrt(hidden_size), also without biases") {
  manual_seed(8);
  const auto check_range = [](const nn::Module& module, const Names& names) {
    CHECK(module.named_parameters().keys() == names);
    double largest = 0;
    for (const Tensor& parameter : module.parameters()) {
      CHECK(parameter.detach().abs().max().item<double>() <= 0.25);
      largest = std::max(largest, parameter.detach().abs().max().item<double>());
    }
    CHECK(largest > 0.24);
  };
  check_range(*nn::GRUCell(3, 16), {"weight_ih", "weight_hh", "bias_ih", "bias_hh"});
  check_range(*nn::LSTMCell(nn::LSTMCellOptions(3, 16).bias(false)), {"weight_ih", "weight_hh"});
  check_range(*nn::RNN(nn::RNNOptions(3, 16).bias(false)), {"weight_ih_l0", "weight_hh_l0"});
  check_range(*nn::LSTM(nn::LSTMOptions(3, 16).proj_size(2).bias(false)),
              {"weight_ih_l0", "weight_hh_l0", "weight_hr_l0"});
}

TEST_CASE("the outputs of the last recurrent layer are not dropped") {
  manual_seed(9);
  const Tensor x = randn({5, 2, 3});
  nn::GRU single(nn::GRUOptions(3, 40).dropout(0.5)), layers(nn::GRUOptions(3, 40).num_layers(2).dropout(1));
  CHECK(std::get<0>(single(x)).equal(std::get<0>(single(x))));
  // All inputs of the second layer are dropped, so that its outputs depend on its biases alone.
  const Tensor y = std::get<0>(layers(x));
  CHECK((y != 0).all().item<bool>());
  CHECK(y.equal(std::get<0>(layers(randn({5, 2, 3})))));
}

TEST_CASE("states of sequences without a batch, and of both kinds of an LSTM") {
  manual_seed(10);
  nn::LSTM lstm(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true).proj_size(2));
  const Tensor x = randn({5, 3}), h0 = randn({4, 2}), c0 = randn({4, 4});
  const auto [output, state] = lstm(x, std::tuple(h0, c0));
  const auto [batch_output, batch_state] = lstm(x.unsqueeze(1), std::tuple(h0.unsqueeze(1), c0.unsqueeze(1)));
  CHECK(output.sizes() == Shape({5, 4}));
  CHECK(output.allclose(batch_output.squeeze(1), 1e-5, 1e-6));
  CHECK(std::get<0>(state).sizes() == Shape({4, 2}));
  CHECK(std::get<1>(state).sizes() == Shape({4, 4}));
  CHECK(std::get<0>(state).allclose(std::get<0>(batch_state).squeeze(1), 1e-5, 1e-6));
  CHECK(std::get<1>(state).allclose(std::get<1>(batch_state).squeeze(1), 1e-5, 1e-6));
  // A state that is left undefined is 0.
  const auto [from_none, none_state] = lstm(x, std::tuple(Tensor(), c0));
  CHECK(from_none.equal(std::get<0>(lstm(x, std::tuple(zeros({4, 2}), c0)))));
  CHECK(std::get<0>(lstm(x)).equal(std::get<0>(lstm(x, std::tuple(zeros({4, 2}), zeros({4, 4}))))));
  nn::LSTMCell cell(3, 4);
  const auto [h, c] = cell(x, std::tuple(Tensor(), ones({5, 4})));
  CHECK(h.equal(std::get<0>(cell(x, std::tuple(zeros({5, 4}), ones({5, 4}))))));
  CHECK(c.equal(std::get<1>(cell(x, std::tuple(zeros({5, 4}), ones({5, 4}))))));
}

TEST_CASE("errors of recurrent layers and attention name both shapes") {
  CHECK_THROWS_WITH(nn::LSTM(3, 4)(randn({5, 2, 3}), std::tuple(zeros({1, 2, 4}), zeros({1, 2, 5}))),
                    contains("[lstm]") && contains("an initial cell state of shape (1, 2, 4) is needed for x of shape "
                                                   "(5, 2, 3), got (1, 2, 5)"));
  CHECK_THROWS_WITH(nn::GRU(3, 4)(randn({5, 3}), zeros({1, 1, 4})), contains("[gru]") && contains("(1, 4)"));
  CHECK_THROWS_WITH(nn::RNN(3, 4)(randn({0, 3})), contains("[rnn]") && contains("no steps"));
  CHECK_THROWS_WITH(nn::RNNCell(3, 4)(randn({2, 5})), contains("[rnn_cell]") && contains("(2, 5)") && contains("3"));
  CHECK_THROWS_WITH(nn::GRUCell(3, 4)(randn({2, 3}), zeros({2, 3})), contains("[gru_cell]") && contains("(2, 4)"));
  CHECK_THROWS_WITH(nn::LSTMCell(3, 4)(randn({1, 1, 3})), contains("[lstm_cell]") && contains("(1, 1, 3)"));
  nn::MultiheadAttention attention(4, 2);
  const Tensor x = randn({3, 5, 4}), none;
  CHECK_THROWS_WITH(attention(x, x, x, none, true, zeros({3, 5})), contains("(3, 5) is neither (3, 3) nor (10, 3, 3)"));
  CHECK_THROWS_WITH(attention(x, x, x, zeros({3, 5})), contains("key_padding_mask of shape (3, 5) is not (5, 3)"));
  CHECK_THROWS_WITH(attention(x, x, x, none, true, zeros({3, 3}, kLong)), contains("attn_mask must be boolean"));
  CHECK_THROWS_WITH(attention(x, x, x, zeros({5, 3}, kLong)), contains("key_padding_mask must be boolean"));
}

TEST_CASE("attention masks may differ between samples and heads, and are added to one another") {
  manual_seed(11);
  const int64_t batch = 2, heads = 3, queries = 4, keys = 5;
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(6, heads).batch_first(true));
  const Tensor q = randn({batch, queries, 6}), k = randn({batch, keys, 6}), none;
  const Tensor mask = randn({batch * heads, queries, keys}), padding = randn({batch, keys});
  const auto [output, weights] = attention(q, k, k, padding, true, mask, false);
  CHECK(weights.sizes() == Shape({batch, heads, queries, keys}));
  const auto [plain, plain_weights] = attention(q, k, k, none, true, none, false);
  // Numbers that are added to scores multiply their exponentials.
  const Tensor raised =
      plain_weights * mask.reshape({batch, heads, queries, keys}).exp() * padding.reshape({batch, 1, 1, keys}).exp();
  CHECK(weights.allclose(raised / raised.sum(-1, true), 1e-4, 1e-5));
  CHECK(std::get<1>(attention(q, k, k, padding, true, mask)).allclose(weights.mean(1), 1e-5, 1e-6));
  CHECK(std::get<0>(attention(q, k, k, padding, false, mask)).allclose(output, 1e-4, 1e-5));

  // One sample without a batch.
  const Tensor own = mask.narrow(0, heads, heads);
  const auto [single, single_weights] = attention(q[1], k[1], k[1], padding[1], true, own, false);
  CHECK(single.allclose(output[1], 1e-4, 1e-5));
  CHECK(single_weights.sizes() == Shape({heads, queries, keys}));
  CHECK(single.sizes() == Shape({queries, 6}));
  CHECK(single_weights.allclose(weights[1], 1e-4, 1e-5));
  const Tensor average = std::get<1>(attention(q[1], k[1], k[1], padding[1], true, own));
  CHECK(average.sizes() == Shape({queries, keys}));
  CHECK(average.allclose(weights[1].mean(0), 1e-4, 1e-5));
  CHECK(std::get<0>(attention(q[1], k[1], k[1], none, false, own)).sizes() == Shape({queries, 6}));
}

TEST_CASE("keys that are appended to attention are not masked") {
  manual_seed(12);
  const Tensor q = randn({4, 2, 6}), k = randn({5, 2, 6}), none;
  for (const bool bias : {false, true})
    for (const bool zero : {false, true}) {
      nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(6, 2).add_bias_kv(bias).add_zero_attn(zero));
      const auto [output, weights] = attention(q, k, k, ones({2, 5}, kBool).logical_not(), true, none);
      CHECK(weights.sizes() == Shape({2, 4, 5 + bias + zero}));
      CHECK(std::get<0>(attention(q, k, k, none, false)).allclose(output, 1e-4, 1e-5));
      CHECK(std::get<0>(attention(k, k, k, none, false)).allclose(std::get<0>(attention(k, k, k)), 1e-4, 1e-5));
      if (!bias && !zero) continue;
      const Tensor masked = std::get<1>(attention(q, k, k, ones({2, 5}, kBool), true, none));
      CHECK(masked.narrow(-1, 0, 5).detach().equal(zeros({2, 4, 5})));
      CHECK(masked.sum(-1).detach().allclose(ones({2, 4})));
    }
}

TEST_CASE("attention drops weights in training only, whether or not it returns them") {
  manual_seed(13);
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(6, 2).dropout(1));
  nn::init::ones_(attention->out_proj->bias);
  const Tensor x = randn({4, 2, 6}), other = randn({4, 2, 6}), none;
  const auto [output, weights] = attention(x, x, x);
  CHECK(output.detach().equal(ones({4, 2, 6})));
  CHECK(weights.detach().equal(zeros({2, 4, 4})));
  CHECK(std::get<0>(attention(x, x, x, none, false)).detach().equal(ones({4, 2, 6})));
  CHECK(std::get<0>(attention(x, other, other, none, false)).detach().equal(ones({4, 2, 6})));
  attention->eval();
  CHECK_FALSE(std::get<0>(attention(x, x, x)).detach().equal(ones({4, 2, 6})));
  CHECK_FALSE(std::get<0>(attention(x, x, x, none, false)).detach().equal(ones({4, 2, 6})));
  CHECK_FALSE(std::get<0>(attention(x, other, other, none, false)).detach().equal(ones({4, 2, 6})));
}

TEST_CASE("attention registers the weights that its options ask for") {
  const auto names = [](const nn::MultiheadAttentionOptions& options) {
    return nn::MultiheadAttention(options)->named_parameters().keys();
  };
  const Names separate = {"q_proj_weight", "k_proj_weight",   "v_proj_weight",
                          "in_proj_bias",  "out_proj.weight", "out_proj.bias"};
  CHECK(names(nn::MultiheadAttentionOptions(4, 2).kdim(3)) == separate);
  CHECK(names(nn::MultiheadAttentionOptions(4, 2).vdim(3)) == separate);
  CHECK(names(nn::MultiheadAttentionOptions(4, 2).kdim(4).vdim(4).bias(false)) ==
        Names{"in_proj_weight", "out_proj.weight"});
  CHECK(names(nn::MultiheadAttentionOptions(4, 2).add_bias_kv(true)) ==
        Names{"in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "out_proj.weight", "out_proj.bias"});
  manual_seed(14);
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(40, 2).add_bias_kv(true));
  nn::init::ones_(attention->in_proj_bias), nn::init::ones_(attention->out_proj->bias);
  attention->reset_parameters();
  CHECK(attention->in_proj_bias.detach().equal(zeros({120})));
  CHECK(attention->out_proj->bias.detach().equal(zeros({40})));
  CHECK(attention->in_proj_weight.detach().abs().max().item<double>() == Approx(std::sqrt(6.0 / 160)).epsilon(0.01));
  for (const Tensor& bias : {attention->bias_k, attention->bias_v}) CHECK(bias.detach().abs().max().item<double>() < 1);
}

TEST_CASE("the layers of a Transformer drop and mask where their formulas say") {
  manual_seed(15);
  nn::TransformerEncoderLayer layer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0));
  const Tensor x = randn({4, 2, 8}), later = nn::TransformerImpl::generate_square_subsequent_mask(4), none;
  Tensor hidden = zeros({2, 4}, kBool);
  hidden[1][3].fill_(true);
  const Tensor own = layer->norm1(x + std::get<0>(layer->self_attn(x, x, x, hidden, false, later)));
  const Tensor wanted = layer->norm2(own + layer->linear2(relu(layer->linear1(own))));
  CHECK(layer(x, later, hidden).allclose(wanted, 1e-5, 1e-5));
  nn::TransformerEncoder stack(layer, 2);
  CHECK(stack(x, later, hidden).allclose(layer(layer(x, later, hidden), later, hidden), 1e-5, 1e-5));
  // Each dropout alone: what it drops does not reach the result.
  const auto with = [&](nn::Dropout& dropout) {
    dropout->options.p(1);
    const Tensor y = layer(x);
    dropout->options.p(0);
    return y;
  };
  const Tensor attended = layer->norm1(x + std::get<0>(layer->self_attn(x, x, x, none, false)));
  CHECK(
      with(layer->dropout1)
          .allclose(layer->norm2(layer->norm1(x) + layer->linear2(relu(layer->linear1(layer->norm1(x))))), 1e-5, 1e-5));
  CHECK(with(layer->dropout2).allclose(layer->norm2(attended), 1e-5, 1e-5));
  CHECK(with(layer->dropout).allclose(layer->norm2(attended + layer->linear2->bias), 1e-5, 1e-5));

  nn::TransformerDecoderLayer decoder(nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16).dropout(0));
  const Tensor memory = randn({5, 2, 8}), memory_mask = randn({4, 5});
  Tensor memory_hidden = zeros({2, 5}, kBool);
  memory_hidden[0][0].fill_(true);
  const Tensor first = decoder->norm1(x + std::get<0>(decoder->self_attn(x, x, x, hidden, false, later)));
  const Tensor second = decoder->norm2(
      first + std::get<0>(decoder->multihead_attn(first, memory, memory, memory_hidden, false, memory_mask)));
  const Tensor third = decoder->norm3(second + decoder->linear2(relu(decoder->linear1(second))));
  CHECK(decoder(x, memory, later, memory_mask, hidden, memory_hidden).allclose(third, 1e-5, 1e-5));
  nn::LayerNorm norm(nn::LayerNormOptions({8}));
  nn::init::constant_(norm->bias, 2);
  nn::TransformerDecoder decoders(nn::TransformerDecoderOptions(decoder, 2).norm(nn::AnyModule(norm)));
  const auto run = [&](const Tensor& y) { return decoder(y, memory, later, memory_mask, hidden, memory_hidden); };
  CHECK(decoders(x, memory, later, memory_mask, hidden, memory_hidden).allclose(norm(run(run(x))), 1e-5, 1e-5));
  const auto dropped = [&](nn::Dropout& dropout) {
    dropout->options.p(1);
    const Tensor y = decoder(x, memory);
    dropout->options.p(0);
    return y;
  };
  const Tensor a = decoder->norm1(x + std::get<0>(decoder->self_attn(x, x, x)));
  const Tensor b = decoder->norm2(a + std::get<0>(decoder->multihead_attn(a, memory, memory)));
  CHECK(dropped(decoder->dropout3).allclose(decoder->norm3(b), 1e-5, 1e-5));
  CHECK(dropped(decoder->dropout).allclose(decoder->norm3(b + decoder->linear2->bias), 1e-5, 1e-5));
  const Tensor c = decoder->norm2(a);
  CHECK(
      dropped(decoder->dropout2).allclose(decoder->norm3(c + decoder->linear2(relu(decoder->linear1(c)))), 1e-5, 1e-5));
}

TEST_CASE("the options of a Transformer reach its layers") {
  nn::Transformer model(nn::TransformerOptions(8, 4, 2, 3).dim_feedforward(20).dropout(0.25));
  const auto encoder = model->encoder.get<nn::TransformerEncoder>();
  const auto decoder = model->decoder.get<nn::TransformerDecoder>();
  CHECK(encoder->layers->size() == 2);
  CHECK(decoder->layers->size() == 3);
  const auto check_layer = [](auto& layer) {
    CHECK(layer.self_attn->options.num_heads() == 4);
    CHECK(layer.self_attn->options.dropout() == 0.25);
    CHECK(layer.linear1->weight.sizes() == Shape({20, 8}));
    CHECK(layer.linear2->weight.sizes() == Shape({8, 20}));
    for (const nn::Dropout& dropout : {layer.dropout, layer.dropout1, layer.dropout2})
      CHECK(dropout->options.p() == 0.25);
  };
  check_layer(encoder->layers->template at<nn::TransformerEncoderLayer>(1));
  auto& last = decoder->layers->template at<nn::TransformerDecoderLayer>(2);
  check_layer(last);
  CHECK(last.multihead_attn->options.dropout() == 0.25);
  CHECK(last.dropout3->options.p() == 0.25);
  // Matrices are drawn from a range that depends on their sizes, vectors keep the values of their layers.
  CHECK(last.linear1->weight.detach().abs().max().item<double>() == Approx(std::sqrt(6.0 / 28)).epsilon(0.1));
  CHECK(last.norm3->weight.detach().equal(ones({8})));
  model->eval();
  const Tensor x = randn({3, 2, 8}), later = nn::TransformerImpl::generate_square_subsequent_mask(3), none;
  Tensor hidden = zeros({2, 3}, kBool);
  hidden[0][2].fill_(true);
  const Tensor y = model(x, x + 1, later, later, later, hidden, hidden, hidden);
  CHECK(y.equal(decoder(x + 1, encoder(x, later, hidden), later, later, hidden, hidden)));
  CHECK(model(x, x + 1, none, none, none, none, hidden).equal(decoder(x + 1, encoder(x), none, none, hidden)));
  CHECK(model(x, x + 1, none, none, later).equal(decoder(x + 1, encoder(x), none, later)));
}
