// In-place operators while gradients are recorded: versions, leaves, views and their bases.
#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/tests/autograd/tensors.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;

namespace {

/// Checks the gradient of sum(weights * f(x)) at a fixed x of the given shape.
template <class F>
void check_gradient(IntArrayRef shape, F f) {
  manual_seed(3);
  const TensorList inputs = {rand(shape, dtype(kDouble).requires_grad(true)),
                             rand(shape, dtype(kDouble).requires_grad(true))};
  CHECK(autograd::gradcheck(f, inputs));
  CHECK(autograd::gradgradcheck(f, inputs));
}

}  // namespace

TEST_CASE("every write increases the version that views and detached tensors share") {
  const Tensor x = zeros({2, 3});
  const Tensor row = x[0], cut = x.detach();
  const uint32_t start = x.version();
  x.add_(1);
  row.mul_(2);
  cut.fill_(3);
  CHECK(x.version() == start + 3);
  CHECK(row.version() == start + 3);
  CHECK(cut.version() == start + 3);
  CHECK(x.clone().version() != x.version());
  x.zero_();
  x.copy_(ones({2, 3}));
  x.relu_();
  x.clamp_(0, 1);
  x.sub_(1);
  x.div_(2);
  x += 1;
  x.uniform_();
  CHECK(x.version() == start + 11);
}

TEST_CASE("a saved tensor that was changed is an error that names it") {
  SECTION("an input") {
    const Tensor x = leaf({1, 2});
    const Tensor a = x * 2, y = a * a;
    a.add_(1);
    CHECK_THROWS_AS(y.sum().backward(), AutogradError);
    const Tensor b = x * 3, z = b * b;
    b.mul_(2);
    CHECK_THROWS_WITH(z.sum().backward(), contains("Mul") && contains("version 1") && contains("expected 0"));
  }
  SECTION("an output") {
    const Tensor x = leaf({1, 2}), y = x.exp();
    y.add_(1);
    CHECK_THROWS_WITH(y.sum().backward(), contains("version"));
  }
  SECTION("through a view, and through detach") {
    const Tensor x = leaf({1, 2}), a = x * 1, y = a * a;
    a.slice(0, 0, 1).zero_();
    CHECK_THROWS_AS(y.sum().backward(), AutogradError);
    const Tensor b = x * 1, z = b * b;
    b.detach().zero_();
    CHECK_THROWS_AS(z.sum().backward(), AutogradError);
  }
  SECTION("a parameter, by an update between forward and backward") {
    const Tensor w = leaf({1, 2}), x = leaf({3, 4}), y = (w * x).sum();
    {
      const NoGradGuard no_grad;
      w.sub_(0.1);
    }
    CHECK_THROWS_AS(y.backward(), AutogradError);
  }
  SECTION("tensors that were not saved may change") {
    const Tensor x = leaf({1, 2}), a = x * 1, y = a + 1;
    a.zero_();
    y.sum().backward();
    CHECK(x.grad().equal(numbers({1, 1})));
  }
}

TEST_CASE("a leaf that requires gradients cannot be written in place") {
  const Tensor x = leaf({1, 2, 3, 4});
  CHECK_THROWS_WITH(x.add_(1), contains("leaf") && contains("[add_]"));
  CHECK_THROWS_AS(x.zero_(), AutogradError);
  CHECK_THROWS_AS(x.copy_(numbers({1, 1, 1, 1})), AutogradError);
  CHECK_THROWS_AS(x[0].fill_(1), AutogradError);
  CHECK_THROWS_AS(x.view({2, 2})[0].mul_(2), AutogradError);
  CHECK(x.detach().equal(numbers({1, 2, 3, 4})));
  CHECK(x.version() == 0);

  const NoGradGuard no_grad;
  x.mul_(2);
  x[0].fill_(9);
  CHECK(x.equal(numbers({9, 4, 6, 8})));
  CHECK(x.is_leaf());
}

TEST_CASE("a view of an expanded tensor has no gradient") {
  const Tensor x = numbers({1, 2}).unsqueeze(1).expand({2, 3});
  CHECK(x.as_strided({2}, {1}).equal(numbers({1, 2})));
  const Tensor recorded = leaf({1, 2}).unsqueeze(1).expand({2, 3});
  CHECK_THROWS_WITH(recorded.as_strided({2}, {1}), contains("share memory") && contains("clone()"));
}

