// Gradients at points where PyTorch defines none and gradus chooses a value, and near the limits of float64. The op
// cases do not reach these limits, because they also run in float32.
#include <cmath>

#include <gradus/autograd/autograd.h>
#include <gradus/core/ops/nn/nn.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;

namespace {

Tensor numbers(const std::vector<double>& values) { return tensor(values, dtype(kDouble).requires_grad(true)); }

// The gradients of sum(f(a, b)) with respect to a and to b, concatenated.
std::vector<double> gradients(const std::function<Tensor(const Tensor&, const Tensor&)>& f, const Tensor& a,
                              const Tensor& b) {
  return test::values(cat(autograd::grad({f(a, b).sum()}, {a, b})).array());
}

template <class Body>
void on_each_backend(Body&& body) {
  for (const std::string& name : backend_names()) {
    INFO(name);
    const BackendGuard guard(name);
    if (Device(backend(name).device_type()).is_cpu()) body();
  }
}

}  // namespace

TEST_CASE("powers of 0 have finite gradients where the limit is one") {
  on_each_backend([] {
    const auto power = [](const Tensor& a, const Tensor& b) { return pow(a, b); };
    // The values are 0^0, 0^2, 0^1, 2^0, 0^0.5. The gradient of a is b a^(b - 1), that of b is a^b ln a.
    CHECK(gradients(power, numbers({0, 0, 0, 2, 0}), numbers({0, 2, 1, 0, 0.5})) ==
          std::vector<double>{0, 0, 1, 0, INFINITY, 0, 0, 0, std::log(2), 0});
    const Tensor zero = numbers({0, 0, 0});
    CHECK(test::values(autograd::grad({pow(0, numbers({0, 1, 2})).sum() + zero.pow(0).sum()}, {zero})[0].array()) ==
          std::vector<double>{0, 0, 0});
    const Tensor b = numbers({0, 1, 2});
    CHECK(test::values(autograd::grad({pow(0, b).sum()}, {b})[0].array()) == std::vector<double>{0, 0, 0});
  });
}

TEST_CASE("the gradient of atan2 is 0 at the origin, and correct where squares would overflow or underflow") {
  on_each_backend([] {
    const auto angle = [](const Tensor& a, const Tensor& b) { return atan2(a, b); };
    CHECK(gradients(angle, numbers({0, -0.0}), numbers({0, 0})) == std::vector<double>{0, 0, 0, 0});
    // The gradient of a is b / (a² + b²), that of b is -a / (a² + b²): 1 / b and 0 for a = 0, 0 and -1 / a for b = 0,
    // 1 / (2 b) and -1 / (2 b) for a = b.
    const std::vector<double> found =
        gradients(angle, numbers({0, 1e-200, 1e200, 1e-200}), numbers({1e-200, 0, 1e200, 1e-200}));
    const double expected[] = {1e200, 0, 0.5e-200, 0.5e200, 0, -1e200, -0.5e-200, -0.5e200};
    for (size_t i = 0; i < 8; ++i) CHECK(found[i] == Approx(expected[i]).epsilon(1e-12).margin(0));
    const Tensor a = numbers({0}), b = numbers({0});
    const TensorList first = autograd::grad({atan2(a, b).sum()}, {a, b}, {}, true, true);
    for (const Tensor& second : autograd::grad({first[0].sum() + first[1].sum()}, {a, b}))
      CHECK(std::isfinite(second.item<double>()));
  });
}

TEST_CASE("second derivatives of logarithms and roots do not overflow before they are multiplied by 0") {
  on_each_backend([] {
    for (const auto& f : {+[](const Tensor& x) { return log(x); }, +[](const Tensor& x) { return log2(x); },
                          +[](const Tensor& x) { return log10(x); }}) {
      const Tensor x = numbers({1e-200}), zero = numbers({0});
      const Tensor dx = autograd::grad({(zero * f(x)).sum()}, {x}, {}, true, true)[0];
      CHECK(dx.item<double>() == 0);
      CHECK(autograd::grad({dx.sum()}, {x}, {}, true)[0].item<double>() == 0);
    }
  });
}

