// Parameter groups, learning rates, versions, errors and the state of optimizers.
#include <cmath>

#include <gradus/autograd/autograd.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/ops/nn/nn.h>
#include <gradus/graph/recorder.h>
#include <gradus/optim/optim.h>
#include <gradus/optim/optimizer_state.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::optim;
using test::contains;

namespace {

Tensor parameter(double value) { return full({2}, value, TensorOptions(kDouble).requires_grad(true)); }
void set_gradient(const Tensor& x, double value) { x.mutable_grad() = full({2}, value, kDouble); }
double first_of(const Tensor& x) { return x.detach()[0].item<double>(); }
double block_entry(const Array& block, int entry) { return block.data<double>()[entry]; }

}  // namespace

TEST_CASE("a step uses each group's options and skips parameters without a gradient") {
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
  CHECK(first_of(a) == Approx(0.9));
  CHECK(first_of(b) == Approx(1 - 0.5 * (1 + 1)));
  CHECK(first_of(c) == 1);

  const Tensor d = parameter(1);
  optimizer.add_param_group(OptimizerParamGroup({d}));
  set_gradient(d, 2);
  optimizer.step();
  CHECK(first_of(d) == Approx(0.8));
  CHECK(optimizer.parameters().size() == 4);
}

TEST_CASE("zero_grad makes gradients undefined or zero") {
  const Tensor a = parameter(1);
  SGD optimizer({a}, 0.1);
  set_gradient(a, 3);
  optimizer.zero_grad(false);
  REQUIRE(a.grad().defined());
  CHECK(first_of(a.grad()) == 0);
  optimizer.zero_grad();
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("a learning rate is written to the device when it changes") {
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

  optimizer.set_lr(0.2);  // written immediately, for replayed steps
  CHECK(block_entry(block, StepBlock::learning_rate) == 0.2);
  optimizer.param_groups()[0].options().set_lr(0.3);  // written by the next step
  CHECK(block_entry(block, StepBlock::learning_rate) == 0.2);
  optimizer.step();
  CHECK(block_entry(block, StepBlock::learning_rate) == 0.3);
  CHECK(first_of(a) == Approx(1 - 0.1 - 0.3));
  static_cast<SGDOptions&>(optimizer.param_groups()[0].options()).lr(0.4);
  optimizer.step();
  CHECK(first_of(a) == Approx(1 - 0.1 - 0.3 - 0.4));
}

TEST_CASE("a step with found_inf changes nothing, and gradients are scaled") {
  const Tensor a = parameter(1);
  SGD optimizer({a}, SGDOptions(0.1).momentum(0.9));
  set_gradient(a, 1);
  optimizer.step();
  const Array block = optimizer.step_blocks()[0];
  const double before = first_of(a);
  ops::set_step_block(block, StepBlock::found_inf, 1);
  optimizer.step();
  CHECK(first_of(a) == before);
  CHECK(block_entry(block, StepBlock::step) == 1);
  ops::set_step_block(block, StepBlock::found_inf, 0);
  ops::set_step_block(block, StepBlock::gradient_scale, 0.5);
  optimizer.step();
  CHECK(first_of(a) == Approx(before - 0.1 * (0.9 * 1 + 0.5)));
}

TEST_CASE("a step increments the versions of parameters, so that backward through stale values is an error") {
  const Tensor a = parameter(1), x = full({2}, 3.0, TensorOptions(kDouble).requires_grad(true));
  SGD optimizer({a}, 0.1);
  const uint32_t version = a.version();
  const Tensor product = (a * x).sum();
  set_gradient(a, 1);
  optimizer.step();
  CHECK(a.version() > version);
  CHECK_THROWS_AS(product.backward(), AutogradError);
}

TEST_CASE("a closure runs with gradients enabled") {
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
  CHECK(first_of(a) == Approx(2 - 0.1 * 4));
  CHECK_FALSE(optimizer.step().defined());
}

TEST_CASE("parameters of several dtypes train side by side") {
  const Tensor a = full({3}, 1.0, TensorOptions(kFloat).requires_grad(true));
  const Tensor b = full({3}, 1.0, TensorOptions(kDouble).requires_grad(true));
  const Tensor c = full({3}, 1.0, TensorOptions(kHalf).requires_grad(true));
  Adam optimizer({a, b, c}, 0.1);
  for (const Tensor& x : {a, b, c}) x.mutable_grad() = ones({3}, x.dtype());
  optimizer.step();
  CHECK(a.detach()[0].item<double>() == Approx(0.9));
  CHECK(b.detach()[0].item<double>() == Approx(0.9));
  CHECK(c.detach()[0].item<double>() == Approx(0.9).margin(1e-3));
  CHECK(optimizer.step_blocks().size() == 1);
}

TEST_CASE("state dicts contain named state and options") {
  const Tensor a = parameter(1), b = parameter(1);
  Adam optimizer({a, b}, AdamOptions(0.1).amsgrad(true));
  const std::vector<std::string> options = {
      "param_groups.0.lr",           "param_groups.0.betas.0", "param_groups.0.betas.1", "param_groups.0.eps",
      "param_groups.0.weight_decay", "param_groups.0.amsgrad", "param_groups.0.maximize"};
  CHECK(optimizer.state_dict().keys() == options);
  set_gradient(b, 1);
  optimizer.step();
  const auto state = optimizer.state_dict();
  std::vector<std::string> keys = {"state.1.step", "state.1.exp_avg", "state.1.exp_avg_sq", "state.1.max_exp_avg_sq"};
  keys.insert(keys.end(), options.begin(), options.end());
  CHECK(state.keys() == keys);
  CHECK(state["state.1.step"].item<double>() == 1);
  CHECK(first_of(state["state.1.exp_avg"]) == Approx(0.1));
  CHECK(state["param_groups.0.betas.1"].item<double>() == 0.999);

  SGD other({a, b}, SGDOptions(0.1).momentum(0.9));
  CHECK_THROWS_WITH(other.load_state_dict(state), contains("momentum_buffer"));
  CHECK(other.param_groups()[0].options().get_lr() == 0.1);
  Adam fewer({a}, 0.1);
  CHECK_THROWS_WITH(fewer.load_state_dict(state), contains("does not know"));
  Adam wrong({a, full({3}, 1.0, TensorOptions(kDouble).requires_grad(true))}, 0.1);
  CHECK_THROWS_AS(wrong.load_state_dict(state), ShapeError);
  CHECK_THROWS_WITH(wrong.load_state_dict(optim::Optimizer::StateDict()), contains("param_groups.0.lr"));
}

TEST_CASE("loading a state dict also loads the options, and invalid state dicts are errors") {
  const Tensor a = parameter(1), b = parameter(1);
  NAdam optimizer({a}, NAdamOptions(0.1).betas({0.5, 0.75}).decoupled_weight_decay(true).momentum_decay(0.5));
  set_gradient(a, 1);
  optimizer.step();
  const auto state = optimizer.state_dict();
  CHECK(state["state.0.mu_product"].item<double>() == Approx(0.5 * (1 - 0.5 * std::pow(0.96, 0.5))));
  NAdam other({b});
  auto& options = static_cast<NAdamOptions&>(other.param_groups()[0].options());
  other.load_state_dict(state);
  CHECK(options.lr() == 0.1);
  CHECK(options.betas() == std::tuple(0.5, 0.75));
  CHECK(options.decoupled_weight_decay());
  CHECK(options.momentum_decay() == 0.5);

  for (const auto& [key, value] : std::vector<std::pair<std::string, double>>{{"param_groups.0.lr", -1},
                                                                              {"param_groups.0.betas.0", 1},
                                                                              {"state.0.step", std::nan("")},
                                                                              {"state.0.step", INFINITY},
                                                                              {"state.0.mu_product", INFINITY},
                                                                              {"state.0.mu_product", -1}}) {
    INFO(key);
    optim::Optimizer::StateDict broken("broken");
    for (const auto& item : state)
      broken.append(item.key(), item.key() == key ? full({}, value, kDouble) : item.value());
    CHECK_THROWS_AS(other.load_state_dict(broken), ValueError);
    CHECK(options.lr() == 0.1);
  }
}

TEST_CASE("state for an option that is set later starts at that step") {
  const Tensor a = parameter(1);
  RMSprop optimizer({a}, RMSpropOptions(0.1).alpha(0));
  set_gradient(a, 1);
  optimizer.step();
  CHECK(first_of(a) == Approx(0.9));
  static_cast<RMSpropOptions&>(optimizer.param_groups()[0].options()).momentum(0.5);
  const auto state = optimizer.state_dict();
  CHECK(first_of(state["state.0.momentum_buffer"]) == 0);
  RMSprop other({a}, 0.1);
  other.load_state_dict(state);
  for (RMSprop* each : {&optimizer, &other}) each->step();
  CHECK(first_of(a) == Approx(0.9 - 0.2));
}

TEST_CASE("gradients accumulate over backward passes, also in bound slots") {
  const Tensor a = parameter(2), b = parameter(2), slot = zeros({2}, kDouble);
  b.bind_grad(slot.array());
  Adam together({a, b}, 0.1);
  for (int step = 0; step < 3; ++step) {
    together.zero_grad();
    for (int pass = 0; pass < 2; ++pass) (a * a + b * b).sum().backward();
    CHECK(first_of(a.grad()) == Approx(4 * first_of(a)));
    CHECK(first_of(slot) == first_of(a.grad()));
    together.step();
    CHECK(a.equal(b));
  }
  CHECK(first_of(a) == Approx(1.7).margin(0.01));
}

TEST_CASE("the parameters of an optimizer are those of its groups in order") {
  const Tensor a = parameter(1), b = parameter(2), c = parameter(3), d = parameter(4);
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>{a, b});
  groups.emplace_back(std::vector<Tensor>{c});
  SGD optimizer(std::move(groups), 0.1);
  optimizer.add_param_group(OptimizerParamGroup({d}));
  std::vector<double> values;
  for (const Tensor& each : optimizer.parameters()) values.push_back(first_of(each));
  CHECK(values == std::vector<double>{1, 2, 3, 4});
}