TEST_CASE("an expanded tensor cannot be written in place") {
  const Tensor x = zeros({1, 3}).expand({2, 3});
  CHECK_THROWS_WITH(x.add_(1), contains("expand"));
  CHECK_THROWS_AS(x.copy_(ones({2, 3})), ShapeError);
  CHECK_THROWS_AS(zeros({5}).as_strided({2, 2}, {1, 1}).fill_(1), ShapeError);
  CHECK_NOTHROW(x[0].add_(1));
}

TEST_CASE("an in-place operator on a result becomes part of its history") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 3;
  const Tensor w = leaf({5, 7});
  y.mul_(w);
  CHECK(std::string(y.grad_fn()->name()).find("Mul") == 0);
  y.sum().backward();
  CHECK(x.grad().equal(numbers({15, 21})));
  CHECK(w.grad().equal(numbers({3, 6})));

  SECTION("a tensor without history gets that of the values written into it") {
    const Tensor z = zeros({2});
    z.add_(w);
    CHECK((z.requires_grad() && !z.is_leaf()));
    w.zero_grad();
    z.sum().backward();
    CHECK(w.grad().equal(numbers({1, 1})));
  }
  SECTION("copy_ replaces it") {
    const Tensor z = x * 2;
    z.copy_(w * w);
    x.zero_grad();
    w.zero_grad();
    z.sum().backward();
    CHECK(w.grad().equal(numbers({10, 14})));
    CHECK((!x.grad().defined() || x.grad().equal(numbers({0, 0}))));
  }
  SECTION("the operand may be the tensor itself") {
    const Tensor z = x * 1;
    z.mul_(z);
    x.zero_grad();
    z.sum().backward();
    CHECK(x.grad().equal(numbers({2, 4})));
  }
  SECTION("retain_grad follows the tensor") {
    const Tensor z = x * 2;
    z.retain_grad();
    z.mul_(3);
    z.sum().backward();
    CHECK(z.grad().equal(numbers({1, 1})));
  }
}

TEST_CASE("writing into a view rebases the history of its base") {
  SECTION("a row") {
    const Tensor x = tensor({{1., 2.}, {3., 4.}}, requires_grad()), w = leaf({10, 20});
    const Tensor base = x * 1, v = base[0];
    v.mul_(w);
    CHECK(base.detach().equal(tensor({{10., 40.}, {3., 4.}})));
    CHECK(std::string(base.grad_fn()->name()) == "CopySlices");
    (base * base).sum().backward();
    CHECK(x.grad().equal(tensor({{200., 1600.}, {6., 8.}})));
    CHECK(w.grad().equal(numbers({20, 160})));
  }
  SECTION("of a base whose data begin within a larger array") {
    const Tensor x = leaf({1, 2, 3}), w = leaf({10, 20}), base(zeros({8}, kDouble).array().slice(0, 3, 6));
    base.copy_(x);
    const Tensor first = base.slice(0, 0, 1), v = base.slice(0, 1, 3);
    v.mul_(w);
    CHECK(base.detach().equal(numbers({1, 20, 60})));
    (base * numbers({1, 2, 3}) + first).sum().backward();
    CHECK(x.grad().equal(numbers({1 + 3, 20, 60})));
    CHECK(w.grad().equal(numbers({4, 9})));
  }
  SECTION("the view's own history is updated") {
    const Tensor x = leaf({1, 2, 3}), base = x * 2, v = base.slice(0, 0, 2);
    v.add_(1);
    v.sum().backward({}, true);
    CHECK(x.grad().equal(numbers({2, 2, 0})));
  }
  SECTION("views of one base see each other's writes") {
    const Tensor x = leaf({1, 2, 3}), base = x * 1;
    const Tensor a = base.slice(0, 0, 2), b = base.slice(0, 1, 3);
    a.mul_(10);
    b.mul_(100);
    a.sum().backward({}, true);
    CHECK(x.grad().equal(numbers({10, 1000, 0})));
    x.zero_grad();
    base.sum().backward();
    CHECK(x.grad().equal(numbers({10, 1000, 100})));
  }
  SECTION("a write into the base updates the view") {
    const Tensor x = leaf({1, 2, 3}), base = x * 1, v = base.slice(0, 1, 3);
    base.mul_(5);
    CHECK(v.detach().equal(numbers({10, 15})));
    (v * v).sum().backward();
    CHECK(x.grad().equal(numbers({0, 100, 150})));
  }
  SECTION("a write into a view of a tensor without history gives it one") {
    const Tensor base = zeros({3}), w = leaf({5});
    base.slice(0, 1, 2).copy_(w);
    CHECK((base.requires_grad() && !base.is_leaf()));
    (base * 3).sum().backward();
    CHECK(w.grad().equal(numbers({3})));
  }
}

