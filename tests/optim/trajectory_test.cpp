// Optimizers follow PyTorch's trajectories (golden/make_golden.py) on every backend of this machine.
#include <gradus/autograd/autograd.h>
#include <gradus/core/cuda.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/core/registry.h>
#include <gradus/optim/optim.h>
#include <gradus/tests/catch.h>

#include <algorithm>
#include <cmath>

using namespace gradus;
using optim::Adam;
using optim::SGD;
using optim::SGDOptions;

namespace {

constexpr int kSteps = 20;

const std::map<std::string, Array>& golden() {
  static const auto tensors = io::load_safetensors(test::source_path("tests/optim/golden/trajectories.safetensors"));
  return tensors;
}

/// A row-major copy in double.
std::vector<double> numbers(const Tensor& x) {
  const Tensor plain = x.detach().cpu().to(kDouble).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = numbers(a), y = numbers(b);
  REQUIRE(x.size() == y.size());
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = std::abs(x[i] - y[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name, const std::vector<Tensor>& parameters) {
  using optim::AdamOptions;
  if (name == "sgd") return std::make_unique<SGD>(parameters, 0.1);
  if (name == "sgd_weight_decay") return std::make_unique<SGD>(parameters, SGDOptions(0.1).weight_decay(0.05));
  if (name == "sgd_momentum" || name == "sgd_late")
    return std::make_unique<SGD>(parameters, SGDOptions(0.05).momentum(0.9));
  if (name == "sgd_dampening") return std::make_unique<SGD>(parameters, SGDOptions(0.05).momentum(0.9).dampening(0.3));
  if (name == "sgd_nesterov") return std::make_unique<SGD>(parameters, SGDOptions(0.05).momentum(0.9).nesterov(true));
  if (name == "sgd_everything")
    return std::make_unique<SGD>(parameters, SGDOptions(0.05).momentum(0.8).nesterov(true).weight_decay(0.02));
  if (name == "adam" || name == "adam_late") return std::make_unique<Adam>(parameters, 0.01);
  if (name == "adam_weight_decay") return std::make_unique<Adam>(parameters, AdamOptions(0.01).weight_decay(0.1));
  REQUIRE(name == "adam_betas");
  return std::make_unique<Adam>(parameters, AdamOptions(0.02).betas({0.8, 0.99}).eps(1e-6));
}

bool is_late(const std::string& name, int step) {
  return name.ends_with("_late") && (step == 0 || step == 1 || step == 7);
}

/// Backends that this machine can run.
std::vector<std::string> usable_backends() {
  std::vector<std::string> names;
  for (const std::string& name : backend_names())
    if (backend(name).device_type() == DeviceType::cpu || cuda::is_available()) names.push_back(name);
  return names;
}

/// Two parameters that start where PyTorch's did, and the gradients that they get.
struct Problem {
  explicit Problem(DType dtype, Device device = {}) : dtype(dtype) {
    for (const char* name : {"weight", "bias"}) {
      parameters.push_back(Tensor(golden().at(name)).to(device, dtype, false, true).set_requires_grad(true));
      gradients.push_back(Tensor(golden().at(std::string(name) + "_grad")).to(device, dtype));
    }
  }
  void set_gradients(int step, bool with_bias = true) {
    for (int i = 0; i < 2; ++i)
      parameters[i].mutable_grad() = i == 1 && !with_bias ? Tensor() : gradients[i][step].clone();
  }
  void compare(const std::string& name, int step) const {
    const std::string prefix = name + (dtype == kFloat ? ".f32." : ".f64.");
    const double tolerance = dtype == kFloat ? 5e-6 : 1e-13;
    INFO(name << " step " << step);
    CHECK(largest_difference(parameters[0], Tensor(golden().at(prefix + "weight"))[step]) < tolerance);
    CHECK(largest_difference(parameters[1], Tensor(golden().at(prefix + "bias"))[step]) < tolerance);
  }
  DType dtype;
  std::vector<Tensor> parameters, gradients;
};

const std::vector<std::string> kCases = {"sgd",          "sgd_weight_decay", "sgd_momentum",     "sgd_dampening",
                                         "sgd_nesterov", "sgd_everything",   "sgd_late",         "adam",
                                         "adam_late",    "adam_betas",       "adam_weight_decay"};

}  // namespace

TEST_CASE("optimizers follow PyTorch's trajectories") {
  for (const std::string& backend_name : usable_backends()) {
    BackendGuard guard(backend_name);
    for (DType dtype : {kFloat, kDouble}) {
      for (const std::string& name : kCases) {
        INFO(backend_name);
        Problem problem(dtype, backend(backend_name).device_type());
        auto optimizer = make_optimizer(name, problem.parameters);
        for (int step = 0; step < kSteps; ++step) {
          problem.set_gradients(step, !is_late(name, step));
          optimizer->step();
          problem.compare(name, step);
        }
      }
    }
  }
}

TEST_CASE("an optimizer goes on from its state dict as if nothing had happened") {
  for (const std::string& name : kCases) {
    Problem problem(kDouble);
    auto optimizer = make_optimizer(name, problem.parameters);
    for (int step = 0; step < kSteps; ++step) {
      if (step == 9) {
        const auto state = optimizer->state_dict();
        optimizer = make_optimizer(name, problem.parameters);
        optimizer->load_state_dict(state);
      }
      problem.set_gradients(step, !is_late(name, step));
      optimizer->step();
      problem.compare(name, step);
    }
  }
}

TEST_CASE("the layout of parameters and gradients does not change a trajectory") {
  for (const std::string& backend_name : usable_backends()) {
    BackendGuard guard(backend_name);
    for (const char* name : {"sgd_everything", "adam"}) {
      const Device device = backend(backend_name).device_type();
      Problem problem(kDouble, device);
      // The weight as a column-major leaf; the bias as every second element of a longer tensor.
      Tensor weight = problem.parameters[0].detach().t().contiguous().t();
      Tensor longer = zeros({10}, TensorOptions(kDouble).device(device));
      Tensor bias = longer.slice(0, 0, 10, 2);
      bias.copy_(problem.parameters[1].detach());
      problem.parameters = {weight.detach().set_requires_grad(true), bias.detach().set_requires_grad(true)};
      REQUIRE_FALSE(problem.parameters[0].is_contiguous());
      REQUIRE_FALSE(problem.parameters[1].array().is_dense());
      auto optimizer = make_optimizer(name, problem.parameters);
      for (int step = 0; step < kSteps; ++step) {
        problem.set_gradients(step);
        optimizer->step();
        problem.compare(name, step);
      }
      CHECK(largest_difference(longer.slice(0, 1, 10, 2), zeros({5}, kDouble)) == 0);
    }
  }
}

TEST_CASE("schedules follow PyTorch's") {
  Tensor parameter = zeros({1}, requires_grad());
  auto check = [&](optim::Optimizer& optimizer, optim::LRScheduler& scheduler, const char* key) {
    const Array expected = golden().at(key);
    for (int n = 0; n <= 25; ++n) {
      INFO(key << " after " << n);
      CHECK(optimizer.param_groups()[0].options().get_lr() == Approx(expected.data<double>()[n]).epsilon(1e-12));
      CHECK(scheduler.get_last_lr()[0] == optimizer.param_groups()[0].options().get_lr());
      scheduler.step();
    }
  };
  SECTION("cosine") {
    SGD optimizer({parameter}, 0.5);
    optim::CosineAnnealingLR scheduler(optimizer, 10, 0.01);
    check(optimizer, scheduler, "schedule.cosine");
  }
  SECTION("step") {
    SGD optimizer({parameter}, 0.5);
    optim::StepLR scheduler(optimizer, 3, 0.5);
    check(optimizer, scheduler, "schedule.step");
  }
  SECTION("resumed") {
    SGD optimizer({parameter}, 0.5);
    optim::CosineAnnealingLR scheduler(optimizer, 10, 0.01);
    scheduler.set_step_count(7);
    CHECK(scheduler.get_last_lr()[0] == Approx(golden().at("schedule.cosine").data<double>()[7]).epsilon(1e-12));
    CHECK(scheduler.step_count() == 7);
  }
}
