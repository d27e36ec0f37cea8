// Loss scaling: skipped steps, growth and backoff of the scale, clipping of unscaled gradients, several optimizers,
// saved state.
#include <gradus/gradus.h>

#include <cmath>
#include <filesystem>

#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using amp::GradScaler;
using amp::GradScalerOptions;

namespace {

Tensor parameter() { return tensor({1.0, -2.0, 3.0}).to(kFloat).requires_grad_(); }

// An optimizer without a rule.
class PlainDescent final : public optim::Optimizer {
 public:
  struct Options : optim::OptimizerCloneableOptions<Options> {
    GRADUS_ARG(double, lr) = 0.1;
    const char* name() const override { return "PlainDescentOptions"; }
    void visit(optim::NumberVisitor& visitor) override { visitor("lr", lr_); }
    void check() const override {}
  };
  explicit PlainDescent(std::vector<Tensor> parameters)
      : Optimizer({optim::OptimizerParamGroup(std::move(parameters))}, std::make_unique<Options>()) {}
  Tensor step(LossClosure) override {
    const NoGradGuard no_grad;
    for (const Tensor& parameter : parameters())
      parameter.sub_(parameter.grad() * param_groups()[0].options().get_lr());
    return {};
  }
  StateDict state_dict() const override { return StateDict(); }
  void load_state_dict(const StateDict&) override {}
};

// One iteration on the loss sum(w factor).
void iterate(GradScaler& scaler, optim::Optimizer& optimizer, const Tensor& w, double factor) {
  optimizer.zero_grad();
  scaler.scale((w * factor).sum()).backward();
  scaler.step(optimizer);
  scaler.update();
}

}  // namespace

TEST_CASE("the loss is multiplied by the scale and steps divide the gradients by it") {
  const Tensor w = parameter(), plain = parameter();
  optim::Adam optimizer({w}, optim::AdamOptions(0.1)), other({plain}, optim::AdamOptions(0.1));
  GradScaler scaler(GradScalerOptions().init_scale(1024));
  const Tensor loss = w.square().sum(), scaled = scaler.scale(loss);
  CHECK(scaled.item<double>() == 1024 * loss.item<double>());
  scaled.backward();
  CHECK(w.grad().equal(w.detach() * 2048));
  scaler.step(optimizer);
  scaler.update();
  plain.square().sum().backward();
  other.step();
  CHECK(w.equal(plain));
  other.zero_grad(), optimizer.zero_grad();
  plain.square().sum().backward(), w.square().sum().backward();
  optimizer.step(), other.step();  // steps without the scaler are not affected by it
  CHECK(w.equal(plain));
  CHECK(scaler.scale(TensorList{loss.detach(), loss.detach()})[1].item<double>() == scaled.item<double>());
}

TEST_CASE("a loss is multiplied in the precision of its type") {
  GradScaler scaler(GradScalerOptions().init_scale(1.1));
  const double third = 1.0 / 3;
  CHECK(scaler.scale(tensor(third, kDouble)).item<double>() == third * 1.1);
  CHECK(scaler.scale(tensor(0.7f)).item<float>() == 0.7f * static_cast<float>(1.1));
}

TEST_CASE("parameters without a gradient do not hide those that follow") {
  const Tensor first = parameter(), second = parameter();
  optim::SGD optimizer({first, second}, 0.1);
  GradScaler scaler(GradScalerOptions().init_scale(4));
  scaler.scale(second.sum()).backward();
  scaler.unscale_(optimizer);
  CHECK(second.grad().equal(ones({3})));
  scaler.step(optimizer);
  scaler.update();
  CHECK(first.equal(parameter()));
  CHECK(second.allclose(parameter() - 0.1));
  iterate(scaler, optimizer, second, HUGE_VAL);
  CHECK(scaler.get_scale() == 2);
}

TEST_CASE("a float16 loss is multiplied by a scale above the largest float16 number") {
  GradScaler scaler;
  const Tensor loss = tensor({0.25}, kHalf);
  const Tensor scaled = scaler.scale(loss);
  CHECK(scaled.dtype() == kHalf);
  CHECK(scaled.item<double>() == 16384);
  CHECK_THROWS_WITH(scaler.scale(ones({}, kLong)), contains("floating"));
}

