// Tests CapturedStep on the CPU, where it captures nothing. Its other tests are in tests/cuda.
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;
using training::CapturedStep;
using training::CapturedStepOptions;

TEST_CASE("on the cpu every step is eager", "[captured_step]") {
  const Tensor w = ones({}).requires_grad_();
  optim::SGD optimizer({w}, 0.5);
  CapturedStep step(kCPU, {&optimizer}, [&](const TensorList& batch) -> TensorList {
    optimizer.zero_grad();
    const Tensor loss = (batch[0] * w).sum();
    loss.backward();
    optimizer.step();
    return {loss};
  });
  for (int i = 0; i < 6; ++i) {
    const Tensor x = ones({i == 4 ? 2 : 3});
    const double before = w.item<double>();
    const Tensor loss = step({x})[0];
    CHECK(loss.item<double>() == before * static_cast<double>(x.numel()));
    CHECK(w.item<double>() == before - 0.5 * static_cast<double>(x.numel()));
  }
  CHECK_FALSE(step.captured());
  step.give_up();
  CHECK(step({ones({3})}).size() == 1);
}

TEST_CASE("a captured step rejects unsupported optimizers and options", "[captured_step]") {
  class Still final : public optim::Optimizer {
   public:
    explicit Still(const Tensor& w)
        : Optimizer({optim::OptimizerParamGroup({w})}, std::make_unique<optim::SGDOptions>(1)) {}
    Tensor step(LossClosure) override { return {}; }
    StateDict state_dict() const override { return StateDict(); }
    void load_state_dict(const StateDict&) override {}
  };
  Still still(ones({}).requires_grad_());
  const auto nothing = [](const TensorList&) { return TensorList(); };
  CHECK_THROWS_WITH(CapturedStep(kCPU, {&still}, nothing), contains("has_rule"));
  CHECK_THROWS_WITH(CapturedStep(kCPU, {}, nothing, CapturedStepOptions().warm_up(0)),
                    contains("[CapturedStep]") && contains("warm_up must be at least 1, got 0"));
  CHECK_NOTHROW(CapturedStep(kCPU, {}, nothing, CapturedStepOptions().warm_up(1)));
}
