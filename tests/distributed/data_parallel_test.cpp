// Replicas of a module on several devices compared with the plain module. The devices are the CPU, named several times.
#include <gradus/distributed/parallel/data_parallel.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>
#include <gradus/tests/distributed/fake_device.h>

using namespace gradus;
using namespace gradus::nn::parallel;
using namespace gradus::test;

namespace {

std::vector<Device> cpus(size_t count) { return std::vector<Device>(count, Device(kCPU)); }

/// Has module holders as members, a tied parameter and a frozen one, and computes every sample separately.
struct TwoBranchesImpl : nn::Cloneable<TwoBranchesImpl> {
  TwoBranchesImpl() { TwoBranchesImpl::reset(); }
  void reset() override {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)));
    rest = register_module("rest", nn::Sequential(nn::ReLU(), nn::GroupNorm(2, 4), nn::Flatten(), nn::Linear(64, 6)));
    first = register_module("first", nn::Linear(6, 6));
    second = register_module("second", nn::Linear(6, 6));
    second->weight = second->replace_parameter("weight", first->weight);
    first->bias.set_requires_grad(false);
  }
  Tensor forward(const Tensor& x) { return second->forward(first->forward(rest->forward(conv(x))).tanh()); }
  nn::Conv2d conv = nullptr;
  nn::Sequential rest = nullptr;
  nn::Linear first = nullptr, second = nullptr;
};
GRADUS_MODULE(TwoBranches);

/// A module that calls a function.
struct CallImpl : nn::Cloneable<CallImpl> {
  explicit CallImpl(std::function<Tensor(const Tensor&, bool is_training)> function) : function(std::move(function)) {}
  void reset() override {}
  Tensor forward(const Tensor& x) { return function(x, is_training()); }
  std::function<Tensor(const Tensor&, bool)> function;
};
GRADUS_MODULE(Call);

}  // namespace

TEST_CASE("data_parallel has the results and gradients of the plain module", "[data_parallel]") {
  const size_t devices = GENERATE(1, 2, 3, 4);
  const int64_t samples = GENERATE(1, 2, 7, 8);
  CAPTURE(devices, samples);
  manual_seed(1);
  TwoBranches net;
  net->to(kDouble);
  const Tensor x = randn({samples, 2, 4, 4}, kDouble), dy = randn({samples, 6}, kDouble);
  struct Result {
    Tensor y, dx;
    nn::StateDict gradients;
  };
  const auto run = [&](const auto& forward) {
    net->zero_grad();
    const Tensor input = x.detach().requires_grad_();
    const Tensor y = forward(input);
    (y * dy).sum().backward();
    Result result;
    result.y = y.detach(), result.dx = input.grad();
    for (const auto& parameter : net->named_parameters())
      if (parameter->grad().defined()) result.gradients.insert(parameter.key(), parameter->grad().clone());
    return result;
  };
  const Result expected = run([&](const Tensor& input) { return net(input); });
  const Result actual = run([&](const Tensor& input) { return data_parallel(net, input, cpus(devices)); });
  CHECK(difference(actual.y, expected.y, 1e-12) == "");
  CHECK(difference(actual.dx, expected.dx, 1e-12) == "");
  REQUIRE(actual.gradients.keys() == expected.gradients.keys());
  for (const auto& gradient : expected.gradients) {
    CAPTURE(gradient.key());
    CHECK(difference(actual.gradients[gradient.key()], *gradient, 1e-12) == "");
  }
  // The gradients are added in a fixed order, whichever replica finishes first.
  const Result again = run([&](const Tensor& input) { return data_parallel(net, input, cpus(devices)); });
  for (const auto& gradient : actual.gradients) CHECK(again.gradients[gradient.key()].equal(*gradient));
}