TEST_CASE("a step with inf or NaN is skipped, and the scale shrinks, then grows again") {
  for (const double bad : {HUGE_VAL, std::nan("")}) {
    const Tensor w = parameter();
    optim::SGD optimizer({w}, optim::SGDOptions(0.1).momentum(0.9));
    GradScaler scaler(GradScalerOptions().init_scale(64).growth_factor(4).backoff_factor(0.5).growth_interval(2));
    iterate(scaler, optimizer, w, 1);
    const Tensor before = w.detach().clone();
    iterate(scaler, optimizer, w, bad);
    CHECK(w.equal(before));
    CHECK(scaler.get_scale() == 32);
    CHECK(optimizer.state_dict()["state.0.step"].item<double>() == 1);
    iterate(scaler, optimizer, w, 1);
    CHECK_FALSE(w.equal(before));
    CHECK(scaler.get_scale() == 32);
    iterate(scaler, optimizer, w, 1);
    CHECK(scaler.get_scale() == 128);
    CHECK(optimizer.state_dict()["state.0.step"].item<double>() == 3);
  }
}

TEST_CASE("after an overflow every optimizer continues as if the step had not been made") {
  using Make = std::unique_ptr<optim::Optimizer> (*)(std::vector<Tensor>);
  const std::pair<const char*, Make> optimizers[] = {
      {"SGD",
       [](std::vector<Tensor> w) -> std::unique_ptr<optim::Optimizer> {
         return std::make_unique<optim::SGD>(std::move(w), optim::SGDOptions(0.1).momentum(0.9));
       }},
      {"Adam",
       [](std::vector<Tensor> w) -> std::unique_ptr<optim::Optimizer> {
         return std::make_unique<optim::Adam>(std::move(w), optim::AdamOptions(0.1));
       }},
      {"AdamW",
       [](std::vector<Tensor> w) -> std::unique_ptr<optim::Optimizer> {
         return std::make_unique<optim::AdamW>(std::move(w), optim::AdamWOptions(0.1));
       }},
      {"RMSprop",
       [](std::vector<Tensor> w) -> std::unique_ptr<optim::Optimizer> {
         return std::make_unique<optim::RMSprop>(std::move(w), optim::RMSpropOptions(0.1));
       }},
      {"Adagrad",
       [](std::vector<Tensor> w) -> std::unique_ptr<optim::Optimizer> {
         return std::make_unique<optim::Adagrad>(std::move(w), optim::AdagradOptions(0.1));
       }},
      {"PlainDescent", [](std::vector<Tensor> w) -> std::unique_ptr<optim::Optimizer> {
         return std::make_unique<PlainDescent>(std::move(w));
       }}};
  for (const auto& [name, make] : optimizers)
    for (const bool unscale : {false, true}) {
      INFO(name << (unscale ? ", unscaled first" : ""));
      const Tensor w = parameter(), plain = parameter();
      const auto optimizer = make({w}), other = make({plain});
      GradScaler scaler(GradScalerOptions().init_scale(64).growth_interval(100));
      for (const double factor : {1.0, HUGE_VAL, 2.0, std::nan(""), HUGE_VAL, 3.0, 1.0}) {
        optimizer->zero_grad();
        scaler.scale((w * w * factor).sum()).backward();
        if (unscale) scaler.unscale_(*optimizer);
        scaler.step(*optimizer);
        scaler.update();
        if (!std::isfinite(factor)) continue;
        other->zero_grad();
        (plain * plain * factor).sum().backward();
        other->step();
        CHECK(w.allclose(plain));
      }
      CHECK(scaler.get_scale() == 8);  // halved three times
    }
}

