// Anomaly mode, gradcheck, the graph as text, and errors that name source lines.
#include <algorithm>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/autograd/function.h>
#include <gradus/tests/autograd/tensors.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;

namespace {

struct WrongGradient : autograd::Function<WrongGradient> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    ctx->save_for_backward({x});
    return x * x;
  }
  static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
    return {3 * ctx->get_saved_variables()[0] * dy[0]};
  }
};

std::string encoder_path(const void*) { return "encoder.0"; }

}  // namespace

TEST_CASE("anomaly mode names the operator that produced the first NaN") {
  const Tensor x = leaf({0, 1});
  SECTION("forward") {
    const AnomalyGuard anomaly;
    CHECK_THROWS_WITH(x.log(), contains("[log]") && contains("forward"));
    CHECK_NOTHROW((x + 1).log());
  }
  SECTION("backward: the derivative of sqrt at 0") {
    const AnomalyGuard anomaly;
    CHECK_THROWS_WITH(x.sqrt().sum().backward(), contains("sqrt") && contains("backward"));
  }
  SECTION("with its layer") {
    const AnomalyGuard anomaly;
    Tensor y;
    {
      const ModuleFrame frame(nullptr, encoder_path);
      CHECK_THROWS_WITH(x.log(), contains("encoder.0"));
      y = x.sqrt();
    }
    CHECK_THROWS_WITH(y.sum().backward(), contains("encoder.0"));
  }
  SECTION("not an operator whose input contained it") {
    const Tensor w = leaf({1, 2}), nan = numbers({1, NAN}), inf = numbers({INFINITY, 1});
    const AnomalyGuard anomaly;
    const ModuleFrame frame(nullptr, encoder_path);
    CHECK_THROWS_WITH(w * nan, contains("Mul in layer 'encoder.0'") && contains("but did not produce it") &&
                                   contains("input 1 of shape (2,), a tensor without history, such as data, already "
                                            "held a NaN"));
    CHECK_THROWS_WITH(nan * w, contains("input 0"));
    CHECK_THROWS_WITH(w.clone().mul_(inf), contains("input 1") && contains("already held an inf"));
    CHECK_THROWS_WITH(nan.clone().mul_(w), contains("input 0") && contains("already held a NaN"));
    CHECK_THROWS_WITH(cat({w, nan}), contains("input 1"));
    CHECK_THROWS_WITH(w + leaf({NAN, 0}), contains("input 1 of shape (2,), a parameter"));
    CHECK_NOTHROW((w * inf.neg().exp()).sum().backward());  // exp(-inf) is 0
    CHECK_THROWS_WITH(linear(nan.reshape({1, 2}), w.reshape({1, 2})), contains("already held"));
    Tensor before;
    {
      const AnomalyGuard off(false);
      before = w * nan;
    }
    CHECK_THROWS_WITH(before * 2, contains("a result of Mul"));
    CHECK_THROWS_WITH((w / (w - w)).sum(), contains("made a NaN or inf"));
  }
  SECTION("not an operator whose gradient or saved tensor contained it") {
    const Tensor w = leaf({1, 4}), y = (w * 2).exp();
    const AnomalyGuard anomaly;
    CHECK_THROWS_WITH(
        y.backward(numbers({1, NAN}), true),
        contains("backward of") && contains("the gradient of its output, of shape (2,), already held a NaN"));
    Tensor z;
    {
      const AnomalyGuard off(false);
      z = (w * numbers({1, NAN})).sum();
    }
    CHECK_THROWS_WITH(z.backward(), contains("backward of Mul") && contains("saved in forward, already held a NaN"));
    y.register_hook([](const Tensor& gradient) { return gradient * INFINITY; });
    CHECK_THROWS_WITH(y.sum().backward(), contains("already held an inf (from the gradient given"));
  }
  SECTION("not a gradient that nothing wants") {
    struct GivesNaN : autograd::Function<GivesNaN> {
      static Tensor forward(AutogradContext*, const Tensor& a, const Tensor& b) { return a + b; }
      static TensorList backward(AutogradContext*, const TensorList& dy) { return {dy[0], dy[0] * NAN}; }
    };
    const Tensor w = leaf({1, 2}), other = leaf({3, 4});
    const AnomalyGuard anomaly;
    CHECK_NOTHROW(GivesNaN::apply(w, numbers({3, 4})).sum().backward());
    CHECK(w.grad().equal(numbers({1, 1})));
    CHECK_NOTHROW(autograd::grad({GivesNaN::apply(w, other).sum()}, {w}));
    CHECK_THROWS_WITH(GivesNaN::apply(w, other).sum().backward(), contains("GivesNaN") && contains("NaN"));
  }
  SECTION("not smooth_l1_loss with beta = 0, which divides by beta") {
    const Tensor w = leaf({1, -2});
    const AnomalyGuard anomaly;
    CHECK_NOTHROW(smooth_l1_loss(w, numbers({0, 0}), Reduction::sum, 0).backward());
    CHECK(w.grad().equal(numbers({1, -1})));
  }
  SECTION("off by default, and per scope") {
    {
      const AnomalyGuard anomaly;
      CHECK(AnomalyGuard::is_enabled());
    }
    CHECK(!AnomalyGuard::is_enabled());
    CHECK_NOTHROW(x.sqrt().sum().backward());
    CHECK(!x.grad().isfinite().all().item<bool>());
  }
}

