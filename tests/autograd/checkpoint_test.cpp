// Activation checkpointing: the same results as without it, with less memory.
#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/autograd/function.h>
#include <gradus/core/runtime/random.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using autograd::checkpoint;
using autograd::gradcheck;
using autograd::gradgradcheck;
using test::contains;

namespace {

/// Two layers with one parameter each.
struct Block {
  Tensor w1 = randn({8, 8}, dtype(kDouble)).set_requires_grad(true);
  Tensor w2 = randn({8, 8}, dtype(kDouble)).set_requires_grad(true);
  Tensor operator()(const Tensor& x) const { return sigmoid(x.matmul(w1)).matmul(w2).tanh(); }
  void zero_grad() const {
    w1.zero_grad();
    w2.zero_grad();
  }
};

/// Keeps the arrays that operators save, and counts how often they are read and released.
class Drawer final : public SavedKeeper {
 public:
  std::optional<size_t> take(const Array& array, const Tensor&) override {
    if (!takes) return std::nullopt;
    kept.push_back(array);
    return kept.size() - 1;
  }
  Kept give(size_t place) override { return ++given, Kept{kept.at(place), {}}; }
  void drop(size_t) override { ++dropped; }
  void set_current(bool on) { current_ = on ? this : nullptr; }

  bool takes = true;
  std::vector<Array> kept;
  int given = 0, dropped = 0;
};

int64_t allocated() { return runtime(DeviceType::cpu).memory_stats(0).allocated; }
int64_t peak_of(const std::function<void()>& body) {
  runtime(DeviceType::cpu).reset_peak_memory_stats(0);
  const int64_t before = allocated();
  body();
  return runtime(DeviceType::cpu).memory_stats(0).peak_allocated - before;
}

}  // namespace

TEST_CASE("a checkpoint changes neither results nor gradients", "[checkpoint]") {
  const Block block;
  const Tensor x = randn({4, 8}, dtype(kDouble)).set_requires_grad(true);
  const Tensor plain = block(x);
  plain.sum().backward();
  const Tensor dx = x.grad(), d1 = block.w1.grad(), d2 = block.w2.grad();
  x.zero_grad();
  block.zero_grad();

  int runs = 0;
  const Tensor y = checkpoint([&](const Tensor& t) { return ++runs, block(t); }, x);
  CHECK(runs == 1);
  CHECK(y.equal(plain));
  CHECK(autograd::saved_bytes(y) == (2 * 8 + 4) * 8 * 8);  // parameters and the leaf x
  y.sum().backward();
  CHECK(runs == 2);
  CHECK(x.grad().equal(dx));
  CHECK(block.w1.grad().equal(d1));
  CHECK(block.w2.grad().equal(d2));
  CHECK_THROWS_WITH(y.sum().backward(), contains("the graph was already used"));
}

TEST_CASE("a checkpoint runs its function once for all passes without a graph, and once for those with one",
          "[checkpoint]") {
  const Block block;
  const Tensor x = randn({4, 8}, dtype(kDouble)).set_requires_grad(true);
  int runs = 0;
  const Tensor y = checkpoint([&](const Tensor& t) { return ++runs, block(block(t)); }, x).sum();
  const auto runs_of = [&](bool create_graph) {
    const int before = runs;
    autograd::grad({y}, {x, block.w1, block.w2}, {}, /*retain_graph=*/true, create_graph);
    return runs - before;
  };
  CHECK(runs == 1);
  CHECK(runs_of(false) == 1);
  CHECK(runs_of(false) == 0);
  CHECK(runs_of(true) == 1);
  CHECK(runs_of(true) == 0);
  CHECK(runs_of(false) == 0);
}

TEST_CASE("a checkpoint's function may have several inputs and outputs, captured tensors and plain arguments",
          "[checkpoint]") {
  const Tensor a = randn({3}, dtype(kDouble)).set_requires_grad(true), b = randn({3}, dtype(kDouble));
  const Tensor c = randn({3}, dtype(kDouble)).set_requires_grad(true), captured = c.exp();  // not a leaf
  const auto function = [&](const Tensor& u, const Tensor& v, double factor) {
    const Tensor inside = (u * v).exp();
    return std::tuple(inside * captured, inside.sigmoid() * factor);
  };
  const auto run = [&](bool saving) {
    a.zero_grad();
    c.zero_grad();
    const auto [y, z] = saving ? checkpoint(function, a, b, 3.0) : function(a, b, 3.0);
    (y.sum() + z.sum()).backward({}, true);
    return std::pair(a.grad().clone(), c.grad().clone());
  };
  const auto [da, dc] = run(false);
  const auto [da_again, dc_again] = run(true);
  CHECK(da.equal(da_again));
  CHECK(dc.equal(dc_again));

  const auto listed = [](const TensorList& list) { return TensorList{list[0] * list[1], list[1].exp() * list[0]}; };
  CHECK(gradcheck([&](const TensorList& inputs) { return checkpoint(listed, inputs); }, {a, c}));
}

