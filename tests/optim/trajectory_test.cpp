// Optimizers follow PyTorch's trajectories (golden/make_golden.py) on every backend of this machine.
#include <gradus/autograd/autograd.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/optim/optim.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

#include <algorithm>
#include <cmath>
#include <functional>

using namespace gradus;
using optim::SGD;
using test::error;
using test::tolerance_of;

namespace {

constexpr int kSteps = 20;

const std::map<std::string, Array>& trajectories() {
  static const auto tensors = io::load_safetensors(test::source_path("tests/optim/golden/trajectories.safetensors"));
  return tensors;
}

using Parameters = std::vector<Tensor>;

/// Makes an optimizer of golden/make_golden.py for the parameters (weight, bias).
struct KnownOptimizer {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(const Parameters&)> make;
};

template <class Optimizer, class Options>
auto all(Options options) {
  return [options](const Parameters& parameters) { return std::make_unique<Optimizer>(parameters, options); };
}
/// Makes an optimizer whose bias is in a second group with other options.
template <class Optimizer, class Options>
auto two_groups(Options options, Options bias_options) {
  return [=](const Parameters& parameters) {
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(Parameters{parameters[0]});
    groups.emplace_back(Parameters{parameters[1]}, std::make_unique<Options>(bias_options));
    return std::make_unique<Optimizer>(std::move(groups), options);
  };
}

const std::vector<KnownOptimizer>& optimizers() {
  using namespace optim;
  static const std::vector<KnownOptimizer> list = {
      {"sgd", all<SGD>(SGDOptions(0.1))},
      {"sgd_weight_decay", all<SGD>(SGDOptions(0.1).weight_decay(0.05))},
      {"sgd_momentum", all<SGD>(SGDOptions(0.05).momentum(0.9))},
      {"sgd_dampening", all<SGD>(SGDOptions(0.05).momentum(0.9).dampening(0.3))},
      {"sgd_nesterov", all<SGD>(SGDOptions(0.05).momentum(0.9).nesterov(true))},
      {"sgd_everything", all<SGD>(SGDOptions(0.05).momentum(0.8).nesterov(true).weight_decay(0.02).maximize(true))},
      {"sgd_late", all<SGD>(SGDOptions(0.05).momentum(0.9))},
      {"sgd_groups", two_groups<SGD>(SGDOptions(0.1), SGDOptions(0.05).momentum(0.5).weight_decay(0.1))},
      {"adam", all<Adam>(AdamOptions())},
      {"adam_weight_decay", all<Adam>(AdamOptions(0.01).weight_decay(0.1))},
      {"adam_betas", all<Adam>(AdamOptions(0.02).betas({0.8, 0.99}).eps(1e-06))},
      {"adam_amsgrad", all<Adam>(AdamOptions(0.01).betas({0.9, 0.7}).amsgrad(true).weight_decay(0.1))},
      {"adam_maximize", all<Adam>(AdamOptions(0.01).weight_decay(0.1).maximize(true))},
      {"adam_late", all<Adam>(AdamOptions(0.01))},
      {"adam_groups", two_groups<Adam>(AdamOptions(0.01), AdamOptions(0.1).betas({0.5, 0.9}).amsgrad(true))},
      {"adamw", all<AdamW>(AdamWOptions())},
      {"adamw_everything",
       all<AdamW>(AdamWOptions(0.02).betas({0.8, 0.7}).eps(1e-06).weight_decay(0.2).amsgrad(true).maximize(true))},
      {"adamw_late", all<AdamW>(AdamWOptions(0.01).weight_decay(0.1))},
      {"adamw_groups", two_groups<AdamW>(AdamWOptions(0.01), AdamWOptions(0.1).weight_decay(0.0))},
      {"rmsprop", all<RMSprop>(RMSpropOptions())},
      {"rmsprop_momentum", all<RMSprop>(RMSpropOptions(0.005).alpha(0.9).momentum(0.9).weight_decay(0.1))},
      {"rmsprop_centered", all<RMSprop>(RMSpropOptions(0.01).alpha(0.8).eps(0.0001).centered(true))},
      {"rmsprop_everything",
       all<RMSprop>(
           RMSpropOptions(0.01).alpha(0.8).eps(0.0001).centered(true).momentum(0.7).weight_decay(0.1).maximize(true))},
      {"rmsprop_late", all<RMSprop>(RMSpropOptions(0.01).momentum(0.5))},
      {"rmsprop_groups", two_groups<RMSprop>(RMSpropOptions(0.01), RMSpropOptions(0.02).eps(0.0001).centered(true))},
      {"adagrad", all<Adagrad>(AdagradOptions())},
      {"adagrad_everything",
       all<Adagrad>(
           AdagradOptions(0.1).lr_decay(0.1).weight_decay(0.1).initial_accumulator_value(0.5).eps(1e-06).maximize(
               true))},
      {"adagrad_late", all<Adagrad>(AdagradOptions(0.1).lr_decay(0.1))},
      {"adagrad_groups", two_groups<Adagrad>(AdagradOptions(0.1), AdagradOptions(0.01).lr_decay(0.5))},
      {"nadam", all<NAdam>(NAdamOptions(0.002))},
      {"nadam_everything",
       all<NAdam>(NAdamOptions(0.02).betas({0.8, 0.99}).eps(1e-06).weight_decay(0.1).momentum_decay(0.1))},
      {"nadam_decoupled", all<NAdam>(NAdamOptions(0.02).weight_decay(0.1).decoupled_weight_decay(true).maximize(true))},
      {"nadam_late", all<NAdam>(NAdamOptions(0.01))},
      {"nadam_groups", two_groups<NAdam>(NAdamOptions(0.01), NAdamOptions(0.02).momentum_decay(0.2))},
      {"radam", all<RAdam>(RAdamOptions())},
      {"radam_everything", all<RAdam>(RAdamOptions(0.02).betas({0.8, 0.99}).eps(1e-06).weight_decay(0.1))},
      {"radam_decoupled", all<RAdam>(RAdamOptions(0.02).weight_decay(0.1).decoupled_weight_decay(true).maximize(true))},
      {"radam_late", all<RAdam>(RAdamOptions(0.01))},
      {"radam_groups", two_groups<RAdam>(RAdamOptions(0.01), RAdamOptions(0.02).betas({0.5, 0.7}))},
      {"lion", all<Lion>(LionOptions(0.0001))},
      {"lion_everything", all<Lion>(LionOptions(0.01).betas({0.7, 0.8}).weight_decay(0.3).maximize(true))},
      {"lion_late", all<Lion>(LionOptions(0.01))},
      {"lion_groups", two_groups<Lion>(LionOptions(0.01), LionOptions(0.02).betas({0.5, 0.7}))},
  };
  return list;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name, const Parameters& parameters) {
  for (const KnownOptimizer& known : optimizers())
    if (known.name == name) return known.make(parameters);
  FAIL("no case " << name);
  return nullptr;
}

/// A parameter after PyTorch has made `step` + 1 steps in float64.
Tensor golden_step(const std::string& name, const char* parameter, int step) {
  return Tensor(trajectories().at(name + ".f64." + parameter))[step];
}

bool is_late(std::string_view name, int step) {
  return name.ends_with("_late") && (step == 0 || step == 1 || step == 7);
}

/// Backends that this machine can run.
std::vector<std::string> usable_backends() {
  std::vector<std::string> names;
  for (const std::string& name : backend_names())
    if (backend(name).device_type() == DeviceType::cpu || cuda::is_available()) names.push_back(name);
  return names;
}

/// Two parameters with the initial values of the golden file, and the gradients of each step.
struct Problem {
  explicit Problem(DType dtype, Device device = {}) : dtype(dtype) {
    for (const char* name : {"weight", "bias"}) {
      parameters.push_back(Tensor(trajectories().at(name)).to(device, dtype, false, true).set_requires_grad(true));
      gradients.push_back(Tensor(trajectories().at(std::string(name) + "_grad")).to(device, dtype));
    }
  }
  void set_gradients(int step, bool with_bias = true) {
    for (int i = 0; i < 2; ++i)
      parameters[i].mutable_grad() = i == 1 && !with_bias ? Tensor() : gradients[i][step].clone();
  }
  void compare(const std::string& name, int step) const {
    const std::string prefix = name + (dtype == kFloat ? ".f32." : ".f64.");
    INFO(name << " step " << step);
    CHECK(error(parameters[0], Tensor(trajectories().at(prefix + "weight"))[step]) <= tolerance_of(dtype));
    CHECK(error(parameters[1], Tensor(trajectories().at(prefix + "bias"))[step]) <= tolerance_of(dtype));
  }
  DType dtype;
  std::vector<Tensor> parameters, gradients;
};

}  // namespace

