// Which options and shapes layers accept: each limit from both sides, and each part of a condition alone.
#include <gradus/autograd/autograd.h>
#include <gradus/layers/layers.h>
#include <gradus/tests/catch.h>

#include <algorithm>
#include <functional>

using namespace gradus;
using test::contains;
namespace F = gradus::nn::functional;

namespace {

struct Limit {
  const char* what;
  std::vector<std::function<void()>> valid, invalid;
};

template <class Kind>
void check(const std::vector<Limit>& limits) {
  for (const Limit& limit : limits) {
    CAPTURE(limit.what);
    for (const auto& make : limit.valid) CHECK_NOTHROW(make());
    for (const auto& make : limit.invalid) CHECK_THROWS_AS(make(), Kind);
  }
}

/// Returns a shape of `dims` dimensions of size 3.
Shape threes(int dims) { return Shape::filled(dims, 3); }

}  // namespace

TEST_CASE("layers accept their smallest sizes and reject those below") {
  using namespace nn;
  check<ValueError>({
      {"Conv2d: channels",
       {[] { Conv2d(1, 1, 1); }},
       {[] { Conv2d(0, 1, 1); }, [] { Conv2d(1, 0, 1); }, [] { Conv2d(-1, 1, 1); }}},
      {"Conv2d: groups",
       {[] { Conv2d(Conv2dOptions(4, 6, 1).groups(2)); }, [] { Conv2d(Conv2dOptions(4, 4, 1).groups(4)); }},
       {[] { Conv2d(Conv2dOptions(3, 4, 1).groups(2)); }, [] { Conv2d(Conv2dOptions(4, 3, 1).groups(2)); },
        [] { Conv2d(Conv2dOptions(4, 4, 1).groups(0)); }, [] { Conv2d(Conv2dOptions(4, 4, 1).groups(-2)); }}},
      {"Conv2d: kernel",
       {},
       {[] {
          Conv2d(Conv2dOptions(1, 1, {0, 1}));
        },
        [] {
          Conv2d(Conv2dOptions(1, 1, {1, 0}));
        },
        [] { Conv1d(1, 1, 0); }}},
      {"Conv2d: stride of padding 'same'",
       {[] { Conv2d(Conv2dOptions(1, 1, 3).padding(kSame)); },
        [] { Conv2d(Conv2dOptions(1, 1, 3).padding(1).stride(2)); }},
       {[] {
          Conv2d(Conv2dOptions(1, 1, 3).padding(kSame).stride({1, 2}));
        },
        [] {
          Conv2d(Conv2dOptions(1, 1, 3).padding(kSame).stride({2, 1}));
        }}},
      {"ConvTranspose2d: groups", {[] { ConvTranspose2d(ConvTranspose2dOptions(4, 2, 1).groups(2)); }}, {[] {
         ConvTranspose2d(ConvTranspose2dOptions(4, 3, 1).groups(2));
       }}},
      {"Linear", {[] { Linear(0, 0); }}, {[] { Linear(-1, 1); }, [] { Linear(1, -1); }}},
      {"Bilinear",
       {[] { Bilinear(1, 1, 1); }},
       {[] { Bilinear(0, 1, 1); }, [] { Bilinear(1, 0, 1); }, [] { Bilinear(1, 1, 0); }}},
      {"LSTM: sizes",
       {[] { LSTM(1, 1); }},
       {[] { LSTM(0, 1); }, [] { LSTM(1, 0); }, [] { LSTM(LSTMOptions(1, 1).num_layers(0)); }}},
      {"LSTM: dropout",
       {[] { LSTM(LSTMOptions(1, 1).dropout(0)); }, [] { LSTM(LSTMOptions(1, 1).dropout(1)); }},
       {[] { LSTM(LSTMOptions(1, 1).dropout(-0.1)); }, [] { LSTM(LSTMOptions(1, 1).dropout(1.1)); }}},
      {"LSTM: proj_size",
       {[] { LSTM(LSTMOptions(1, 3).proj_size(0)); }, [] { LSTM(LSTMOptions(1, 3).proj_size(2)); }},
       {[] { LSTM(LSTMOptions(1, 3).proj_size(3)); }, [] { LSTM(LSTMOptions(1, 3).proj_size(-1)); }}},
      {"cells", {[] { GRUCell(1, 1); }}, {[] { GRUCell(0, 1); }, [] { GRUCell(1, 0); }}},
      {"nonlinearities",
       {[] { RNN(RNNOptions(1, 1).nonlinearity(kTanh)); }, [] { RNNCell(RNNCellOptions(1, 1).nonlinearity(kReLU)); }},
       {[] { RNN(RNNOptions(1, 1).nonlinearity(kGELU)); }, [] { RNNCell(RNNCellOptions(1, 1).nonlinearity(kGELU)); }}},
      {"MultiheadAttention",
       {[] { MultiheadAttention(1, 1); }, [] { MultiheadAttention(4, 4); }},
       {[] { MultiheadAttention(0, 1); }, [] { MultiheadAttention(4, 0); }, [] { MultiheadAttention(4, 3); },
        [] { MultiheadAttention(4, -2); }}},
      {"MultiheadAttention: dropout",
       {[] { MultiheadAttention(MultiheadAttentionOptions(2, 1).dropout(0)); },
        [] { MultiheadAttention(MultiheadAttentionOptions(2, 1).dropout(1)); }},
       {[] { MultiheadAttention(MultiheadAttentionOptions(2, 1).dropout(-0.1)); },
        [] { MultiheadAttention(MultiheadAttentionOptions(2, 1).dropout(1.1)); }}},
      {"Transformer's stacks",
       {[] { TransformerEncoder(TransformerEncoderLayer(2, 1), 1); },
        [] { TransformerDecoder(TransformerDecoderLayer(2, 1), 1); }},
       {[] { TransformerEncoder(TransformerEncoderLayer(2, 1), 0); },
        [] { TransformerDecoder(TransformerDecoderLayer(2, 1), 0); }}},
      {"Transformer's activations", {[] { TransformerActivation{kReLU}; }, [] { TransformerActivation{kGELU}; }}, {[] {
         TransformerActivation{kTanh};
       }}},
      {"causal masks",
       {[] {
         CHECK(TransformerImpl::generate_square_subsequent_mask(0).sizes() == Shape({0, 0}));
       }},
       {[] { TransformerImpl::generate_square_subsequent_mask(-1); }}},
      {"BatchNorm1d", {[] { BatchNorm1d(1); }}, {[] { BatchNorm1d(0); }}},
      {"LayerNorm", {[] { LayerNorm(LayerNormOptions({1})); }}, {[] {
         LayerNorm(LayerNormOptions(std::vector<int64_t>{}));
       }}},
      {"GroupNorm",
       {[] { GroupNorm(1, 1); }, [] { GroupNorm(3, 3); }},
       {[] { GroupNorm(0, 3); }, [] { GroupNorm(2, 0); }, [] { GroupNorm(2, 3); }, [] { GroupNorm(-1, 3); }}},
      {"Embedding", {[] { Embedding(1, 1); }}, {[] { Embedding(0, 1); }, [] { Embedding(1, 0); }}},
      {"EmbeddingBag", {[] { EmbeddingBag(1, 1); }}, {[] { EmbeddingBag(0, 1); }, [] { EmbeddingBag(1, 0); }}},
      {"pad_sequence", {[] { utils::rnn::pad_sequence({ones({1})}); }}, {[] {
         utils::rnn::pad_sequence(std::vector<Tensor>());
       }}},
  });
  check<IndexError>({
      {"Embedding: padding_idx",
       {[] { Embedding(EmbeddingOptions(4, 9).padding_idx(3)); },
        [] { Embedding(EmbeddingOptions(4, 9).padding_idx(-4)); }},
       {[] { Embedding(EmbeddingOptions(4, 9).padding_idx(4)); },
        [] { Embedding(EmbeddingOptions(4, 9).padding_idx(-5)); },
        [] {
          F::embedding(zeros({1}, kLong), ones({2, 9}), F::EmbeddingFuncOptions().padding_idx(2));
        }}},
  });
}

