// Hooks of modules: when they run, what they receive, and what they may change.
#include <gradus/autograd/autograd.h>
#include <gradus/layers/layers.h>
#include <gradus/tests/catch.h>

#include <set>

using namespace gradus;
using test::contains;

namespace {

/// Takes two tensors and an option, and returns a tensor and a pair.
struct SplitImpl : nn::Module {
  std::tuple<Tensor, std::tuple<Tensor, Tensor>> forward(const Tensor& a, Tensor b, int64_t factor = 1) {
    return {a + b, {a * factor, b * factor}};
  }
};
GRADUS_MODULE(Split);

struct ShiftImpl : nn::Module {
  Tensor forward(const Tensor& x) { return x + 1; }
};
GRADUS_MODULE(Shift);

}  // namespace

TEST_CASE("forward hooks can read and replace inputs and outputs, in order") {
  nn::Linear linear(2, 3);
  std::vector<std::string> calls;
  const Tensor x = randn({4, 2});
  const Tensor plain = linear(x);
  linear->register_forward_pre_hook([&](nn::Module& module, TensorList& inputs) {
    CHECK(&module == linear.get());
    REQUIRE(inputs.size() == 1);
    calls.push_back("before");
    inputs[0] = inputs[0] * 2;
  });
  linear->register_forward_hook([&](nn::Module&, const TensorList& inputs, TensorList& outputs) {
    CHECK(inputs[0].equal(x * 2));
    REQUIRE(outputs.size() == 1);
    calls.push_back("after");
    outputs[0] = outputs[0] - 1;
  });
  const unsigned last =
      linear->register_forward_hook([&](nn::Module&, const TensorList&, TensorList&) { calls.push_back("last"); });
  CHECK(linear->has_hooks());
  CHECK(linear(x).equal(linear->forward(x * 2) - 1));
  CHECK(calls == std::vector<std::string>{"before", "after", "last"});
  CHECK(linear->forward(x).equal(plain));
  CHECK(calls.size() == 3);

  linear->remove_hook(last);
  linear(x);
  CHECK(calls.back() == "after");
  CHECK_THROWS_AS(linear->remove_hook(last), IndexError);
}

TEST_CASE("a module has no hook state after all hooks are removed") {
  Shift shift;
  CHECK_FALSE(shift->has_hooks());
  const unsigned id = shift->register_forward_hook([](nn::Module&, const TensorList&, TensorList&) {});
  CHECK(shift->has_hooks());
  shift->remove_hook(id);
  CHECK_FALSE(shift->has_hooks());
  CHECK_THROWS_AS(shift->remove_hook(id), IndexError);
  CHECK_THROWS_WITH(shift->register_forward_hook(nullptr), contains("function"));
}

TEST_CASE("hooks receive the tensors among other arguments and in nested results") {
  Split split;
  const Tensor a = randn({2}), b = randn({2});
  size_t inputs_seen = 0, outputs_seen = 0;
  split->register_forward_pre_hook([&](nn::Module&, TensorList& inputs) {
    inputs_seen = inputs.size();
    std::swap(inputs[0], inputs[1]);
  });
  split->register_forward_hook([&](nn::Module&, const TensorList&, TensorList& outputs) {
    outputs_seen = outputs.size();
    outputs[2] = outputs[2] + 1;
  });
  const auto [sum, parts] = split(a, b, int64_t{3});
  CHECK(inputs_seen == 2);
  CHECK(outputs_seen == 3);
  CHECK(sum.equal(a + b));
  CHECK(std::get<0>(parts).equal(b * 3));
  CHECK(std::get<1>(parts).equal(a * 3 + 1));
}

TEST_CASE("containers call the hooks of their modules") {
  nn::Linear linear(2, 2);
  nn::Sequential net(linear, nn::ReLU());
  int calls = 0;
  linear->register_forward_hook([&](nn::Module&, const TensorList&, TensorList&) { ++calls; });
  net->register_forward_hook([&](nn::Module&, const TensorList&, TensorList&) { calls += 10; });
  net(randn({1, 2}));
  CHECK(calls == 11);
  nn::AnyModule any(linear);
  any(randn({1, 2}));
  CHECK(calls == 12);
}

TEST_CASE("backward hooks receive gradients of outputs and inputs and can replace those of inputs") {
  nn::Linear linear(2, 3);
  const Tensor x = randn({4, 2}, requires_grad());
  TensorList seen_inputs, seen_outputs;
  linear->register_backward_hook([&](nn::Module& module, TensorList& grad_inputs, const TensorList& grad_outputs) {
    CHECK(&module == linear.get());
    seen_inputs = grad_inputs, seen_outputs = grad_outputs;
    grad_inputs[0] = grad_inputs[0] * 2;
  });
  // x also reaches the loss without passing through the layer; the hook does not see that part of x's gradient.
  const Tensor y = linear(x);
  (y.sum() + x.sum()).backward();
  const Tensor through = ones({4, 3}).matmul(linear->weight.detach());
  REQUIRE(seen_inputs.size() == 1);
  REQUIRE(seen_outputs.size() == 1);
  CHECK(seen_outputs[0].equal(ones({4, 3})));
  CHECK(seen_inputs[0].allclose(through));
  CHECK(x.grad().allclose(through * 2 + 1));
  CHECK(linear->weight.grad().defined());
}

