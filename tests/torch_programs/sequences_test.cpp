// Recurrent nets in LibTorch's words: a classifier of sequences, and a language model that carries its state.
#include <gradus/torch.h>

#include <gradus/tests/catch.h>

using torch::indexing::Slice;

namespace {

class ClassifierImpl : public torch::nn::Module {
 public:
  ClassifierImpl(int64_t input_size, int64_t hidden_size, int64_t num_layers, int64_t num_classes)
      : lstm(torch::nn::LSTMOptions(input_size, hidden_size)
                 .num_layers(num_layers)
                 .batch_first(true)
                 .bidirectional(true)),
        fc(2 * hidden_size, num_classes) {
    register_module("lstm", lstm);
    register_module("fc", fc);
  }
  torch::Tensor forward(torch::Tensor x) {
    auto out = std::get<0>(lstm->forward(x));  // (N, L, 2 hidden)
    auto directions = out.chunk(2, 2);
    auto last = directions[0].index({Slice(), -1}), first = directions[1].index({Slice(), 0});
    return fc->forward(torch::cat({last, first}, 1));
  }

 private:
  torch::nn::LSTM lstm;
  torch::nn::Linear fc;
};
TORCH_MODULE(Classifier);

class LanguageModelImpl : public torch::nn::Module {
 public:
  using State = std::tuple<torch::Tensor, torch::Tensor>;
  LanguageModelImpl(int64_t words, int64_t embed_size, int64_t hidden_size)
      : embed(words, embed_size), lstm(torch::nn::LSTMOptions(embed_size, hidden_size).batch_first(true)),
        linear(hidden_size, words) {
    register_module("embed", embed);
    register_module("lstm", lstm);
    register_module("linear", linear);
  }
  std::tuple<torch::Tensor, State> forward(torch::Tensor x, State state) {
    torch::Tensor output;
    std::tie(output, state) = lstm->forward(embed->forward(x), state);
    output = linear->forward(output.reshape({-1, output.size(2)}));
    return std::make_tuple(torch::nn::functional::log_softmax(output, 1), state);
  }

 private:
  torch::nn::Embedding embed;
  torch::nn::LSTM lstm;
  torch::nn::Linear linear;
};
TORCH_MODULE(LanguageModel);

}  // namespace

TEST_CASE("a bidirectional LSTM learns which half of a sequence is larger") {
  torch::manual_seed(4);
  Classifier model(1, 8, 1, 2);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.02));
  double first = 0, last = 0;
  for (int step = 0; step < 120; ++step) {
    auto x = torch::rand({32, 6, 1});
    auto target =
        (x.index({Slice(), Slice(0, 3)}).sum({1, 2}) > x.index({Slice(), Slice(3)}).sum({1, 2})).to(torch::kLong);
    auto loss = torch::nn::functional::cross_entropy(model(x), target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    (step < 10 ? first : last) += step < 10 || step >= 110 ? loss.item<double>() : 0;
  }
  CHECK(last < 0.8 * first);
}

TEST_CASE("a language model carries its state from part to part") {
  torch::manual_seed(5);
  const int64_t words = 5, batch = 4, part = 6, hidden = 16;
  auto ids = torch::arange(batch * 61).remainder(words).reshape({batch, -1});  // each word is followed by the next
  LanguageModel model(words, 8, hidden);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.02));
  double first = 0, last = 0;
  for (int epoch = 0; epoch < 4; ++epoch) {
    auto h = torch::zeros({1, batch, hidden}), c = torch::zeros({1, batch, hidden});
    for (int64_t i = 0; i < ids.size(1) - part; i += part) {
      auto data = ids.index({Slice(), Slice(i, i + part)});
      auto target = ids.index({Slice(), Slice(i + 1, i + 1 + part)}).reshape(-1);
      torch::Tensor output;
      std::forward_as_tuple(output, std::tie(h, c)) = model->forward(data, std::make_tuple(h, c));
      h.detach_();
      c.detach_();
      auto loss = torch::nn::functional::nll_loss(output, target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      if (epoch == 0 && i == 0) first = loss.item<double>();
      last = loss.item<double>();
    }
  }
  CHECK(last < 0.3 * first);
}
