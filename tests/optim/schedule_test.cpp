// Schedules: comparison with PyTorch (golden/make_golden.py), resuming from state dicts, and errors.
#include <gradus/autograd/autograd.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/optim/optim.h>
#include <gradus/tests/catch.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <sstream>

using namespace gradus;
using namespace gradus::optim;
using test::contains;

namespace {

constexpr int kCalls = 25;

const std::map<std::string, Array>& golden_schedules() {
  static const auto tensors = io::load_safetensors(test::source_path("tests/optim/golden/trajectories.safetensors"));
  return tensors;
}

/// SGD with the two groups of golden/make_golden.py.
struct TwoGroups {
  TwoGroups() : optimizer(groups(), SGDOptions(1)) {}
  static std::vector<OptimizerParamGroup> groups() {
    std::vector<OptimizerParamGroup> groups;
    for (double lr : {0.5, 0.2})
      groups.emplace_back(std::vector<Tensor>{zeros({1}, requires_grad())},
                          std::make_unique<SGDOptions>(SGDOptions(lr).momentum(0.6)));
    return groups;
  }
  /// Compares the rates and momenta of both groups with row n of a schedule in the golden file.
  void compare(const std::string& name, int n) {
    INFO(name << " after " << n << " calls");
    const double* row = golden_schedules().at("schedule." + name).data<double>() + 4 * n;
    for (int group = 0; group < 2; ++group) {
      const auto& options = static_cast<const SGDOptions&>(optimizer.param_groups()[group].options());
      CHECK(options.lr() == Approx(row[group]).epsilon(1e-12).margin(1e-15));
      CHECK(options.momentum() == Approx(row[2 + group]).epsilon(1e-12));
    }
  }
  SGD optimizer;
};

struct Case {
  const char* name;
  std::function<std::unique_ptr<LRScheduler>(Optimizer&)> make;
};

template <class Schedule, class... Arguments>
Case simple(const char* name, Arguments... arguments) {
  return {name, [=](Optimizer& o) { return std::make_unique<Schedule>(o, arguments...); }};
}

const std::vector<Case>& cases() {
  using Functions = std::vector<LambdaLR::Function>;
  using Parts = std::vector<std::shared_ptr<LRScheduler>>;
  static const std::vector<Case> list = {
      simple<StepLR>("step", 3, 0.5),
      simple<MultiStepLR>("multi_step", std::vector<int64_t>{7, 2, 11, 7}, 0.3),
      simple<ExponentialLR>("exponential", 0.8),
      simple<ConstantLR>("constant"),
      simple<ConstantLR>("constant_long", 0.1, 9),
      simple<LinearLR>("linear"),
      simple<LinearLR>("linear_down", 1.0, 0.0, 12),
      simple<CosineAnnealingLR>("cosine", 10, 0.01),
      simple<LambdaLR>("lambda", [](int64_t n) { return 1.0 / static_cast<double>(1 + n); }),
      simple<LambdaLR>("lambdas", Functions{[](int64_t n) { return std::pow(0.9, n); },
                                            [](int64_t n) { return n < 4 ? 1.0 : 0.1; }}),
      {"warm_up_cosine",
       [](Optimizer& o) {
         return std::make_unique<SequentialLR>(
             o, Parts{std::make_shared<LinearLR>(o, 0.1, 1.0, 5), std::make_shared<CosineAnnealingLR>(o, 20)},
             std::vector<int64_t>{5});
       }},
      {"sequence",
       [](Optimizer& o) {
         return std::make_unique<SequentialLR>(
             o,
             Parts{std::make_shared<ConstantLR>(o, 0.1, 2), std::make_shared<ExponentialLR>(o, 0.9),
                   std::make_shared<StepLR>(o, 2, 0.5)},
             std::vector<int64_t>{4, 11});
       }},
      simple<OneCycleLR>("one_cycle", OneCycleLROptions(1, 25)),
      simple<OneCycleLR>("one_cycle_linear", OneCycleLROptions({0.5, 0.25}, 30)
                                                 .anneal_strategy(AnnealStrategy::linear)
                                                 .pct_start(0.45)
                                                 .div_factor(10)
                                                 .final_div_factor(100)
                                                 .base_momentum({0.7})
                                                 .max_momentum({0.9, 0.8})),
      simple<OneCycleLR>("one_cycle_three", OneCycleLROptions(1, 26).three_phase(true)),
      simple<OneCycleLR>(
          "one_cycle_three_linear",
          OneCycleLROptions(1, 40).three_phase(true).anneal_strategy(AnnealStrategy::linear).cycle_momentum(false)),
  };
  return list;
}

using Plateau = ReduceLROnPlateauScheduler;
struct PlateauCase {
  const char* name;
  std::function<std::unique_ptr<Plateau>(Optimizer&)> make;
};

template <class... Arguments>
PlateauCase plateau(const char* name, Arguments... arguments) {
  return {name, [=](Optimizer& o) { return std::make_unique<Plateau>(o, arguments...); }};
}

const std::vector<PlateauCase>& plateaus() {
  using Rates = std::vector<double>;
  static const std::vector<PlateauCase> list = {
      plateau("plateau", Plateau::min, 0.5, 2),
      plateau("plateau_max", Plateau::max, 0.3, 1, 0.05, Plateau::rel, 3),
      plateau("plateau_abs", Plateau::min, 0.5, 0, 0.15, Plateau::abs, 0, Rates{0.1, 0.01}),
      plateau("plateau_max_abs", Plateau::max, 0.1, 3, 1e-4, Plateau::abs, 1, Rates{}, 0.01),
  };
  return list;
}

}  // namespace

