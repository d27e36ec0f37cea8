// LeNet's first 50 losses with SGD against PyTorch (tests/golden/make_lenet.py), from the same weights and images,
// which are formulas computed alike on both sides.
#include <cmath>

#include <gradus/autograd/autograd.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/core/registry.h>
#include <gradus/layers/layers.h>
#include <gradus/optim/optim.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

using namespace gradus;

namespace {

constexpr int64_t kSteps = 50, kBatch = 16;

/// `count` numbers in [0, 1): the upper 24 bits of splitmix64 started at `stream`.
std::vector<double> uniform(uint64_t stream, int64_t count) {
  std::vector<double> numbers;
  for (uint64_t i = 1; i <= static_cast<uint64_t>(count); ++i) {
    uint64_t z = stream * 0x9E3779B97F4A7C15ull + i * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z = z ^ (z >> 31);
    numbers.push_back(static_cast<double>(z >> 40) * 0x1p-24);
  }
  return numbers;
}

struct LeNetImpl : nn::Cloneable<LeNetImpl> {
  explicit LeNetImpl(bool fused) : fused(fused) { reset(); }
  void reset() override {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 6, 5).padding(2)));
    conv2 = register_module("conv2", nn::Conv2d(6, 16, 5));
    fc1 = register_module("fc1", nn::Linear(400, 120));
    fc2 = register_module("fc2", nn::Linear(120, 84));
    fc3 = register_module("fc3", nn::Linear(84, 10));
  }
  Tensor forward(Tensor x) {
    if (fused) {
      x = max_pool2d(conv2d_relu(x, conv1->weight, conv1->bias, 1, 2), 2);  // (N, 6, 14, 14)
      x = max_pool2d(conv2d_relu(x, conv2->weight, conv2->bias), 2);        // (N, 16, 5, 5)
    } else {
      x = max_pool2d(relu(conv1(x)), 2);
      x = max_pool2d(relu(conv2(x)), 2);
    }
    x = relu(fc1(x.flatten(1)));
    return fc3(relu(fc2(x)));
  }
  bool fused;
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr}, fc3{nullptr};
};
GRADUS_MODULE(LeNet);

void set_parameters(LeNet& net) {
  const NoGradGuard no_grad;
  uint64_t stream = 0;
  int64_t fan_in = 1;
  for (const auto& item : net->named_parameters()) {
    const Tensor& parameter = item.value();
    if (parameter.dim() > 1) fan_in = parameter[0].numel();
    const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
    std::vector<double> numbers = uniform(stream++, parameter.numel());
    for (double& x : numbers) x = (2.0 * x - 1.0) * bound;
    parameter.copy_(tensor(numbers, kDouble).view(parameter.sizes()));
  }
}

/// Two round spots on a noisy ground; the class decides where they are.
std::pair<Tensor, Tensor> batch_of(int64_t step) {
  const Tensor images = empty({kBatch, 1, 28, 28}, kDouble), labels = empty({kBatch}, kLong);
  const auto pixels = images.accessor<double, 4>();
  const auto classes = labels.accessor<int64_t, 1>();
  for (int64_t n = 0; n < kBatch; ++n) {
    const int64_t label = classes[n] = (7 * step + 3 * n) % 10;
    const std::vector<double> random = uniform(static_cast<uint64_t>(1000 + step * kBatch + n), 784 + 2);
    const double top = 4.0 + 2.0 * static_cast<double>(label) + 3.0 * random[784], left = 6.0 + 3.0 * random[785];
    const auto square = [](double x) { return x * x; };
    for (int row = 0; row < 28; ++row) {
      for (int column = 0; column < 28; ++column) {
        const double spot = 1.0 - (square(row - top) + square(column - left)) / 20.0;
        const double other = 1.0 - (square(row - left) + square(column - (24.0 - static_cast<double>(label)))) / 30.0;
        pixels[n][0][row][column] =
            2.0 * std::max(std::max(spot, other), 0.0) + random[static_cast<size_t>(row * 28 + column)] - 0.75;
      }
    }
  }
  return {images, labels};
}

struct Trained {
  std::vector<double> losses, squares;
};

Trained train(const std::string& backend_name, DType dtype, bool fused, MemoryFormat format) {
  const BackendGuard guard(backend_name);
  const Device device(backend(backend_name).device_type());
  LeNet net(fused);
  net->to(kDouble);
  set_parameters(net);
  net->to(device, dtype);
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4));
  Trained trained;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto [images, labels] = batch_of(step);
    const Tensor x = images.to(device, dtype).contiguous(format);
    const Tensor loss = cross_entropy(net(x), labels.to(device));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    trained.losses.push_back(loss.item<double>());
  }
  for (const Tensor& parameter : net->parameters())
    trained.squares.push_back(parameter.detach().to(kDouble).pow(2).sum().item<double>());
  return trained;
}

void check_against_pytorch(DType dtype, double tolerance, bool fused, MemoryFormat format = MemoryFormat::contiguous) {
  const std::string type(name(dtype));
  const auto golden = io::load_safetensors(test::source_path("tests/golden/lenet.safetensors"));
  for (const std::string& backend_name : backend_names()) {
    INFO(backend_name << " " << type);
    if (fused && backend_name == "naive") continue;  // plain loops either way, and slow ones
    const Trained trained = train(backend_name, dtype, fused, format);
    CHECK(test::error(trained.losses, test::values(golden.at("losses." + type))) < tolerance);
    CHECK(test::error(trained.squares, test::values(golden.at("squares." + type))) < tolerance);
  }
}

}  // namespace

TEST_CASE("LeNet's first 50 losses are PyTorch's: float64", "[accuracy]") {
  check_against_pytorch(kDouble, 1e-10, false);
}

// PyTorch's own float32 losses are up to 2e-6 away from its float64 ones here.
TEST_CASE("LeNet's first 50 losses are PyTorch's: float32", "[accuracy]") {
  check_against_pytorch(kFloat, 5e-5, false);
}
TEST_CASE("LeNet's first 50 losses are PyTorch's: fused convolutions, channels-last") {
  check_against_pytorch(kFloat, 5e-5, true, MemoryFormat::channels_last);
}

TEST_CASE("LeNet gives the same bits run after run") {
  for (const std::string& backend_name : backend_names()) {
    if (backend_name == "naive") continue;
    const auto run = [&] { return train(backend_name, kFloat, true, MemoryFormat::contiguous); };
    const Trained first = run(), second = run();
    CHECK(first.losses == second.losses);
    CHECK(first.squares == second.squares);
  }
}