TEST_CASE("backward hooks receive only gradients of outputs if no input requires gradients") {
  nn::Linear linear(2, 3);
  int calls = 0;
  linear->register_backward_hook([&](nn::Module&, TensorList& grad_inputs, const TensorList& grad_outputs) {
    ++calls;
    REQUIRE(grad_inputs.size() == 1);
    CHECK_FALSE(grad_inputs[0].defined());
    CHECK(grad_outputs[0].sizes() == Shape({4, 3}));
  });
  linear(randn({4, 2})).sum().backward();
  CHECK(calls == 1);
  NoGradGuard no_grad;
  linear(randn({4, 2}));
  CHECK(calls == 1);
}

TEST_CASE("a backward hook works with in-place operators and does not change gradients") {
  const Tensor x = randn({3, 4}, requires_grad());
  auto gradient = [&](bool hooked) {
    nn::ReLU relu(true);
    int calls = 0;
    if (hooked) relu->register_backward_hook([&](nn::Module&, TensorList&, const TensorList&) { ++calls; });
    x.zero_grad();
    const Tensor h = x * 2;
    (relu(h) * 3).sum().backward();
    CHECK(calls == hooked);
    return x.grad().clone();
  };
  CHECK(gradient(true).equal(gradient(false)));
}

TEST_CASE("backward hooks work with second derivatives, several inputs and a destroyed module") {
  Tensor second;
  const Tensor a = randn({3}, requires_grad()), b = randn({3}, requires_grad());
  int calls = 0;
  {
    Split split;
    split->register_backward_hook([&](nn::Module&, TensorList& grad_inputs, const TensorList& grad_outputs) {
      CHECK(grad_inputs.size() == 2);
      REQUIRE(grad_outputs.size() == 3);
      // The second derivative reaches the layer only through the sum.
      CHECK(grad_outputs[1].defined() == (++calls == 1));
      CHECK_FALSE(grad_outputs[2].defined());
    });
    const auto [sum, parts] = split(a, b, int64_t{3});
    second = (sum * sum).sum() + std::get<0>(parts).sum();
  }
  const Tensor gradient = gradus::autograd::grad({second}, {a}, {}, std::nullopt, true)[0];
  CHECK(calls == 1);
  CHECK(gradient.allclose(2 * (a + b) + 3));
  gradient.sum().backward();
  CHECK(a.grad().allclose(full({3}, 2.0)));
  CHECK(b.grad().allclose(full({3}, 2.0)));
}

TEST_CASE("hooks that remove or add tensors are errors, and copies have no hooks") {
  nn::Linear linear(2, 2);
  const Tensor x = randn({1, 2}, requires_grad());
  const unsigned pre = linear->register_forward_pre_hook([](nn::Module&, TensorList& inputs) { inputs.clear(); });
  CHECK_THROWS_WITH(linear(x), contains("pre-hook of gradus::nn::LinearImpl"));
  linear->remove_hook(pre);
  const unsigned post =
      linear->register_forward_hook([](nn::Module&, const TensorList&, TensorList& outputs) { outputs.push_back({}); });
  CHECK_THROWS_WITH(linear(x), contains("left 2 of 1 outputs"));
  linear->remove_hook(post);
  const unsigned back =
      linear->register_backward_hook([](nn::Module&, TensorList& gradients, const TensorList&) { gradients.clear(); });
  CHECK_THROWS_WITH(linear(x).sum().backward(), contains("backward hook"));
  CHECK_FALSE(linear->clone()->has_hooks());
  linear->remove_hook(back);
  linear(x).sum().backward();
  CHECK(x.grad().defined());
}

TEST_CASE("a hook may remove itself") {
  Shift shift;
  unsigned id = 0;
  int calls = 0;
  id = shift->register_forward_hook([&](nn::Module& module, const TensorList&, TensorList&) {
    ++calls;
    module.remove_hook(id);
  });
  shift(ones({1}));
  shift(ones({1}));
  CHECK(calls == 1);
}

TEST_CASE("ids of hooks are unique across kinds, tensors and modules") {
  Shift shift;
  nn::Linear linear(1, 1);
  const Tensor x = ones({1}, TensorOptions().requires_grad(true)), y = x * 2;
  int calls = 0;
  const auto see = [&](const Tensor&) { return ++calls, Tensor(); };
  for (nn::Module* module : {static_cast<nn::Module*>(shift.get()), static_cast<nn::Module*>(linear.get())}) {
    const unsigned before = module->register_forward_pre_hook([&](nn::Module&, TensorList&) { calls += 10; });
    const unsigned after =
        module->register_forward_hook([&](nn::Module&, const TensorList&, TensorList&) { calls += 100; });
    const unsigned back =
        module->register_backward_hook([&](nn::Module&, TensorList&, const TensorList&) { calls += 1000; });
    const std::set<unsigned> ids = {before,
                                    after,
                                    back,
                                    x.register_hook(see),
                                    y.register_hook(see),
                                    x.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; })};
    CHECK(ids.size() == 6);
    module->remove_hook(before);
    CHECK_THROWS_AS(module->remove_hook(before), IndexError);
    CHECK_THROWS_AS(x.remove_hook(after), IndexError);
    CHECK_THROWS_AS(y.remove_hook(back), IndexError);
  }
  shift(x).backward();
  CHECK(calls == 100 + 1000 + 2 + 2);  // the hooks of x run twice
}