TEST_CASE("schedules equal PyTorch's") {
  for (const auto& [name, make] : cases()) {
    TwoGroups two;
    const auto schedule = make(two.optimizer);
    for (int n = 0; n <= kCalls; ++n) {
      two.compare(name, n);
      CHECK(schedule->step_count() == n);
      CHECK(schedule->get_last_lr()[1] == two.optimizer.param_groups()[1].options().get_lr());
      if (n < kCalls) schedule->step();
    }
  }
}

TEST_CASE("ReduceLROnPlateau equals PyTorch's") {
  const double* metrics = golden_schedules().at("metrics").data<double>();
  for (const auto& [name, make] : plateaus()) {
    TwoGroups two;
    const auto schedule = make(two.optimizer);
    for (int n = 0; n <= kCalls; ++n) {
      two.compare(name, n);
      if (n < kCalls) schedule->step(metrics[n]);
    }
    CHECK(schedule->get_last_lr()[0] < 0.5);
  }
}

TEST_CASE("ReduceLROnPlateau: the threshold is a part of the best metric, or a difference to it") {
  struct Case {
    Plateau::SchedulerMode mode;
    Plateau::ThresholdMode threshold_mode;
    double best, bar;
  };
  for (const auto& [mode, threshold_mode, best, bar] : {Case{Plateau::min, Plateau::rel, 10, 8},
                                                        {Plateau::min, Plateau::abs, 10, 9.8},
                                                        {Plateau::max, Plateau::rel, 10, 12},
                                                        {Plateau::max, Plateau::abs, 10, 10.2},
                                                        {Plateau::min, Plateau::rel, 0.5, 0.4},
                                                        {Plateau::min, Plateau::abs, 0.5, 0.3},
                                                        {Plateau::max, Plateau::rel, 0.5, 0.6},
                                                        {Plateau::max, Plateau::abs, 0.5, 0.7}})
    for (const bool beyond : {false, true}) {
      INFO(best << " to " << bar << (beyond ? ", beyond" : ", within"));
      TwoGroups two;
      Plateau schedule(two.optimizer, mode, 0.5, 0, 0.2, threshold_mode);
      schedule.step(best);
      const double before = schedule.get_last_lr()[0];
      schedule.step(bar + (beyond == (mode == Plateau::max) ? 0.01 : -0.01));
      CHECK(schedule.get_last_lr()[0] == (beyond ? before : before / 2));
    }
}

TEST_CASE("a schedule can be set to any step") {
  for (const auto& [name, make] : cases()) {
    TwoGroups two;
    const auto schedule = make(two.optimizer);
    for (int n : {7, 21, 3, 11, 0}) {
      schedule->set_step_count(n);
      two.compare(name, n);
      schedule->step();
      two.compare(name, n + 1);
    }
    CHECK_THROWS_AS(schedule->set_step_count(-1), ValueError);
  }
}

