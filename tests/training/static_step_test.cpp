// Tests that the recorded steps of a StaticStep have the same bits as eager steps, and need the reported memory.
#include <gradus/benchmarks/nets.h>
#include <gradus/gradus.h>
#include <gradus/graph/executor.h>
#include <gradus/graph/recorder.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;
using training::StaticStep;
using training::StaticStepOptions;

namespace {

enum class Rule : uint8_t { sgd, adamw };

/// Trains a net for some steps on batches of `batch` and sometimes `batch` + 1 samples. Returns the losses, the
/// parameters and the buffers.
struct Training {
  Training(const benchmarks::Workload& workload, int64_t batch, Rule rule, bool recorded) {
    manual_seed(11);
    net = workload.make();
    const std::vector<Tensor> parameters = net.ptr()->parameters();
    if (rule == Rule::sgd) optimizer = std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.01).momentum(0.9));
    else optimizer = std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(1e-3));
    step = std::make_unique<StaticStep>(
        kCPU, std::vector<optim::Optimizer*>{optimizer.get()},
        [this](const TensorList& batch) -> TensorList {
          optimizer->zero_grad();
          const Tensor loss = cross_entropy(net.forward(batch[0]), batch[1]);
          loss.backward();
          optimizer->step();
          return {loss};
        },
        StaticStepOptions().enabled(recorded));
    for (int i = 0; i < 5; ++i) {
      const int64_t size = i == 3 ? batch + 1 : batch;
      const Tensor x = randn(workload.input(size)), target = randint(0, 10, {size}, kLong);
      if (i == 4) optimizer->set_lr(0.005);
      results.push_back((*step)({x, target})[0].detach().clone());
    }
    for (const Tensor& tensor : parameters) results.push_back(tensor.detach());
    for (const Tensor& tensor : net.ptr()->buffers()) results.push_back(tensor);
    results.push_back(rand({2}));  // the random generator must be in the same state as after eager steps
  }

  nn::AnyModule net;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<StaticStep> step;
  std::vector<Tensor> results;
};

void check_equal(const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].equal(expected[i]));
}

/// A StaticStep that computes y = 2 x and changes a parameter.
struct Small {
  Tensor w = ones({4}).requires_grad_();
  optim::SGD optimizer{{w}, optim::SGDOptions(0.5)};
  template <class F>
  StaticStep step(F loss) {
    return StaticStep(kCPU, {&optimizer}, [this, loss](const TensorList& batch) -> TensorList {
      optimizer.zero_grad();
      const Tensor value = loss(batch[0]);
      value.backward();
      optimizer.step();
      return {value};
    });
  }
};

}  // namespace

TEST_CASE("recorded steps of all nets have the bits of eager ones", "[static_step][accuracy]") {
  for (const char* backend : {"openmp", "naive"}) {
    const BackendGuard guard(backend);
    for (const benchmarks::Workload& workload : benchmarks::workloads()) {
      if (std::string_view(backend) == "naive" && workload.name != "lenet" && workload.name != "lstm")
        continue;  // slow
      for (Rule rule : {Rule::sgd, Rule::adamw}) {
        INFO(backend << " " << workload.name << " " << static_cast<int>(rule));
        const Training eager(workload, 2, rule, false), recorded(workload, 2, rule, true);
        check_equal(recorded.results, eager.results);
        const graph::Executor* const executor = recorded.step->executor();
        REQUIRE(executor);
        CHECK_FALSE(eager.step->executor());
        const graph::MemoryPlan& plan = executor->plan();
        CHECK(plan.bytes >= plan.lower_bound);
        CHECK(static_cast<double>(plan.bytes) <= 1.02 * static_cast<double>(plan.lower_bound));
      }
    }
  }
}

TEST_CASE("the recording knows the peak of the eager step to the byte", "[static_step]") {
  for (const char* backend : {"openmp", "naive"})
    for (const benchmarks::Workload& workload : benchmarks::workloads()) {
      if (workload.name != "lenet" && (workload.name != "lstm" || backend == std::string("naive"))) continue;
      const BackendGuard guard(backend);
      Training training(workload, 2, Rule::sgd, true);
      const int64_t predicted = training.step->executor()->graph().eager_peak();
      training.step->reset();
      training.step->give_up();
      const TensorList batch = {randn(workload.input(2)), randint(0, 10, {2}, kLong)};
      (*training.step)(batch);  // an eager step, which leaves gradients
      DeviceRuntime& memory = runtime(DeviceType::cpu);
      const int64_t before = memory.memory_stats(0).allocated;
      memory.reset_peak_memory_stats(0);
      (*training.step)(batch);
      CHECK(memory.memory_stats(0).peak_allocated - before == predicted);
    }
}

