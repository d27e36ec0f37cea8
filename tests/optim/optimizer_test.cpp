// Parameter groups, learning rates, versions, errors and the state of optimizers.
#include <gradus/autograd/autograd.h>
#include <gradus/core/ops/optimizer.h>
#include <gradus/core/optimizer_rules.h>
#include <gradus/optim/optim.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using optim::Adam;
using optim::OptimizerParamGroup;
using optim::SGD;
using optim::SGDOptions;
using test::contains;

namespace {

Tensor parameter(double value) { return full({2}, value, TensorOptions(kDouble).requires_grad()); }
void set_gradient(const Tensor& x, double value) { x.mutable_grad() = full({2}, value, kDouble); }
double first(const Tensor& x) { return x.detach()[0].item<double>(); }
double block_entry(const Array& block, int entry) { return block.data<double>()[entry]; }

}  // namespace

TEST_CASE("a step uses each group's options and skips parameters without gradient") {
  const Tensor a = parameter(1), b = parameter(1), c = parameter(1);
  SGD optimizer(
      std::vector<OptimizerParamGroup>{
          OptimizerParamGroup({a}),
          OptimizerParamGroup({b, c}, std::make_unique<SGDOptions>(SGDOptions(0.5).weight_decay(1)))},
      0.1);
  CHECK(optimizer.size() == 3);
  CHECK(optimizer.param_groups().size() == 2);
  CHECK(optimizer.defaults().get_lr() == 0.1);
  set_gradient(a, 1);
  set_gradient(b, 1);
  optimizer.step();
  CHECK(first(a) == Approx(0.9));
  CHECK(first(b) == Approx(1 - 0.5 * (1 + 1)));
  CHECK(first(c) == 1);

  const Tensor d = parameter(1);
  optimizer.add_param_group(OptimizerParamGroup({d}));
  set_gradient(d, 2);
  optimizer.step();
  CHECK(first(d) == Approx(0.8));
  CHECK(optimizer.parameters().size() == 4);
}

TEST_CASE("gradients are dropped or zeroed") {
  const Tensor a = parameter(1);
  SGD optimizer({a}, 0.1);
  set_gradient(a, 3);
  optimizer.zero_grad(false);
  REQUIRE(a.grad().defined());
  CHECK(first(a.grad()) == 0);
  optimizer.zero_grad();
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("a learning rate reaches the device when it changes") {
  const Tensor a = parameter(1);
  SGD optimizer({a}, 0.1);
  set_gradient(a, 1);
  optimizer.step();
  REQUIRE(optimizer.step_blocks().size() == 1);
  const Array block = optimizer.step_blocks()[0];
  CHECK(block_entry(block, StepBlock::step) == 1);
  CHECK(block_entry(block, StepBlock::learning_rate) == 0.1);
  CHECK(block_entry(block, StepBlock::gradient_scale) == 1);
  CHECK(block_entry(block, StepBlock::found_inf) == 0);

  optimizer.set_lr(0.2);  // at once, for replayed steps
  CHECK(block_entry(block, StepBlock::learning_rate) == 0.2);
  optimizer.param_groups()[0].options().set_lr(0.3);  // with the next step
  CHECK(block_entry(block, StepBlock::learning_rate) == 0.2);
  optimizer.step();
  CHECK(block_entry(block, StepBlock::learning_rate) == 0.3);
  CHECK(first(a) == Approx(1 - 0.1 - 0.3));
  static_cast<SGDOptions&>(optimizer.param_groups()[0].options()).lr(0.4);
  optimizer.step();
  CHECK(first(a) == Approx(1 - 0.1 - 0.3 - 0.4));
}

TEST_CASE("a step with found_inf changes nothing, and gradients are scaled") {
  const Tensor a = parameter(1);
  SGD optimizer({a}, SGDOptions(0.1).momentum(0.9));
  set_gradient(a, 1);
  optimizer.step();
  const Array block = optimizer.step_blocks()[0];
  const double before = first(a);
  ops::set_step_block(block, StepBlock::found_inf, 1);
  optimizer.step();
  CHECK(first(a) == before);
  CHECK(block_entry(block, StepBlock::step) == 1);
  ops::set_step_block(block, StepBlock::found_inf, 0);
  ops::set_step_block(block, StepBlock::gradient_scale, 0.5);
  optimizer.step();
  CHECK(first(a) == Approx(before - 0.1 * (0.9 * 1 + 0.5)));
}

TEST_CASE("a step bumps the versions of parameters, so that stale graphs are found") {
  const Tensor a = parameter(1), x = full({2}, 3.0, TensorOptions(kDouble).requires_grad());
  SGD optimizer({a}, 0.1);
  const uint32_t version = a.version();
  const Tensor product = (a * x).sum();
  set_gradient(a, 1);
  optimizer.step();
  CHECK(a.version() > version);
  CHECK_THROWS_AS(product.backward(), AutogradError);
}

TEST_CASE("a closure computes the loss with gradients on") {
  const Tensor a = parameter(2);
  SGD optimizer({a}, 0.1);
  NoGradGuard no_grad;
  const Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    Tensor loss = (a * a).sum();
    loss.backward();
    return loss;
  });
  CHECK(loss.item<double>() == Approx(8));
  CHECK(first(a) == Approx(2 - 0.1 * 4));
  CHECK_FALSE(optimizer.step().defined());
}