TEST_CASE("a schedule has the same rates by steps as by setting its step, over many periods") {
  for (const auto& [name, make] : cases()) {
    const bool ends = std::string(name).starts_with("one_cycle");
    TwoGroups stepped, set;
    const auto schedule = make(stepped.optimizer), other = make(set.optimizer);
    for (int n = 1; n <= (ends ? kCalls : 80); ++n) {
      INFO(name << " after " << n << " calls");
      schedule->step();
      other->set_step_count(n);
      for (size_t group = 0; group < 2; ++group)
        CHECK(schedule->get_last_lr()[group] == Approx(other->get_last_lr()[group]).epsilon(1e-9).margin(1e-15));
    }
  }
}

TEST_CASE("schedules of a formula change the rate that the optimizer has, also if the user has changed it") {
  const Case formulas[] = {simple<StepLR>("step", 3, 0.5),
                           simple<MultiStepLR>("multi_step", std::vector<int64_t>{2, 7, 8}, 0.3),
                           simple<ExponentialLR>("exponential", 0.8),
                           simple<ConstantLR>("constant", 0.25, 6),
                           simple<LinearLR>("linear", 0.5, 0.1, 8),
                           simple<CosineAnnealingLR>("cosine", 10)};
  for (const auto& [name, make] : formulas) {
    TwoGroups two, doubled;
    const auto schedule = make(two.optimizer), other = make(doubled.optimizer);
    for (int n = 1; n <= 9; ++n) {
      INFO(name << " after " << n << " calls");
      if (n == 5) doubled.optimizer.set_lr(0, 2 * other->get_last_lr()[0]);
      schedule->step(), other->step();
      CHECK(other->get_last_lr()[0] == Approx((n < 5 ? 1 : 2) * schedule->get_last_lr()[0]).epsilon(1e-12));
      CHECK(other->get_last_lr()[1] == schedule->get_last_lr()[1]);
    }
  }
}

TEST_CASE("a constant factor of 0 ends with the rate that the optimizer had at first") {
  TwoGroups two;
  ConstantLR schedule(two.optimizer, 0, 3);
  const std::vector<double> none = {0, 0}, first = {0.5, 0.2};
  for (int n = 0; n <= 5; ++n) {
    INFO("after " << n << " calls");
    CHECK(schedule.get_last_lr() == (n < 3 ? none : first));
    schedule.step();
  }
}

TEST_CASE("a schedule resumed from a state dict is bit-identical") {
  for (const auto& [name, make] : cases()) {
    TwoGroups through, resumed;
    const auto schedule = make(through.optimizer);
    for (int n = 0; n < 9; ++n) schedule->step();
    const auto other = make(resumed.optimizer);
    other->load_state_dict(schedule->state_dict());
    for (int n = 9; n < kCalls; ++n) {
      schedule->step();
      other->step();
      CHECK(other->get_last_lr() == schedule->get_last_lr());
      resumed.compare(name, n + 1);
    }
  }
  const double* metrics = golden_schedules().at("metrics").data<double>();
  for (const auto& [name, make] : plateaus()) {
    TwoGroups through, resumed;
    const auto schedule = make(through.optimizer);
    for (int n = 0; n < 9; ++n) schedule->step(metrics[n]);
    const auto other = make(resumed.optimizer);
    other->load_state_dict(schedule->state_dict());
    for (int n = 9; n < kCalls; ++n) {
      other->step(metrics[n]);
      resumed.compare(name, n + 1);
    }
  }
}