TEST_CASE("optimizers make PyTorch's steps") {
  for (const std::string& backend_name : usable_backends()) {
    BackendGuard guard(backend_name);
    for (DType dtype : {kFloat, kDouble}) {
      for (const auto& [name, make] : optimizers()) {
        INFO(backend_name);
        Problem problem(dtype, backend(backend_name).device_type());
        auto optimizer = make(problem.parameters);
        for (int step = 0; step < kSteps; ++step) {
          problem.set_gradients(step, !is_late(name, step));
          optimizer->step();
          problem.compare(name, step);
        }
      }
    }
  }
}

TEST_CASE("an optimizer resumed from a state dict is bit-identical") {
  for (const char* backend_name : {"naive", "openmp"}) {
    BackendGuard guard(backend_name);
    for (DType dtype : {kFloat, kDouble, kHalf, kBFloat16}) {
      for (const auto& [name, make] : optimizers()) {
        INFO(backend_name << " " << name);
        Problem through(dtype), stopped(dtype);
        auto optimizer = make(through.parameters), other = make(stopped.parameters);
        for (int step = 0; step < kSteps; ++step) {
          if (step == 9) {
            const auto state = other->state_dict();
            other = make(stopped.parameters);
            other->load_state_dict(state);
          }
          through.set_gradients(step, !is_late(name, step));
          stopped.set_gradients(step, !is_late(name, step));
          optimizer->step();
          other->step();
        }
        for (int i = 0; i < 2; ++i) CHECK(through.parameters[i].equal(stopped.parameters[i]));
      }
    }
  }
}