TEST_CASE("losses of an infinite difference have the slope of their straight part") {
  on_each_backend([] {
    const Tensor x = numbers({INFINITY, -INFINITY, 1e300}), target = zeros({3}, kDouble);
    CHECK(test::values(autograd::grad({smooth_l1_loss(x, target, Reduction::sum)}, {x})[0].array()) ==
          std::vector<double>{1, -1, 1});
    CHECK(test::values(autograd::grad({huber_loss(x, target, Reduction::sum)}, {x})[0].array()) ==
          std::vector<double>{1, -1, 1});
  });
}

TEST_CASE("where pieces of a function meet, it has one derivative, also if that is differentiated again") {
  struct Pieces {
    const char* name;
    Tensor (*run)(const Tensor& x);
    std::vector<double> meet, derivatives;
  };
  const std::vector<Pieces> table = {
      {"relu", [](const Tensor& x) { return relu(x); }, {0}, {0}},
      {"relu6", [](const Tensor& x) { return relu6(x); }, {0, 6}, {0, 0}},
      {"hardtanh", [](const Tensor& x) { return hardtanh(x, -2, 3); }, {-2, 3}, {0, 0}},
      {"clamp", [](const Tensor& x) { return clamp(x, -2, 3); }, {-2, 3}, {1, 1}},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.25); }, {0}, {0.25}},
      {"hardswish", [](const Tensor& x) { return hardswish(x); }, {-3, 3}, {-0.5, 1.5}},
      {"hardsigmoid", [](const Tensor& x) { return hardsigmoid(x); }, {-3, 3}, {0, 0}},
      {"elu", [](const Tensor& x) { return elu(x, 0.5); }, {0}, {0.5}},
      {"abs", [](const Tensor& x) { return abs(x); }, {0}, {0}},
      {"softshrink", [](const Tensor& x) { return softshrink(x, 0.5); }, {-0.5, 0.5}, {0, 0}},
      {"hardshrink", [](const Tensor& x) { return hardshrink(x, 0.5); }, {-0.5, 0.5}, {0, 0}},
      {"threshold", [](const Tensor& x) { return threshold(x, 1, 5); }, {1}, {0}},
  };
  on_each_backend([&] {
    for (const Pieces& pieces : table) {
      CAPTURE(pieces.name);
      for (const bool create_graph : {false, true}) {
        const Tensor x = numbers(pieces.meet);
        const Tensor slope = autograd::grad({pieces.run(x).sum()}, {x}, {}, create_graph, create_graph)[0];
        CHECK(test::values(slope.detach().array()) == pieces.derivatives);
      }
    }
  });
}

TEST_CASE("a maximum beside a NaN hands its gradient on") {
  on_each_backend([] {
    for (const auto& f : {+[](const Tensor&a, const Tensor&b) { return maximum(a, b); },
                          +[](const Tensor&a, const Tensor&b) { return minimum(a, b); }})
      CHECK(gradients(f, numbers({NAN, 1, 2}), numbers({1, NAN, 2})) == std::vector<double>{1, 1, 0.5, 1, 1, 0.5});
  });
}

TEST_CASE("the gradient of a remainder counts how often the divisor was subtracted") {
  on_each_backend([] {
    // 1 / 0.1 rounds to 10, but the remainder is 1 - 9 * 0.1: the divisor was subtracted 9 times.
    const auto rest = [](const Tensor& a, const Tensor& b) { return remainder(a, b); };
    CHECK(gradients(rest, numbers({1, 7, -7}), numbers({0.1, 2, 2})) == std::vector<double>{1, 1, 1, -9, -3, 4});
  });
}

TEST_CASE("the gradient of binary cross-entropy is bounded alike near 0 and near 1") {
  on_each_backend([] {
    constexpr double least = 1e-12f;  // PyTorch's lower bound of p (1 - p)
    const Tensor p = numbers({0, 1, 1e-13, 1 - 1e-13, 1 - 1e-12, 1e-12}),
                 t = tensor(std::vector<double>{1, 0, 1, 0, 0, 1}, kDouble);
    const std::vector<double> dp =
        test::values(autograd::grad({binary_cross_entropy(p, t, {}, Reduction::sum)}, {p})[0].array());
    const double expected[] = {-1 / least,          1 / least,           -(1 - 1e-13) / least,
                               (1 - 1e-13) / least, (1 - 1e-12) / least, -1e12};
    for (size_t i = 0; i < 6; ++i) CHECK(dp[i] == Approx(expected[i]).epsilon(1e-12));
  });
}