TEST_CASE("a schedule does not change if a state does not fit") {
  TwoGroups two, other;
  StepLR schedule(two.optimizer, 3, 0.5);
  schedule.step();
  const StateDict state = schedule.state_dict();
  CHECK(state.keys() == std::vector<std::string>{"step_count", "base_lr.0", "base_lr.1", "lr.0", "lr.1"});
  StepLR broken(other.optimizer, 3, 0.5);
  for (const auto& [key, value] : std::vector<std::pair<std::string, double>>{
           {"step_count", -1}, {"step_count", 0.5}, {"step_count", NAN}, {"lr.1", -1}, {"lr.0", INFINITY}}) {
    StateDict wrong;
    for (const auto& item : state)
      wrong.append(item.key(), item.key() == key ? full({}, value, kDouble) : item.value());
    CHECK_THROWS_AS(broken.load_state_dict(wrong), ValueError);
    CHECK(broken.step_count() == 0);
    other.compare("step", 0);
  }
  CHECK_THROWS_WITH(broken.load_state_dict(StateDict()), contains("step_count"));
  StateDict more = state;
  more.append("schedulers.0.step_count", full({}, 1, kDouble));
  CHECK_THROWS_WITH(broken.load_state_dict(more), contains("does not know"));
  SequentialLR sequence(other.optimizer,
                        {std::make_shared<StepLR>(other.optimizer, 3), std::make_shared<StepLR>(other.optimizer, 2)},
                        {2});
  std::vector<std::string> names;
  for (const char* prefix : {"", "schedulers.0.", "schedulers.1."})
    for (const char* name : {"step_count", "base_lr.0", "base_lr.1"}) names.push_back(std::string(prefix) + name);
  names.insert(names.end(), {"lr.0", "lr.1"});
  CHECK(sequence.state_dict().keys() == names);
  Plateau plateau(other.optimizer);
  CHECK(plateau.state_dict().keys() ==
        std::vector<std::string>{"best", "epoch", "bad_epochs", "cooldown_left", "lr.0", "lr.1"});
  CHECK_THROWS_WITH(plateau.load_state_dict(state), contains("best"));
}

TEST_CASE("several schedules of one optimizer start from its initial rate") {
  TwoGroups two;
  ExponentialLR exponential(two.optimizer, 0.5);
  StepLR step(two.optimizer, 2, 0.1);
  for (int n = 0; n < 4; ++n) exponential.step(), step.step();
  CHECK(step.get_last_lr()[0] == Approx(0.5 * std::pow(0.5, 4) * 0.01));
  two.optimizer.set_lr(8);  // a change by the user persists
  exponential.step();
  CHECK(exponential.get_last_lr()[1] == 4);
  ConstantLR fresh(two.optimizer, 0.5);
  CHECK(fresh.get_last_lr()[0] == 0.25);
  OptimizerParamGroup late({zeros({1}, requires_grad())}, std::make_unique<SGDOptions>(0.8));
  two.optimizer.add_param_group(std::move(late));
  exponential.load_state_dict(exponential.state_dict());  // with the initial rate of a group that no step has seen
  exponential.step();
  CHECK(exponential.get_last_lr()[2] == Approx(0.4));
}

TEST_CASE("OneCycleLR changes the first beta of Adam, and optimizers without momentum or betas are errors") {
  const Tensor p = zeros({1}, requires_grad());
  Adam adam({p}, AdamOptions().betas({0.5, 0.75}));
  OneCycleLR schedule(adam, OneCycleLROptions(1, 10));
  const auto& options = static_cast<const AdamOptions&>(adam.param_groups()[0].options());
  CHECK(options.betas() == std::tuple(0.95, 0.75));
  schedule.step(), schedule.step();
  CHECK(options.betas() == std::tuple(0.85, 0.75));
  CHECK(options.lr() == 1);
  for (int n = 2; n < 10; ++n) schedule.step();
  CHECK_THROWS_WITH(schedule.step(), contains("step 11 of 10"));
  // Schedules that are made later start from the first rate of the cycle.
  CHECK(adam.param_groups()[0].initial_lr() == 1.0 / 25);
  CHECK(ConstantLR(adam, 1).get_last_lr()[0] == 1.0 / 25);
  CHECK_THROWS_WITH(schedule.set_step_count(11), contains("step 11 of 10"));
  Adam longer({p}, AdamOptions());
  OneCycleLR later(longer, OneCycleLROptions(1, 20));
  later.set_step_count(11);
  CHECK_THROWS_WITH(schedule.load_state_dict(later.state_dict()), contains("step 11 of 10"));
  CHECK(schedule.step_count() == 10);
  Adagrad adagrad({p});
  CHECK_THROWS_WITH(OneCycleLR(adagrad, OneCycleLROptions(1, 10)), contains("AdagradOptions"));
  CHECK_NOTHROW(OneCycleLR(adagrad, OneCycleLROptions(1, 10).cycle_momentum(false)));
}

