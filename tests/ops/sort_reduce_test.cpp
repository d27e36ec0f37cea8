// Properties of reductions, sorting and sampling that the op cases do not test: distributions, long tensors, overloads,
// precision.
#include <cmath>

#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;

TEST_CASE("braces mean dimensions wherever a bool would take them, too") {
  const Tensor x = tensor({{1., 2., 4.}, {1., 4., 10.}});
  CHECK(x.var({0}).equal(tensor({0., 2., 18.})));
  CHECK(var(x, {0}).equal(x.var({0})));
  CHECK(x.var({1}, false).sizes() == Shape{2});
  CHECK(x.std({0}).allclose(tensor({0., std::sqrt(2.), std::sqrt(18.)})));
  CHECK(x.var(false).dim() == 0);
  CHECK(std::get<1>(var_mean(x, {0})).equal(tensor({1., 3., 7.})));
  CHECK(x.norm(1, {0}).equal(tensor({2., 6., 14.})));
  CHECK(count_nonzero(x, {0, 1}).item<int64_t>() == 6);
  CHECK(x.norm(1, {}).dim() == 0);
  CHECK(tensor({1}).view({}).dtype() == kLong);
}

TEST_CASE("a number in front is a dimension, a boolean is not") {
  const Tensor x = tensor({{1., 2., 4.}, {1., 4., 10.}});
  CHECK(x.var(0).equal(x.var({0})));
  CHECK(var(x, 1).equal(var(x, {1})));
  CHECK(x.std(0).sizes() == Shape{3});
  CHECK(gradus::std(x, -1).sizes() == Shape{2});
  CHECK(std::get<0>(var_mean(x, 0)).sizes() == Shape{3});
  CHECK(std::get<1>(std_mean(x, 1)).sizes() == Shape{2});
  CHECK(var(x, false).equal(var(x, std::nullopt, 0)));
  CHECK(gradus::std(x, std::optional<bool>(true)).equal(x.std()));
  CHECK(x.var({0}, 1).equal(x.var({0}, true)));
  CHECK(std::get<0>(x.sort(false)).equal(std::get<0>(x.sort())));
  CHECK(std::get<0>(sort(x, true, 0)).equal(std::get<0>(x.sort(0))));
  static_assert(!std::is_convertible_v<bool, Pair>);  // so true in max_pool2d(x, 2, 2, 0, true) is no dilation
  static_assert(!std::is_convertible_v<bool, IntArrayRef>);
}

TEST_CASE("norms and variances of half types neither overflow nor lose the digits they have") {
  const Tensor x = full({100}, 300.0, kHalf);
  CHECK(x.norm().item<float>() == Approx(3000).epsilon(1e-3));
  CHECK(x.var().item<float>() == 0.0f);
  const Tensor alternating = (remainder(arange(1000), 2) == 0).to(kBFloat16) * 2 + 127;
  CHECK(alternating.var(false).item<float>() == 1.0f);
  CHECK(full({2}, 80.0, kHalf).logsumexp({0}).item<float>() == Approx(80.693).epsilon(1e-3));
}

TEST_CASE("the number on the other side of an operator keeps its digits") {
  const Tensor x = tensor({1.0, 0.05}, kDouble);
  CHECK(maximum(x, 0.1)[1].item<double>() == 0.1);
  CHECK(remainder(x, 0.3)[0].item<double>() == std::fmod(1.0, 0.3));
  CHECK(fmod(tensor({5, -5}), 3).equal(tensor({2, -2})));
  CHECK(remainder(tensor({5, -5}), 3).equal(tensor({2, 1})));
  CHECK(remainder(tensor({5, -5}), tensor({2, -1})).equal(tensor({1, 0})));
  CHECK(remainder(zeros({0}, kLong), tensor({0})).numel() == 0);  // no element is divided by 0
}