TEST_CASE("layers accept inputs of their numbers of dimensions, and no others") {
  const auto check_dims = [](const char* what, auto layer, const std::vector<int>& valid) {
    for (int dims = 1; dims <= 5; ++dims) {
      CAPTURE(what, dims);
      if (std::count(valid.begin(), valid.end(), dims)) CHECK(layer(ones(threes(dims))).dim() == dims);
      else CHECK_THROWS_AS(layer(ones(threes(dims))), ShapeError);
    }
  };
  const auto first = [](auto layer) { return [layer](const Tensor& x) mutable { return std::get<0>(layer(x)); }; };
  check_dims("BatchNorm1d", nn::BatchNorm1d(3), {2, 3});
  check_dims("BatchNorm2d", nn::BatchNorm2d(3), {4});
  check_dims("BNReLU2d", nn::BNReLU2d(3), {4});
  check_dims("InstanceNorm1d", nn::InstanceNorm1d(3), {2, 3});
  check_dims("InstanceNorm2d", nn::InstanceNorm2d(3), {3, 4});
  check_dims("GRU", first(nn::GRU(3, 3)), {2, 3});
  check_dims("GRUCell", nn::GRUCell(3, 3), {1, 2});
  check_dims("LSTMCell", first(nn::LSTMCell(3, 3)), {1, 2});
  check_dims("AdaptiveMaxPool2d",
             [](const Tensor& x) { return std::get<0>(F::adaptive_max_pool2d_with_indices(x, {2})); }, {3, 4});
  check_dims(
      "self-attention",
      [attention = nn::MultiheadAttention(3, 1)](const Tensor& x) mutable { return std::get<0>(attention(x, x, x)); },
      {2, 3});
  check_dims("Transformer",
             [model = nn::Transformer(nn::TransformerOptions(3, 1, 1, 1).dim_feedforward(2))](const Tensor& x) mutable {
               return model(x, x);
             },
             {3});
  CHECK_THROWS_AS(F::adaptive_max_pool2d_with_indices(ones({2, 0, 3}), {2}), ShapeError);
}