TEST_CASE("what a captured step cannot change is an error that names the remedy") {
  const Tensor a = parameter(1), b = parameter(1);
  SGD optimizer({a, b}, SGDOptions(0.1).momentum(0.9));
  set_gradient(a, 1), set_gradient(b, 1);
  {
    const graph::Recorder recorder;
    CHECK_THROWS_WITH(optimizer.step(),
                      contains("the optimizer's state cannot be allocated in a captured step: take an "
                               "eager step with the same gradients before the capture"));
  }
  optimizer.step();
  const double before = first_of(a);
  {
    const graph::Recorder recorder;
    CHECK_THROWS_WITH(optimizer.set_lr(0.2), contains("the learning rate changed from 0.1 to 0.2 in a captured step: "
                                                      "call optimizer.set_lr() before the capture"));
    optimizer.param_groups()[0].options().set_lr(0.1);
    CHECK_NOTHROW(optimizer.set_lr(0.1));
    b.zero_grad();
    CHECK_THROWS_WITH(optimizer.step(),
                      contains("parameters that had gradients in earlier steps have none in a captured "
                               "step: take an eager step with the same gradients"));
  }
  CHECK(first_of(a) == before);
  optimizer.step();  // outside of the capture all of this is allowed
  CHECK(first_of(a) != before);
  CHECK_NOTHROW(optimizer.set_lr(0.2));

  amp::GradScaler scaler;
  const Tensor loss = a.sum();
  {
    const graph::Recorder recorder;
    CHECK_THROWS_WITH(scaler.scale(loss), contains("the scale cannot be made in a captured step: take an eager step"));
  }
  CHECK(scaler.scale(loss).defined());
}

