// A whole training step, LeNet with dropout: eager and captured give the same bits, on every backend of the device.
#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

nn::Sequential lenet() {
  return nn::Sequential(nn::ConvReLU2d(nn::Conv2dOptions(1, 6, 5).padding(2)), nn::MaxPool2d(2),
                        nn::ConvReLU2d(nn::Conv2dOptions(6, 16, 5)), nn::MaxPool2d(2), nn::Flatten(),
                        nn::Linear(400, 120), nn::ReLU(), nn::Dropout(0.2), nn::Linear(120, 84), nn::ReLU(),
                        nn::Linear(84, 10));
}

struct Run {
  std::vector<float> losses;
  std::vector<Tensor> parameters;
};

constexpr int kWarmUp = 3, kSteps = 8;

// kWarmUp eager steps, then kSteps more, eager or replayed.
template <class MakeOptimizer>
Run train(bool captured, MakeOptimizer make_optimizer) {
  manual_seed(5);
  const Tensor images = randn({kWarmUp + kSteps, 64, 1, 28, 28}), labels = randint(0, 10, {kWarmUp + kSteps, 64});
  nn::Sequential net = lenet();
  const Device device = cuda_device();
  net->to(device);
  auto optimizer = make_optimizer(net->parameters());
  Tensor x = zeros({64, 1, 28, 28}, device), target = zeros({64}, TensorOptions(DType::i64).device(device)), loss;
  auto step = [&] {
    optimizer.zero_grad();
    loss = cross_entropy(net->forward(x), target);
    loss.backward();
    optimizer.step();
  };
  Run run;
  cuda::Graph graph;
  for (int i = 0; i < kWarmUp + kSteps; ++i) {
    x.copy_(images.select(0, i));
    target.copy_(labels.select(0, i));
    if (captured && i == kWarmUp) graph.capture(step);
    if (captured && i >= kWarmUp) graph.replay();
    else step();
    run.losses.push_back(loss.item<float>());
  }
  for (const Tensor& parameter : net->parameters()) run.parameters.push_back(parameter.detach().to(Device(kCPU)));
  return run;
}

template <class MakeOptimizer>
void check_same_bits(MakeOptimizer make_optimizer) {
  for (const std::string& name : backend_names()) {
    if (backend(name).device_type() != DeviceType::cuda) continue;
    INFO(name);
    const BackendGuard guard(name);
    const Run eager = train(false, make_optimizer), captured = train(true, make_optimizer);
    CHECK(eager.losses == captured.losses);
    REQUIRE(eager.parameters.size() == captured.parameters.size());
    for (size_t i = 0; i < eager.parameters.size(); ++i) CHECK(eager.parameters[i].equal(captured.parameters[i]));
    CHECK(eager.losses.back() != eager.losses.front());
  }
}

}  // namespace

TEST_CASE("a captured LeNet step gives the bits of an eager one, with Adam") {
  if (no_cuda_device()) return;
  check_same_bits(
      [](const std::vector<Tensor>& parameters) { return optim::Adam(parameters, optim::AdamOptions(1e-3)); });
}

TEST_CASE("a captured LeNet step gives the bits of an eager one, with SGD") {
  if (no_cuda_device()) return;
  check_same_bits([](const std::vector<Tensor>& parameters) {
    return optim::SGD(parameters, optim::SGDOptions(0.01).momentum(0.9));
  });
}

TEST_CASE("a captured step gives the bits of an eager one, with every other optimizer") {
  if (no_cuda_device()) return;
  using namespace optim;
  const auto with = [](const auto& options, auto make) {
    check_same_bits([&](const std::vector<Tensor>& parameters) { return make(parameters, options); });
  };
  with(AdamWOptions(1e-3).amsgrad(true), [](auto& p, auto& options) { return AdamW(p, options); });
  with(RMSpropOptions(1e-3).centered(true).momentum(0.9), [](auto& p, auto& options) { return RMSprop(p, options); });
  with(AdagradOptions(1e-2).lr_decay(0.1), [](auto& p, auto& options) { return Adagrad(p, options); });
  with(NAdamOptions(1e-3), [](auto& p, auto& options) { return NAdam(p, options); });
  with(RAdamOptions(1e-3), [](auto& p, auto& options) { return RAdam(p, options); });  // rectified while it is replayed
  with(LionOptions(1e-4), [](auto& p, auto& options) { return Lion(p, options); });
}
