// Running averages of parameters.
#include <gradus/autograd/autograd.h>
#include <gradus/layers/layers.h>
#include <gradus/optim/optim.h>
#include <gradus/tests/catch.h>

#include <cmath>

using namespace gradus;
using optim::AveragedParameters;
using optim::StateDict;
using test::contains;

namespace {

double first(const Tensor& x) { return x.detach().flatten()[0].item<double>(); }

/// A net with parameters of float64 and bfloat16 and with buffers of float64 and int64.
struct NetImpl : nn::Module {
  NetImpl() {
    register_buffer("mean", mean);
    register_buffer("count", count);
  }
  void set(double value) {
    NoGradGuard no_grad;
    for (const Tensor& x : {weight, half, mean, count}) x.fill_(value);
  }
  Tensor weight = register_parameter("weight", zeros({2}, kDouble));
  Tensor half = register_parameter("half", zeros({2}, kBFloat16));
  Tensor mean = zeros({1}, kDouble), count = zeros({1}, kLong);
};

}  // namespace

TEST_CASE("an exponential average follows its formula and can be applied and restored") {
  const auto net = std::make_shared<NetImpl>();
  net->set(8);
  AveragedParameters ema(net, 0.75, /*use_buffers=*/true);
  CHECK(ema.averages().keys() == std::vector<std::string>{"weight", "half", "mean", "count"});
  CHECK(first(ema.averages()["weight"]) == 8);
  double average = 0;
  for (int step = 0; step < 5; ++step) {
    net->set(step + 1);
    ema.update();
    average = step == 0 ? 1 : 0.75 * average + 0.25 * (step + 1);
    CHECK(ema.updates() == step + 1);
    CHECK(first(ema.averages()["weight"]) == Approx(average).epsilon(1e-14));
    CHECK(first(ema.averages()["mean"]) == Approx(average).epsilon(1e-14));
    CHECK(first(ema.averages()["half"]) == Approx(average).epsilon(1e-6));  // in float32
    CHECK(first(ema.averages()["count"]) == step + 1);
  }
  {
    AveragedParameters::Applied applied(ema);
    CHECK(ema.applied());
    CHECK(first(net->weight) == Approx(average).epsilon(1e-14));
    CHECK(first(net->half) == Approx(average).epsilon(1e-2));
    CHECK(net->half.dtype() == kBFloat16);
    CHECK_THROWS_WITH(ema.update(), contains("restore"));
    CHECK_THROWS_AS(ema.apply(), ValueError);
  }
  CHECK_FALSE(ema.applied());
  CHECK(first(net->weight) == 5);
  CHECK(first(net->half) == 5);
  CHECK(first(net->count) == 5);
  CHECK_THROWS_AS(ema.restore(), ValueError);
}

TEST_CASE("averages do not share memory with the parameters and are not recorded for backward") {
  const Tensor p = full({2}, 1.0, TensorOptions(kDouble).requires_grad(true));
  StateDict named;
  named.insert("p", p);
  AveragedParameters ema(named, 0.5);
  const Tensor loss = (p * p).sum();
  ema.update();
  loss.backward();  // update() did not touch p
  ema.apply();
  const Tensor late = (p * p).sum();
  ema.restore();
  CHECK_THROWS_AS(late.backward(), AutogradError);  // restore() did
  CHECK(p.is_leaf());
}

TEST_CASE("equal weights give the mean") {
  const auto net = std::make_shared<NetImpl>();
  AveragedParameters swa(net, AveragedParameters::equal_weights);
  CHECK(swa.averages().keys() == std::vector<std::string>{"weight", "half"});
  for (double value : {1, 4, 7, 0}) {
    net->set(value);
    swa.update();
  }
  CHECK(first(swa.averages()["weight"]) == Approx(3).epsilon(1e-14));
}

TEST_CASE("averages resumed from a state dict are bit-identical") {
  const auto net = std::make_shared<NetImpl>();
  AveragedParameters through(net, 0.9), resumed(net, 0.9);
  for (int step = 0; step < 3; ++step) net->set(std::sqrt(step)), through.update();
  const StateDict state = through.state_dict();
  CHECK(state.keys() == std::vector<std::string>{"updates", "average.weight", "average.half"});
  resumed.load_state_dict(state);
  CHECK(resumed.updates() == 3);
  for (int step = 3; step < 6; ++step) net->set(std::sqrt(step)), through.update(), resumed.update();
  for (const char* name : {"weight", "half"}) CHECK(resumed.averages()[name].equal(through.averages()[name]));

  StateDict wrong = state;
  for (const Shape& shape : {Shape{3}, Shape{1}, Shape{}}) {  // also those that could be broadcast
    wrong["average.half"] = zeros(shape);
    CHECK_THROWS_AS(resumed.load_state_dict(wrong), ShapeError);
    CHECK_THROWS_WITH(resumed.load_state_dict(wrong), contains("'average.half'"));
  }
  CHECK(resumed.averages()["half"].equal(through.averages()["half"]));
  wrong = state;
  wrong["updates"] = full({}, -1, kDouble);
  CHECK_THROWS_AS(resumed.load_state_dict(wrong), ValueError);
  AveragedParameters with_buffers(net, 0.9, true);
  CHECK_THROWS_WITH(with_buffers.load_state_dict(state), contains("average.mean"));
  CHECK_THROWS_WITH(through.load_state_dict(with_buffers.state_dict()), contains("does not know"));
  CHECK(resumed.updates() == 6);
}

TEST_CASE("errors name an invalid decay") {
  const auto net = std::make_shared<NetImpl>();
  CHECK_THROWS_WITH(AveragedParameters(net, 1.5), contains("decay") && contains("1.5"));
  CHECK_THROWS_WITH(AveragedParameters(net, -0.5), contains("decay") && contains("-0.5"));
  CHECK_THROWS_AS(AveragedParameters(net, AveragedParameters::Decay()), ValueError);
  CHECK_THROWS_WITH(AveragedParameters(StateDict(), 0.5), contains("no tensors"));
  StateDict lacking("Tensor");
  lacking.insert("a", ones({1})), lacking.insert("b", Tensor());
  CHECK_THROWS_WITH(AveragedParameters(lacking, 0.5), contains("'b' is undefined"));
  AveragedParameters last(net, 0.0), initial(net, 1.0);
  for (double value : {1, 2, 3}) net->set(value), last.update(), initial.update();
  CHECK(first(last.averages()["weight"]) == 3);
  CHECK(first(initial.averages()["weight"]) == 1);  // the first update copies
  AveragedParameters wild(net, [](int64_t) { return 2.0; });
  wild.update();
  CHECK_THROWS_WITH(wild.update(), contains("2"));
  CHECK(wild.updates() == 1);
}