TEST_CASE("each input of a layer with several is checked") {
  check<ShapeError>({
      {"Bilinear",
       {[] { nn::Bilinear(2, 3, 1)(ones({2}), ones({3})); },
        [] {
          nn::Bilinear(2, 3, 1)(ones({4, 2}), ones({4, 3}));
        }},
       {[] {
          nn::Bilinear(2, 3, 1)(ones({4, 1}), ones({4, 3}));
        },
        [] {
          nn::Bilinear(2, 3, 1)(ones({4, 2}), ones({4, 2}));
        },
        [] {
          nn::Bilinear(2, 3, 1)(ones({4, 2}), ones({5, 3}));
        },
        [] {
          nn::Bilinear(2, 3, 1)(ones({4, 2}), ones({3}));
        },
        [] { nn::Bilinear(2, 3, 1)(ones({}), ones({3})); }, [] { nn::Bilinear(2, 3, 1)(ones({2}), ones({})); }}},
      {"MultiheadAttention: dimensions",
       {[] {
         nn::MultiheadAttention(2, 1)(ones({4, 2}), ones({3, 2}), ones({3, 2}));
       }},
       {[] {
          nn::MultiheadAttention(2, 1)(ones({4, 2}), ones({3, 1, 2}), ones({3, 2}));
        },
        [] {
          nn::MultiheadAttention(2, 1)(ones({4, 2}), ones({3, 2}), ones({3, 1, 2}));
        }}},
      {"MultiheadAttention: batch and keys",
       {[] {
         nn::MultiheadAttention(2, 1)(ones({4, 5, 2}), ones({3, 5, 2}), ones({3, 5, 2}));
       }},
       {[] {
          nn::MultiheadAttention(2, 1)(ones({4, 5, 2}), ones({3, 6, 2}), ones({3, 5, 2}));
        },
        [] {
          nn::MultiheadAttention(2, 1)(ones({4, 5, 2}), ones({3, 5, 2}), ones({3, 6, 2}));
        },
        [] {
          nn::MultiheadAttention(2, 1)(ones({4, 5, 2}), ones({3, 5, 2}), ones({4, 5, 2}));
        }}},
      {"Transformer",
       {[] {
         nn::Transformer(nn::TransformerOptions(2, 1, 1, 1))(ones({4, 5, 2}), ones({3, 5, 2}));
       }},
       {[] {
          nn::Transformer(nn::TransformerOptions(2, 1, 1, 1))(ones({4, 5, 2}), ones({3, 4, 2}));
        },
        [] {
          nn::Transformer(nn::TransformerOptions(2, 1, 1, 1))(ones({4, 5, 3}), ones({3, 5, 2}));
        },
        [] {
          nn::Transformer(nn::TransformerOptions(2, 1, 1, 1))(ones({4, 5, 2}), ones({3, 5, 3}));
        },
        [] {
          nn::Transformer(nn::TransformerOptions(2, 1, 1, 1))(ones({4, 2}), ones({3, 5, 2}));
        }}},
      {"states of a layer",
       {[] {
          nn::GRU(3, 4)(ones({5, 2, 3}), ones({1, 2, 4}));
        },
        [] {
          nn::GRU(3, 4)(ones({5, 3}), ones({1, 4}));
        }},
       {[] {
          nn::GRU(3, 4)(ones({5, 2, 3}), ones({2, 2, 4}));
        },
        [] {
          nn::GRU(3, 4)(ones({5, 2, 3}), ones({1, 5, 4}));
        },
        [] {
          nn::GRU(3, 4)(ones({5, 2, 3}), ones({1, 2, 3}));
        },
        [] {
          nn::GRU(3, 4)(ones({5, 3}), ones({1, 1, 4}));
        },
        [] {
          nn::LSTM(3, 4)(ones({5, 2, 3}), std::tuple(ones({1, 2, 4}), ones({1, 2, 3})));
        },
        [] {
          nn::LSTM(3, 4)(ones({5, 2, 3}), std::tuple(ones({1, 2, 3}), ones({1, 2, 4})));
        }}},
      {"states of a cell",
       {[] {
          nn::LSTMCell(3, 4)(ones({2, 3}), std::tuple(ones({2, 4}), ones({2, 4})));
        },
        [] { nn::LSTMCell(3, 4)(ones({3}), std::tuple(ones({4}), Tensor())); }},
       {[] {
          nn::LSTMCell(3, 4)(ones({2, 3}), std::tuple(ones({2, 4}), ones({2, 3})));
        },
        [] {
          nn::LSTMCell(3, 4)(ones({2, 3}), std::tuple(ones({3, 4}), ones({2, 4})));
        },
        [] {
          nn::LSTMCell(3, 4)(ones({2, 4}), std::nullopt);
        }}},
      {"sequences have steps",
       {[] {
         nn::GRU(3, 4)(ones({1, 0, 3}));
       }},
       {[] {
         nn::GRU(3, 4)(ones({0, 1, 3}));
       }}},
      {"weights of an Embedding",
       {[] {
         nn::Embedding(nn::EmbeddingOptions(4, 2)._weight(ones({4, 2})));
       }},
       {[] {
          nn::Embedding(nn::EmbeddingOptions(4, 2)._weight(ones({4, 4})));
        },
        [] {
          nn::Embedding(nn::EmbeddingOptions(4, 2)._weight(ones({2, 2})));
        }}},
      {"an output_size",
       {[] {
         nn::ConvTranspose2d(1, 1, 1)->forward(ones({1, 2, 3}), IntArrayRef({2, 3}));
       }},
       {[] {
          nn::ConvTranspose2d(1, 1, 1)->forward(ones({1, 2, 3}), IntArrayRef({2}));
        },
        [] {
          nn::ConvTranspose2d(1, 1, 1)->forward(ones({2, 3}), IntArrayRef({2, 3}));
        }}},
  });
}

