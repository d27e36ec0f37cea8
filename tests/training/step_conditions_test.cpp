// Tests that recorded steps detect changes after the recording: with the same change, eager and recorded training must
// give identical results.
#include <algorithm>
#include <string_view>
#include <thread>

#include <gradus/gradus.h>
#include <gradus/graph/executor.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using training::StaticStep;
using training::StaticStepOptions;

namespace {

struct DropNetImpl : nn::Module {
  nn::Linear first = register_module("first", nn::Linear(6, 8));
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(8));
  nn::LeakyReLU activation = register_module("activation", nn::LeakyReLU(0.1));
  nn::Dropout drop = register_module("drop", nn::Dropout(0.5));
  nn::Linear second = register_module("second", nn::Linear(8, 3));
  Tensor forward(const Tensor& x) { return second(drop(activation(norm(first(x))))); }
};
GRADUS_MODULE(DropNet);

struct ChangedTraining {
  DropNet net;
  optim::AdamW optimizer{net->parameters(), optim::AdamWOptions(0.05)};
  std::optional<training::StaticStep> step;
  TensorList results;
  std::unique_ptr<BackendGuard> backend;
};

using Change = std::function<void(ChangedTraining&)>;

/// Returns the results of eight steps. Calls `change` after the fourth step.
TensorList train_with(const Change& change, bool recorded) {
  manual_seed(5);
  ChangedTraining run;
  run.step.emplace(
      kCPU, std::vector<optim::Optimizer*>{&run.optimizer},
      [&](const TensorList& batch) -> TensorList {
        run.optimizer.zero_grad();
        const Tensor loss = cross_entropy(run.net->forward(batch[0]), batch[1]);
        loss.backward();
        run.optimizer.step();
        return {loss};
      },
      StaticStepOptions().enabled(recorded));
  const Tensor x = randn({4, 6}), target = randint(0, 3, {4}, kLong);
  for (int i = 0; i < 8; ++i) {
    if (i == 4) change(run);
    run.results.push_back((*run.step)({x, target})[0].detach().clone());
    if (i == 3 || i == 7) CHECK((run.step->executor() != nullptr) == recorded);
  }
  for (const Tensor& tensor : run.net->parameters()) run.results.push_back(tensor.detach());
  for (const Tensor& tensor : run.net->buffers()) run.results.push_back(tensor);
  return run.results;
}

void check_noticed(const char* what, const Change& change) {
  INFO(what);
  const TensorList eager = train_with(change, false), recorded = train_with(change, true);
  REQUIRE(recorded.size() == eager.size());
  for (size_t i = 0; i < eager.size(); ++i) CHECK(recorded[i].equal(eager[i]));
}

}  // namespace

TEST_CASE("a recorded step detects changes between steps", "[static_step]") {
  check_noticed("nothing", [](ChangedTraining&) {});
  check_noticed("a frozen parameter", [](ChangedTraining& run) { run.net->second->weight.requires_grad_(false); });
  check_noticed("a frozen layer", [](ChangedTraining& run) {
    for (const Tensor& parameter : run.net->first->parameters()) parameter.requires_grad_(false);
  });
  check_noticed("eval", [](ChangedTraining& run) { run.net->eval(); });
  check_noticed("eval of a layer", [](ChangedTraining& run) { run.net->norm->eval(); });
  check_noticed("eval of dropout alone", [](ChangedTraining& run) { run.net->drop->eval(); });
  check_noticed("another dropout rate", [](ChangedTraining& run) { run.net->drop->options.p() = 0.25; });
  check_noticed("no dropout", [](ChangedTraining& run) { run.net->drop->options.p(0); });
  check_noticed("another slope", [](ChangedTraining& run) { run.net->activation->options.negative_slope(0.4); });
  check_noticed("another momentum", [](ChangedTraining& run) { run.net->norm->options.momentum(0.4); });
  check_noticed("a learning rate", [](ChangedTraining& run) { run.optimizer.set_lr(0.01); });
  check_noticed("weight decay", [](ChangedTraining& run) {
    static_cast<optim::AdamWOptions&>(run.optimizer.param_groups()[0].options()).weight_decay(0.3);
  });
  check_noticed("replaced numbers", [](ChangedTraining& run) { run.net->first->weight.set_data(full({8, 6}, 0.125)); });
  check_noticed("a replaced buffer",
                [](ChangedTraining& run) { run.net->norm->buffers()[0].set_data(full({8}, 0.25)); });
  check_noticed("numbers written in place", [](ChangedTraining& run) {
    const NoGradGuard no_grad;
    run.net->first->weight.mul_(2);
  });
  check_noticed("the state of the optimizer", [](ChangedTraining& run) {
    auto state = run.optimizer.state_dict();
    for (auto& item : state)
      if (item.key().find("exp_avg") != std::string::npos) item.value().zero_();
    run.optimizer.load_state_dict(state);
  });
  check_noticed("a hook of a parameter", [](ChangedTraining& run) {
    run.net->first->bias.register_hook([](const Tensor& g) { return g * 3; });
  });
  check_noticed("another backend", [](ChangedTraining& run) { run.backend = std::make_unique<BackendGuard>("naive"); });
  check_noticed("a module that is recomputed", [](ChangedTraining& run) { run.net->drop->recompute(); });
}