TEST_CASE("anomaly mode says in full what an operator read and what it returned") {
  const Tensor w = leaf({1, 2});
  for (const auto& [x, what] : {std::pair<Tensor, std::string>{numbers({1, NAN}), "a NaN"},
                                {numbers({-INFINITY, 1}), "an inf"},
                                {numbers({INFINITY, NAN}), "a NaN and an inf"}}) {
    CAPTURE(what);
    const std::string returned = " returned " + what + " in a tensor of shape (2,), but did not produce it: ",
                      held = " already held " + what;
    const Tensor before = w * x, exponent = w.exp();
    const AnomalyGuard anomaly;
    CHECK_THROWS_WITH(w * x, contains("forward of Mul" + returned +
                                      "its input 1 of shape (2,), a tensor without history, such as data," + held));
    CHECK_THROWS_WITH(before * x,
                      contains("forward of Mul") && contains("its input 0 of shape (2,), a result of Mul,"));
    CHECK_THROWS_WITH(x.detach().requires_grad_() * w, contains("its input 0 of shape (2,), a parameter," + held));
    CHECK_THROWS_WITH(before.sum().backward({}, true), contains("forward of Sum returned"));
    CHECK_THROWS_WITH(before.backward(numbers({1, 1}), true),
                      contains("backward of Mul" + returned + "'b' of shape (2,), which it saved in forward," + held +
                               ": run forward under AnomalyGuard, too"));
    CHECK_THROWS_WITH(exponent.backward(x, true),
                      contains("backward of exp" + returned + "the gradient of its output, of shape (2,)," + held +
                               " (from the gradient given to backward(), a hook, or the sum of several gradients)"));
  }
  const AnomalyGuard anomaly;
  CHECK_THROWS_WITH(leaf({0}).log(), contains("forward of log made a NaN or inf in a tensor of shape (1,)"));
  CHECK_NOTHROW((leaf({}) * numbers({})).sum().backward());
  CHECK_NOTHROW(leaf({1, 2}).max(0));  // has a result of integers
}