TEST_CASE("alpha dropout keeps mean 0 and variance 1, and sets dropped elements to the lower limit of SELU") {
  constexpr double limit = -1.7580993408473766;
  manual_seed(11);
  for (const double p : {0.1, 0.5, 0.8}) {
    const double scale = 1 / std::sqrt((limit * limit * p + 1) * (1 - p)), shift = -scale * limit * p;
    const auto check = [&](const Tensor& x, const Tensor& y, const Tensor& slope) {
      const Tensor dropped = slope.eq(0);
      CHECK(dropped.to(kDouble).mean().item<double>() == Approx(p).margin(0.02));
      const Tensor wanted = where(dropped, limit * scale + shift, x * scale + shift);
      CHECK((y - wanted).abs().max().item<double>() < 1e-12);
      CHECK((slope - dropped.logical_not().to(kDouble) * scale).abs().max().item<double>() < 1e-12);
    };
    const Tensor x = randn({20000}, kDouble).set_requires_grad(true), y = alpha_dropout(x, p, true);
    check(x.detach(), y.detach(), autograd::grad({y.sum()}, {x})[0]);
    CHECK(y.mean().item<double>() == Approx(0).margin(0.05));
    CHECK(y.var().item<double>() == Approx(1).margin(0.06));

    // (N, C) too: there, a channel is one element.
    for (const Shape& shape : {Shape{200, 100}, Shape{200, 100, 3}, Shape{200, 100, 3, 2}}) {
      const Tensor images = randn(shape, kDouble).set_requires_grad(true), z = feature_alpha_dropout(images, p, true);
      const Tensor slope = autograd::grad({z.sum()}, {images})[0];
      check(images.detach(), z.detach(), slope);
      const Tensor channels = slope.reshape({200, 100, -1});
      CHECK(channels.equal(channels.narrow(2, 0, 1).expand(channels.sizes())));
    }
  }
  CHECK_THROWS_AS(feature_alpha_dropout(randn({3}), 0.5, true), ShapeError);
  CHECK_THROWS_AS(feature_dropout(randn({3}), 0.5, true), ShapeError);
}

TEST_CASE("probabilities of 0 and 1 are drawn as such") {
  on_each_backend([] {
    const Tensor certain = tensor({0.0, 1.0, 0.0, 1.0});
    CHECK(bernoulli(certain).equal(certain));
    CHECK(zeros({9}).bernoulli_(1).equal(ones({9})));
    CHECK(ones({9}).bernoulli_(0).equal(zeros({9})));
  });
}

TEST_CASE("losses without rows are 0 in sum and NaN in the mean, with gradients of no elements") {
  on_each_backend([] {
    const Tensor x = zeros({0, 3}, dtype(kDouble).requires_grad(true)), target = zeros({0}, kLong);
    CHECK(cross_entropy(x, target, {}, Reduction::sum).item<double>() == 0);
    CHECK(std::isnan(cross_entropy(x, target).item<double>()));
    CHECK(cross_entropy(x, target, {}, Reduction::none).sizes() == Shape({0}));
    for (const Reduction reduction : {Reduction::sum, Reduction::mean})
      CHECK(autograd::grad({cross_entropy(x, target, {}, reduction)}, {x})[0].sizes() == Shape({0, 3}));
    for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::none})
      CHECK(ops::cross_entropy(x.array(), target.array(), -100, reduction).weight_sum.data<double>()[0] == 0);
    CHECK_THROWS_AS(cross_entropy(zeros({2, 0}), zeros({2}, kLong)), ShapeError);
    CHECK(cross_entropy(zeros({0, 0}), target, {}, Reduction::sum).item<double>() == 0);
  });
}