TEST_CASE("half types make PyTorch's steps within their precision") {
  for (const std::string& backend_name : usable_backends()) {
    BackendGuard guard(backend_name);
    for (DType dtype : {kHalf, kBFloat16}) {
      for (const auto& [name, make] : optimizers()) {
        INFO(backend_name << " " << name);
        Problem problem(dtype, backend(backend_name).device_type());
        auto optimizer = make(problem.parameters);
        for (int step = 0; step < kSteps; ++step) {
          problem.set_gradients(step, !is_late(name, step));
          optimizer->step();
        }
        // Each step rounds the parameter, which is about 2, by up to half a unit in the last place, and these errors
        // add up like a random walk.
        const double allowed = 4 * tolerance_of(dtype);
        CHECK(error(problem.parameters[0], golden_step(name, "weight", kSteps - 1)) < allowed);
        CHECK(error(problem.parameters[1], golden_step(name, "bias", kSteps - 1)) < allowed);
      }
    }
  }
}

TEST_CASE("the layout of parameters and gradients does not change the steps") {
  for (const std::string& backend_name : usable_backends()) {
    BackendGuard guard(backend_name);
    for (const char* name : {"sgd_everything", "adam"}) {
      const Device device = backend(backend_name).device_type();
      Problem problem(kDouble, device);
      // The weight is a column-major leaf, the bias every second element of a longer tensor.
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
      CHECK(error(longer.slice(0, 1, 10, 2), zeros({5}, kDouble)) == 0);
    }
  }
}
