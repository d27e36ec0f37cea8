// Recorded steps on a device other than the CPU. The device is a fake one, with the host's memory and openmp's kernels.
// The results of recorded steps equal those of eager steps bit for bit, recording does not use the device, and lockstep
// compares steps on two devices.
#include <gradus/gradus.h>
#include <gradus/graph/executor.h>
#include <gradus/graph/recorder.h>
#include <gradus/inspect/lockstep.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/fake_device.h>

using namespace gradus;
using test::contains;

namespace {

const Device kOther(kCUDA, 0);

/// Runs openmp's kernels on operands that are marked as being on the other device.
class OtherBackend final : public BackendInterceptor<OtherBackend> {
 public:
  std::string_view name() const override { return "other"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    runtime(DeviceType::cuda).synchronize(0);  // waits for queued copies
    (backend("openmp").*method)(arguments...);
    const auto look_at = [&](const auto& view) {
      if (!(view.device == kOther)) throw ValueError(std::string(name) + " was given an operand elsewhere");
      if constexpr (std::is_same_v<decltype(view), const MutableView&>)
        if (is_wrong && std::string_view(name) == "unary") view.template as<float>()[0] += 0.1f;
    };
    (for_each_operand(arguments, look_at), ...);
  }
  bool is_wrong = false;
};

/// The backend of the fake device. Null on a machine with a GPU, for which tests/cuda has the same cases.
OtherBackend* other_backend() {
  static OtherBackend* const made = [] {
    if (!test::use_fake_device()) return static_cast<OtherBackend*>(nullptr);
    auto backend = std::make_unique<OtherBackend>();
    OtherBackend* const pointer = backend.get();
    register_backend(std::move(backend));
    return pointer;
  }();
  return made || test::skip("a machine without CUDA devices") ? made : nullptr;
}

/// A convolution and an encoder layer, whose attention and dropouts draw random numbers.
struct MixedNet : nn::Module {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 4, 3)));
  nn::TransformerEncoderLayer encoder = register_module("encoder", nn::TransformerEncoderLayer(8, 2));
  nn::Linear fc = register_module("fc", nn::Linear(8, 10));

  Tensor forward(const Tensor& x) {
    const Tensor y = relu(conv(x)).flatten(2).permute({2, 0, 1}).reshape({-1, x.size(0), 8});
    return fc(encoder(y).mean({0}));
  }
};

struct MixedTraining {
  explicit MixedTraining(Device device) : device(device) {
    net.to(device);
    optimizer = std::make_unique<optim::AdamW>(net.parameters(), optim::AdamWOptions(1e-2));
  }
  Tensor step(const Tensor& x, const Tensor& target) {
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(net.forward(x), target) * tensor({2.0f}).to(device);
    loss.sum().backward();
    optimizer->step();
    return loss;
  }
  const Device device;
  MixedNet net;
  std::unique_ptr<optim::AdamW> optimizer;
};

}  // namespace

TEST_CASE("static steps on another device equal eager ones bit for bit") {
  if (!other_backend()) return;
  const auto train = [](bool recorded) {
    manual_seed(7);
    MixedTraining training(kOther);
    training::StaticStep step(
        kOther, {training.optimizer.get()},
        [&](const TensorList& batch) -> TensorList {
          return {training.step(batch[0], batch[1]), tensor({7.0f}).to(kOther)};
        },
        training::StaticStepOptions().enabled(recorded));
    TensorList results;
    for (int64_t size : {2, 3, 2}) {  // no size twice in a row, because the second run of a recording would be captured
      const TensorList of_step = step({randn({size, 2, 6, 6}), randint(0, 10, {size}, kLong)});
      for (const Tensor& result : of_step) results.push_back(result.detach().clone().cpu());
    }
    CHECK((step.executor() != nullptr) == recorded);
    if (recorded) CHECK(step.executor()->graph().device() == kOther);
    for (const Tensor& parameter : training.net.parameters()) results.push_back(parameter.detach().cpu());
    results.push_back(rand({2}));
    return results;
  };
  const TensorList eager = train(false), recorded = train(true);
  REQUIRE(recorded.size() == eager.size());
  for (size_t i = 0; i < eager.size(); ++i) CHECK(recorded[i].equal(eager[i]));
}

TEST_CASE("lockstep compares across devices and finds a wrong kernel on the other one") {
  OtherBackend* const other = other_backend();
  if (!other) return;
  for (const Device device : {Device(kCPU), kOther}) {
    INFO(device.str());
    manual_seed(7);
    MixedTraining training(device);
    const Tensor x = randn({2, 2, 6, 6}).to(device), target = randint(0, 10, {2}, kLong).to(device);
    const auto step = [&] { training.step(x, target); };
    step();
    graph::Recorder recorder(device);
    step();
    graph::Executor executor(recorder.finish());
    training.optimizer->zero_grad();
    const auto compared_with = [&](Backend& b) {
      const auto found = graph::lockstep(executor, current_backend(device.type()), b);
      return found ? found->str() : "";
    };
    CHECK(compared_with(backend("openmp")) == "");
    CHECK(compared_with(*other) == "");
    const auto eager = graph::lockstep(executor, step);
    CHECK((eager ? eager->str() : "") == "");
    other->is_wrong = true;
    CHECK_THAT(compared_with(device.is_cpu() ? static_cast<Backend&>(*other) : backend("openmp")),
               contains("unary (relu, other_device_test.cpp:"));
    other->is_wrong = false;
  }
}

TEST_CASE("a recording on another device keeps values from the host, and errors name the operator") {
  if (!other_backend()) return;
  const Tensor before = ones({4}).to(kOther);
  const auto message_of = [](const auto& step) -> std::string {
    try {
      graph::Recorder recorder(kOther);
      step();
      recorder.finish();
    } catch (const Error& error) { return error.what(); }
    CHECK_FALSE(runtime(DeviceType::cuda).capturing());
    return "";
  };
  CHECK(message_of([&] { (before * (tensor({1.0f, 2.0f}).sum() * 2).to(kOther)).sum(); }) == "");
  CHECK(message_of([&] { CHECK(ones({3}).sum().item<float>() == 3); }) == "");  // computed on the host
  CHECK_THAT(message_of([&] { (before * 2).sum().item<float>(); }), contains("[item] reading a number"));
  CHECK_THAT(message_of([&] { (before * 2).str(); }), contains("printing a tensor"));
  CHECK_THAT(message_of([&] { (before * 2).cpu(); }), contains("[to] a copy between devices"));
  CHECK_THAT(message_of([&] { before.copy_(ones({4})); }), contains("[copy_]") && contains("values from the host"));
  CHECK_THAT(message_of([&] {
               const Tensor numbers = ones({4}).to(kOther);
               numbers.copy_(zeros({4}));
             }),
             contains("only into a new array, and only once"));
  CHECK_THAT(message_of([&] { (before * 2).copy_(zeros({4})); }), contains("'mul' at") && contains("from the host"));
  CHECK_THAT(message_of([&] { ones({4}).to(kOther).add_(1); }), contains("'add_' at") && contains("from the host"));
  CHECK_THAT(message_of([&] { zeros({2}, TensorOptions(kFloat).device(Device(kCUDA, 1))); }),
             contains("'zeros' at") && contains("cuda:1, the recorded step is on cuda:0"));
  graph::Recorder recorder;
  CHECK_THROWS_WITH(Storage::allocate_pinned(8), contains("page-locked memory cannot be part of a recorded step"));
}
