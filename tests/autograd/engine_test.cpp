// The engine: graphs of various shapes, repeated passes, second derivatives, very long chains.
#include <cmath>

#include <functional>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/op_scope.h>
#include <gradus/core/ops/ops.h>
#include <gradus/tests/autograd/tensors.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;

TEST_CASE("the gradient of a flattened channels-last image is channels-last") {
  const Tensor leaf = randn({2, 3, 4, 5}).contiguous(MemoryFormat::channels_last).set_requires_grad(true);
  const Tensor x = leaf * 2;
  REQUIRE(x.is_contiguous(MemoryFormat::channels_last));
  bool seen = false;
  x.register_hook([&](const Tensor& dx) {
    seen = dx.is_contiguous(MemoryFormat::channels_last) && dx.allclose(arange(120, kFloat).view({2, 3, 4, 5}));
    return Tensor();
  });
  (x.flatten(1) * arange(120, kFloat).view({2, 60})).sum().backward();
  CHECK(seen);
}

TEST_CASE("a tensor used several ways gets the sum of its gradients") {
  const Tensor x = leaf({2});
  SECTION("a diamond") {
    const Tensor a = x * 3, b = a * a, c = a.exp();
    (b + c).backward();
    CHECK(x.grad().item<double>() == Approx(2 * 6 * 3 + 3 * std::exp(6.0)));
  }
  SECTION("in a ladder of diamonds each node runs once") {
    Tensor y = x;
    for (int i = 0; i < 40; ++i) y = y * 0.5 + y * 0.5;  // 2^40 paths
    y.backward();
    CHECK(x.grad().item<double>() == 1.0);
  }
  SECTION("one tensor as both operands") {
    (x * x).backward();
    CHECK(x.grad().item<double>() == 4.0);
  }
  SECTION("a short path made late and a long path made early") {
    Tensor y = x;
    for (int i = 0; i < 10; ++i) y = y * 2;
    (y + x).backward();
    CHECK(x.grad().item<double>() == 1025.0);
  }
}

TEST_CASE("a graph is used once unless it is retained") {
  const Tensor x = leaf({1, 2});
  const Tensor y = (x * x).sum();
  SECTION("the error of a second pass names what was freed and the remedy") {
    y.backward();
    CHECK_THROWS_WITH(y.backward(), contains("retain_graph") && contains("Mul"));
    CHECK(x.grad().equal(numbers({2, 4})));
  }
  SECTION("retain_graph") {
    y.backward({}, true);
    y.backward({}, true);
    y.backward();
    CHECK(x.grad().equal(numbers({6, 12})));
    CHECK_THROWS_AS(y.backward(), AutogradError);
  }
  SECTION("a graph that saved nothing can run again") {
    const Tensor z = (x + 1).sum();
    z.backward();
    z.backward();
    CHECK(x.grad().equal(numbers({2, 2})));
  }
}

TEST_CASE("backward without a graph is an error") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH((x * x).backward(), contains("scalar"));
  CHECK_THROWS_WITH((x * x).backward(ones({3})), contains("(3,)") && contains("(2,)"));
  CHECK_THROWS_WITH(numbers({1}).backward(), contains("require"));
  CHECK_THROWS_AS(autograd::backward({x.sum()}, {Tensor(), Tensor()}), ValueError);
  (x * x).backward(numbers({10, 100}));
  CHECK(x.grad().equal(numbers({20, 400})));
}

namespace {

/// y = x, with a backward that returns what `gradients` makes of dy.
struct Identity final : Node {
  std::function<Grads(const Tensor&)> gradients;
  Array forward(const Array& x, std::function<Grads(const Tensor&)> of_dy) {
    gradients = std::move(of_dy);
    return ops::clone(x);
  }
  Grads backward(const Tensor& dy) override { return gradients(dy); }
};

}  // namespace

