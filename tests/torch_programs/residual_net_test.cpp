// A residual net in LibTorch's words: blocks in a template, a holder of one's own, transforms of one's own, a
// variational autoencoder beside it.
#include <gradus/torch.h>

#include <gradus/tests/catch.h>

namespace F = torch::nn::functional;

namespace {

torch::nn::Conv2d conv3x3(int64_t in, int64_t out, int64_t stride = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false));
}

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(int64_t in, int64_t out, int64_t stride = 1, torch::nn::Sequential downsample = nullptr)
      : conv1(conv3x3(in, out, stride)), bn1(out), conv2(conv3x3(out, out)), bn2(out), downsampler(downsample) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("relu", relu);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    if (downsampler) register_module("downsampler", downsampler);
  }
  torch::Tensor forward(torch::Tensor x) {
    auto out = relu->forward(bn1->forward(conv1->forward(x)));
    out = bn2->forward(conv2->forward(out));
    out += downsampler ? downsampler->forward(x) : x;
    return relu->forward(out);
  }

 private:
  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::ReLU relu;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d bn2;
  torch::nn::Sequential downsampler;
};
TORCH_MODULE(Block);

template <typename BlockType>
class ResNetImpl : public torch::nn::Module {
 public:
  explicit ResNetImpl(const std::array<int64_t, 2>& layers, int64_t num_classes = 2)
      : layer1(make_layer(4, layers[0])), layer2(make_layer(8, layers[1], 2)), fc(8, num_classes) {
    register_module("conv", conv);
    register_module("layer1", layer1);
    register_module("layer2", layer2);
    register_module("pool", pool);
    register_module("fc", fc);
  }
  torch::Tensor forward(torch::Tensor x) {
    auto out = layer2->forward(layer1->forward(conv->forward(x)));
    out = pool->forward(out);
    return fc->forward(out.view({out.size(0), -1}));
  }

 private:
  torch::nn::Sequential make_layer(int64_t out, int64_t blocks, int64_t stride = 1) {
    torch::nn::Sequential layers;
    torch::nn::Sequential downsample{nullptr};
    if (stride != 1 || in_channels != out)
      downsample = torch::nn::Sequential{conv3x3(in_channels, out, stride), torch::nn::BatchNorm2d(out)};
    layers->push_back(BlockType(in_channels, out, stride, downsample));
    in_channels = out;
    for (int64_t i = 1; i != blocks; ++i) layers->push_back(BlockType(out, out));
    return layers;
  }
  int64_t in_channels = 4;
  torch::nn::Conv2d conv{conv3x3(3, 4)};
  torch::nn::Sequential layer1, layer2;
  torch::nn::AdaptiveAvgPool2d pool{torch::nn::AdaptiveAvgPool2dOptions({1, 1})};
  torch::nn::Linear fc;
};

template <typename BlockType = Block>
class ResNet : public torch::nn::ModuleHolder<ResNetImpl<BlockType>> {
 public:
  using torch::nn::ModuleHolder<ResNetImpl<BlockType>>::ModuleHolder;
};

class Flip : public torch::data::transforms::TensorTransform<torch::Tensor> {
 public:
  torch::Tensor operator()(torch::Tensor input) override {
    return torch::rand(1)[0].item<double>() < 0.5 ? input.flip(-1) : input;
  }
};

class Colours : public torch::data::datasets::Dataset<Colours> {
 public:
  torch::data::Example<> get(size_t index) override {
    auto image = 0.3 * torch::rand({3, 8, 8});
    image[static_cast<int64_t>(index % 2)] += 0.5;
    return {image, torch::tensor(static_cast<int64_t>(index % 2))};
  }
  torch::optional<size_t> size() const override { return 32; }
};

struct VAEImpl : torch::nn::Module {
  VAEImpl() {
    encoder = register_module("encoder", torch::nn::Linear(16, 8));
    mean = register_module("mean", torch::nn::Linear(8, 2));
    log_variance = register_module("log_variance", torch::nn::Linear(8, 2));
    decoder = register_module("decoder", torch::nn::Sequential(torch::nn::Linear(2, 8), torch::nn::ReLU(),
                                                               torch::nn::Linear(8, 16), torch::nn::Sigmoid()));
  }
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    auto h = F::relu(encoder->forward(x));
    auto mu = mean->forward(h), log_var = log_variance->forward(h);
    auto z = is_training() ? mu + torch::randn_like(mu) * log_var.div(2).exp() : mu;
    return {decoder->forward(z), mu, log_var};
  }
  torch::nn::Linear encoder{nullptr}, mean{nullptr}, log_variance{nullptr};
  torch::nn::Sequential decoder{nullptr};
};
TORCH_MODULE(VAE);

}  // namespace

TEST_CASE("a residual net trains") {
  torch::manual_seed(6);
  auto dataset = Colours()
                     .map(Flip())
                     .map(torch::data::transforms::Normalize<>({0.3, 0.3, 0.3}, {0.2, 0.2, 0.2}))
                     .map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(std::move(dataset), 8);
  std::array<int64_t, 2> layers{1, 2};
  ResNet<> model(layers, 2);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
  double lr = 1e-2, first = 0, last = 0;
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (auto& batch : *loader) {
      auto loss = F::cross_entropy(model->forward(batch.data), batch.target);
      if (first == 0) first = loss.item<double>();
      last = loss.item<double>();
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
    lr /= 2;
    for (auto& group : optimizer.param_groups()) static_cast<torch::optim::AdamOptions&>(group.options()).lr(lr);
  }
  CHECK(last < 0.3 * first);
  model->eval();
  CHECK(model->forward(torch::rand({2, 3, 8, 8})).sizes() == torch::IntArrayRef({2, 2}));
  CHECK(model->named_buffers().contains("layer2.0.downsampler.1.running_var"));
}

TEST_CASE("a variational autoencoder trains") {
  torch::manual_seed(7);
  VAE model;
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
  auto x = (torch::rand({32, 1}) > 0.5).to(torch::kFloat32).expand({32, 16}) * 0.9;
  double first = 0, last = 0;
  for (int step = 0; step < 150; ++step) {
    auto [reconstruction, mu, log_var] = model->forward(x);
    auto likelihood =
        F::binary_cross_entropy(reconstruction, x, F::BinaryCrossEntropyFuncOptions().reduction(torch::kSum));
    auto divergence = -0.5 * torch::sum(1 + log_var - mu.pow(2) - log_var.exp());
    auto loss = likelihood + divergence;
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step == 0) first = loss.item<double>();
    last = loss.item<double>();
  }
  CHECK(last < 0.75 * first);
}