TEST_CASE("multinomial draws in proportion") {
  const Tensor weights = tensor({0., 1., 3., 0., 4., 0.});
  for (const std::string& backend_name : backend_names()) {
    if (!op_testing::device_of(backend_name).is_cpu()) continue;
    const BackendGuard guard(backend_name);
    manual_seed(5);
    const int64_t draws = 40000;
    const Tensor drawn = multinomial(weights, draws, true);
    CHECK(drawn.dtype() == kLong);
    CHECK(drawn.sizes() == Shape{draws});
    auto [values, inverse, counts] = _unique2(drawn, true, false, true);
    CHECK(values.equal(tensor({1, 2, 4})));
    // In n draws, the count of a category has a standard deviation of at most sqrt(n) / 2. Five of them are allowed.
    const Tensor expected = tensor({1., 3., 4.}) / 8 * draws;
    CHECK((counts - expected).abs().max().item<double>() < 2.5 * std::sqrt(draws));

    // Without replacement, the first sample has the same distribution, and no category is drawn twice.
    const Tensor rows = multinomial(weights.expand({8000, 6}), 3);
    CHECK(std::get<0>(rows.sort(1)).equal(tensor({1, 2, 4}).expand({8000, 3})));
    auto [first, places, firsts] = _unique2(rows.select(1, 0), true, false, true);
    CHECK((firsts - tensor({1., 3., 4.}) * 1000).abs().max().item<double>() < 2.5 * std::sqrt(8000));
  }
}

TEST_CASE("each row of multinomial is drawn by its own weights, whatever their sum") {
  manual_seed(6);
  constexpr int64_t kDraws = 8000;
  const Tensor weights = tensor({1., 3., 0., 0., 0., 500., 0., 1500.}).view({2, 4});
  const Tensor drawn = multinomial(weights, kDraws, true);
  REQUIRE(drawn.sizes() == Shape{2, kDraws});
  for (int64_t row = 0; row < 2; ++row) {
    auto [values, inverse, counts] = _unique2(drawn[row], true, false, true);
    CHECK(values.equal(row == 0 ? tensor({0, 1}) : tensor({1, 3})));
    CHECK((counts - tensor({1., 3.}) / 4 * kDraws).abs().max().item<double>() < 2.5 * std::sqrt(kDraws));
  }
  const Tensor first = multinomial(weights, 1);  // without replacement
  CHECK((first[0].item<int64_t>() <= 1 && first[1].item<int64_t>() % 2 == 1));
}

TEST_CASE("multinomial of one category and of the smallest weights") {
  CHECK(multinomial(tensor({2.5}), 4, true).equal(zeros({4}, kLong)));
  CHECK(multinomial(full({3, 1}, 1e-30), 1).equal(zeros({3, 1}, kLong)));
  const Tensor last = multinomial(tensor({0., 0., 1e-38}), 1000, true);
  CHECK(last.equal(full({1000}, 2)));
}

TEST_CASE("long sorts are right in every type") {
  manual_seed(7);
  for (DType dtype : {kFloat, kDouble, kInt}) {
    const Tensor x = (rand({50001}, kDouble) * 1e6 - 5e5).to(dtype);
    for (bool descending : {false, true}) {
      auto [values, indices] = x.sort(0, descending);
      const Tensor earlier = values.narrow(0, 0, 50000), later = values.narrow(0, 1, 50000);
      CHECK((descending ? earlier >= later : earlier <= later).all().item<bool>());
      CHECK(std::get<0>(indices.sort()).equal(arange(50001)));
      CHECK(values.to(kDouble).sum().item<double>() == Approx(x.to(kDouble).sum().item<double>()));
    }
  }
}

TEST_CASE("a product's second gradient is right where there are zeros") {
  const Tensor x = tensor({2., 0., 3., 0.}, dtype(kDouble).requires_grad(true));
  const Tensor first = autograd::grad({x.prod()}, {x}, {}, {}, true)[0];
  CHECK(first.equal(zeros({4}, kDouble)));
  // d²y / dx₁ dx₃ = 2 * 3. Every other second derivative is a product that contains a zero.
  const Tensor second = autograd::grad({first[1]}, {x})[0];
  CHECK(second.equal(tensor({0., 0., 0., 6.}, kDouble)));
}

TEST_CASE("unique leaves out what was not asked for, and knows no gradient") {
  const Tensor x = tensor({3., 1., 3.}, requires_grad());
  auto [values, inverse, counts] = _unique2(x);
  CHECK(values.equal(tensor({1., 3.})));
  CHECK_FALSE(values.requires_grad());
  CHECK(inverse.numel() == 0);
  CHECK(counts.numel() == 0);
  CHECK(std::get<0>(_unique2(full({3}, NAN))).numel() == 3);  // as in PyTorch: NaN differs from itself
}