TEST_CASE("an optimizer trains the module through its replicas", "[data_parallel]") {
  manual_seed(2);
  TwoBranches alone;
  alone->to(kDouble);
  const auto shared_out = std::dynamic_pointer_cast<TwoBranchesImpl>(alone->clone());
  optim::SGD a(alone->parameters(), optim::SGDOptions(0.1).momentum(0.9)),
      b(shared_out->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  int accumulated = 0;
  shared_out->first->weight.register_post_accumulate_grad_hook([&](const Tensor&) { ++accumulated; });
  for (int step = 0; step < 3; ++step) {
    const Tensor x = randn({5, 2, 4, 4}, kDouble), target = randn({5, 6}, kDouble);
    a.zero_grad(), b.zero_grad();
    mse_loss(alone(x), target).backward();
    mse_loss(data_parallel(shared_out, x, cpus(3)), target).backward();
    a.step(), b.step();
  }
  CHECK(accumulated == 3);  // once for each step, with the sum of all replicas
  for (size_t i = 0; i < alone->parameters().size(); ++i)
    CHECK(difference(shared_out->parameters()[i], alone->parameters()[i], 1e-12) == "");
}

TEST_CASE("scatter and gather: other dimensions, short batches, scalars", "[data_parallel]") {
  CHECK_THROWS_WITH(nn::parallel::scatter(ones({2}), {}), contains("at least one device"));
  CHECK_THROWS_WITH(scatter(tensor(1.0), cpus(1)), contains("a scalar has no dimensions"));
  const Tensor x = arange(20, kDouble).reshape({2, 10}).requires_grad_();
  const TensorList parts = scatter(x, cpus(4), 1);
  REQUIRE(parts.size() == 4);
  CHECK(parts[0].sizes() == Shape{2, 3});
  CHECK(parts[3].sizes() == Shape{2, 1});
  const Tensor y = gather(parts, kCPU, 1);
  CHECK(y.equal(x));
  (y * y).sum().backward();
  CHECK(x.grad().equal(2 * x.detach()));
  CHECK(scatter(x, cpus(4)).size() == 2);
  CHECK(gather({tensor(1.0), tensor(2.0)}, kCPU).equal(tensor({1.0, 2.0})));

  Call sum([](const Tensor& part, bool) { return part.sum(); });
  CHECK(data_parallel(sum, ones({4, 2}), cpus(2)).equal(full({2}, 4.0)));
  CHECK(data_parallel(sum, ones({0, 2}), cpus(2)).equal(zeros({2})));
}

TEST_CASE("data_parallel divides any dimension, and gathers along it", "[data_parallel]") {
  Call twice([](const Tensor& x, bool) { return x * 2; });
  const Tensor x = arange(24, kDouble).reshape({2, 3, 4});
  for (const int64_t dim : {0, 1, 2, -1, -2})
    for (const size_t devices : {1, 2, 3, 5}) {
      CAPTURE(dim, devices);
      CHECK(data_parallel(twice, x, cpus(devices), std::nullopt, dim).equal(x * 2));
      CHECK(data_parallel(twice, x, cpus(devices), Device(kCPU), dim).equal(x * 2));
    }
  std::vector<Shape> seen(2);
  Call look([&](const Tensor& part, bool) {
    seen[part[0][0].item<double>() == 0 ? 0 : 1] = part.sizes();
    return part;
  });
  data_parallel(look, arange(10, kDouble).reshape({2, 5}), cpus(2), std::nullopt, 1);
  CHECK(seen == std::vector{Shape{2, 3}, Shape{2, 2}});
}

TEST_CASE("parallel_apply with different modules", "[data_parallel]") {
  manual_seed(3);
  const std::vector<nn::Linear> modules = {nn::Linear(3, 2), nn::Linear(4, 2)};
  const TensorList inputs = {randn({5, 3}), randn({1, 4})};
  int called = 0;
  modules[1]->register_forward_hook([&](nn::Module&, const TensorList&, TensorList&) { ++called; });
  const TensorList outputs = parallel_apply(modules, inputs);
  CHECK(outputs[0].equal(modules[0](inputs[0])));
  CHECK(called == 1);
  CHECK(outputs[1].equal(modules[1](inputs[1])));
  outputs[0].sum().backward();
  CHECK(modules[0]->bias.grad().equal(full({2}, 5.0)));
  CHECK_FALSE(modules[1]->bias.grad().defined());
}

TEST_CASE("the first replica shares the buffers of the module", "[data_parallel]") {
  manual_seed(4);
  nn::BatchNorm1d norm(3), first_half(3);
  const Tensor x = randn({8, 3});
  data_parallel(norm, x, cpus(2));
  first_half(x.slice(0, 0, 4));
  CHECK(norm->running_mean.equal(first_half->running_mean));
  CHECK(norm->running_var.equal(first_half->running_var));
  CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
  norm->eval();  // the replicas are in evaluation mode too
  CHECK(data_parallel(norm, x, cpus(2)).allclose(norm(x)));
  CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
}

TEST_CASE("a module of which any tensor is elsewhere moves to the first device", "[data_parallel]") {
  if (!use_fake_device() && skip("a machine without CUDA devices")) return;
  const Device first(kCUDA, 0), second(kCUDA, 1);
  const auto elsewhere = GENERATE(as<std::string>(), "all", "the weight", "the bias", "a buffer", "none");
  CAPTURE(elsewhere);
  nn::BatchNorm1d norm(3);
  if (elsewhere != "all") norm->to(first);
  if (elsewhere == "the weight") norm->weight.set_data(norm->weight.detach().to(kCPU));
  if (elsewhere == "the bias") norm->bias.set_data(norm->bias.detach().to(second));
  if (elsewhere == "a buffer") norm->running_var.set_data(norm->running_var.to(second));
  const void* const before = norm->weight.data_ptr();
  const std::vector<Device> used = nn::parallel::detail::devices_for(*norm, std::vector{first, second, first});
  CHECK(used == std::vector{first, second, first});
  for (const Tensor& tensor : norm->parameters()) CHECK(tensor.device() == first);
  for (const Tensor& tensor : norm->buffers()) CHECK(tensor.device() == first);
  if (elsewhere == "none") CHECK(norm->weight.data_ptr() == before);
  CHECK(nn::parallel::detail::devices_for(*norm, std::nullopt) == std::vector{first, second});  // all GPUs
  CHECK(nn::parallel::detail::devices_for(*norm, std::vector{Device(kCUDA)})[0].index() == 0);
}

TEST_CASE("replicas draw random numbers of their own, the same in every run", "[data_parallel]") {
  nn::Dropout dropout(0.5);
  const Tensor x = ones({6, 50});
  const auto draw = [&] {
    manual_seed(5);
    return data_parallel(dropout, x, cpus(3));
  };
  const Tensor y = draw(), again = draw();
  CHECK(default_generator().offset() == 1);
  CHECK(y.equal(again));
  CHECK_FALSE(y.slice(0, 0, 2).equal(y.slice(0, 2, 4)));
  CHECK_FALSE(y.slice(0, 2, 4).equal(y.slice(0, 4, 6)));
  CHECK_FALSE(data_parallel(dropout, x, cpus(3)).equal(y));
  const float kept = y.ne(0).to(kFloat).mean().item<float>();
  CHECK((kept > 0.3 && kept < 0.7));
}

TEST_CASE("the threads of the replicas have the settings of the caller", "[data_parallel]") {
  struct Seen {
    bool grad, training, inference, anomaly;
    std::string backend;
    DType dtype;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen(2);
  Call module([&](const Tensor& x, bool is_training) {
    const size_t replica = static_cast<size_t>(x[0][0].item<int>());
    seen[replica] = {GradMode::is_enabled(),
                     is_training,
                     InferenceMode::is_enabled(),
                     AnomalyGuard::is_enabled(),
                     std::string(current_backend(kCPU).name()),
                     mm(x, x).dtype()};
    return x;
  });
  const Tensor x = tensor({{0., 0.}, {0., 0.}, {1., 0.}, {0., 0.}}).to(kFloat);
  const auto look = [&] {
    data_parallel(module, x, cpus(2));
    CHECK(seen[0] == seen[1]);
    return seen[1];
  };
  const Seen usual = look();
  CHECK(usual == Seen{true, true, false, false, std::string(current_backend(kCPU).name()), kFloat});
  module->eval();
  const NoGradGuard no_grad;
  const AnomalyGuard anomaly;
  const BackendGuard naive("naive");
  const amp::Autocast autocast(kCPU);
  CHECK(look() == Seen{false, false, false, true, "naive", kBFloat16});
  const InferenceMode inference;
  CHECK(look().inference);
}

TEST_CASE("an exception says which replica threw it", "[data_parallel]") {
  Call module([](const Tensor& x, bool) {
    const int replica = x[0][0].item<int>();
    if (replica == 1) mm(x, x);
    if (replica == 2) throw std::runtime_error("of the user's own");
    if (replica == 3) throw 42;
    return x;
  });
  CHECK_THROWS_AS(data_parallel(module, tensor({{0., 0., 0.}, {3., 0., 0.}}), cpus(2)), int);
  const Tensor x = tensor({{0., 0., 0.}, {1., 0., 0.}, {2., 0., 0.}});
  CHECK_THROWS_AS(data_parallel(module, x, cpus(3)), ShapeError);
  CHECK_THROWS_WITH(data_parallel(module, x, cpus(3)), contains("replica 1 on cpu: [mm] "));
  CHECK_THROWS_WITH(data_parallel(module, x.index_select(0, tensor({0, 2})), cpus(2)),
                    contains("replica 1 on cpu: of the user's own"));

  struct PlainImpl : nn::Module {
    Tensor forward(const Tensor& part) { return part; }
  };
  const auto plain = std::make_shared<PlainImpl>();
  CHECK(data_parallel(plain, x, cpus(1)).equal(x));
  CHECK_THROWS_WITH(data_parallel(plain, x, cpus(2)), contains("cannot be cloned"));
  CHECK_THROWS_WITH(parallel_apply(std::vector{module}, {x, x}), contains("1 modules, 2 inputs and 2 devices"));
  CHECK_THROWS_AS(data_parallel(module, x, std::vector<Device>()), DeviceError);
  if (!cuda::is_available()) CHECK_THROWS_WITH(data_parallel(module, x), contains("found no GPU"));
  CHECK_THROWS_WITH(
      autograd::checkpoint([&](const Tensor& of) { return data_parallel(module, of, cpus(2)); }, x.requires_grad_()),
      contains("call checkpoint() in the modules"));
}