TEST_CASE("gradients through writes into views are correct") {
  using List = const TensorList&;
  SECTION("a column") {
    check_gradient({3, 4}, [](List x) {
      const Tensor y = x[0] * 1;
      y.select(1, 2).mul_(x[1].select(1, 0));
      return TensorList{y * y};
    });
  }
  SECTION("a view of a view of a transposed tensor") {
    check_gradient({3, 4}, [](List x) {
      const Tensor y = x[0].clone();
      const Tensor v = y.t().slice(0, 1, 4, 2)[1];
      v.mul_(x[1][0].slice(0, 0, 3));
      return TensorList{y.exp(), v * 2};
    });
  }
  SECTION("as_strided") {
    check_gradient({3, 4}, [](List x) {
      const Tensor y = x[0] * 2;
      y.as_strided({2, 3}, {5, 1}, 1).mul_(x[1].as_strided({2, 3}, {3, 1}));
      return TensorList{y * y};
    });
  }
  SECTION("several writes in turn") {
    check_gradient({3, 4}, [](List x) {
      const Tensor y = x[0] * 1;
      for (int i = 0; i < 3; ++i) y[i].mul_(x[1][2 - i]).add_(y.select(0, (i + 1) % 3));
      return TensorList{y};
    });
  }
  SECTION("base and view in turn") {
    check_gradient({2, 3}, [](List x) {
      const Tensor y = x[0] * 1, row = y[1];
      row.mul_(x[1][0]);
      y.mul_(x[1]);
      row.add_(x[0][0]);
      return TensorList{y, row * row};
    });
  }
  SECTION("operators that save what they write") {
    for (const auto write : {&Tensor::exp_, &Tensor::sigmoid_, &Tensor::tanh_}) {
      const auto written = [write](List x) {
        const Tensor y = x[0] * x[1], part = y.slice(0, 1, 3);
        (part.*write)(Loc{});
        return TensorList{y, part * part};
      };
      CHECK(autograd::gradcheck(written, {leaf({1, 2, 3}), leaf({0.5, -1, 2})}));
    }
  }
  SECTION("squeezed, unsqueezed and permuted") {
    check_gradient({2, 3}, [](List x) {
      const Tensor y = x[0] * 1;
      y.unsqueeze(0).permute({2, 0, 1})[1].squeeze().mul_(x[1].select(1, 0));
      return TensorList{y};
    });
  }
  SECTION("an expanded source") {
    check_gradient({2, 3}, [](List x) {
      const Tensor y = x[0] * 1;
      y.slice(1, 1, 3).copy_(x[1].slice(1, 0, 1));
      return TensorList{y * x[0]};
    });
  }
}

TEST_CASE("results that were written into views have the second derivatives of results in tensors of their own") {
  for (const auto write : {&Tensor::exp_, &Tensor::sigmoid_, &Tensor::tanh_}) {
    const auto second = [write](bool in_view) {
      const Tensor x = leaf({0.5, -1}), y = x * 1, part = in_view ? y.slice(0, 0, 2) : y;
      (part.*write)(Loc{});
      const Tensor first = autograd::grad({y.sum()}, {x}, {}, true, true)[0];
      return autograd::grad({first.sum()}, {x})[0];
    };
    CHECK(second(true).equal(second(false)));
    const auto used_twice = [write](const TensorList& x) {
      const Tensor y = x[0] * x[1], part = y.slice(0, 1, 3);
      (part.*write)(Loc{});
      return TensorList{y, part * part};
    };
    CHECK(autograd::gradgradcheck(used_twice, {leaf({0.5, -1, 2, 0.3}), leaf({1, 2, -0.5, -1})}));
  }
}

TEST_CASE("views made without recording cannot be written while recording") {
  const Tensor x = leaf({1, 2, 3}), base = x * 1;
  Tensor v;
  {
    const NoGradGuard no_grad;
    v = base.slice(0, 0, 2);
  }
  CHECK((v.requires_grad() && v.is_leaf()));
  CHECK_THROWS_AS(v.mul_(leaf({1, 1})), AutogradError);
  const NoGradGuard no_grad;
  v.mul_(2);
  CHECK(base.equal(numbers({2, 4, 3})));
}

