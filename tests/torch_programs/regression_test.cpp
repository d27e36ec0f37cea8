// A polynomial is fitted, and lines with and without a module of one's own.
#include <gradus/torch.h>

#include <gradus/tests/catch.h>

namespace {

torch::Tensor powers_of(torch::Tensor x, int64_t degree) {
  x = x.unsqueeze(1);
  std::vector<torch::Tensor> columns;
  for (int64_t i = 0; i < degree; ++i) columns.push_back(x.pow(i + 1));
  return torch::cat(columns, 1);
}

}  // namespace

TEST_CASE("a polynomial is fitted") {
  torch::manual_seed(2);
  const int64_t degree = 3;
  auto weight = torch::randn({degree, 1}) * 2;
  auto bias = torch::randn({1}) * 2;
  auto fc = torch::nn::Linear(weight.size(0), 1);
  torch::optim::SGD optimizer(fc->parameters(), .05);
  float loss = 0;
  int64_t batches = 0;
  while (++batches < 3000) {
    auto x = powers_of(torch::randn({32}), degree);
    auto y = x.mm(weight) + bias.item();
    optimizer.zero_grad();
    auto output = torch::smooth_l1_loss(fc(x), y);
    loss = output.item<float>();
    output.backward();
    optimizer.step();
    if (loss < 1e-3f) break;
  }
  CHECK(loss < 1e-3f);
  CHECK(fc->bias.item<float>() == Approx(bias.item<float>()).margin(0.2));
}

TEST_CASE("logistic regression over batches of a tensor data set") {
  torch::manual_seed(3);
  const auto inputs = torch::randn({128, 4});
  const auto targets = (inputs.index({torch::indexing::Slice(), 0}) > 0).to(torch::kLong);
  auto dataset = torch::data::datasets::TensorDataset(inputs, targets).map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(std::move(dataset), 32);
  torch::nn::Linear model(4, 2);
  torch::nn::CrossEntropyLoss criterion;
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.05).weight_decay(1e-4));
  double first = 0, last = 0;
  for (size_t epoch = 0; epoch != 15; ++epoch) {
    double running = 0;
    size_t correct = 0;
    for (auto& batch : *loader) {
      auto output = model->forward(batch.data.reshape({-1, 4}));
      auto loss = torch::nn::functional::cross_entropy(output, batch.target);
      CHECK(loss.item<double>() == Approx(criterion(output, batch.target).item<double>()));
      running += loss.item<double>() * static_cast<double>(batch.data.size(0));
      correct += static_cast<size_t>(output.argmax(1).eq(batch.target).sum().item<int64_t>());
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
    if (epoch == 0) first = running;
    last = running;
    if (epoch == 14) CHECK(correct > 110);
  }
  CHECK(last < 0.5 * first);
}
