// User-defined operators.
#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/autograd/function.h>
#include <gradus/tests/autograd/tensors.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;

namespace {

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

// y = exp(x). forward saves its result, and backward is differentiable.
struct Exponential : autograd::Function<Exponential> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    const Tensor y = x.exp();
    ctx->save_for_backward({y});
    return y;
  }
  static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
    return {ctx->get_saved_variables()[0] * dy[0]};
  }
};

// Has two tensor arguments, a number, and values in saved_data.
struct Scaled : autograd::Function<Scaled> {
  static inline bool needs[2];
  static TensorList forward(AutogradContext* ctx, const Tensor& a, double factor, const Tensor& b) {
    ctx->saved_data["factor"] = factor;
    ctx->saved_data["name"] = "scaled";
    ctx->saved_data["count"] = 3;
    ctx->saved_data["sizes"] = std::vector<int64_t>{4, 5};
    ctx->save_for_backward({a, b});
    return {a * b * factor, a + b};
  }
  static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
    const TensorList saved = ctx->get_saved_variables();
    const double factor = ctx->saved_data["factor"].toDouble();
    CHECK(ctx->saved_data["name"].toStringRef() == "scaled");
    CHECK(ctx->saved_data["count"].toInt() == 3);
    CHECK(ctx->saved_data["sizes"].toIntVector().size() == 2);
    CHECK_THROWS_AS(ctx->saved_data["name"].toDouble(), ValueError);
    needs[0] = ctx->needs_input_grad(0);
    needs[1] = ctx->needs_input_grad(2);
    return {dy[0] * saved[1] * factor + dy[1], Tensor(), dy[0] * saved[0] * factor + dy[1]};
  }
};

struct SortOfArgmax : autograd::Function<SortOfArgmax> {
  static TensorList forward(AutogradContext* ctx, const Tensor& x) {
    const Tensor rank = x * 0 + 1;
    ctx->mark_non_differentiable({rank});
    return {x * 2, rank};
  }
  static TensorList backward(AutogradContext*, const TensorList& dy) { return {dy[0] * 2}; }
};

struct Lazy : autograd::Function<Lazy> {
  static inline bool second_defined;
  static TensorList forward(AutogradContext* ctx, const Tensor& x, bool materialize) {
    ctx->set_materialize_grads(materialize);
    return {x * 2, x * 3};
  }
  static TensorList backward(AutogradContext*, const TensorList& dy) {
    second_defined = dy[1].defined();
    return {second_defined ? dy[0] * 2 + dy[1] * 3 : dy[0] * 2, Tensor()};
  }
};

struct WrongCount : autograd::Function<WrongCount> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x * 2; }
  static TensorList backward(AutogradContext*, const TensorList& dy) { return {dy[0], dy[0]}; }
};

/// backward returns undefined gradients for arguments that forward does not have.
struct Padded : autograd::Function<Padded> {
  static Tensor forward(AutogradContext*, const Tensor& x, double factor) { return x * factor; }
  static TensorList backward(AutogradContext*, const TensorList& dy) {
    return {dy[0] * 3, Tensor(), Tensor(), Tensor()};
  }
};

struct GradientOfNumber : autograd::Function<GradientOfNumber> {
  static Tensor forward(AutogradContext*, const Tensor& x, double factor) { return x * factor; }
  static TensorList backward(AutogradContext*, const TensorList& dy) { return {dy[0], dy[0]}; }
};

struct Doubled : autograd::Function<Doubled> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    x.mul_(2);
    ctx->mark_dirty({x});
    return x;
  }
  static TensorList backward(AutogradContext*, const TensorList& dy) { return {dy[0] * 2}; }
};

/// Has results of every kind: without history, an argument that was written, an argument, a new one, and none. Saves
/// some of the arguments and results and an undefined tensor.
struct Mixed : autograd::Function<Mixed> {
  static TensorList forward(AutogradContext* ctx, const Tensor& a, const Tensor& b) {
    const Tensor counts = tensor({1, 2}), product = a * b;
    a.mul_(2);
    ctx->mark_dirty({a});
    ctx->save_for_backward({b, Tensor(), product, counts});
    return {counts, a, b, Tensor(), product};
  }
  static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
    const TensorList saved = ctx->get_saved_variables();
    CHECK_FALSE(saved[1].defined());
    CHECK(saved[3].equal(tensor({1, 2})));
    return {2 * dy[1] + saved[0] * dy[4], dy[2] + saved[2] / saved[0] * dy[4]};
  }
};

}  // namespace

TEST_CASE("results of a function are new, written, returned as they are, not differentiable or absent") {
  const Tensor x = leaf({1, 2}), a = x * 1, b = leaf({3, 5});
  const TensorList y = Mixed::apply(a, b);
  REQUIRE(y.size() == 5);
  CHECK(y[0].equal(tensor({1, 2})));
  CHECK_FALSE(y[0].requires_grad());
  CHECK(y[1].is_same(a));
  CHECK_FALSE(y[2].is_same(b));
  CHECK(y[2].equal(b));
  CHECK_FALSE(y[3].defined());
  CHECK(y[4].detach().equal(numbers({3, 10})));
  for (const size_t i : {1, 2, 4}) {
    CAPTURE(i);
    REQUIRE(y[i].requires_grad());
    CHECK(std::string(y[i].grad_fn()->name()) == "Mixed");
    CHECK(y[i].output_nr() == i);
  }
  const auto gradients = [&](const Tensor& of) { return autograd::grad({of.sum()}, {x, b}, {}, true); };
  CHECK(gradients(y[1])[0].equal(numbers({2, 2})));
  CHECK(gradients(y[1])[1].equal(numbers({0, 0})));
  CHECK(gradients(y[2])[1].equal(numbers({1, 1})));
  CHECK(gradients(y[4])[0].equal(numbers({3, 5})));
  CHECK(gradients(y[4])[1].equal(numbers({1, 2})));
  (y[1] + 10 * y[2] + 100 * y[4]).sum().backward();
  CHECK(x.grad().equal(numbers({302, 502})));
  CHECK(b.grad().equal(numbers({110, 210})));
}