TEST_CASE("removing a hook keeps the hooks of other kinds and the setting of recomputation") {
  const auto add = [](nn::Module& module, int kind) {
    if (kind == 0) return module.register_forward_pre_hook([](nn::Module&, TensorList&) {});
    if (kind == 1) return module.register_forward_hook([](nn::Module&, const TensorList&, TensorList&) {});
    return module.register_backward_hook([](nn::Module&, TensorList&, const TensorList&) {});
  };
  for (int kept = 0; kept < 3; ++kept)
    for (int removed = 0; removed < 3; ++removed) {
      Shift shift;
      const unsigned first = add(*shift, kept), second = add(*shift, removed);
      shift->remove_hook(second);
      CHECK(shift->has_hooks());
      CHECK_THROWS_WITH(shift->remove_hook(second), contains("ShiftImpl") && contains(std::to_string(second)));
      shift->remove_hook(first);
      CHECK_FALSE(shift->has_hooks());
    }
  Shift shift;
  CHECK_FALSE(shift->is_recomputed());
  shift->recompute(false);
  CHECK_FALSE(shift->has_hooks());
  const unsigned id = add(*shift, 1);
  CHECK_FALSE(shift->is_recomputed());
  shift->recompute();
  CHECK(shift->is_recomputed());
  shift->remove_hook(id);
  CHECK(shift->is_recomputed());
  shift->recompute(false);
  CHECK_FALSE(shift->is_recomputed());
  CHECK_FALSE(shift->has_hooks());
  CHECK_THROWS_WITH(shift->register_forward_pre_hook(nullptr), contains("function"));
  CHECK_THROWS_WITH(shift->register_backward_hook(nullptr), contains("function"));
}

TEST_CASE("backward hooks see undefined and integral tensors, and outputs that need no gradient") {
  struct MixedImpl : nn::Module {
    std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& x, const Tensor& none, const Tensor& numbers) {
      return {x * 2, none, numbers + 1};
    }
  };
  nn::ModuleHolder<MixedImpl> mixed;
  size_t inputs = 0, outputs = 0;
  mixed->register_backward_hook([&](nn::Module&, TensorList& grad_inputs, const TensorList& grad_outputs) {
    inputs = grad_inputs.size(), outputs = grad_outputs.size();
    CHECK(grad_inputs[0].equal(full({3}, 2.0)));
    CHECK_FALSE((grad_inputs[1].defined() || grad_inputs[2].defined()));
    CHECK(grad_outputs[0].equal(ones({3})));
    CHECK_FALSE((grad_outputs[1].defined() || grad_outputs[2].defined()));
  });
  const Tensor x = ones({3}, requires_grad()), numbers = ones({3}, kLong);
  const auto [y, none, sums] = mixed(x, Tensor(), numbers);
  CHECK_FALSE(none.defined());
  CHECK(sums.equal(numbers + 1));
  y.sum().backward();
  CHECK(inputs == 3);
  CHECK(outputs == 3);
  CHECK(x.grad().equal(full({3}, 2.0)));

  inputs = 0;
  const auto [still, nothing, same] = mixed(ones({3}), Tensor(), numbers);  // nothing is recorded
  CHECK_FALSE(still.requires_grad());
  CHECK(inputs == 0);
}

TEST_CASE("a module lives until the backward hooks of its calls have run") {
  std::weak_ptr<nn::Module> watched;
  bool alive = false;
  Tensor y;
  {
    nn::Linear linear(2, 2);
    watched = linear.ptr();
    linear->register_backward_hook(
        [&](nn::Module& module, TensorList&, const TensorList&) { alive = watched.lock().get() == &module; });
    y = linear(ones({1, 2}));
  }
  y.sum().backward();
  CHECK(alive);
  y = Tensor();
  CHECK(watched.expired());
}

TEST_CASE("without backward hooks or without recording, a module works on its input itself") {
  Shift shift;
  const Tensor x = ones({3}, requires_grad());
  int calls = 0;
  shift->register_forward_hook([&](nn::Module&, const TensorList& inputs, TensorList&) {
    CHECK(inputs[0].is_same(x));
    ++calls;
  });
  CHECK(std::string(shift(x).grad_fn()->name()).find("Module") == std::string::npos);
  shift->register_backward_hook([&](nn::Module&, TensorList&, const TensorList&) {});
  {
    const NoGradGuard guard;
    CHECK_FALSE(shift(x).requires_grad());
  }
  CHECK(calls == 2);
}