TEST_CASE("invalid options and parameters are errors") {
  const Tensor a = parameter(1);
  auto refused = [&](auto make, const char* option, const char* value) {
    CHECK_THROWS_AS(make(), ValueError);
    CHECK_THROWS_WITH(make(), contains(option) && contains(value));
  };
  refused([&] { SGD({a}, -0.1); }, "lr", "-0.1");
  refused([&] { SGD({a}, std::nan("")); }, "lr", "nan");
  refused([&] { SGD({a}, SGDOptions(0.1).nesterov(true)); }, "nesterov", "momentum 0");
  refused([&] { SGD({a}, SGDOptions(0.1).nesterov(true).momentum(0.9).dampening(0.5)); }, "nesterov", "0.5");
  refused([&] { SGD({a}, SGDOptions(0.1).momentum(-1)); }, "momentum", "-1");
  refused([&] { SGD({a}, SGDOptions(0.1).dampening(INFINITY)); }, "dampening", "inf");
  refused([&] { SGD({a}, SGDOptions(0.1).weight_decay(-2)); }, "weight_decay", "-2");
  refused([&] { Adam({a}, AdamOptions().betas({1.0, 0.9})); }, "betas[0]", "1");
  refused([&] { Adam({a}, AdamOptions().betas({0.5, -0.25})); }, "betas[1]", "-0.25");
  refused([&] { Adam({a}, AdamOptions().eps(-1)); }, "eps", "-1");
  refused([&] { AdamW({a}, AdamWOptions(-3)); }, "lr", "-3");
  refused([&] { AdamW({a}, AdamWOptions().weight_decay(-3)); }, "weight_decay", "-3");
  refused([&] { RMSprop({a}, RMSpropOptions().alpha(1.5)); }, "alpha", "1.5");
  refused([&] { RMSprop({a}, RMSpropOptions().alpha(-1)); }, "alpha", "-1");
  refused([&] { RMSprop({a}, RMSpropOptions().momentum(-1)); }, "momentum", "-1");
  refused([&] { Adagrad({a}, AdagradOptions().lr_decay(-1)); }, "lr_decay", "-1");
  refused([&] { Adagrad({a}, AdagradOptions().initial_accumulator_value(-1)); }, "initial_accumulator_value", "-1");
  refused([&] { NAdam({a}, NAdamOptions().momentum_decay(-1)); }, "momentum_decay", "-1");
  refused([&] { RAdam({a}, RAdamOptions().betas({0.9, 2.0})); }, "betas[1]", "2");
  refused([&] { Lion({a}, LionOptions().betas({0.9, 1.0})); }, "betas[1]", "1");
  refused([&] { Lion({a}, LionOptions().weight_decay(-1)); }, "weight_decay", "-1");
  CHECK_THROWS_AS(SGD(std::vector<Tensor>{}, 0.1), ValueError);
  CHECK_THROWS_WITH(SGD({a, a}, 0.1), contains("already"));
  CHECK_THROWS_WITH(SGD({a * 2}, 0.1), contains("leaves"));
  CHECK_THROWS_WITH(SGD(std::vector<Tensor>{Tensor()}, 0.1), contains("undefined"));
  SGD optimizer({a}, 0.1);
  CHECK_THROWS_AS(optimizer.set_lr(-1), ValueError);
  CHECK_THROWS_AS(optimizer.set_lr(1, 0.1), IndexError);
  refused([&] { optimizer.add_param_group(OptimizerParamGroup({parameter(1)}, std::make_unique<AdamOptions>())); },
          "AdamOptions", "SGDOptions");
  refused([&] { optimizer.add_param_group(OptimizerParamGroup({parameter(1)}, std::make_unique<SGDOptions>(-1))); },
          "lr", "-1");
}