TEST_CASE("an inf in one of many gradients skips the step of all parameters") {
  const bool in_the_last = GENERATE(false, true);
  const Tensor a = rand({40, 30}).requires_grad_(), b = rand({7}).requires_grad_();
  optim::Adam optimizer({a, b}, optim::AdamOptions(0.1));
  GradScaler scaler;
  scaler.scale(a.sum() + b.sum()).backward();
  const Tensor before_a = a.detach().clone(), before_b = b.detach().clone();
  if (in_the_last) b.mutable_grad()[6] = NAN;
  else a.mutable_grad().view({-1})[1199] = -INFINITY;
  scaler.step(optimizer);
  scaler.update();
  CHECK(a.equal(before_a));
  CHECK(b.equal(before_b));
  CHECK(scaler.get_scale() == 32768);
}

TEST_CASE("unscaled gradients can be clipped") {
  const Tensor w = parameter(), plain = parameter();
  optim::SGD optimizer({w}, 0.1), other({plain}, 0.1);
  GradScaler scaler;
  scaler.scale((w * 30).sum()).backward();
  scaler.unscale_(optimizer);
  CHECK(w.grad().equal(full({3}, 30.0)));
  (plain * 30).sum().backward();
  const Tensor norm = nn::utils::clip_grad_norm_on_device_({w}, 1.0);
  nn::utils::clip_grad_norm_on_device_({plain}, 1.0);
  CHECK(norm.item<double>() == Approx(30 * std::sqrt(3.0)));
  scaler.step(optimizer);
  scaler.update();
  other.step();
  CHECK(w.equal(plain));

  optimizer.zero_grad();  // an inf makes the norm useless, and the step is left out
  scaler.scale((w * INFINITY).sum()).backward();
  scaler.unscale_(optimizer);
  nn::utils::clip_grad_norm_on_device_({w}, 1.0);
  scaler.step(optimizer);
  scaler.update();
  CHECK(w.equal(plain));
  CHECK(scaler.get_scale() == 32768);
}

TEST_CASE("several optimizers share a scale; each skips only its own steps") {
  const Tensor a = parameter(), b = parameter();
  optim::SGD first({a}, 0.1), second({b}, 0.1);
  GradScaler scaler;
  scaler.scale(a.sum() + (b * INFINITY).sum()).backward();
  scaler.step(first);
  scaler.step(second);
  scaler.update();
  CHECK(a.allclose(parameter() - 0.1));
  CHECK(b.equal(parameter()));
  CHECK(scaler.get_scale() == 32768);
}

TEST_CASE("for an optimizer without a rule, the host decides whether to step") {
  const Tensor w = parameter();
  PlainDescent optimizer({w});
  GradScaler scaler;
  iterate(scaler, optimizer, w, 1);
  CHECK(w.allclose(parameter() - 0.1));
  iterate(scaler, optimizer, w, INFINITY);
  CHECK(w.allclose(parameter() - 0.1));
  CHECK(scaler.get_scale() == 32768);
}

TEST_CASE("a disabled scaler does nothing") {
  const Tensor w = parameter();
  optim::SGD optimizer({w}, 0.1);
  GradScaler scaler(GradScalerOptions().enabled(false));
  const Tensor loss = w.sum();
  CHECK(scaler.scale(loss).is_same(loss));
  loss.backward();
  scaler.unscale_(optimizer);
  scaler.step(optimizer);
  scaler.update();
  CHECK(w.allclose(parameter() - 0.1));
  CHECK(scaler.get_scale() == 1);
  CHECK(scaler.state_dict().size() == 0);
  CHECK_NOTHROW(scaler.load_state_dict(GradScaler::StateDict()));
  CHECK_FALSE(scaler.is_enabled());
}