TEST_CASE("recomputation in a recorded step draws the same random numbers again", "[static_step]") {
  const auto train = [](bool recorded) {
    manual_seed(5);
    Tensor w = ones({64}).requires_grad_();
    optim::SGD optimizer({w}, optim::SGDOptions(0.5));
    StaticStep step(
        kCPU, {&optimizer},
        [&](const TensorList& batch) -> TensorList {
          optimizer.zero_grad();
          const auto part = [&](const Tensor& x) { return dropout((x * w).exp(), 0.5, true); };
          const Tensor loss = (autograd::checkpoint(part, batch[0]) * rand({64})).sum();
          loss.backward();
          optimizer.step();
          return {loss};
        },
        StaticStepOptions().enabled(recorded));
    for (int i = 0; i < 3; ++i) step({ones({64})});
    return std::vector<Tensor>{w.detach(), rand({2})};
  };
  check_equal(train(true), train(false));
}

TEST_CASE("each batch size has a recording, up to the limit", "[static_step]") {
  Small small;
  int calls = 0;
  StaticStep step(
      kCPU, {&small.optimizer},
      [&](const TensorList& batch) -> TensorList {
        ++calls;
        small.optimizer.zero_grad();
        const Tensor loss = (batch[0] * small.w).sum();
        loss.backward();
        small.optimizer.step();
        return {loss};
      },
      StaticStepOptions().warm_up(2).recordings(2));
  const auto run = [&](int64_t rows) { return step({ones({rows, 4})})[0].item<float>(); };
  run(1), run(1);
  CHECK_FALSE(step.executor());
  run(1);
  const graph::Executor* const first = step.executor();
  REQUIRE(first);
  CHECK(calls == 3);
  run(2), run(1), run(2);
  CHECK(calls == 4);
  run(3), run(3);  // steps with a third batch size stay eager
  CHECK(calls == 6);
  run(1);
  CHECK(step.executor() == first);
  small.optimizer.param_groups()[0].options().set_lr(0.25);  // the recording reads the learning rate from memory
  run(1);
  CHECK(calls == 6);
  static_cast<optim::SGDOptions&>(small.optimizer.param_groups()[0].options()).momentum(0.5);  // a kernel's argument
  CHECK_THROWS_WITH(run(1), contains("state"));  // only an eager step can make the state for the momentum
  step.reset();
  run(1);
  CHECK(calls == 8);
}

TEST_CASE("a recording, too, uses the learning rate that the options of the optimizer have", "[static_step]") {
  Small small;
  StaticStep step = small.step([&](const Tensor& x) { return (x * small.w).sum(); });
  double expected = 1;
  for (const double rate : {0.5, 0.25, 0.125}) {  // of an eager step, of the recording, of its second run
    small.optimizer.param_groups()[0].options().set_lr(rate);
    step({ones({4})});
    expected -= rate;
    CHECK(small.w.equal(full({4}, expected, kFloat)));
  }
}

TEST_CASE("after reset() there is no recording, and the step is recorded again after eager steps", "[static_step]") {
  Small small;
  int calls = 0;
  StaticStep step = small.step([&](const Tensor& x) {
    ++calls;
    return (x * small.w).sum();
  });
  for (int i = 0; i < 3; ++i) step({ones({4})});
  CHECK((calls == 2 && step.executor()));
  step.reset();
  CHECK_FALSE(step.executor());
  for (int i = 0; i < 3; ++i) step({ones({4})});
  CHECK((calls == 4 && step.executor()));
}

TEST_CASE("the error names the operator that a step cannot record", "[static_step]") {
  Small small;
  const Tensor x = ones({4});
  const auto message_of = [&](auto loss) -> std::string {
    StaticStep step = small.step(loss);
    step({x});
    try {
      step({x});
    } catch (const Error& error) {
      CHECK_FALSE(small.w.grad().defined());
      step.give_up();
      CHECK_NOTHROW(step({x}));
      return error.what();
    }
    return "";
  };
  CHECK_THAT(message_of([&](const Tensor& x) {
               const Tensor loss = (x * small.w).sum();
               return loss.item<float>() > 0 ? loss : -loss;
             }),
             contains("[item]") && contains("static_step_test.cpp") && contains("reading a number"));
  CHECK_THAT(message_of([&](const Tensor& x) { return x.str().empty() ? x.sum() : (x * small.w).sum(); }),
             contains("printing"));
  CHECK_THAT(message_of([&](const Tensor& x) { return (x * small.w).nonzero().to(kFloat).sum() + small.w.sum(); }),
             contains("[nonzero]"));
  CHECK_THAT(
      [&] {
        StaticStep step(kCPU, {&small.optimizer}, [&](const TensorList& batch) -> TensorList {
          (batch[0] * small.w).sum().backward();  // adds to the gradient that exists
          small.optimizer.step();
          return {};
        });
        step({x});
        try {
          step({x});
        } catch (const ValueError& error) { return std::string(error.what()); }
        return std::string();
      }(),
      contains("gradients from before") && contains("zero_grad()"));
  Tensor kept;
  CHECK_THAT(message_of([&](const Tensor& x) {
               kept = (x * small.w).detach();
               return (x * small.w).sum();
             }),
             contains("'mul'") && contains("kept beyond the step"));
  CHECK_THAT(message_of([&](const Tensor& x) {
               return (x * tensor({1.0f, 2.0f, 3.0f, 4.0f}).add_(1) * small.w).sum();
             }),
             contains("'add_'") && contains("values from the host"));
}