TEST_CASE("gradcheck accepts correct and rejects wrong gradients") {
  const TensorList x = {tensor(std::vector<double>{0.5, 2.0}, dtype(kDouble).requires_grad(true))};
  const auto wrong = [](const TensorList& v) { return TensorList{WrongGradient::apply(v[0])}; };
  CHECK(!autograd::gradcheck(wrong, x, 1e-6, 1e-5, 1e-3, false));
  CHECK_THROWS_AS(autograd::gradcheck(wrong, x), AutogradError);
  CHECK_THROWS_WITH(autograd::gradcheck(wrong, x), contains("input 0"));
  CHECK(autograd::gradcheck([](const TensorList& v) { return TensorList{v[0] * v[0]}; }, x));

  SECTION("correct first derivatives, wrong second derivatives") {
    // The gradient 2 x dy is correct, but it is computed from x.detach(), so its derivative with respect to x is
    // missing.
    struct Hidden : autograd::Function<Hidden> {
      static Tensor forward(AutogradContext* ctx, const Tensor& v) {
        ctx->save_for_backward({v});
        return v * v;
      }
      static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
        return {2 * ctx->get_saved_variables()[0].detach() * dy[0]};
      }
    };
    const auto hidden = [](const TensorList& v) { return TensorList{Hidden::apply(v[0])}; };
    CHECK(autograd::gradcheck(hidden, x));
    CHECK(!autograd::gradgradcheck(hidden, x, 1e-6, 1e-5, 1e-3, false));
  }
  SECTION("tolerances are absolute, and a part of the derivative") {
    // The first derivative 3 x² is correct; the second is 1 % too large.
    struct Inaccurate : autograd::Function<Inaccurate> {
      static Tensor forward(AutogradContext* ctx, const Tensor& v) {
        ctx->save_for_backward({v});
        return v * v * v;
      }
      static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
        const Tensor v = ctx->get_saved_variables()[0], constant = v.detach();
        return {3 * constant.square() * (v / constant).pow(2.02) * dy[0]};
      }
    };
    const TensorList large = {tensor(std::vector<double>{20}, dtype(kDouble).requires_grad(true))};
    const auto inaccurate = [](const TensorList& v) { return TensorList{Inaccurate::apply(v[0])}; };
    const auto passes = [&](double atol, double rtol) {
      return autograd::gradgradcheck(inaccurate, large, 1e-6, atol, rtol, false);
    };
    CHECK((passes(1e-3, 0.05) && !passes(0.05, 1e-3)));
    CHECK(passes(5, 1e-6));
  }
  SECTION("a gradient without history is a constant") {
    // The gradient 2 x dy is correct, but has no history: it depends neither on x nor on dy.
    struct Detached : autograd::Function<Detached> {
      static Tensor forward(AutogradContext* ctx, const Tensor& v) {
        ctx->save_for_backward({v});
        return v * v;
      }
      static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
        return {(2 * ctx->get_saved_variables()[0] * dy[0]).detach()};
      }
    };
    // The gradients of a and b are correct, but that of b is detached, so second derivatives of a b are missing.
    struct HalfDetached : autograd::Function<HalfDetached> {
      static Tensor forward(AutogradContext* ctx, const Tensor& a, const Tensor& b) {
        ctx->save_for_backward({a, b});
        return a * b;
      }
      static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
        const TensorList saved = ctx->get_saved_variables();
        return {dy[0] * saved[1], (dy[0] * saved[0]).detach()};
      }
    };
    // backward returns an undefined gradient for b, whose gradient is dy a.
    struct Undefined : autograd::Function<Undefined> {
      static Tensor forward(AutogradContext* ctx, const Tensor& a, const Tensor& b) {
        ctx->save_for_backward({a, b});
        return a * b;
      }
      static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
        return {dy[0] * ctx->get_saved_variables()[1], Tensor()};
      }
    };
    const TensorList two = {x[0], tensor(std::vector<double>{3, -1}, dtype(kDouble).requires_grad(true))};
    const auto detached = [](const TensorList& v) { return TensorList{Detached::apply(v[0])}; };
    const auto half_detached = [](const TensorList& v) { return TensorList{HalfDetached::apply(v[0], v[1])}; };
    const auto undefined = [](const TensorList& v) { return TensorList{Undefined::apply(v[0], v[1])}; };
    CHECK(autograd::gradcheck(detached, x));
    CHECK_FALSE(autograd::gradgradcheck(detached, x, 1e-6, 1e-5, 1e-3, false));
    CHECK(autograd::gradcheck(half_detached, two));
    CHECK_FALSE(autograd::gradgradcheck(half_detached, two, 1e-6, 1e-5, 1e-3, false));
    CHECK_FALSE(autograd::gradcheck(undefined, two, 1e-6, 1e-5, 1e-3, false));
  }
  SECTION("second derivatives with respect to the gradient of the result are checked, too") {
    // The gradient 2 x dy depends on x as it should, but not on dy.
    struct Severed : autograd::Function<Severed> {
      static Tensor forward(AutogradContext* ctx, const Tensor& v) {
        ctx->save_for_backward({v});
        return v * v;
      }
      static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
        return {2 * ctx->get_saved_variables()[0] * dy[0].detach()};
      }
    };
    const auto severed = [](const TensorList& v) { return TensorList{Severed::apply(v[0])}; };
    CHECK(autograd::gradcheck(severed, x));
    CHECK_FALSE(autograd::gradgradcheck(severed, x, 1e-6, 1e-5, 1e-3, false));
  }
  SECTION("the gradient of a result without history is 0") {
    const auto of_two = [](const TensorList& v) { return TensorList{v[0] * 2, v[0].detach() * 3}; };
    CHECK_FALSE(autograd::gradcheck(of_two, x, 1e-6, 1e-5, 1e-3, false));
    CHECK_FALSE(
        autograd::gradcheck([](const TensorList& v) { return TensorList{v[0].detach()}; }, x, 1e-6, 1e-5, 1e-3, false));
    CHECK(autograd::gradcheck([](const TensorList& v) { return TensorList{v[0] * 2, floor(v[0] + 0.25) + 1}; }, x));
    CHECK(autograd::gradcheck([](const TensorList& v) { return TensorList{v[0] * 2, Tensor(), v[0] > 1}; }, x));
    CHECK_THROWS_AS(autograd::gradcheck([](const TensorList& v) { return TensorList{v[0] > 1}; }, x), ValueError);
    // Central differences use the values of a result, even where it has no history.
    const auto stops = [](const TensorList& v) {
      return TensorList{v[0][0].item<double>() > 0.5 ? (v[0] * 2).detach() : v[0] * 2};
    };
    CHECK(autograd::gradcheck(stops, x));
    const auto grows = [](const TensorList& v) {
      return v[0][0].item<double>() > 0.5 ? TensorList{v[0], v[0]} : TensorList{v[0]};
    };
    CHECK_THROWS_WITH(autograd::gradcheck(grows, x), contains("returns 1 floating results, but 2 after an input"));
    const auto widens = [](const TensorList& v) {
      return TensorList{v[0].sum(), v[0][0].item<double>() > 0.5 ? v[0].reshape({2, 1}) : v[0]};
    };
    const TensorList z = {x[0].detach().clone().fill_(0.5).requires_grad_()};
    CHECK_THROWS_WITH(autograd::gradcheck(widens, z), contains("result 1 has shape (2,), but (2, 1) after an input"));
  }
  SECTION("float32 inputs are refused") {
    CHECK_THROWS_AS(
        autograd::gradcheck([](const TensorList& v) { return TensorList{v[0] * 2}; }, {leaf({1}).to(kFloat)}),
        DTypeError);
  }
}