TEST_CASE("errors name invalid arguments of schedules") {
  TwoGroups two, another;
  Optimizer& o = two.optimizer;
  auto refused = [&](auto make, const char* what, const char* value) {
    CHECK_THROWS_AS(make(), ValueError);
    CHECK_THROWS_WITH(make(), contains(what) && contains(value));
  };
  refused([&] { StepLR(o, 0); }, "step_size", "0");
  refused([&] { StepLR(o, 1, -2); }, "gamma", "-2");
  refused([&] { MultiStepLR(o, {1}, NAN); }, "gamma", "nan");
  refused([&] { ExponentialLR(o, -2); }, "gamma", "-2");
  refused([&] { ConstantLR(o, 1.5); }, "factor", "1.5");
  refused([&] { ConstantLR(o, 0.5, 0); }, "total_iters", "0");
  refused([&] { LinearLR(o, 0); }, "start_factor", "0");
  refused([&] { LinearLR(o, 0.5, 2); }, "end_factor", "2");
  refused([&] { LinearLR(o, 0.5, 1, -1); }, "total_iters", "-1");
  refused([&] { CosineAnnealingLR(o, 0); }, "T_max", "0");
  refused([&] { CosineAnnealingLR(o, 5, -1); }, "eta_min", "-1");
  refused([&] { LambdaLR(o, std::vector<LambdaLR::Function>(3)); }, "3 functions", "2 parameter groups");
  refused([&] { LambdaLR(o, LambdaLR::Function()); }, "LambdaLR", "empty");
  refused([&] { OneCycleLR(o, OneCycleLROptions({1, 2, 3}, 5)); }, "max_lr", "3");
  refused([&] { OneCycleLR(o, OneCycleLROptions(1, 0)); }, "total_steps", "0");
  refused([&] { OneCycleLR(o, OneCycleLROptions(1, 5).pct_start(1.5)); }, "pct_start", "1.5");
  refused([&] { OneCycleLR(o, OneCycleLROptions(1, 5).div_factor(0)); }, "div_factor", "0");
  refused([&] { OneCycleLR(o, OneCycleLROptions(1, 5).base_momentum({1.5})); }, "base_momentum", "1.5");
  const auto mine = std::make_shared<StepLR>(o, 1), other = std::make_shared<StepLR>(another.optimizer, 1);
  refused([&] { SequentialLR(o, {mine}, {1}); }, "1 milestones", "1 schedules");
  refused([&] { SequentialLR(o, {mine, other}, {1}); }, "schedule 1", "another optimizer");
  refused([&] { SequentialLR(o, {other, mine}, {1}); }, "schedule 0", "another optimizer");
  refused([&] { SequentialLR(o, {nullptr, mine}, {1}); }, "schedule 0", "null");
  refused([&] { SequentialLR(o, {mine, nullptr}, {1}); }, "schedule 1", "null");
  refused([&] { SequentialLR(o, {mine, mine}, {0}); }, "milestone 0", "at least 1, got 0");
  refused([&] { Plateau(o, Plateau::min, 1.0); }, "factor", "1");
  refused([&] { Plateau(o, Plateau::min, 0.5, -1); }, "patience", "-1");
  refused([&] { Plateau(o, Plateau::min, 0.5, 1, 0, Plateau::rel, 0, {1, 2, 3}); }, "min_lr", "3");
  refused(
      [&] {
        LambdaLR schedule(o, [](int64_t n) { return n > 0 ? -1.0 : 1.0; });
        schedule.step();
      },
      "learning rate", "-0.");
}