TEST_CASE("a static step rejects unsupported optimizers and options", "[static_step]") {
  Small small;
  optim::LBFGS without_rule({small.w});
  const auto nothing = [](const TensorList&) { return TensorList(); };
  const auto refused = [&](const std::vector<optim::Optimizer*>& optimizers, const StaticStepOptions& options,
                           const auto& message) {
    CHECK_THROWS_WITH(StaticStep(kCPU, optimizers, nothing, options), contains("[StaticStep]") && message);
  };
  refused({&small.optimizer, &without_rule}, {}, contains("has_rule"));
  refused({nullptr}, {}, contains("has_rule"));
  refused({}, StaticStepOptions().warm_up(0), contains("warm_up must be at least 1, got 0"));
  refused({}, StaticStepOptions().recordings(0), contains("recordings must be at least 1, got 0"));
  CHECK_NOTHROW(StaticStep(kCPU, {&small.optimizer}, nothing, StaticStepOptions().warm_up(1).recordings(1)));
}

TEST_CASE("a second recorder on a thread is an error", "[static_step]") {
  graph::Recorder recorder;
  const Tensor y = ones({2}) * 2;
  CHECK_THROWS_WITH(graph::Recorder(), contains("already recording a step"));
  CHECK(recorder.finish().calls().size() == 2);
  CHECK_THROWS_WITH(recorder.finish(), contains("finished"));
  CHECK_FALSE(y.equal(ones({2}) * 2));  // y has no values, because nothing was computed
}

TEST_CASE("numbers that a step makes are part of its recording", "[static_step]") {
  Small small;
  StaticStep step = small.step([&](const Tensor& x) {
    return (x * tensor({1.0f, 2.0f, 3.0f, 4.0f}) * small.w).sum() + zeros({4}).add_(small.w).sum();
  });
  Tensor w = ones({4});
  for (int i = 0; i < 3; ++i) {
    const Tensor x = randn({4}), factors = x * tensor({1.0f, 2.0f, 3.0f, 4.0f});
    CHECK(step({x})[0].equal((factors * w).sum() + w.sum()));
    w = w - 0.5 * (factors + 1);
    CHECK(small.w.detach().allclose(w));
  }
  StaticStep constant(kCPU, {&small.optimizer}, [&](const TensorList& batch) -> TensorList {
    const Tensor made = tensor({3.0f, 4.0f});
    return {made, made + batch[0]};
  });
  for (int i = 0; i < 3; ++i) {
    const TensorList results = constant({ones({2})});
    CHECK(results[0].equal(tensor({3.0f, 4.0f})));
    CHECK(results[1].equal(tensor({4.0f, 5.0f})));
  }
}

TEST_CASE("a recorded step takes tensors as indices, and finds those outside of a dimension", "[static_step]") {
  Small small;
  const Tensor x = arange(6).view({2, 3});
  StaticStep step(kCPU, {&small.optimizer}, [&](const TensorList& batch) -> TensorList {
    return {x.index({batch[0], batch[1]}), x.index({batch[0]})};
  });
  const auto run = [&](int64_t row, int64_t column) { return step({tensor({0, row}), tensor({1, column})}); };
  for (int i = 0; i < 3; ++i) {
    const TensorList results = run(-1, -3 + i);
    CHECK(results[0].equal(tensor({1, 3 + i})));
    CHECK(results[1].equal(tensor({{0, 1, 2}, {3, 4, 5}})));
  }
  REQUIRE(step.executor() != nullptr);
  for (const auto& [row, column] : {std::pair{2, 0}, {-3, 0}, {1, 3}, {1, -4}}) {
    INFO(row << ", " << column);
    CHECK_THROWS_AS(run(row, column), IndexError);
  }
  CHECK(run(1, 2)[0].equal(tensor({1, 5})));
}

TEST_CASE("a recorded step is printed as text", "[static_step]") {
  Small small;
  StaticStep step = small.step([&](const Tensor& x) { return (x * small.w).sum(); });
  for (int i = 0; i < 2; ++i) step({ones({4})});
  const std::string text = step.executor()->graph().str();
  CHECK_THAT(text, contains("input 0, 16 bytes") && contains(" (4,) float32 = binary op mul, a %") &&
                       contains("# mul, static_step_test.cpp:") && contains("advance_step"));
}