TEST_CASE("errors name the source line and the layer") {
  const Tensor a = ones({2, 3});
  try {
    matmul(a, a);
    FAIL("no error");
  } catch (const ShapeError& error) {
    const std::string here = "diagnosis_test.cpp:" + std::to_string(__LINE__ - 3);
    CHECK_THAT(error.what(), contains(here));
    CHECK_THAT(error.what(), contains("[matmul]"));
  }
  const ModuleFrame frame(nullptr, encoder_path);
  CHECK_THROWS_WITH(a + ones({7}), contains("[add] layer 'encoder.0'") && contains("(2, 3)") && contains("(7,)"));
}

TEST_CASE("the graph is dumped as Graphviz source") {
  const Tensor x = tensor({{1., 2.}, {3., 4.}}, requires_grad());
  const Tensor y = (matmul(x, x).sigmoid() * 2).sum();
  const std::string dot = autograd::graph_to_dot(y);
  CHECK_THAT(dot, contains("digraph"));
  for (const char* part : {"MatMul", "sigmoid", "Sum", "AccumulateGrad", "->", "(2, 2)"})
    CHECK_THAT(dot, contains(part));
  CHECK(std::count(dot.begin(), dot.end(), '{') == std::count(dot.begin(), dot.end(), '}'));
  CHECK(autograd::graph_to_dot(x.detach()).find("->") == std::string::npos);

  const auto shows = [](const Shape& shape) {
    return autograd::graph_to_dot(full(shape, 0.25).requires_grad_().square().sum()).find("0.25") != std::string::npos;
  };
  CHECK((shows({}) && shows({1}) && shows({8}) && !shows({9}) && !shows({0})));
  const Tensor w = tensor({1.5f, -2.0f}).requires_grad_(), loss = w.square().sum();
  CHECK(autograd::graph_to_dot(loss).find("1.5, -2") != std::string::npos);
  CHECK(autograd::graph_to_dot(loss).find("gradient") == std::string::npos);
  loss.backward({}, /*retain_graph=*/true);
  CHECK(autograd::graph_to_dot(loss).find("gradient 3, -4") != std::string::npos);
}