TEST_CASE("errors of layers say which rule an input breaks") {
  const auto x = [](const Shape& shape) { return ones(shape); };
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(2, 1).kdim(3).vdim(3));
  const auto attend = [&](const Shape& query, const Shape& key, const Shape& value) {
    attention(x(query), x(key), x(value));
  };
  const std::pair<std::function<void()>, const char*> cases[] = {
      {[&] {
         nn::Bilinear(2, 3, 1)(x({4, 1}), x({4, 3}));
       },
       "inputs of shape (…, 2) and (…, 3) are needed"},
      {[&] {
         nn::Bilinear(2, 3, 1)(x({4, 2}), x({4, 2}));
       },
       "inputs of shape (…, 2) and (…, 3) are needed"},
      {[&] {
         nn::Bilinear(2, 3, 1)(x({4, 2}), x({5, 3}));
       },
       "different leading sizes: (4, 2) and (5, 3)"},
      {[&] {
         attend({4, 5, 2}, {4, 3}, {4, 5, 3});
       },
       "two or three dimensions each"},
      {[&] {
         attend({4, 5, 2}, {4, 5, 3}, {4, 3});
       },
       "two or three dimensions each"},
      {[&] {
         attend({1, 4, 5, 2}, {1, 4, 5, 3}, {1, 4, 5, 3});
       },
       "two or three dimensions each"},
      {[&] {
         attend({4, 5, 2}, {3, 6, 3}, {3, 5, 3});
       },
       "do not match: shapes (4, 5, 2), (3, 6, 3) and (3, 5, 3)"},
      {[&] {
         attend({4, 5, 2}, {3, 5, 3}, {3, 6, 3});
       },
       "query, key and value do not match"},
      {[&] {
         attend({4, 5, 2}, {3, 5, 3}, {4, 5, 3});
       },
       "query, key and value do not match"},
      {[&] {
         nn::GRU(3, 4)(x({5, 2, 2}));
       },
       "has 2 features, expected input_size 3"},
      {[&] {
         nn::GRU(3, 4)(x({5, 1, 2, 3}));
       },
       "a sequence has two or three dimensions"},
      {[&] {
         nn::GRU(3, 4)(x({0, 2, 3}));
       },
       "the sequence has no steps"},
      {[&] {
         nn::GRU(3, 4)(x({5, 2, 3}), x({1, 2, 3}));
       },
       "an initial state of shape (1, 2, 4) is needed"},
      {[&] {
         nn::LSTM(3, 4)(x({5, 2, 3}), std::tuple(x({1, 2, 3}), x({1, 2, 4})));
       },
       "an initial state of shape"},
      {[&] {
         nn::LSTM(3, 4)(x({5, 2, 3}), std::tuple(x({1, 2, 4}), x({1, 2, 3})));
       },
       "an initial cell state of shape"},
      {[&] {
         nn::GRUCell(3, 4)(x({1, 2, 3}));
       },
       "x must be (N, 3) or (3)"},
      {[&] {
         nn::GRUCell(3, 4)(x({2, 2}));
       },
       "has 2 features, expected input_size 3"},
      {[&] {
         nn::GRUCell(3, 4)(x({2, 3}), x({2, 3}));
       },
       "a state of shape (2, 4) is needed for x of shape (2, 3)"},
      {[&] {
         nn::LSTMCell(3, 4)(x({2, 3}), std::tuple(x({2, 4}), x({2, 3})));
       },
       "a state of shape (2, 4) is needed"},
      {[&] {
         nn::Transformer(nn::TransformerOptions(2, 1, 1, 1))(x({4, 5, 2}), x({3, 4, 2}));
       },
       "takes src (S, N, 2) and tgt (T, N, 2), got shapes (4, 5, 2) and (3, 4, 2)"},
      {[&] {
         nn::BatchNorm1d(3)(x({2, 3, 1, 1}));
       },
       "BatchNorm1d needs x of shape (N, C) or (N, C, L)"},
      {[&] {
         nn::BatchNorm2d(3)(x({2, 3}));
       },
       "BatchNorm2d needs x of shape (N, C, H, W)"},
      {[&] {
         nn::BNReLU2d(3)(x({2, 3}));
       },
       "BNReLU2d needs x of shape (N, C, H, W)"},
      {[&] { nn::InstanceNorm1d(3)(x({3})); }, "InstanceNorm1d needs x of shape (N, C, L) or (C, L)"},
      {[&] {
         nn::InstanceNorm2d(3)(x({3, 2}));
       },
       "InstanceNorm2d needs x of shape (N, C, H, W) or (C, H, W)"},
      {[&] {
         nn::InstanceNorm2d(3)(x({1, 2, 4, 4}));
       },
       "has 2 channels, expected 3"},
      {[&] {
         F::adaptive_max_pool2d_with_indices(x({4, 4}), {2});
       },
       "takes images (N, C, H, W) or (C, H, W)"},
      {[&] {
         F::adaptive_max_pool2d_with_indices(x({1, 4, 4}), nn::AdaptiveMaxPool2dOptions({0, 2}));
       },
       "output_size must be positive, got (0, 2)"},
      {[&] { nn::Embedding::from_pretrained(x({4})); }, "embeddings need two dimensions, got shape (4,)"},
      {[&] { nn::EmbeddingBag::from_pretrained(x({4})); }, "embeddings need two dimensions, got shape (4,)"},
      {[&] {
         nn::Embedding(nn::EmbeddingOptions(4, 2)._weight(x({2, 4})));
       },
       "4 rows with 2 columns has shape (2, 4)"},
      {[&] { nn::init::xavier_uniform_(x({3})); }, "fan in and fan out need a weight (out, in, …), got shape (3,)"},
      {[&] { nn::init::eye_(x({3})); }, "eye_ needs a matrix, got shape (3,)"},
      {[&] {
         nn::init::eye_(x({3, 1, 1}));
       },
       "eye_ needs a matrix, got shape (3, 1, 1)"},
      {[&] { nn::init::sparse_(x({3}), 0.5); }, "sparse_ needs a matrix, got shape (3,)"},
      {[&] {
         nn::init::sparse_(x({3, 3}), 1.5);
       },
       "sparsity must be in [0, 1], got 1.5"},
      {[&] {
         nn::init::sparse_(x({3, 3}), -0.5);
       },
       "sparsity must be in [0, 1], got -0.5"},
      {[&] { nn::Dropout(1.5); }, "dropout probability must be in [0, 1], got 1.5"},
      {[&] { nn::LSTM(nn::LSTMOptions(1, 2).dropout(1.5)); }, "dropout must be in [0, 1], got 1.5"},
      {[&] { nn::LSTM(nn::LSTMOptions(1, 2).proj_size(2)); }, "proj_size 2 must be less than hidden_size 2"},
      {[&] { nn::MultiheadAttention(nn::MultiheadAttentionOptions(2, 1).dropout(1.5)); }, "dropout must be in [0, 1]"},
      {[&] { nn::MultiheadAttention(4, 3); }, "embed_dim 4 cannot be divided into 3 heads of equal size"},
      {[&] { nn::Hardtanh(nn::HardtanhOptions().min_val(1).max_val(1)); }, "Hardtanh from 1 to 1: max_val must be"},
      {[&] { nn::RNN(nn::RNNOptions(1, 2).nonlinearity(kSigmoid)); }, "the nonlinearity of an RNN is kTanh or kReLU"},
      {[&] { nn::utils::rnn::pad_sequence({}); }, "pad_sequence got no sequences"},
      {[&] { nn::TransformerImpl::generate_square_subsequent_mask(-1); }, "a mask of size -1"},
      {[&] { nn::Sequential(nn::ReLU())->register_module("", nn::ReLU()); }, "needs a name that is not empty"},
      {[&] { nn::Sequential(nn::ReLU())->register_module("a.b", nn::ReLU()); }, "must not contain a dot"},
      {[&] { nn::Sequential(nn::ReLU())->register_module("a", std::shared_ptr<nn::ReLUImpl>()); },
       "'a' of gradus::nn::"},
      {[&] {
         nn::ModuleDict({{"a", nn::ReLU()}})->replace_module("a", std::shared_ptr<nn::Module>());
       },
       " is null"},
  };
  for (const auto& [call, message] : cases) {
    CAPTURE(message);
    CHECK_THROWS_WITH(call(), contains(message));
  }
}