TEST_CASE("options may be the ends of their ranges") {
  const Tensor a = parameter(1);
  const double below = std::nextafter(1.0, 0.0);
  CHECK_NOTHROW(SGD({a}, SGDOptions(0).momentum(0).weight_decay(0).dampening(-1)));
  CHECK_NOTHROW(SGD({a}, SGDOptions(0.1).nesterov(true).momentum(1e-300)));
  CHECK_NOTHROW(Adam({a}, AdamOptions(0).betas({0, 0}).eps(0).weight_decay(0)));
  CHECK_NOTHROW(AdamW({a}, AdamWOptions(0).betas({below, below}).eps(0).weight_decay(0)));
  CHECK_NOTHROW(RMSprop({a}, RMSpropOptions(0).alpha(0).eps(0).momentum(0).weight_decay(0)));
  CHECK_NOTHROW(RMSprop({a}, RMSpropOptions().alpha(1)));
  CHECK_THROWS_AS(RMSprop({a}, RMSpropOptions().alpha(std::nextafter(1.0, 2.0))), ValueError);
  CHECK_NOTHROW(Adagrad({a}, AdagradOptions(0).lr_decay(0).initial_accumulator_value(0).eps(0).weight_decay(0)));
  CHECK_NOTHROW(NAdam({a}, NAdamOptions(0).betas({0, 0}).momentum_decay(0).eps(0).weight_decay(0)));
  CHECK_NOTHROW(RAdam({a}, RAdamOptions(0).betas({below, below}).eps(0).weight_decay(0)));
  CHECK_NOTHROW(Lion({a}, LionOptions(0).betas({0, below}).weight_decay(0)));
  SGD optimizer({a}, 0.1);
  CHECK_NOTHROW(optimizer.set_lr(0));
}