TEST_CASE("a dumped graph has a box for each node with its layer and what it saves, and a line for each gradient") {
  const Tensor w = tensor({1.5, -2.0}, dtype(kDouble).requires_grad(true)), plain = tensor({3.0, 5.0}, kDouble);
  Tensor y;
  {
    const ModuleFrame frame(nullptr, encoder_path);
    y = plain * w;  // has no edge for `plain`, and saves only it
  }
  CHECK(autograd::graph_to_dot(y.sum()) ==
        "digraph autograd {\n  rankdir=BT;\n  node [shape=box, fontname=\"monospace\"];\n"
        "  n0 [label=\"Sum\"];\n"
        "  n1 [label=\"Mul\\nencoder.0\\nsaved a: float64(2,), 16 B\\n3, 5\\n16 B saved\"];\n"
        "  n2 [label=\"AccumulateGrad\\nfloat64(2,)\\n1.5, -2\", style=filled, fillcolor=lightblue];\n"
        "  n1 -> n0 [label=\"(2,)\"];\n"
        "  n2 -> n1 [label=\"(2,)\"];\n"
        "}\n");
}

TEST_CASE("a dumped graph has the bytes of each array that a node saves, and their sum") {
  const Tensor a = leaf({1, 2}), b = ones({3, 2}, kDouble).requires_grad_();
  const std::string dot = autograd::graph_to_dot(a * b);
  CHECK_THAT(dot, contains("\\nsaved a: float64(2,), 16 B") && contains("\\nsaved b: float64(3, 2), 48 B"));
  CHECK_THAT(dot, contains("\\n64 B saved\""));
}

TEST_CASE("tensors without elements and larger ones are dumped without numbers") {
  for (const Shape& shape : {Shape{0}, Shape{3, 3}})
    CHECK(autograd::graph_to_dot(ones(shape).requires_grad_().sum()) ==
          "digraph autograd {\n  rankdir=BT;\n  node [shape=box, fontname=\"monospace\"];\n"
          "  n0 [label=\"Sum\"];\n"
          "  n1 [label=\"AccumulateGrad\\nfloat32" +
              to_string(shape) +
              "\", style=filled, fillcolor=lightblue];\n"
              "  n1 -> n0 [label=\"" +
              to_string(shape) +
              "\"];\n"
              "}\n");
}

TEST_CASE("the leaves of a graph include those of recomputed parts, each once") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4}), outside = leaf({5, 6});
  const Tensor h = autograd::checkpoint([&](const Tensor& in) { return (in * w).exp() * w; }, x);
  const std::vector<Tensor> leaves = autograd::leaves_behind((h * outside + numbers({7, 8})).sum());
  CHECK(leaves.size() == 3);
  for (const Tensor& wanted : {x, w, outside})
    CHECK(std::ranges::any_of(leaves, [&](const Tensor& found) { return found.impl() == wanted.impl(); }));
}

TEST_CASE("saved bytes count each storage once") {
  const Tensor x(ones({256}).array(), true);
  CHECK(autograd::saved_bytes((x + 1).sum()) == 0);
  CHECK(autograd::saved_bytes(x * x) == 1024);            // x, saved twice
  CHECK(autograd::saved_bytes(x.exp()) == 1024);          // exp's own result
  CHECK(autograd::saved_bytes(x.exp() * x) == 2 * 1024);  // exp's result and x
  const Tensor y = x.exp().exp();
  CHECK(autograd::saved_bytes(y) == 2 * 1024);
  y.sum().backward();
  CHECK(autograd::saved_bytes(y) == 0);
}