TEST_CASE("checkpoints work with grad(), with some of the inputs, and twice", "[checkpoint]") {
  const Block block;
  const Tensor x = randn({2, 8}, dtype(kDouble)).set_requires_grad(true);
  const auto saving = [&](const TensorList& inputs) { return TensorList{checkpoint(block, inputs[0])}; };
  CHECK(gradcheck(saving, {x}));
  CHECK(gradgradcheck(saving, {x}));
  // The first backward pass recomputes without a history, the second, over the same retained graph, with one.
  const Tensor y = checkpoint(block, x), plain = block(x);
  const auto penalty = [&](const Tensor& output) {
    const Tensor first = autograd::grad({output.sum()}, {x}, {}, true)[0];
    const Tensor dx = autograd::grad({output.sum()}, {x}, {}, true, true)[0];
    CHECK(first.equal(dx));
    return autograd::grad({dx.pow(2).sum()}, {block.w1, x}, {}, true);
  };
  const TensorList second = penalty(y), expected = penalty(plain);
  CHECK(second[0].allclose(expected[0]));
  CHECK(second[1].allclose(expected[1]));
  CHECK(autograd::grad({y.sum()}, {block.w2})[0].allclose(autograd::grad({plain.sum()}, {block.w2})[0]));
}

TEST_CASE("dropout makes the same mask again without affecting later draws", "[checkpoint]") {
  const auto noisy = [](const Tensor& t) { return dropout((t * 2).exp(), 0.5).sigmoid(); };
  const Tensor x = rand({64}).set_requires_grad(true);
  const auto run = [&](bool saving) {
    manual_seed(7);
    x.zero_grad();
    const Tensor y = saving ? checkpoint(noisy, x) : noisy(x);
    const Tensor between = rand({3});
    y.sum().backward();
    return TensorList{y.detach(), between, x.grad(), rand({3})};
  };
  const TensorList plain = run(false), saved = run(true);
  for (size_t i = 0; i < plain.size(); ++i) CHECK(plain[i].equal(saved[i]));

  manual_seed(7);
  x.zero_grad();
  checkpoint({.preserve_rng_state = false}, noisy, x).sum().backward();
  CHECK_FALSE(x.grad().equal(plain[2]));
}

TEST_CASE("checkpoints can be nested", "[checkpoint]") {
  const Block inner, outer;
  const Tensor x = randn({4, 8}, dtype(kDouble)).set_requires_grad(true);
  const auto nested = [&](const Tensor& t) {
    const Tensor h = checkpoint(inner, outer(t));
    return checkpoint([&](const Tensor& u) { return dropout(inner(u), 0.3); }, h) * h;
  };
  const auto run = [&](bool saving) {
    manual_seed(3);
    x.zero_grad();
    inner.zero_grad();
    outer.zero_grad();
    const Tensor y = saving ? checkpoint(nested, x) : dropout(inner(inner(outer(x))), 0.3) * inner(outer(x));
    if (saving) CHECK(autograd::saved_bytes(y) == (4 * 8 + 4) * 8 * 8);
    y.sum().backward();
    return TensorList{x.grad(), inner.w1.grad(), inner.w2.grad(), outer.w1.grad(), outer.w2.grad()};
  };
  const TensorList plain = run(false), saved = run(true);
  for (size_t i = 0; i < plain.size(); ++i) CHECK(plain[i].allclose(saved[i]));
  CHECK(gradgradcheck(
      [&](const TensorList& inputs) { return TensorList{checkpoint(inner, checkpoint(outer, inputs[0]))}; }, {x}));
}

