// LBFGS follows PyTorch's steps (golden/make_golden.py), with and without its line search.
#include <sstream>

#include <gradus/autograd/archive.h>
#include <gradus/autograd/autograd.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/optim/optim.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

using namespace gradus;
using optim::LBFGS;
using optim::LBFGSOptions;
using test::contains;

namespace {

/// convex_loss of golden/make_golden.py, with the same initial values.
struct Valley {
  std::map<std::string, Array> golden =
      io::load_safetensors(test::source_path("tests/optim/golden/trajectories.safetensors"));
  Tensor weight = Tensor(golden.at("weight")).to(kDouble).set_requires_grad(true);
  Tensor bias = Tensor(golden.at("bias")).to(kDouble).set_requires_grad(true);
  int calls = 0;

  std::function<Tensor(const Tensor& all)> other_loss;  // of both parameters in a row; instead of convex_loss

  Tensor loss() const {
    if (other_loss) return other_loss(cat({weight.flatten(), bias}));
    const Tensor scaled = weight * arange(1, 13, kDouble).reshape({3, 4});
    return scaled.square().sum() / 2 + weight.pow(4).sum() / 10 + ((bias - weight.sum()).square() + 1).sqrt().sum();
  }
  std::function<Tensor()> closure() {
    return [this] {
      ++calls;
      weight.zero_grad(), bias.zero_grad();
      const Tensor value = loss();
      value.backward();
      return value;
    };
  }
  Tensor wanted(const std::string& name, int step) const { return Tensor(golden.at("lbfgs." + name))[step]; }
};

const std::vector<std::pair<std::string, LBFGSOptions>>& lbfgs_cases() {
  static const std::vector<std::pair<std::string, LBFGSOptions>> list = {
      {"plain", LBFGSOptions(0.3).max_iter(4)},
      {"short_history", LBFGSOptions(0.3).max_iter(5).history_size(2)},
      {"strong_wolfe", LBFGSOptions().max_iter(5).line_search_fn("strong_wolfe")},
      {"strong_wolfe_far", LBFGSOptions(30).max_iter(3).max_eval(9).line_search_fn("strong_wolfe")},
  };
  return list;
}

}  // namespace

TEST_CASE("LBFGS makes the steps and the closure calls of PyTorch's") {
  for (const auto& [name, options] : lbfgs_cases()) {
    Valley valley;
    LBFGS optimizer({valley.weight, valley.bias}, options);
    for (int step = 0; step < 8; ++step) {
      INFO(name << " step " << step);
      optimizer.step(valley.closure());
      CHECK(test::error(valley.weight, valley.wanted(name + ".weight", step)) < 1e-6);
      CHECK(test::error(valley.bias, valley.wanted(name + ".bias", step)) < 1e-6);
      CHECK(valley.calls == valley.wanted(name + ".calls", step).item<int>());
    }
  }
}

TEST_CASE("LBFGS searches along curved, wavy, steep and flat lines as PyTorch's does") {
  const std::map<std::string, std::function<Tensor(const Tensor&)>> losses = {
      {"valley",
       [](const Tensor& x) {
         const Tensor from = x.narrow(0, 0, 16), to = x.narrow(0, 1, 16);
         return (10 * (to - from.square()).square() + (1 - from).square()).sum();
       }},
      {"waves", [](const Tensor& x) { return (x.square() / 10 + 1 - (3 * x).cos()).sum(); }},
      {"steep", [](const Tensor& x) { return (x.exp() + (-3 * x).exp()).sum(); }},
      {"flat", [](const Tensor& x) { return (1 + 100 * x.square()).sqrt().sum() + (x[0] * x[1]).square(); }},
  };
  const std::map<std::string, double> rates = {{"short", 0.003}, {"near", 0.3}, {"far", 10}, {"very_far", 300}};
  for (const auto& [loss, function] : losses)
    for (const auto& [distance, lr] : rates) {
      Valley valley;
      valley.other_loss = function;
      LBFGS optimizer({valley.weight, valley.bias}, LBFGSOptions(lr).max_iter(4).line_search_fn("strong_wolfe"));
      for (int step = 0; step < 8; ++step) {
        INFO(loss << " " << distance << " step " << step);
        optimizer.step(valley.closure());
        const std::string name = loss + "." + distance;
        CHECK(test::error(valley.weight, valley.wanted(name + ".weight", step)) < 1e-6);
        CHECK(test::error(valley.bias, valley.wanted(name + ".bias", step)) < 1e-6);
        CHECK(valley.calls == valley.wanted(name + ".calls", step).item<int>());
      }
    }
}

TEST_CASE("LBFGS stops where the slope along its direction is within the tolerance") {
  Valley valley;
  LBFGS optimizer({valley.weight, valley.bias}, LBFGSOptions(0.3).max_iter(5).tolerance_change(1e9));
  const Tensor before = valley.weight.detach().clone();
  optimizer.step(valley.closure());
  CHECK(valley.calls == 1);
  CHECK(valley.weight.equal(before));
  CHECK(optimizer.state_dict()["state.n_iter"].item<int>() == 1);
}