TEST_CASE("arguments of schedules may be the ends of their ranges, and not beyond them") {
  TwoGroups two;
  Optimizer& o = two.optimizer;
  const auto taken = [](auto make) { CHECK_NOTHROW(make()); };
  const auto refused = [](auto make, const std::string& message) { CHECK_THROWS_WITH(make(), contains(message)); };
  taken([&] { StepLR(o, 1, 0); });
  refused([&] { StepLR(o, -1); }, "StepLR: step_size must be positive, got -1");
  refused([&] { StepLR(o, 1, INFINITY); }, "StepLR: gamma must be finite and not negative, got inf");
  taken([&] { MultiStepLR(o, {}, 0); });
  refused([&] { MultiStepLR(o, {1}, -0.5); }, "MultiStepLR: gamma must be finite and not negative, got -0.5");
  taken([&] { ExponentialLR(o, 0); });
  taken([&] { ConstantLR(o, 0, 1); });
  taken([&] { ConstantLR(o, 1, 1); });
  refused([&] { ConstantLR(o, -0.1); }, "ConstantLR: factor must be in [0, 1], got -0.1");
  taken([&] { LinearLR(o, 1, 0, 1); });
  taken([&] { LinearLR(o, 1e-9, 1, 1); });
  refused([&] { LinearLR(o, 0, 1, 1); }, "LinearLR: start_factor must be above 0, got 0");
  refused([&] { LinearLR(o, -0.1); }, "LinearLR: start_factor must be in [0, 1], got -0.1");
  refused([&] { LinearLR(o, 1.1); }, "LinearLR: start_factor must be in [0, 1], got 1.1");
  refused([&] { LinearLR(o, 1, -0.1); }, "LinearLR: end_factor must be in [0, 1], got -0.1");
  refused([&] { LinearLR(o, 1, 1, 0); }, "LinearLR: total_iters must be positive, got 0");
  taken([&] { CosineAnnealingLR(o, 1, 0); });
  refused([&] { CosineAnnealingLR(o, 1, INFINITY); }, "CosineAnnealingLR: eta_min must be finite and not negative");

  const auto cycle = [&](auto change) {
    OneCycleLROptions options(1, 2);
    change(options);
    OneCycleLR schedule(o, options);
    schedule.step(), schedule.step();
  };
  using Options = OneCycleLROptions;
  taken([&] { cycle([](Options& c) { c.max_lr({0}); }); });
  taken([&] { cycle([](Options& c) { c.max_lr({1, 2}).base_momentum({0}).max_momentum({0, 0.99}); }); });
  for (const double pct : {0.0, 0.5, 1.0})
    for (const bool three : {false, true})
      taken([&] { cycle([&](Options& c) { c.pct_start(pct).three_phase(three); }); });
  refused([&] { cycle([](Options& c) { c.max_lr({-1}); }); }, "OneCycleLR: max_lr must be in [0, inf), got -1");
  refused([&] { cycle([](Options& c) { c.max_lr({1, INFINITY}); }); }, "max_lr must be in [0, inf), got inf");
  refused([&] { cycle([](Options& c) { c.base_momentum({0.5, 1}); }); }, "base_momentum must be in [0, 1), got 1");
  refused([&] { cycle([](Options& c) { c.max_momentum({1}); }); }, "max_momentum must be in [0, 1), got 1");
  refused([&] { cycle([](Options& c) { c.max_momentum({-0.1}); }); }, "max_momentum must be in [0, 1), got -0.1");
  refused([&] { cycle([](Options& c) {
                  c.max_momentum({0.5, 0.5, 0.5});
                }); },
          "OneCycleLR: 3 values of max_momentum for 2 parameter groups");
  refused([&] { cycle([](Options& c) { c.base_momentum({}); }); }, "0 values of base_momentum for 2 parameter groups");
  refused([&] { cycle([](Options& c) { c.pct_start(-0.1); }); }, "OneCycleLR: pct_start must be in [0, 1], got -0.1");
  refused([&] { cycle([](Options& c) { c.final_div_factor(0); }); }, "final_div_factor must be positive, got 0");
  refused([&] { cycle([](Options& c) { c.total_steps(-1); }); }, "total_steps must be positive, got -1");
  refused([&] { cycle([](Options& c) { c.total_steps(1); }); }, "step 2 of 1; total_steps is too small");

  taken([&] { Plateau(o, Plateau::min, 0.5, 0, 0, Plateau::rel, 0, {0}, 0); });
  for (const double factor : {0.0, 1.0, -0.5})
    refused([&] { Plateau(o, Plateau::min, factor); }, "ReduceLROnPlateau: factor must be in (0, 1), got ");
  refused([&] { Plateau(o, Plateau::min, 0.5, 1, -0.1); }, "threshold must be finite and not negative, got -0.1");
  refused([&] { Plateau(o, Plateau::min, 0.5, 1, 0, Plateau::rel, -1); }, "cooldown must be finite and not negative");
  refused([&] { Plateau(o, Plateau::min, 0.5, 1, 0, Plateau::rel, 0, {-1}); },
          "min_lr must be finite and not negative");
  refused([&] { Plateau(o, Plateau::min, 0.5, 1, 0, Plateau::rel, 0, {}, -1); }, "eps must be finite and not negative");
  taken([&] { Plateau(o, Plateau::min, 0.5, 1, 0, Plateau::rel, 0, {0.1, 0.2}); });

  const auto steps = [&](std::vector<int64_t> milestones) {
    std::vector<std::shared_ptr<LRScheduler>> schedules;
    for (size_t i = 0; i <= milestones.size(); ++i) schedules.push_back(std::make_shared<StepLR>(o, 1));
    SequentialLR(o, schedules, std::move(milestones));
  };
  taken([&] { steps({1, 2, 3}); });
  refused([&] { steps({2, 2}); }, "milestone 1 of SequentialLR must be at least 3, got 2");
  refused([&] { steps({2, 1}); }, "milestone 1 of SequentialLR must be at least 3, got 1");
}