TEST_CASE("a function that behaves differently the second time is an error", "[checkpoint]") {
  const Tensor x = randn({4}).set_requires_grad(true);
  int runs = 0;
  SECTION("saves more tensors") {
    const Tensor y = checkpoint([&](const Tensor& t) { return ++runs == 1 ? (t * 2).exp() : (t * 2).exp().exp(); }, x);
    CHECK_THROWS_AS(y.sum().backward(), AutogradError);
    CHECK_THROWS_WITH(y.sum().backward(), contains("saved more than 1 tensors"));
  }
  SECTION("saves fewer tensors") {
    const Tensor y = checkpoint([&](const Tensor& t) { return ++runs == 1 ? (t * 2).exp().exp() : (t * 2).exp(); }, x);
    CHECK_THROWS_WITH(y.sum().backward(), contains("saved 2 tensors") && contains("and 1 when it ran again"));
  }
  SECTION("saves a tensor of another shape") {
    const Tensor y =
        checkpoint([&](const Tensor& t) { return (++runs == 1 ? t * 2 : (t * 2).narrow(0, 0, 2)).exp().sum(); }, x);
    CHECK_THROWS_WITH(y.backward(), contains("(4)") || contains("(4,)"));
  }
  SECTION("an input that changed") {
    const Tensor input = rand({4});
    const Tensor y = checkpoint([&](const Tensor& t) { return (t * x).exp(); }, input);
    input.add_(1);
    CHECK_THROWS_WITH(y.sum().backward(), contains("'input'") && contains("changed in place"));
  }
  SECTION("a parameter that changed") {
    const Tensor y = checkpoint([&](const Tensor& t) { return (t * x).exp(); }, rand({4}).set_requires_grad(true));
    {
      const NoGradGuard no_grad;
      x.add_(1);
    }
    CHECK_THROWS_WITH(y.sum().backward(), contains("changed in place"));
  }
}

TEST_CASE("a recomputation in a capture draws the same numbers, and leaves the capture's count of draws",
          "[checkpoint]") {
  const Tensor x = full({64}, 2.0).requires_grad_();
  Generator::begin_capture(nullptr);
  const Tensor y = checkpoint([](const Tensor& t) { return dropout(t * t, 0.5); }, x);
  rand({1});
  CHECK(draw_position() == 2);
  y.sum().backward();
  CHECK(draw_position() == 2);
  rand({1});
  CHECK(Generator::end_capture() == 3);
  CHECK(x.grad().equal(y.detach()));  // 2 x where an element was kept, times 2
}

TEST_CASE("what is saved goes to the keeper of its tensor, else to that of the thread, if they take it",
          "[checkpoint]") {
  const Tensor x = full({3}, 2.0).requires_grad_(), w = full({3}, 5.0).requires_grad_();
  for (const bool own_takes : {true, false}) {
    const Ref<Drawer> own = make_ref<Drawer>(), of_thread = make_ref<Drawer>();
    own->takes = own_takes;
    x.impl()->need_meta().keeper = Ref<SavedKeeper>(own.get());
    of_thread->set_current(true);
    const Tensor sum = (x * w).sum();  // saves both
    of_thread->set_current(false);
    x.impl()->need_meta().keeper = nullptr;
    REQUIRE(own->kept.size() == (own_takes ? 1 : 0));
    if (own_takes) CHECK(own->kept[0].data() == x.array().data());
    REQUIRE(of_thread->kept.size() == 1);
    CHECK(of_thread->kept[0].data() == w.array().data());
    CHECK(of_thread->given == 0);
    for (const bool retain : {true, false}) {
      x.zero_grad(), w.zero_grad();
      sum.backward({}, retain);
      CHECK(x.grad().equal(w));
      CHECK(w.grad().equal(x));
      CHECK(own->given == (own_takes ? (retain ? 1 : 2) : 0));
      CHECK(own->dropped == (own_takes && !retain ? 1 : 0));
      CHECK(of_thread->given == (retain ? 1 : 2));
      CHECK(of_thread->dropped == (retain ? 0 : 1));
    }
  }
}

TEST_CASE("an exception in either run leaves the thread's state unchanged", "[checkpoint]") {
  const Tensor x = randn({4}).set_requires_grad(true);
  CHECK_THROWS_AS(checkpoint([](const Tensor& t) { return t.matmul(zeros({3})); }, x), ShapeError);
  CHECK(SavedKeeper::current() == nullptr);
  bool failing = false;
  const Tensor y = checkpoint(
      [&](const Tensor& t) {
        GRADUS_CHECK(!failing, ValueError, "not today");
        return (t * 2).exp();
      },
      x);
  failing = true;
  manual_seed(5);
  CHECK_THROWS_AS(y.sum().backward(), ValueError);
  CHECK(SavedKeeper::current() == nullptr);
  CHECK(default_generator().offset() == 0);
  CHECK_FALSE(autograd::is_recomputing());
  failing = false;
  y.sum().backward();
  CHECK(x.grad().allclose(2 * (x.detach() * 2).exp()));
}