TEST_CASE("a write in a function is an error of the kind that the same write outside of it is") {
  const auto error_of = [](const auto& write) -> std::string {
    try {
      write();
    } catch (const AutogradError& error) { return error.what(); }
    return "none";
  };
  const Tensor x = leaf({1, 2}), shared = (x * 1).expand({3, 2});
  CHECK_THAT(error_of([&] { Doubled::apply(x); }), contains("leaf"));
  CHECK_THAT(error_of([&] { Doubled::apply(x.slice(0, 0, 1)); }), contains("a view of a leaf"));
  const Tensor a = x * 1, saved = a.square();
  Doubled::apply(a);
  CHECK_THAT(error_of([&] { saved.sum().backward(); }), contains("version"));
}

TEST_CASE("a function of one tensor") {
  const Tensor x = leaf({1, 2});
  const Tensor y = Cube::apply(x);
  CHECK(y.detach().equal(numbers({1, 8})));
  CHECK(std::string(y.grad_fn()->name()) == "Cube");
  y.sum().backward();
  CHECK(x.grad().equal(numbers({3, 12})));
  CHECK_THROWS_WITH(y.sum().backward(), contains("retain_graph"));
  CHECK(!Cube::apply(numbers({2})).requires_grad());
}

TEST_CASE("functions composed of operators can be differentiated twice") {
  const TensorList x = {tensor(std::vector<double>{0.3, -0.7, 1.1}, dtype(kDouble).requires_grad(true))};
  CHECK(autograd::gradcheck([](const TensorList& v) { return TensorList{Cube::apply(v[0])}; }, x));
  CHECK(autograd::gradgradcheck([](const TensorList& v) { return TensorList{Cube::apply(v[0])}; }, x));
  CHECK(autograd::gradcheck([](const TensorList& v) { return TensorList{Exponential::apply(v[0])}; }, x));
  CHECK(autograd::gradgradcheck([](const TensorList& v) { return TensorList{Exponential::apply(v[0])}; }, x));
}

TEST_CASE("a function that saves its result makes no reference cycle") {
  const Tensor x = leaf({1});
  const uint32_t held = x.use_count();
  { Exponential::apply(x); }
  CHECK(x.use_count() == held);
}

TEST_CASE("several arguments and results, and arguments that are not tensors") {
  const Tensor a = leaf({1, 2}), b = numbers({3, 4});
  const TensorList y = Scaled::apply(a, 10.0, b);
  CHECK(y[0].detach().equal(numbers({30, 80})));
  (y[0] + y[1]).sum().backward();
  CHECK(a.grad().equal(numbers({31, 41})));
  CHECK(Scaled::needs[0]);
  CHECK(!Scaled::needs[1]);
}

TEST_CASE("results marked as non-differentiable have no history") {
  const Tensor x = leaf({1, 2});
  const TensorList y = SortOfArgmax::apply(x);
  CHECK(y[0].requires_grad());
  CHECK(!y[1].requires_grad());
  y[0].sum().backward();
  CHECK(x.grad().equal(numbers({2, 2})));
}

TEST_CASE("missing gradients arrive as zeros unless switched off") {
  const Tensor x = leaf({1, 2});
  Lazy::apply(x, true)[0].sum().backward();
  CHECK(Lazy::second_defined);
  CHECK(x.grad().equal(numbers({2, 2})));
  Lazy::apply(x, false)[0].sum().backward();
  CHECK(!Lazy::second_defined);
  CHECK(x.grad().equal(numbers({4, 4})));
}

TEST_CASE("a wrong number of gradients is an error that names the function") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH(WrongCount::apply(x).sum().backward(),
                    contains("WrongCount::backward returned 2 gradients for 1 arguments"));
  CHECK_THROWS_WITH(GradientOfNumber::apply(x, 2.0).sum().backward(),
                    contains("GradientOfNumber::backward returned a gradient for argument 1, which is not a tensor"));
}

TEST_CASE("undefined gradients may follow those of the arguments") {
  const Tensor x = leaf({1, 2});
  Padded::apply(x, 2.0).sum().backward();
  CHECK(x.grad().equal(numbers({3, 3})));
}

TEST_CASE("a function may write into its argument") {
  const Tensor x = leaf({1, 2}), y = x * 1;
  const Tensor z = Doubled::apply(y);
  CHECK(z.is_same(y));
  CHECK(y.detach().equal(numbers({2, 4})));
  z.sum().backward();
  CHECK(x.grad().equal(numbers({2, 2})));
  CHECK_THROWS_AS(Doubled::apply(x), AutogradError);
  CHECK_THROWS_WITH(Doubled::apply(x.slice(0, 0, 1)), contains("a view of a leaf"));
}

TEST_CASE("saved tensors are checked for changes") {
  const Tensor x = leaf({1, 2}), a = x * 1, y = Cube::apply(a);
  a.add_(1);
  CHECK_THROWS_WITH(y.sum().backward(), contains("Cube") && contains("version"));
}