TEST_CASE("a recorded step detects changes of its thread's state", "[static_step]") {
  Tensor w = ones({4}).requires_grad_();
  optim::SGD optimizer({w}, optim::SGDOptions(0.5));
  nn::Linear layer(4, 4);
  StaticStep step(kCPU, {&optimizer}, [&](const TensorList& batch) -> TensorList {
    optimizer.zero_grad();
    const Tensor y = layer->forward(batch[0]);
    (y * w).sum().backward();
    optimizer.step();
    return {y};
  });
  const auto run = [&] { return step({ones({2, 4})})[0].dtype(); };
  CHECK((run() == kFloat && run() == kFloat && step.executor()));
  {
    const amp::Autocast autocast(kCPU, kBFloat16);
    CHECK((run() == kBFloat16 && !step.executor()));  // the recording was discarded
    CHECK((run() == kBFloat16 && step.executor()));
  }
  CHECK(run() == kFloat);
}

TEST_CASE("each condition of a recorded step discards the recording once when it changes", "[static_step]") {
  struct State {
    Tensor w = ones({4}).requires_grad_();
    optim::SGD optimizer{{w}, optim::SGDOptions(0.5)};
    nn::Linear layer{4, 4};
    Tensor bucket = zeros({4});
  };
  const std::vector<std::pair<const char*, std::function<void(State&)>>> changes = {
      {"TF32 in matrix products", [](State&) { cuda::set_matmul_allow_tf32(!cuda::matmul_allow_tf32()); }},
      {"TF32 of cuDNN", [](State&) { cudnn::set_allow_tf32(!cudnn::allow_tf32()); }},
      {"determinism of cuDNN", [](State&) { cudnn::set_deterministic(!cudnn::deterministic()); }},
      {"small convolutions", [](State&) { cudnn::set_small_convolutions(!cudnn::small_convolutions()); }},
      {"a hook of the module",
       [](State& state) { state.layer->register_forward_hook([](nn::Module&, const auto&, auto&) {}); }},
      {"a hook after the gradient",
       [](State& state) { state.w.register_post_accumulate_grad_hook([](const Tensor&) {}); }},
      {"memory for a gradient", [](State& state) { state.w.bind_grad(state.bucket.array()); }},
      {"another parameter of the optimizer", [](State& state) {
         state.optimizer.add_param_group(optim::OptimizerParamGroup({ones({2}).requires_grad_()}));
       }}};
  for (const auto& [name, change] : changes) {
    INFO(name);
    const bool switches[] = {cuda::matmul_allow_tf32(), cudnn::allow_tf32(), cudnn::deterministic(),
                             cudnn::small_convolutions()};
    State state;
    for (const Tensor& parameter : state.layer->parameters()) parameter.requires_grad_(false);
    int calls = 0;
    StaticStep step(kCPU, {&state.optimizer}, [&](const TensorList& batch) -> TensorList {
      ++calls;
      state.optimizer.zero_grad();
      const Tensor y = state.layer->forward(batch[0]);
      (y * state.w).sum().backward();
      state.optimizer.step();
      state.optimizer.zero_grad();  // a recording does not continue with gradients from before it, in bound memory too
      return {};
    });
    for (int i = 0; i < 7; ++i) {
      if (i == 4) change(state);
      step({ones({2, 4})});
      CHECK((step.executor() != nullptr) == (i != 0 && i != 4));
    }
    CHECK(calls == 4);  // two eager steps and two recordings
    cuda::set_matmul_allow_tf32(switches[0]), cudnn::set_allow_tf32(switches[1]);
    cudnn::set_deterministic(switches[2]), cudnn::set_small_convolutions(switches[3]);
  }
}

TEST_CASE("a recorded step detects another option of its only module", "[static_step]") {
  nn::LeakyReLU activation(0.5);
  StaticStep step(kCPU, {}, [&](const TensorList& batch) -> TensorList { return {activation(batch[0])}; });
  const auto run = [&] { return step({full({2}, -1.0f)})[0].clone(); };
  CHECK((run().equal(full({2}, -0.5f)) && run().equal(full({2}, -0.5f)) && step.executor()));
  activation->options.negative_slope(0.25);
  CHECK(run().equal(full({2}, -0.25f)));
}

TEST_CASE("a recorded step detects another default dtype", "[static_step]") {
  StaticStep step(kCPU, {}, [](const TensorList&) -> TensorList { return {zeros({2})}; });
  const Tensor x = ones({2});  // keeps its dtype
  const auto run = [&] { return step({x})[0].dtype(); };
  CHECK((run() == kFloat && run() == kFloat && step.executor()));
  set_default_dtype(kDouble);
  const DType changed = run();
  set_default_dtype(kFloat);
  CHECK(changed == kDouble);
  CHECK(run() == kFloat);
}