TEST_CASE("is_recomputing is true only in the second run", "[checkpoint]") {
  std::vector<bool> seen;
  const Tensor x = randn({4}).set_requires_grad(true);
  checkpoint([&](const Tensor& t) { return seen.push_back(autograd::is_recomputing()), t.exp(); }, x).sum().backward();
  CHECK(seen == std::vector<bool>{false, true});
  const NoGradGuard no_grad;
  CHECK_FALSE(checkpoint([](const Tensor& t) { return t.exp(); }, x).requires_grad());
}

TEST_CASE("batch norm updates running statistics only once per batch", "[checkpoint]") {
  const Tensor x = randn({4, 3, 2, 2}).set_requires_grad(true), weight = ones({3}), bias = zeros({3});
  const auto run = [&](bool saving) {
    x.zero_grad();
    const Tensor mean = zeros({3}), variance = ones({3}), batches = zeros({}, kLong);
    const auto norm = [&](const Tensor& t) {
      const Tensor y = batch_norm(t * 2, mean, variance, weight, bias, true, 0.1, 1e-5, batches).exp();
      return batch_norm_relu(y, mean, variance, weight, bias, true, 0.1, 1e-5, t, batches);
    };
    (saving ? checkpoint(norm, x) : norm(x)).sum().backward();
    CHECK(batches.item<int64_t>() == 2);
    return TensorList{mean, variance, x.grad()};
  };
  const TensorList plain = run(false), saved = run(true);
  for (size_t i = 0; i < plain.size(); ++i) CHECK(plain[i].equal(saved[i]));
}

TEST_CASE("user-defined functions are recomputed, too", "[checkpoint]") {
  struct Cube : autograd::Function<Cube> {
    static Tensor forward(AutogradContext* ctx, const Tensor& x) {
      ctx->save_for_backward({x});
      return x * x * x;
    }
    static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
      const Tensor x = ctx->get_saved_variables()[0];
      return {3 * x * x * dy[0]};
    }
  };
  const Tensor x = randn({5}, dtype(kDouble)).set_requires_grad(true);
  const auto function = [](const TensorList& in) {
    return TensorList{checkpoint([](const Tensor& t) { return Cube::apply(t * 2).exp(); }, in[0] * 0.3)};
  };
  CHECK(gradcheck(function, {x}));
  CHECK(gradgradcheck(function, {x}));
}

TEST_CASE("checkpoints lower peak memory", "[checkpoint]") {
  constexpr int64_t kBytes = 256 * 1024;  // the size of one activation
  const Tensor x = randn({256, 256}).set_requires_grad(true);
  const auto segment = [](const Tensor& t) {
    Tensor y = t;
    for (int i = 0; i < 4; ++i) y = (y * 0.5).sigmoid();  // sigmoid saves its output
    return y;
  };
  const auto net = [&](bool saving) {
    x.zero_grad();
    Tensor y = x;
    for (int i = 0; i < 8; ++i) y = saving ? checkpoint(segment, y) : segment(y);
    y.sum().backward();
  };
  net(false);
  const int64_t before = allocated();
  const int64_t plain = peak_of([&] { net(false); }), saved = peak_of([&] { net(true); });
  const int64_t nested = peak_of([&] {
    x.zero_grad();
    const auto half = [&](const Tensor& t) {
      Tensor y = t;
      for (int i = 0; i < 4; ++i) y = checkpoint(segment, y);
      return y;
    };
    checkpoint(half, checkpoint(half, x)).sum().backward();
  });
  CHECK(allocated() == before);  // everything is freed
  CHECK(plain >= 32 * kBytes);   // 32 outputs of sigmoid
  CHECK(saved <= 8 * kBytes + 8 * kBytes);
  CHECK(nested < saved);
}

TEST_CASE("a very long chain of checkpoints runs and is destroyed", "[checkpoint]") {
  const Tensor x = ones({1}).set_requires_grad(true);
  Tensor y = x;
  for (int i = 0; i < 20000; ++i) y = checkpoint([](const Tensor& t) { return (t * 1.0).sigmoid() * 1.0; }, y);
  CHECK(y.requires_grad());
  y.reset();
  y = x;
  for (int i = 0; i < 2000; ++i) y = checkpoint([](const Tensor& t) { return (t * 1.0).tanh() + 1.0; }, y);
  y.backward();
  CHECK(x.grad().defined());
}