TEST_CASE("options of another optimizer are an error in the next step") {
  const Tensor a = parameter(1);
  SGD optimizer({a}, 0.1);
  set_gradient(a, 1);
  optimizer.param_groups()[0].set_options(std::make_unique<AdamOptions>());
  CHECK_THROWS_WITH(optimizer.step(), contains("AdamOptions") && contains("SGDOptions"));
  CHECK(first_of(a) == 1);
  optimizer.param_groups()[0].set_options(std::make_unique<SGDOptions>(0.5));
  optimizer.step();
  CHECK(first_of(a) == 0.5);
}

TEST_CASE("a new optimizer uses the rule of its options or must override step()") {
  struct OwnOptions : OptimizerCloneableOptions<OwnOptions> {
    GRADUS_ARG(double, lr) = 0.25;
  };
  struct WithoutRule : Optimizer {
    explicit WithoutRule(std::vector<Tensor> params)
        : Optimizer({OptimizerParamGroup(std::move(params))}, std::make_unique<OwnOptions>()) {}
  };
  struct WithRule : Optimizer {
    WithRule(std::vector<Tensor> params, const OptimizerOptions& options) : Optimizer(std::move(params), options) {}
  };
  const Tensor a = parameter(1);
  set_gradient(a, 1);
  WithoutRule without({a});
  CHECK_FALSE(without.has_rule());
  CHECK(without.step_blocks().empty());
  CHECK_THROWS_WITH(without.step(), contains("override step()"));
  WithRule wrong({a}, OwnOptions());
  CHECK_THROWS_WITH(wrong.step(), contains("override step()"));
  CHECK(first_of(a) == 1);
  WithRule own({a}, SGDOptions(0.5));
  CHECK(own.has_rule());
  own.step();
  CHECK(first_of(a) == 0.5);
}