TEST_CASE("a view that was made without recording names its mode, and so do views of it") {
  const Tensor base = leaf({1, 2, 3}) * 1;
  const auto part = [](const Tensor& of) { return of.slice(0, 0, 2); };
  const auto unrecorded = [&](const Tensor& of) {
    const NoGradGuard guard;
    return part(of);
  };
  const auto inferred = [&](const Tensor& of) {
    const InferenceMode guard;
    return part(of);
  };
  const std::vector<std::pair<Tensor, std::string>> views = {
      {unrecorded(base), "no_grad"},       {part(unrecorded(base)), "no_grad"},
      {inferred(base), "inference"},       {part(inferred(base)), "inference"},
      {inferred(part(base)), "inference"}, {inferred(unrecorded(base)), "inference"},
      {unrecorded(part(base)), "no_grad"}, {unrecorded(inferred(base)), "inference"}};
  for (const auto& [view, mode] : views)
    CHECK_THROWS_WITH(view.mul_(2), contains("A view was created in " + mode + " mode and is being modified"));
  const Tensor recorded = part(part(base));
  CHECK_NOTHROW(recorded.mul_(2));
  for (const auto& [view, mode] : views)
    CHECK_THROWS_WITH(view.grad_fn(), contains("A view was created in " + mode + " mode and its base or another view"));
}

TEST_CASE("the history of a view made without recording is unknown once its base is changed") {
  const auto view_of = [](const Tensor& base) {
    const NoGradGuard no_grad;
    return base.slice(0, 0, 2);
  };
  const Tensor x = leaf({1, 2, 3}), base = x * 1, v = view_of(base), other = view_of(base);
  CHECK_FALSE(v.grad_fn());  // the base has not been changed yet
  base.mul_(2);
  for (const Tensor& each : {v, other}) {
    CHECK_THROWS_WITH(each.grad_fn(), contains("no_grad") && contains("modified inplace"));
    const NoGradGuard no_grad;
    CHECK_FALSE(each.grad_fn());
  }
  CHECK_FALSE(view_of(base).grad_fn());  // made again
  const Tensor constant = numbers({1, 2, 3}), part = view_of(constant);
  constant.mul_(2);
  CHECK_FALSE(part.grad_fn());
}

TEST_CASE("inference tensors cannot be recorded") {
  Tensor x;
  {
    const InferenceMode inference;
    x = ones({3}) * 2;
    const Tensor v = x.slice(0, 0, 2);
    v.add_(1);
    CHECK(!v.is_view());
    CHECK(!(x * leaf({1, 2, 3})).requires_grad());
    const Tensor y = conv2d(ones({1, 1, 3, 3}, kDouble), leaf({1, 1, 1, 1}).reshape({1, 1, 2, 2}));
    CHECK(y.equal(full({1, 1, 2, 2}, 4, kDouble)));
  }
  CHECK(x.equal(tensor({3., 3., 2.})));
  CHECK_THROWS_WITH(x * leaf({1, 2, 3}), contains("InferenceMode"));
  CHECK_THROWS_WITH(x.add_(1), contains("Inplace update to inference tensor outside InferenceMode"));
  CHECK_THROWS_WITH(x.slice(0, 0, 2).zero_(), contains("Inplace update to inference tensor"));
  CHECK_THROWS_AS(x.set_requires_grad(true), AutogradError);
  CHECK((x.clone() * leaf({1, 2, 3})).requires_grad());
  CHECK_NOTHROW(x + x);
}

TEST_CASE("assigning to x[i] writes into x, assigning to a variable does not") {
  const Tensor x = zeros({2, 3}), row = tensor({1., 2., 3.});
  x[0] = row;
  x[1][2] = 7;
  CHECK(x.equal(tensor({{1., 2., 3.}, {0., 0., 7.}})));
  Tensor part = x[0];
  part = row * 2;
  CHECK(x[0].equal(row));
  const Tensor w = randn({3}, requires_grad());
  const Tensor y = zeros({2, 3});
  y[1] = w * 2;
  y.sum().backward();
  CHECK(w.grad().equal(full({3}, 2.0)));
  CHECK_THROWS_AS(x[0] = zeros({4}), ShapeError);
}
