// An image classifier in LibTorch's words: a data set of its own, a pipeline, loaders, a convolutional net, SGD.
#include <gradus/torch.h>

#include <gradus/tests/catch.h>

namespace {

/// Small images of two kinds, horizontal and vertical bars, with noise.
class Bars : public torch::data::datasets::Dataset<Bars> {
 public:
  enum Mode { kTrain, kTest };
  explicit Bars(size_t count, Mode mode = kTrain) : count_(count), mode_(mode) {}

  torch::data::Example<> get(size_t index) override {
    const int64_t label = static_cast<int64_t>(index % 2);
    torch::Tensor image = torch::full({1, 12, 12}, 0.25);
    const int64_t at = static_cast<int64_t>(index / 2 % 10);
    if (label == 0) image[0].slice(/*dim=*/0, at, at + 2).fill_(0.75);
    else image[0].slice(/*dim=*/1, at, at + 2).fill_(0.75);
    image += 0.05 * torch::rand({1, 12, 12});
    return {image, torch::tensor(label, torch::kLong)};
  }
  torch::optional<size_t> size() const override { return count_; }
  bool is_train() const noexcept { return mode_ == kTrain; }

 private:
  size_t count_;
  Mode mode_;
};

struct Net : torch::nn::Module {
  Net()
      : conv1(torch::nn::Conv2dOptions(1, 4, /*kernel_size=*/3)),
        conv2(torch::nn::Conv2dOptions(4, 8, /*kernel_size=*/3)), fc1(8 * 1 * 1, 16), fc2(16, 2) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("drop", drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1->forward(x), 2));                      // (N, 4, 5, 5)
    x = torch::relu(torch::max_pool2d(drop->forward(conv2->forward(x)), {2, 2}));  // (N, 8, 1, 1)
    x = x.view({-1, 8});
    x = torch::dropout(torch::relu(fc1->forward(x)), /*p=*/0.1, /*training=*/is_training());
    return torch::log_softmax(fc2->forward(x), /*dim=*/1);
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Dropout2d drop{torch::nn::Dropout2dOptions(0.1)};
  torch::nn::Linear fc1, fc2;
};

template <typename Loader>
void train(Net& model, torch::Device device, Loader& loader, torch::optim::Optimizer& optimizer) {
  model.train();
  for (auto& batch : loader) {
    auto data = batch.data.to(device), targets = batch.target.to(device);
    optimizer.zero_grad();
    auto loss = torch::nll_loss(model.forward(data), targets);
    AT_ASSERT(!std::isnan(loss.template item<float>()));
    loss.backward();
    optimizer.step();
  }
}

/// Mean loss and share of right answers.
template <typename Loader>
std::pair<double, double> test(Net& model, torch::Device device, Loader& loader, size_t size) {
  torch::NoGradGuard no_grad;
  model.eval();
  double loss = 0;
  int32_t correct = 0;
  for (const auto& batch : loader) {
    auto data = batch.data.to(device), targets = batch.target.to(device);
    auto output = model.forward(data);
    loss += torch::nll_loss(output, targets, /*weight=*/{}, torch::Reduction::Sum).template item<float>();
    correct += output.argmax(1).eq(targets).sum().template item<int64_t>();
  }
  return {loss / static_cast<double>(size), correct / static_cast<double>(size)};
}

}  // namespace

TEST_CASE("a classifier as LibTorch programs write it") {
  torch::manual_seed(1);
  torch::DeviceType device_type = torch::kCPU;
  if (torch::cuda::is_available()) device_type = torch::kCUDA;
  torch::Device device(device_type);
  Net model;
  model.to(device);

  auto train_set =
      Bars(160).map(torch::data::transforms::Normalize<>(0.3, 0.2)).map(torch::data::transforms::Stack<>());
  auto test_set = Bars(40, Bars::Mode::kTest)
                      .map(torch::data::transforms::Normalize<>(0.3, 0.2))
                      .map(torch::data::transforms::Stack<>());
  const size_t test_size = test_set.size().value();
  CHECK(test_size == 40);
  auto train_loader =
      torch::data::make_data_loader(std::move(train_set), torch::data::DataLoaderOptions().batch_size(16).workers(2));
  auto test_loader =
      torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(std::move(test_set), /*batch_size=*/16);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/3, /*gamma=*/0.5);

  const auto before = test(model, device, *test_loader, test_size);
  for (size_t epoch = 1; epoch <= 4; ++epoch) {
    train(model, device, *train_loader, optimizer);
    scheduler.step();
  }
  const auto after = test(model, device, *test_loader, test_size);
  CHECK(after.first < 0.5 * before.first);
  CHECK(after.second > 0.9);
  CHECK(static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr() == Approx(0.025));
}
