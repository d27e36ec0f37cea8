// What random operators drop and draw, as far as it does not depend on the numbers that are drawn.
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/catch.h>

namespace random_draws_test {

using namespace gradus;

struct Form {
  const char* name;
  Tensor (*run)(const Tensor& x, double p, bool train);
  bool channels, alpha;
};
const Form kForms[] = {
    {"dropout", [](const Tensor& x, double p, bool train) { return dropout(x, p, train); }, false, false},
    {"dropout_", [](const Tensor& x, double p, bool train) { return dropout_(x.clone(), p, train); }, false, false},
    {"dropout2d", [](const Tensor& x, double p, bool train) { return dropout2d(x, p, train); }, true, false},
    {"feature_dropout", [](const Tensor& x, double p, bool train) { return feature_dropout(x, p, train); }, true,
     false},
    {"feature_dropout_", [](const Tensor& x, double p, bool train) { return feature_dropout_(x.clone(), p, train); },
     true, false},
    {"alpha_dropout", [](const Tensor& x, double p, bool train) { return alpha_dropout(x, p, train); }, false, true},
    {"alpha_dropout_", [](const Tensor& x, double p, bool train) { return alpha_dropout_(x.clone(), p, train); }, false,
     true},
    {"feature_alpha_dropout", [](const Tensor& x, double p, bool train) { return feature_alpha_dropout(x, p, train); },
     true, true},
    {"feature_alpha_dropout_",
     [](const Tensor& x, double p, bool train) { return feature_alpha_dropout_(x.clone(), p, train); }, true, true},
};

TEST_CASE("each place of a permutation gets each number") {
  for (const char* name : {"naive", "openmp"}) {
    const BackendGuard guard(name);
    manual_seed(5);
    const Tensor counts = zeros({4, 4}, kLong);
    for (int i = 0; i < 400; ++i) counts.add_(one_hot(randperm(4), 4));
    CHECK(((counts > 60) & (counts < 140)).all().item<bool>());
  }
}

TEST_CASE("bernoulli is 1 where a uniform number is below the probability") {
  manual_seed(3);
  const Tensor drawn = rand({1000});
  const auto ones_of = [](const Tensor& probabilities) {
    manual_seed(3);
    return bernoulli(probabilities).sum().item<double>();
  };
  CHECK(ones_of(drawn) == 0);
  CHECK(ones_of((drawn + 0x1p-20f).clamp(0, 1)) == 1000);
}

TEST_CASE("each form of dropout sets elements or channels to one number and rescales the others") {
  for (const Form& form : kForms)
    for (const double p : {0.25, 0.5}) {
      CAPTURE(form.name, p);
      manual_seed(11);
      const Tensor x = (rand({20, 30, 4, 2}, kDouble) + 1).requires_grad_(true), y = form.run(x, p, true);
      // y = x scale + shift, where the scale and the shift are those of a kept or of a dropped element.
      const double alpha = 1.7580993408473766, a = 1 / std::sqrt((alpha * alpha * p + 1) * (1 - p));
      const double kept_scale = form.alpha ? a : 1 / (1 - p), kept_shift = form.alpha ? a * alpha * p : 0;
      const double dropped = form.alpha ? a * alpha * (p - 1) : 0;
      const Tensor is_dropped = (y.detach() - dropped).abs() < 1e-12;
      const Tensor wanted = where(is_dropped, dropped, x.detach() * kept_scale + kept_shift);
      CHECK(y.detach().allclose(wanted, 1e-12, 1e-12));
      const Tensor groups = is_dropped.to(kDouble).reshape({600, 8}).sum({1});
      const int64_t whole = ((groups == 0) | (groups == 8)).sum().item<int64_t>();
      CHECK((whole == 600) == form.channels);
      CHECK(is_dropped.to(kDouble).mean().item<double>() == Approx(p).margin(0.06));
      const Tensor dx = autograd::grad({y.sum()}, {x})[0];
      CHECK(dx.allclose(where(is_dropped, 0.0, full({}, kept_scale, kDouble)), 1e-12, 1e-12));
    }
}

TEST_CASE("dropout with probability 0, or outside of training, draws nothing; with probability 1, it drops all") {
  const Tensor x = rand({3, 4, 5}, kDouble) + 1;
  for (const Form& form : kForms) {
    CAPTURE(form.name);
    manual_seed(3);
    const Tensor first = rand({4});
    manual_seed(3);
    CHECK(form.run(x, 0, true).equal(x));
    CHECK(form.run(x, 0.5, false).equal(x));
    CHECK(form.run(x, 1, false).equal(x));
    CHECK(rand({4}).equal(first));
    CHECK(form.run(x, 1, true).equal(zeros({3, 4, 5}, kDouble)));
    for (const double wrong : {-0.01, 1.01}) CHECK_THROWS_AS(form.run(x, wrong, false), ValueError);
    if (form.channels) CHECK_THROWS_AS(form.run(ones({5}), 0.5, true), ShapeError);
    CHECK_THROWS_AS(form.run(ones({5, 2}, kLong), 0.5, true), DTypeError);
  }
}

TEST_CASE("random_ draws the integers that a type represents, or those of a range") {
  struct Range {
    DType dtype;
    double largest;
  };
  for (const Range& range : {Range{kHalf, 2048}, {kBFloat16, 256}, {kByte, 255}, {kBool, 1}}) {
    INFO(name(range.dtype));
    manual_seed(1);
    const Tensor x = empty({60000}, range.dtype).random_().to(kDouble);
    CHECK(x.min().item<double>() == 0);
    CHECK(x.max().item<double>() == range.largest);
  }
  for (const Range& range : {Range{kFloat, 0x1p24}, {kDouble, 0x1p53}, {kInt, 0x1p31}, {kLong, 0x1p63}}) {
    INFO(name(range.dtype));
    const Tensor x = empty({500}, range.dtype).random_().to(kDouble);
    CHECK(x.min().item<double>() >= 0);
    CHECK(x.max().item<double>() <= range.largest);
    CHECK(x.max().item<double>() > 0.9 * range.largest);
    CHECK(x.mean().item<double>() == Approx(range.largest / 2).epsilon(0.2));
    CHECK(x.equal(x.floor()));
  }
  for (const DType dtype : {kFloat, kLong, kByte}) {
    const Tensor x = empty({500}, dtype).random_(3, 7).to(kLong);
    CHECK((x.min().item<int64_t>() == 3 && x.max().item<int64_t>() == 6));
  }
  CHECK(empty({100}, kLong).random_(-2, -1).equal(full({100}, -2)));
}

TEST_CASE("every operator takes as many draws of the generator as it makes, with and without elements") {
  struct Call {
    const char* name;
    uint64_t draws;
    std::function<void(int64_t size)> run;
  };
  const auto attend = [](double p) {
    const Tensor q = ones({1, 1, 3, 2});
    scaled_dot_product_attention(q, q, q, {}, p);
  };
  const std::vector<Call> calls = {
      {"rand", 1, [](int64_t n) { rand({n}); }},
      {"randn", 1, [](int64_t n) { randn({n}); }},
      {"randint", 1, [](int64_t n) { randint(0, 9, {n}); }},
      {"randperm", 1, [](int64_t n) { randperm(n); }},
      {"uniform_", 1, [](int64_t n) { zeros({n}).uniform_(0, 1); }},
      {"normal_", 1, [](int64_t n) { zeros({n}).normal_(0, 1); }},
      {"bernoulli_", 1, [](int64_t n) { zeros({n}).bernoulli_(0.5); }},
      {"dropout", 1, [](int64_t n) { dropout(ones({n}), 0.5); }},
      {"multinomial", 1, [](int64_t n) { multinomial(ones({n + 1}), 1); }},
      {"multinomial with replacement", 1, [](int64_t n) { multinomial(ones({n + 1}), 5, true); }},
      {"attention with dropout", 1, [&](int64_t) { attend(0.5); }},
      {"attention", 0, [&](int64_t) { attend(0); }}};
  for (const Call& call : calls)
    for (const int64_t size : {0, 1, 5}) {
      INFO(call.name << " of " << size);
      const uint64_t before = draw_position();
      call.run(size);
      CHECK(draw_position() - before == call.draws);
    }
}

TEST_CASE("permutations contain each number once, and differ") {
  for (const int64_t n : {0, 1, 2, 50}) {
    const Tensor order = randperm(n);
    CHECK(order.dtype() == kLong);
    CHECK(std::get<0>(order.sort(0)).equal(arange(n)));
  }
  CHECK_FALSE(randperm(50).equal(randperm(50)));
}

}  // namespace random_draws_test