TEST_CASE("evaluation between training steps does not discard the recording", "[static_step]") {
  int calls = 0;
  DropNet net;
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  StaticStep step(kCPU, {&optimizer}, [&](const TensorList& batch) -> TensorList {
    ++calls;
    optimizer.zero_grad();
    net->forward(batch[0]).sum().backward();
    optimizer.step();
    return {};
  });
  for (int i = 0; i < 6; ++i) {
    step({ones({3, 6})});
    net->eval();
    const NoGradGuard no_grad;
    net->forward(ones({1, 6}));
    net->train();
  }
  CHECK(calls == 2);  // one call for the eager step, and one for the recording
}

TEST_CASE("a change of a module that its text does not show does not discard the recording", "[static_step]") {
  static int prints;  // a static variable is not part of the module object, whose bytes are compared
  prints = 0;
  struct CountedImpl : nn::Cloneable<CountedImpl> {
    nn::Linear layer = register_module("layer", nn::Linear(6, 2));
    int epoch = 0;
    void reset() override {}
    void pretty_print(std::ostream& stream) const override { ++prints, stream << "Counted"; }
    Tensor forward(const Tensor& x) {
      const auto frame = enter();
      return layer(x);
    }
  };
  int calls = 0;
  nn::ModuleHolder<CountedImpl> net;
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  StaticStep step(kCPU, {&optimizer}, [&](const TensorList& batch) -> TensorList {
    ++calls;
    optimizer.zero_grad();
    net(batch[0]).sum().backward();
    optimizer.step();
    return {};
  });
  for (int i = 0; i < 6; ++i) {
    step({ones({3, 6})});
    net->epoch = i / 2;
  }
  CHECK(calls == 2);
  CHECK(prints == 3);  // when the step is recorded, and once after each of two changes
}

TEST_CASE("a layer that the step does not run may change without discarding the recording", "[static_step]") {
  struct IdleNetImpl : nn::Module {
    nn::Linear used = register_module("used", nn::Linear(6, 2)), idle = register_module("idle", nn::Linear(6, 2));
    nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(2));
    Tensor forward(const Tensor& x) {
      const auto frame = enter();
      return used(x);
    }
  };
  int calls = 0;
  nn::ModuleHolder<IdleNetImpl> net;
  optim::SGD optimizer(net->used->parameters(), optim::SGDOptions(0.1));
  StaticStep step(kCPU, {&optimizer}, [&](const TensorList& batch) -> TensorList {
    ++calls;
    optimizer.zero_grad();
    net(batch[0]).sum().backward();
    optimizer.step();
    std::thread([&] { net->idle(ones({1, 6})); }).join();  // is not part of the step
    return {};
  });
  for (int i = 0; i < 6; ++i) {
    step({ones({3, 6})});
    net->idle->weight.set_data(ones({2, 6}));
    net->norm->buffers()[0].set_data(ones({2}));
  }
  CHECK(calls == 2);
}

TEST_CASE("recorded steps in mixed precision keep the half-precision copies of parameters up to date",
          "[static_step]") {
  const auto results = [](bool recorded) {
    manual_seed(4);
    nn::Sequential net(nn::Linear(6, 8), nn::ReLU(), nn::Linear(8, 2));
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
    const auto forward = [&](const Tensor& x) {
      const amp::Autocast autocast(kCPU, kBFloat16);
      return net->forward(x);
    };
    const auto train = [&](const TensorList& batch) -> TensorList {
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(forward(batch[0]), batch[1]);
      loss.backward();
      optimizer.step();
      return {loss};
    };
    StaticStep step(kCPU, {&optimizer}, train);
    std::vector<Tensor> found;
    for (int i = 0; i < 8; ++i) {
      const TensorList batch = {randn({4, 6}), randint(0, 2, {4})};
      found.push_back((recorded ? step(batch) : train(batch))[0].detach().clone());
      const NoGradGuard no_grad;
      found.push_back(forward(batch[0]));  // reads the copies of the parameters that the step has changed
      if (i == 4) net->parameters()[0].mul_(2);
    }
    CHECK((step.executor() != nullptr) == recorded);
    if (recorded) {  // in the forward pass of the linear layers, it converts only the input
      const auto converts = [](const auto& call) {
        return call->name == std::string_view("copy") && call->origin.op == "linear";
      };
      CHECK(std::ranges::count_if(step.executor()->graph().calls(), converts) == 1);
    }
    return found;
  };
  const std::vector<Tensor> eager = results(false), replayed = results(true);
  for (size_t i = 0; i < eager.size(); ++i) {
    INFO("step " << i / 2 << (i % 2 ? ", evaluation" : ", loss"));
    CHECK(replayed[i].equal(eager[i]));
  }
}