TEST_CASE("parameters of several dtypes train side by side") {
  const Tensor a = full({3}, 1.0, TensorOptions(kFloat).requires_grad());
  const Tensor b = full({3}, 1.0, TensorOptions(kDouble).requires_grad());
  const Tensor c = full({3}, 1.0, TensorOptions(kHalf).requires_grad());
  Adam optimizer({a, b, c}, 0.1);
  for (const Tensor& x : {a, b, c}) x.mutable_grad() = ones({3}, x.dtype());
  optimizer.step();
  CHECK(a.detach()[0].item<double>() == Approx(0.9));
  CHECK(b.detach()[0].item<double>() == Approx(0.9));
  CHECK(c.detach()[0].item<double>() == Approx(0.9).margin(1e-3));
  CHECK(optimizer.step_blocks().size() == 1);
}

TEST_CASE("state dicts name what they hold") {
  const Tensor a = parameter(1), b = parameter(1);
  Adam optimizer({a, b}, 0.1);
  CHECK(optimizer.state_dict().keys() == std::vector<std::string>{"param_groups.0.lr"});
  set_gradient(b, 1);
  optimizer.step();
  const auto state = optimizer.state_dict();
  CHECK(state.keys() ==
        std::vector<std::string>{"state.1.step", "state.1.exp_avg", "state.1.exp_avg_sq", "param_groups.0.lr"});
  CHECK(state["state.1.step"].item<double>() == 1);
  CHECK(first(state["state.1.exp_avg"]) == Approx(0.1));

  SGD other({a, b}, SGDOptions(0.1).momentum(0.9));
  CHECK_THROWS_WITH(other.load_state_dict(state), contains("momentum_buffer"));
  Adam fewer({a}, 0.1);
  CHECK_THROWS_WITH(fewer.load_state_dict(state), contains("does not know"));
  Adam wrong({a, full({3}, 1.0, TensorOptions(kDouble).requires_grad())}, 0.1);
  CHECK_THROWS_AS(wrong.load_state_dict(state), ShapeError);
  CHECK_THROWS_WITH(wrong.load_state_dict(optim::Optimizer::StateDict()), contains("param_groups.0.lr"));
}

TEST_CASE("options and parameters that make no sense are refused") {
  const Tensor a = parameter(1);
  CHECK_THROWS_AS(SGD({a}, -0.1), ValueError);
  CHECK_THROWS_AS(SGD({a}, SGDOptions(0.1).nesterov(true)), ValueError);
  CHECK_THROWS_AS(SGD({a}, SGDOptions(0.1).nesterov(true).momentum(0.9).dampening(0.1)), ValueError);
  CHECK_THROWS_AS(SGD({a}, SGDOptions(0.1).momentum(-1)), ValueError);
  CHECK_THROWS_AS(SGD({a}, SGDOptions(0.1).weight_decay(-1)), ValueError);
  CHECK_THROWS_AS(Adam({a}, optim::AdamOptions().betas({1.0, 0.9})), ValueError);
  CHECK_THROWS_WITH(Adam({a}, optim::AdamOptions().amsgrad(true)), contains("amsgrad"));
  CHECK_THROWS_AS(SGD(std::vector<Tensor>{}, 0.1), ValueError);
  CHECK_THROWS_WITH(SGD({a, a}, 0.1), contains("already"));
  CHECK_THROWS_WITH(SGD({a * 2}, 0.1), contains("leaves"));
  CHECK_THROWS_WITH(SGD(std::vector<Tensor>{Tensor()}, 0.1), contains("undefined"));
  SGD optimizer({a}, 0.1);
  CHECK_THROWS_AS(optimizer.set_lr(-1), ValueError);
  CHECK_THROWS_AS(optimizer.set_lr(1, 0.1), IndexError);
  CHECK_THROWS_AS(
      optimizer.add_param_group(OptimizerParamGroup({parameter(1)}, std::make_unique<optim::AdamOptions>())),
      ValueError);
  CHECK_THROWS_AS(optim::StepLR(optimizer, 0), ValueError);
  CHECK_THROWS_AS(optim::CosineAnnealingLR(optimizer, 0), ValueError);
}

TEST_CASE("array-level steps name what does not fit") {
  const Array p = Array::empty({2}, DType::f32), block = ops::step_block(0.1, {});
  auto step = [&](const Array& gradient, const Array& state) {
    const ops::OptimizerEntry entry{p, gradient, {state}};
    ops::optimizer_step({&entry, 1}, block, {rules::Sgd()});
  };
  CHECK_THROWS_AS(step(Array::empty({3}), {}), ShapeError);
  CHECK_THROWS_AS(step(Array::empty({2}, DType::f64), {}), DTypeError);
  CHECK_THROWS_AS(step(Array::empty({2}), Array::empty({1})), ShapeError);
  CHECK_THROWS_AS(ops::advance_step(p), ShapeError);
}