TEST_CASE("errors of array-level steps name the operand that does not fit") {
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

TEST_CASE("the fresh state of several groups has the bytes of each") {
  const auto bytes = [](std::vector<OptimizerParamGroup> groups) {
    AdamW optimizer(std::move(groups), AdamWOptions(0.1));
    return FreshState(optimizer).bytes();
  };
  const Tensor small = parameter(1), large = ones({1000}, TensorOptions(kDouble).requires_grad(true));
  const OptimizerParamGroup first({small}), second({large});
  CHECK(bytes({first}) > 0);
  CHECK(bytes({second}) >= 2 * 8000);  // two averages of each element
  CHECK(bytes({first, second}) == bytes({first}) + bytes({second}));
  const Tensor frozen = ones({1000}, kDouble);  // needs no gradient, and so no state
  CHECK(bytes({OptimizerParamGroup({frozen, small, frozen.clone()})}) == bytes({first}));
  const auto bytes_of_rmsprop = [&](bool momentum, bool centered) {
    RMSprop optimizer({large}, RMSpropOptions(0.1).momentum(momentum ? 0.5 : 0).centered(centered));
    return FreshState(optimizer).bytes();
  };
  const int64_t one = bytes_of_rmsprop(false, false), two = bytes_of_rmsprop(true, false);
  CHECK(two - one >= 8000);
  CHECK(bytes_of_rmsprop(false, true) == two);
  CHECK(bytes_of_rmsprop(true, true) == 2 * two - one);
}

TEST_CASE("the fresh state has that of a step, without parameters that are frozen") {
  const auto check = [](const char* name, auto make) {
    INFO(name);
    const Tensor a = parameter(1), frozen = full({1000}, 1.0, kDouble), b = parameter(2);
    const auto optimizer = make(std::vector<Tensor>{a, frozen, b});
    const auto steps = [&](const std::string& of) { return optimizer->state_dict().contains("state." + of + ".step"); };
    {
      const FreshState fresh(*optimizer);
      CHECK(fresh.bytes() < 8000);
      CHECK((steps("0") && !steps("1") && steps("2")));
      for (const auto& item : optimizer->state_dict()) {
        INFO(item.key());
        if (item.key().starts_with("state.") && item.value().dim() > 0)
          CHECK(item.value().abs().max().template item<double>() == 0);
      }
    }
    const size_t fresh_keys = [&] {
      const FreshState fresh(*optimizer);
      return optimizer->state_dict().keys().size();
    }();
    set_gradient(a, 1), set_gradient(b, 1);
    optimizer->step();
    CHECK(optimizer->state_dict().keys().size() == fresh_keys);
  };
  check("RMSprop with momentum, without a mean of gradients", [](const std::vector<Tensor>& parameters) {
    return std::make_unique<RMSprop>(parameters, RMSpropOptions(0.01).momentum(0.9));
  });
  check("Adam",
        [](const std::vector<Tensor>& parameters) { return std::make_unique<Adam>(parameters, AdamOptions(0.01)); });
}

TEST_CASE("a state whose counters are no counts, or whose shapes differ, is refused by name") {
  const Tensor a = parameter(1);
  Adam optimizer({a}, AdamOptions(0.1));
  set_gradient(a, 1);
  optimizer.step();
  const Optimizer::StateDict state = optimizer.state_dict();
  for (const double count : {-1.0, static_cast<double>(INFINITY), -static_cast<double>(INFINITY), std::nan("")}) {
    Optimizer::StateDict wrong = state;
    wrong["state.0.step"] = full({}, count, kDouble);
    CHECK_THROWS_AS(optimizer.load_state_dict(wrong), ValueError);
    CHECK_THROWS_WITH(optimizer.load_state_dict(wrong), contains("'state.0.step'"));
  }
  for (const Shape& shape : {Shape{3}, Shape{1}, Shape{}}) {  // also those that could be broadcast
    Optimizer::StateDict wrong = state;
    wrong["state.0.exp_avg"] = zeros(shape, kDouble);
    CHECK_THROWS_AS(optimizer.load_state_dict(wrong), ShapeError);
    CHECK_THROWS_WITH(optimizer.load_state_dict(wrong), contains("'state.0.exp_avg'"));
  }
  CHECK(optimizer.state_dict()["state.0.exp_avg"].equal(state["state.0.exp_avg"]));
}
