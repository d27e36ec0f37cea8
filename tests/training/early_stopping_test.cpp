#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

#include <cmath>
#include <limits>

using namespace gradus;
using test::contains;
using training::EarlyStopping;
using training::EarlyStoppingOptions;

namespace {

void set_weights(nn::Linear& net, double value) {
  const NoGradGuard no_grad;
  net->weight.fill_(value);
}
double weight(const nn::Linear& net) { return net->weight.index({0, 0}).item<double>(); }

/// Passes the figures to `stopping` and returns the epoch after which training should stop, or -1. In each epoch, sets
/// all weights to the number of the epoch.
int64_t stop_at(nn::Linear& net, EarlyStopping& stopping, const std::vector<double>& figures) {
  for (size_t epoch = 0; epoch < figures.size(); ++epoch) {
    set_weights(net, static_cast<double>(epoch));
    if (stopping.step(figures[epoch])) return static_cast<int64_t>(epoch);
  }
  return -1;
}

}  // namespace

TEST_CASE("training stops after epochs without improvement, with the best weights", "[early_stopping]") {
  nn::Linear net(2, 1);
  SECTION("losses") {
    EarlyStopping stopping(*net, EarlyStoppingOptions().patience(2));
    CHECK(stop_at(net, stopping, {5, 3, 4, 2, 2, 3, 1}) == 5);
    CHECK(stopping.best() == 2);
    CHECK(stopping.best_epoch() == 3);
    CHECK_FALSE(stopping.improved());
    CHECK(weight(net) == 5);
    stopping.restore_best();
    CHECK(weight(net) == 3);
  }
  SECTION("the first epoch is the best") {
    EarlyStopping stopping(*net, EarlyStoppingOptions().patience(2));
    CHECK(stop_at(net, stopping, {3, 4, 5}) == 2);
    EarlyStopping resumed(*net, EarlyStoppingOptions().patience(2));
    resumed.load_state_dict(stopping.state_dict());
    resumed.restore_best();
    CHECK(weight(net) == 0);
  }
  SECTION("accuracies") {
    EarlyStopping stopping(*net, EarlyStoppingOptions().patience(1).mode(training::Mode::max));
    CHECK(stop_at(net, stopping, {0.5, 0.6, 0.7, 0.7}) == 3);
    CHECK(stopping.best() == 0.7);
  }
  SECTION("small steps") {
    EarlyStopping stopping(*net, EarlyStoppingOptions().patience(2).min_delta(0.5));
    CHECK(stop_at(net, stopping, {5, 4.6, 4.4, 4.2, 4.1}) == 4);  // later figures improve by too little
    CHECK(stopping.best_epoch() == 2);
  }
  SECTION("small steps of accuracies") {
    EarlyStopping stopping(*net, EarlyStoppingOptions().patience(2).min_delta(0.1).mode(training::Mode::max));
    CHECK(stop_at(net, stopping, {0.5, 0.55, 0.75, 0.7, 0.8}) == 4);
    CHECK(stopping.best_epoch() == 2);
  }
  SECTION("NaN is never better") {
    EarlyStopping stopping(*net, EarlyStoppingOptions().patience(3));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(stop_at(net, stopping, {nan, 2, nan, nan, nan}) == 4);
    CHECK(stopping.best() == 2);
    EarlyStopping hopeless(*net, EarlyStoppingOptions().patience(2));
    CHECK(stop_at(net, hopeless, {nan, nan}) == 1);
    hopeless.restore_best();  // does nothing, because no figure was an improvement
    CHECK(weight(net) == 1);
  }
  SECTION("never") {
    EarlyStopping stopping(*net);
    CHECK(stop_at(net, stopping, {3, 2, 1}) == -1);
    CHECK(stopping.improved());
  }
  CHECK_THROWS_WITH(EarlyStopping(*net, EarlyStoppingOptions().patience(0)), contains("patience"));
  CHECK_THROWS_WITH(EarlyStopping(*net, EarlyStoppingOptions().min_delta(-1)), contains("min_delta"));
}

TEST_CASE("early stopping continues from a checkpoint", "[early_stopping]") {
  const test::TemporaryDirectory directory;
  nn::Linear net(2, 1), other(2, 1);
  EarlyStopping stopping(*net, EarlyStoppingOptions().patience(2)), resumed(*other, EarlyStoppingOptions().patience(2));
  training::Checkpoint saved, loaded;
  saved.add("model", *net).add("stopping", stopping);
  loaded.add("model", *other).add("stopping", resumed);
  saved.save(directory.file("before"));
  loaded.load(directory.file("before"));
  CHECK(resumed.best() == std::numeric_limits<double>::infinity());
  stop_at(net, stopping, {3, 2, 4});
  saved.save(directory.file("run"));
  loaded.load(directory.file("run"));
  CHECK(weight(other) == 2);
  CHECK(resumed.best() == 2);
  CHECK(resumed.epochs() == 3);
  CHECK(resumed.step(5));
  resumed.restore_best();
  CHECK(weight(other) == 1);

  nn::StateDict state = stopping.state_dict();
  state.erase("model.bias");
  CHECK_THROWS_AS(resumed.load_state_dict(state), ValueError);
  state.insert("model.bias", zeros({2}));
  CHECK_THROWS_AS(resumed.load_state_dict(state), ShapeError);
  for (const char* name : {"epochs", "best_epoch"})
    for (const double count : {-2.0, 0.5, 1e300, std::nan("")}) {
      nn::StateDict damaged = stopping.state_dict();
      damaged.erase(name);
      damaged.insert(name, full({}, count, dtype(kDouble)));
      CHECK_THROWS_WITH(resumed.load_state_dict(damaged), contains("has the count"));
    }
  state = stopping.state_dict();
  state.erase("epochs");
  state.insert("epochs", full({}, 0x1p53, dtype(kDouble)));
  CHECK_NOTHROW(EarlyStopping(*other).load_state_dict(state));
  state = stopping.state_dict();
  state.insert("other", zeros({}));
  CHECK_THROWS_WITH(resumed.load_state_dict(state), contains("EarlyStopping"));
  CHECK(resumed.best() == 2);
}

TEST_CASE("gradients accumulated over parts of a batch equal those of the whole batch", "[accumulation]") {
  nn::Sequential net(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 3));
  net->to(kDouble);
  const Tensor x = randn({12, 6}, dtype(kDouble)), target = randint(0, 3, {12});
  const auto gradients = [&] {
    std::vector<Tensor> found;
    for (const Tensor& parameter : net->parameters()) found.push_back(parameter.grad().clone());
    net->zero_grad();
    return found;
  };
  cross_entropy(net->forward(x), target).backward();
  const std::vector<Tensor> whole = gradients();
  const int64_t parts = GENERATE(1, 2, 3, 12);
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t size = 12 / parts;
    const Tensor loss = cross_entropy(net->forward(x.narrow(0, i * size, size)), target.narrow(0, i * size, size));
    (loss / parts).backward();  // divides by the number of parts, so that gradients are means
  }
  const std::vector<Tensor> sum = gradients();
  for (size_t i = 0; i < whole.size(); ++i) CHECK(sum[i].allclose(whole[i], 1e-12, 1e-14));
}