TEST_CASE("another scaler continues from a state dict") {
  const Tensor w = parameter();
  optim::SGD optimizer({w}, 0.1);
  GradScaler scaler(GradScalerOptions().init_scale(256).growth_interval(3));
  CHECK(scaler.get_scale() == 256);
  iterate(scaler, optimizer, w, INFINITY);
  iterate(scaler, optimizer, w, 1);
  const auto state = scaler.state_dict();
  CHECK(state["scale"].item<double>() == 128);
  CHECK(state["_growth_tracker"].item<double>() == 1);
  CHECK(state["growth_factor"].item<double>() == 2);
  CHECK(state["backoff_factor"].item<double>() == 0.5);
  CHECK(state["growth_interval"].item<double>() == 3);
  CHECK(state.size() == 5);

  GradScaler fresh, used;
  for (int i = 0; i < 2; ++i) iterate(used, optimizer, w, 1);  // counts more good steps than the loaded state
  for (GradScaler* other : {&fresh, &used}) {
    other->load_state_dict(state);
    CHECK(other->get_scale() == 128);
    iterate(*other, optimizer, w, 1);
    CHECK(other->get_scale() == 128);
    iterate(*other, optimizer, w, 1);
    CHECK(other->get_scale() == 256);
  }
  auto broken = scaler.state_dict();
  broken["scale"].fill_(-1.0);
  CHECK_THROWS_AS(fresh.load_state_dict(broken), ValueError);
  CHECK(fresh.get_scale() == 256);
  CHECK_THROWS_WITH(fresh.load_state_dict(GradScaler::StateDict()), contains("'scale'"));

  scaler.update(2.0);
  CHECK(scaler.get_scale() == 2);
}

TEST_CASE("a checkpoint can contain a scaler") {
  const Tensor w = parameter();
  optim::SGD optimizer({w}, 0.1);
  GradScaler scaler;
  iterate(scaler, optimizer, w, NAN);
  const std::string path = (std::filesystem::temp_directory_path() / "gradus_scaler_test.safetensors").string();
  training::Checkpoint().add("scaler", scaler).save(path);
  GradScaler loaded;
  training::Checkpoint().add("scaler", loaded).load(path);
  std::filesystem::remove(path);
  CHECK(loaded.get_scale() == 32768);
}

TEST_CASE("calls of a scaler in a wrong order are errors") {
  const Tensor w = parameter();
  optim::SGD optimizer({w}, 0.1);
  GradScaler scaler;
  CHECK_THROWS_WITH(scaler.step(optimizer), contains("GradScaler::step") && contains("scale(loss)"));
  CHECK_THROWS_WITH(scaler.update(), contains("no loss was scaled"));
  scaler.scale(w.sum()).backward();
  CHECK_THROWS_WITH(scaler.update(), contains("call step() first"));
  scaler.unscale_(optimizer);
  CHECK_THROWS_WITH(scaler.unscale_(optimizer), contains("already"));
  scaler.step(optimizer);
  CHECK_THROWS_WITH(scaler.step(optimizer), contains("already"));
  CHECK_THROWS_WITH(scaler.unscale_(optimizer), contains("before"));
  for (const double scale : {0.0, -1.0, HUGE_VAL, std::nan("")})
    CHECK_THROWS_WITH(scaler.update(scale), contains("the new scale must be positive and finite, got "));
  scaler.update();
  for (const double scale : {1.0, 0.25, 1e-30, 1e30}) {
    scaler.update(scale);
    CHECK(scaler.get_scale() == scale);
  }
  optimizer.zero_grad();
  CHECK_THROWS_WITH(scaler.unscale_(optimizer), contains("no parameter") && contains("gradient"));

  const Tensor half = ones({2}, kHalf).requires_grad_();
  optim::SGD narrow({half}, 0.1);
  scaler.scale(half.sum()).backward();
  CHECK_THROWS_WITH(scaler.unscale_(narrow), contains("float16"));

  const auto refused = [](const GradScalerOptions& options, const char* message) {
    CHECK_THROWS_WITH(GradScaler(options), contains(message));
  };
  for (const double scale : {0.0, -1.0, HUGE_VAL})
    refused(GradScalerOptions().init_scale(scale), "init_scale must be positive and finite");
  for (const double growth : {1.0, 0.5, HUGE_VAL})
    refused(GradScalerOptions().growth_factor(growth), "growth_factor must be more than 1 and finite");
  for (const double backoff : {0.0, 1.0, -0.5})
    refused(GradScalerOptions().backoff_factor(backoff), "backoff_factor must be between 0 and 1");
  for (const int64_t interval : {0, -1})
    refused(GradScalerOptions().growth_interval(interval), "growth_interval must be positive");
  CHECK_NOTHROW(GradScaler(GradScalerOptions().growth_interval(1)));
}