TEST_CASE("LBFGS resumed from a state dict or an archive is bit-identical") {
  for (const auto& [name, options] : lbfgs_cases()) {
    INFO(name);
    Valley through, stopped;
    LBFGS optimizer({through.weight, through.bias}, options);
    for (int step = 0; step < 4; ++step) optimizer.step(through.closure());
    {
      LBFGS first({stopped.weight, stopped.bias}, options);
      for (int step = 0; step < 2; ++step) first.step(stopped.closure());
      std::stringstream stream;
      serialize::OutputArchive out;
      first.save(out);
      out.save_to(stream);
      serialize::InputArchive in;
      in.load_from(stream);
      LBFGS second({stopped.weight, stopped.bias}, options);
      second.load(in);
      for (int step = 0; step < 2; ++step) second.step(stopped.closure());
    }
    CHECK(through.weight.equal(stopped.weight));
    CHECK(through.bias.equal(stopped.bias));
  }
}

TEST_CASE("LBFGS: wrong calls and options are errors") {
  Valley valley;
  LBFGS optimizer({valley.weight, valley.bias}, LBFGSOptions());
  CHECK_THROWS_WITH(optimizer.step(), contains("needs a closure"));
  CHECK_THROWS_WITH(LBFGS({valley.weight}, LBFGSOptions().line_search_fn("armijo")), contains("armijo"));
  CHECK_THROWS_AS(LBFGS({valley.weight}, LBFGSOptions().max_iter(0)), ValueError);
  CHECK_THROWS_AS(LBFGS({valley.weight}, LBFGSOptions(-1)), ValueError);
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>{valley.weight});
  groups.emplace_back(std::vector<Tensor>{valley.bias});
  CHECK_THROWS_WITH(LBFGS(std::move(groups), LBFGSOptions()), contains("one parameter group"));
  optimizer.step(valley.closure());
  LBFGS smaller({valley.bias}, LBFGSOptions());
  CHECK_THROWS_AS(smaller.load_state_dict(optimizer.state_dict()), ShapeError);
}

TEST_CASE("LBFGS: max_iter and history_size may be 1, and a state with incomplete pairs is an error") {
  Valley valley;
  LBFGS optimizer({valley.weight, valley.bias}, LBFGSOptions().max_iter(1).max_eval(1).history_size(1));
  for (int step = 0; step < 3; ++step) optimizer.step(valley.closure());
  const auto state = optimizer.state_dict();
  LBFGS same({valley.weight, valley.bias}, LBFGSOptions());
  same.load_state_dict(state);
  for (const char* without : {"state.old_stps", "state.old_dirs", "state.d"}) {
    LBFGS::StateDict wrong("optimizer state");
    for (const auto& item : state)
      if (item.key() != without) wrong.insert(item.key(), item.value());
    CAPTURE(without);
    CHECK_THROWS_AS(same.load_state_dict(wrong), ValueError);
  }
  LBFGS::StateDict more("optimizer state");  // one pair more, but only in one of the two entries
  for (const auto& item : state)
    more.insert(item.key(), item.key() == "state.old_dirs" ? cat({item.value(), item.value()}) : item.value());
  CHECK_THROWS_AS(same.load_state_dict(more), ValueError);
  LBFGS of_one({valley.weight}, LBFGSOptions()), resumed({valley.weight}, LBFGSOptions());
  for (int step = 0; step < 2; ++step) of_one.step(valley.closure());
  resumed.step(valley.closure());  // its own history does not survive the load
  resumed.load_state_dict(of_one.state_dict());
  for (const char* key : {"state.d", "state.prev_flat_grad", "state.old_stps", "state.old_dirs"}) {
    CAPTURE(key);
    CHECK(resumed.state_dict()[key].equal(of_one.state_dict()[key]));
  }
}

TEST_CASE("options can be assigned through getters, compared, and defined for a new optimizer") {
  optim::SGDOptions options(0.1);
  options.momentum() = 0.5;
  CHECK(options.momentum() == 0.5);
  CHECK(options == optim::SGDOptions(0.1).momentum(0.5));
  CHECK_FALSE(options == optim::SGDOptions(0.1));
  CHECK_FALSE(static_cast<const optim::OptimizerOptions&>(options) == optim::AdamOptions(0.1));

  struct OwnOptions : optim::OptimizerCloneableOptions<OwnOptions> {
    GRADUS_ARG(double, lr) = 0.25;
  };
  struct Own : optim::Optimizer {
    explicit Own(std::vector<Tensor> params)
        : Optimizer({optim::OptimizerParamGroup(std::move(params))}, std::make_unique<OwnOptions>()) {}
    Tensor step(LossClosure) override {
      const NoGradGuard no_grad;
      for (auto& group : param_groups())
        for (Tensor& parameter : group.params()) parameter.sub_(parameter.grad(), group.options().get_lr());
      return {};
    }
  };
  const Tensor x = ones({2}, requires_grad());
  Own own({x}), other({x});
  x.sum().backward();
  own.step({});
  CHECK(x.equal(full({2}, 0.75)));
  own.set_lr(0.5);
  other.load_state_dict(own.state_dict());
  CHECK(other.param_groups()[0].options().get_lr() == 0.5);
}