TEST_CASE("ReduceLROnPlateau counts, waits and prints as its arguments say") {
  // By epoch: the metric, and the rate after it. The rates are halved.
  const auto check = [](const std::vector<std::pair<double, double>>& epochs, auto... arguments) {
    SGD optimizer({zeros({1}, requires_grad())}, SGDOptions(1));
    Plateau plateau(optimizer, arguments...);
    for (size_t epoch = 0; epoch < epochs.size(); ++epoch) {
      CAPTURE(epoch);
      plateau.step(epochs[epoch].first);
      CHECK(plateau.get_last_lr()[0] == epochs[epoch].second);
    }
  };
  using Rates = std::vector<double>;
  // Without patience, the first epoch without progress halves the rate. An equal metric is no progress.
  check({{5, 1}, {5, 0.5}, {4, 0.5}, {4.5, 0.25}, {4, 0.125}, {NAN, 0.0625}}, Plateau::min, 0.5, 0, 0.0);
  check({{5, 1}, {5, 0.5}, {6, 0.5}, {5.5, 0.25}, {6, 0.125}}, Plateau::max, 0.5, 0, 0.0);
  check({{5, 1}, {6, 1}, {6, 1}, {6, 0.5}, {6, 0.5}, {6, 0.5}, {6, 0.25}}, Plateau::min, 0.5, 2);
  // A threshold of 10 % or of 0.1 must be exceeded.
  check({{10, 1}, {9.0, 0.5}, {8.9, 0.5}, {8.1, 0.25}}, Plateau::min, 0.5, 0, 0.1, Plateau::rel);
  check({{10, 1}, {11.0, 0.5}, {11.1, 0.5}, {12, 0.25}}, Plateau::max, 0.5, 0, 0.1, Plateau::rel);
  check({{10, 1}, {9.75, 0.5}, {9.7, 0.5}, {9.5, 0.25}}, Plateau::min, 0.5, 0, 0.25, Plateau::abs);
  check({{10, 1}, {10.25, 0.5}, {10.3, 0.5}, {10.5, 0.25}}, Plateau::max, 0.5, 0, 0.25, Plateau::abs);
  // Epochs of the cooldown are not counted.
  check({{5, 1}, {5, 0.5}, {5, 0.5}, {5, 0.5}, {5, 0.25}}, Plateau::min, 0.5, 0, 0.0, Plateau::rel, 2);
  check({{5, 1}, {5, 1}, {5, 0.5}, {5, 0.5}, {5, 0.5}, {5, 0.25}}, Plateau::min, 0.5, 1, 0.0, Plateau::rel, 1);
  // The rate does not fall below min_lr, and does not fall by eps or less.
  check({{5, 1}, {5, 0.5}, {5, 0.3}, {5, 0.3}}, Plateau::min, 0.5, 0, 0.0, Plateau::rel, 0, Rates{0.3});
  check({{5, 1}, {5, 0.5}, {5, 0.5}}, Plateau::min, 0.5, 0, 0.0, Plateau::rel, 0, Rates{}, 0.25);
  check({{5, 1}, {5, 0.5}, {5, 0.25}}, Plateau::min, 0.5, 0, 0.0, Plateau::rel, 0, Rates{}, 0.24);

  const std::ostringstream text;
  std::streambuf* const before = std::cout.rdbuf(text.rdbuf());
  check({{5, 1}, {5, 0.5}, {4, 0.5}, {5, 0.25}}, Plateau::min, 0.5, 0, 0.0, Plateau::rel, 0, Rates{}, 0.0, true);
  std::cout.rdbuf(before);
  CHECK(text.str() ==
        "Epoch 2: reducing learning rate of group 0 to 0.5\nEpoch 4: reducing learning rate of group 0 to 0.25\n");
}
