// Half copies and half gradients of parameters on a GPU: eager, captured and static steps give the same bits as with
// conversions in every step.
#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

enum class Steps { eager, captured, recorded };

struct HalfSetup {
  DType half = kBFloat16;
  MemoryFormat format = MemoryFormat::contiguous;
  bool clamped = false;     // the step also changes parameters without the optimizer
  bool open_guard = false;  // autocast is on until the step's end
};

// Losses of ten steps, and the parameters after them. With float16 the first steps overflow. Between two steps a weight
// is changed by hand, and between two others a state is loaded.
TensorList train_halves(const HalfSetup& setup, Steps steps, bool copies) {
  manual_seed(8);
  const Device device = cuda_device();
  const nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 32, 3).padding(1)), nn::BatchNorm2d(32), nn::ReLU(),
                           nn::Conv2d(nn::Conv2dOptions(32, 32, 3).padding(1).bias(false)), nn::ReLU(), nn::Flatten(),
                           nn::Linear(32 * 8 * 8, 24), nn::ReLU(), nn::Linear(24, 10));
  net->to(device);
  net->to(setup.format);
  const TensorList parameters = net->parameters();
  optim::AdamW optimizer(parameters, optim::AdamWOptions(0.01));
  amp::GradScaler scaler(amp::GradScalerOptions().init_scale(1 << 24).growth_interval(3).enabled(setup.half == kHalf));
  const auto one = [&](const TensorList& batch) -> TensorList {
    optimizer.zero_grad();
    std::optional<amp::Autocast> autocast;
    autocast.emplace(kCUDA, setup.half, true, copies);
    const Tensor loss = cross_entropy(net->forward(batch[0]), batch[1]);
    if (!setup.open_guard) autocast.reset();
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    const NoGradGuard no_grad;
    for (const Tensor& parameter : parameters)
      if (setup.clamped) parameter.clamp_(-0.04, 0.04);
    return {loss};
  };
  training::CapturedStep captured(device, {&optimizer}, one,
                                  training::CapturedStepOptions().enabled(steps == Steps::captured));
  training::StaticStep recorded(device, {&optimizer}, one);
  TensorList results;
  for (int i = 0; i < 10; ++i) {
    const Tensor x = randn({8, 3, 8, 8}).contiguous(setup.format), target = randint(0, 10, {8}, kLong);
    if (i == 6) {
      const NoGradGuard no_grad;
      parameters[0].mul_(1.5);
    }
    if (i == 8) net->load_state_dict(net->state_dict());
    const TensorList loss = steps == Steps::recorded ? recorded({x, target}) : captured({x, target});
    results.push_back(loss[0].detach().clone());
  }
  CHECK(captured.captured() == (steps == Steps::captured));
  for (const Tensor& parameter : parameters) results.push_back(parameter.detach());
  return results;
}

}  // namespace

TEST_CASE("half copies on a GPU: eager, captured and static steps have the bits of conversions") {
  if (no_cuda_device()) return;
  for (const char* backend : {"cuda", "cudnn"}) {
    const BackendGuard guard(backend);
    for (const HalfSetup& setup :
         {HalfSetup{}, HalfSetup{.half = kHalf}, HalfSetup{.format = MemoryFormat::channels_last},
          HalfSetup{.half = kHalf, .format = MemoryFormat::channels_last, .clamped = true}, HalfSetup{.clamped = true},
          HalfSetup{.open_guard = true}}) {
      const TensorList expected = train_halves(setup, Steps::eager, false);
      for (Steps steps : {Steps::eager, Steps::captured, Steps::recorded}) {
        INFO(backend << " half " << static_cast<int>(setup.half) << " clamped " << setup.clamped << " open "
                     << setup.open_guard << " steps " << static_cast<int>(steps));
        const TensorList results = train_halves(setup, steps, true);
        for (size_t i = 0; i < expected.size(); ++i) CHECK(results[i].equal(expected[i]));
      }
    }
  }
}