TEST_CASE("a gradient must fit its tensor: as it is, or summed over dimensions in which the tensor has size 1") {
  const Tensor x = ones({2, 1, 3}, dtype(kDouble).requires_grad(true));
  const auto gradient = [&](const std::function<Grads(const Tensor&)>& of_dy) {
    OpScope op("identity", Loc{});
    return autograd::grad({apply<Identity>(op, x, of_dy).sum()}, {x})[0];
  };
  const auto with_shape = [](const Shape& shape) {
    return [shape](const Tensor&) { return Grads{ones(shape, kDouble)}; };
  };
  for (const auto& [shape, sum] : {std::pair<Shape, double>{{2, 1, 3}, 1}, {{2, 4, 3}, 4}, {{5, 2, 4, 3}, 20}}) {
    CHECK(gradient(with_shape(shape)).equal(full({2, 1, 3}, sum, kDouble)));
    CHECK(gradient([shape = shape](const Tensor&) { return Grads{ones(shape)}; }).dtype() == kDouble);
  }
  for (const Shape& shape : {Shape{}, Shape{3}, Shape{1, 3}, Shape{1, 1, 3}, Shape{2, 1, 1}, Shape{2, 2, 1, 3, 1}})
    CHECK_THROWS_WITH(gradient(with_shape(shape)), contains("Identity returned a gradient of shape " +
                                                            to_string(shape) + ", expected shape (2, 1, 3)"));
  CHECK_THROWS_WITH(gradient([](const Tensor& dy) {
                      return Grads{dy, Tensor()};
                    }),
                    contains("Identity returned 2 gradients for 1 inputs"));
  const Tensor y = x * 2;
  y.register_hook([](const Tensor&) { return ones({2, 2, 2}, kDouble); });
  CHECK_THROWS_WITH(y.sum().backward(), contains("a hook on its output returned a gradient of shape (2, 2, 2)"));
}

TEST_CASE("several outputs in one pass") {
  const Tensor x = leaf({1, 2});
  const Tensor a = x * x, b = a.sum();
  autograd::backward({a, b}, {numbers({1, 0}), Tensor()});
  CHECK(x.grad().equal(numbers({4, 4})));

  const auto [values, indices] = leaf({3, 9, 4}).max(0);
  CHECK(values.requires_grad());
  CHECK(!indices.requires_grad());
}

TEST_CASE("grad() returns gradients and does not change grad() of leaves") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4}), other = leaf({5});
  const Tensor a = x * w, y = (a * a).sum();

  SECTION("of leaves and of results") {
    const TensorList g = autograd::grad({y}, {x, a}, {}, true);
    CHECK(g[0].equal(numbers({18, 64})));
    CHECK(g[1].equal(numbers({6, 16})));
    CHECK((!x.grad().defined() && !w.grad().defined()));
  }
  SECTION("an input that was not used") {
    CHECK_THROWS_WITH(autograd::grad({y}, {other}, {}, true), contains("allow_unused"));
    const TensorList g = autograd::grad({y}, {x, other}, {}, false, false, true);
    CHECK(g[0].defined());
    CHECK(!g[1].defined());
  }
  SECTION("an input that does not require gradients is an error") {
    CHECK_THROWS_AS(autograd::grad({y}, {numbers({1})}), AutogradError);
  }
  SECTION("the output itself") { CHECK(autograd::grad({y}, {y})[0].item<double>() == 1.0); }
  SECTION("only nodes that lead to the inputs run") {
    int calls = 0;
    const Tensor side = x * 2;
    side.register_hook([&](const Tensor& g) {
      ++calls;
      return g;
    });
    autograd::grad({(side + w).sum()}, {w});
    CHECK(calls == 0);
  }
  SECTION("backward with inputs accumulates only into these") {
    y.backward({}, false, false, TensorList{w});
    CHECK(w.grad().equal(numbers({6, 32})));
    CHECK(!x.grad().defined());
  }
}

TEST_CASE("create_graph makes gradients that can be differentiated") {
  const Tensor x = leaf({3});
  const Tensor y = x * x * x;
  const Tensor dx = autograd::grad({y}, {x}, {}, true, true)[0];
  CHECK(dx.item<double>() == 27.0);
  const Tensor ddx = autograd::grad({dx}, {x}, {}, true, true)[0];
  CHECK(ddx.item<double>() == 18.0);
  const Tensor dddx = autograd::grad({ddx}, {x})[0];
  CHECK(dddx.item<double>() == 6.0);

  SECTION("accumulated gradients keep their graph") {
    const Tensor z = leaf({2});
    (z * z * z).backward({}, true, true);
    CHECK(z.grad().requires_grad());
    const Tensor penalty = z.grad() * z.grad();  // (3 z^2)^2
    CHECK(autograd::grad({penalty}, {z})[0].item<double>() == 2 * 12.0 * 12.0);
    z.zero_grad();
  }
  SECTION("without create_graph they cannot be differentiated") {
    const Tensor z = leaf({2}), dz = autograd::grad({z * z * z}, {z})[0];
    CHECK(!dz.requires_grad());
  }
  SECTION("a pass without create_graph records nothing inside NoGradGuard or out of it") {
    const Tensor z = leaf({2}), cube = z * z * z;
    const NoGradGuard no_grad;
    CHECK(autograd::grad({cube}, {z}, {}, true, true)[0].requires_grad());
  }
}

