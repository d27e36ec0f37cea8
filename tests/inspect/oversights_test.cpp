#include <sstream>

#include <gradus/gradus.h>
#include <gradus/inspect/oversights.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;

namespace {

/// The layer `lost` is not registered. The layer `idle` is registered, but forward() does not use it.
struct Forgetful : nn::Module {
  nn::Linear first = register_module("first", nn::Linear(3, 4));
  nn::Linear idle = register_module("idle", nn::Linear(4, 4));
  nn::Linear lost = nn::Linear(4, 2);
  bool uses_idle = false;

  Tensor forward(const Tensor& x) { return lost(uses_idle ? idle(first(x)) : first(x)); }
};

Tensor backward_of(Forgetful& net) {
  const Tensor loss = net.forward(ones({5, 3})).sum();
  loss.backward();
  return loss;
}

}  // namespace

TEST_CASE("oversights: layers that are not used, not registered or not in the optimizer") {
  Forgetful net;
  optim::SGD sgd(net.first->parameters(), 0.1);
  const Tensor loss = backward_of(net);
  const std::vector<std::string> lines = training::find_oversights(net, loss, &sgd);
  REQUIRE(lines.size() == 6);
  CHECK(lines[0] == "parameter 'idle.weight' got no gradient: does forward() use it?");
  CHECK(lines[1] == "parameter 'idle.weight' is not in the optimizer, so it will not change");
  CHECK_THAT(lines[2], contains("'idle.bias' got no gradient"));
  CHECK_THAT(lines[4] + lines[5],
             contains("a tensor of shape (2, 4) gets a gradient but is not a parameter of the net"));
  CHECK_THAT(lines[4] + lines[5], contains("a tensor of shape (2,) "));

  std::ostringstream said;
  training::warn_of_oversights(net, loss, nullptr, said);
  CHECK_THAT(said.str(), contains("warning: parameter 'idle.weight' got no gradient"));
  CHECK(said.str().find("optimizer") == std::string::npos);
}

TEST_CASE("oversights: none in a correct net with a frozen layer and a tied weight") {
  Forgetful net;
  net.uses_idle = true;
  net.register_module("lost", net.lost);
  for (const Tensor& parameter : net.first->parameters()) parameter.requires_grad_(false);
  net.idle->weight = net.idle->replace_parameter("weight", eye(4));
  net.lost->register_parameter("again", net.idle->weight);
  std::vector<Tensor> trained = net.idle->parameters();
  trained.push_back(net.lost->weight);
  trained.push_back(net.lost->bias);
  optim::SGD sgd(trained, 0.1);
  const Tensor loss = backward_of(net);
  CHECK(training::find_oversights(net, loss, &sgd).empty());
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(net.idle->parameters());
  groups.emplace_back(std::vector<Tensor>{net.lost->weight, net.lost->bias});
  optim::SGD in_groups(groups, 0.1);
  CHECK(training::find_oversights(net, loss, &in_groups).empty());
}

TEST_CASE("oversights: a loss without a graph") {
  Forgetful net;
  CHECK_THROWS_AS(training::find_oversights(net, ones({})), AutogradError);
}