TEST_CASE("a hundred thousand chained operators do not overflow the stack") {
  constexpr int kLength = 100000;
  const Tensor x = leaf({1});
  SECTION("forward, backward and destroyed") {
    Tensor y = x;
    for (int i = 0; i < kLength; ++i) y = i % 2 ? y * 1.0 : y + 0.0;
    y.backward();
    CHECK(x.grad().item<double>() == 1.0);
  }
  SECTION("retained, then dropped") {
    Tensor y = x;
    for (int i = 0; i < kLength; ++i) y = y * y;
    y.backward({}, true);
    CHECK(x.grad().item<double>() == 1.0 * std::numeric_limits<double>::infinity());
    y = Tensor();
  }
  SECTION("destroyed without backward") {
    Tensor y = x;
    for (int i = 0; i < kLength; ++i) y = y.sigmoid();
    y = Tensor();
    CHECK(!x.grad().defined());
  }
  SECTION("written in place") {
    const Tensor y = x * 1;
    for (int i = 0; i < kLength; ++i) y.add_(1);
    y.backward();
    CHECK(x.grad().item<double>() == 1.0);
  }
  SECTION("views of views") {
    Tensor y = x * 1;
    for (int i = 0; i < kLength; ++i) y = y.view({1});
    y.backward();
    CHECK(x.grad().item<double>() == 1.0);
  }
}

TEST_CASE("nothing is kept alive once a graph is gone") {
  const Tensor x = leaf({1, 2});
  const uint32_t held = x.use_count();
  {
    const Tensor y = (x.exp() * x).sum();
    CHECK(x.use_count() > held);
    y.backward();
  }
  CHECK(x.use_count() == held);
  {
    const Tensor y = x.sigmoid();  // saves its own output without a reference cycle
    CHECK(y.requires_grad());
  }
  {
    const Tensor y = x * 1;
    y[0].mul_(y[1].detach());
  }
  CHECK(x.use_count() == held);
}

TEST_CASE("saved tensors are released during the pass") {
  const Tensor x(zeros({1000}).array(), true);
  const int64_t before = runtime(DeviceType::cpu).memory_stats(0).allocated;
  const Tensor y = x.exp().exp().exp().sum();
  CHECK(runtime(DeviceType::cpu).memory_stats(0).allocated >= before + 3 * 4000);
  y.backward();
  CHECK(runtime(DeviceType::cpu).memory_stats(0).allocated < before + 2 * 4096 + 1024);  // x.grad and y
}

TEST_CASE("backward from inside a hook") {
  const Tensor x = leaf({2}), w = leaf({3});
  const Tensor y = x * x;
  y.register_hook([&](const Tensor& g) {
    const AutoGradMode recording(true);
    (w * w).backward();
    CHECK(w.grad().item<double>() == 6.0);
    return g;
  });
  (y * 5).backward();
  CHECK(x.grad().item<double>() == 20.0);
  CHECK(w.grad().item<double>() == 6.0);
}

TEST_CASE("callbacks run at the end of the pass") {
  CHECK_THROWS_AS(autograd::queue_callback([] {}), AutogradError);
  const Tensor x = leaf({2});
  bool called = false;
  x.register_hook([&](const Tensor& g) {
    autograd::queue_callback([&] {
      CHECK(x.grad().defined());
      called = true;
    });
    return g;
  });
  (x * x).backward();
  CHECK(called);
}

TEST_CASE("a pass that throws leaves the engine usable") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  const unsigned id = y.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("no"); });
  CHECK_THROWS(y.sum().backward({}, true));
  CHECK_THROWS_AS(autograd::queue_callback([] {}), AutogradError);
  y.remove_hook(id);
  y.sum().backward();
  CHECK(x.grad().equal(numbers({2, 2})));
  CHECK(GradMode::is_enabled());
}

TEST_CASE("the same program gives identical results") {
  const auto run = [] {
    manual_seed(5);
    const Tensor x = randn({17, 33}, requires_grad()), w = randn({21, 33}, requires_grad());
    const Tensor y = dropout(linear(x, w).tanh(), 0.5).log_softmax(1);
    (y * y).mean().backward();
    return TensorList{x.grad(), w.grad()};
  };
  const TensorList first = run(), second = run();
  CHECK(first[0].equal(second[0]));
  CHECK(first[1].equal(second[1]));
}

TEST_CASE("bind_grad moves the gradient that is there to the storage, and later gradients are added in it") {
  const Tensor x = ones({3}).requires_grad_();
  (x * 2).sum().backward();
  const Array storage = Array::empty({3}, DType::f32);
  x.bind_grad(storage);
  CHECK(x.grad().data_ptr<float>() == storage.data<float>());
  CHECK(x.grad().equal(full({3}, 2.0)));
  (x * 3).sum().backward();
  CHECK(x.grad().data_ptr<float>() == storage.data<float>());
  CHECK(x.grad().equal(full({3}, 5.0)));
}
