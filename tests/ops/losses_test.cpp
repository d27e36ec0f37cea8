// Losses against their definitions, at and between the limits of their pieces, in every reduction.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/tests/catch.h>

namespace losses_test {

using namespace gradus;
using test::contains;
using Numbers = std::vector<double>;

double softplus_of(double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }

/// A loss of single numbers, and whether it is defined for them.
struct ElementLoss {
  const char* name;
  std::function<Tensor(const Tensor& x, const Tensor& t, Reduction reduction)> run;
  std::function<double(double x, double t)> formula;
  std::function<bool(double x, double t)> takes = [](double, double) { return true; };
};

TEST_CASE("losses of elements follow their formulas, and are summed or averaged") {
  using X = const Tensor&;
  using R = Reduction;
  const auto is_part = [](double x, double t) { return x >= 0 && x <= 1 && t >= 0 && t <= 1; };
  const auto is_sign = [](double, double t) { return std::abs(t) == 1; };
  const auto clamped_log = [](double x) { return std::max(std::log(x), -100.0); };
  const auto stirling = [](double t) {
    return t > 1 ? t * std::log(t) - t + 0.5 * std::log(2 * std::numbers::pi * t) : 0;
  };
  std::vector<ElementLoss> losses = {
      {"mse_loss", [](X x, X t, R r) { return mse_loss(x, t, r); },
       [](double x, double t) { return (x - t) * (x - t); }},
      {"l1_loss", [](X x, X t, R r) { return l1_loss(x, t, r); }, [](double x, double t) { return std::abs(x - t); }},
      {"poisson_nll_loss", [](X x, X t, R r) { return poisson_nll_loss(x, t, true, false, 1e-8, r); },
       [](double x, double t) { return std::exp(x) - t * x; }},
      {"poisson_nll_loss, full", [](X x, X t, R r) { return poisson_nll_loss(x, t, true, true, 1e-8, r); },
       [=](double x, double t) { return std::exp(x) - t * x + stirling(t); }},
      {"poisson_nll_loss of rates", [](X x, X t, R r) { return poisson_nll_loss(x, t, false, false, 0.25, r); },
       [](double x, double t) { return x - t * std::log(x + 0.25); }, [](double x, double) { return x >= 0; }},
      {"binary_cross_entropy", [](X x, X t, R r) { return binary_cross_entropy(x, t, {}, r); },
       [=](double x, double t) { return -(t * clamped_log(x) + (1 - t) * clamped_log(1 - x)); }, is_part},
      {"binary_cross_entropy, weighted",
       [](X x, X t, R r) { return binary_cross_entropy(x, t, full({}, 3.0, kDouble), r); },
       [=](double x, double t) { return -3 * (t * clamped_log(x) + (1 - t) * clamped_log(1 - x)); }, is_part},
      {"binary_cross_entropy_with_logits",
       [](X x, X t, R r) { return binary_cross_entropy_with_logits(x, t, {}, {}, r); },
       [](double x, double t) { return t * softplus_of(-x) + (1 - t) * softplus_of(x); }},
      {"binary_cross_entropy_with_logits, weighted",
       [](X x, X t, R r) {
         return binary_cross_entropy_with_logits(x, t, full({}, 3.0, kDouble), full({}, 0.25, kDouble), r);
       },
       [](double x, double t) { return 3 * (0.25 * t * softplus_of(-x) + (1 - t) * softplus_of(x)); }},
      {"kl_div", [](X x, X t, R r) { return kl_div(x, t, r); },
       [](double x, double t) { return t > 0 ? t * (std::log(t) - x) : 0; }, [](double, double t) { return t >= 0; }},
      {"kl_div of logarithms", [](X x, X t, R r) { return kl_div(x, t, r, true); },
       [](double x, double t) { return std::exp(t) * (t - x); }},
      {"soft_margin_loss", [](X x, X t, R r) { return soft_margin_loss(x, t, r); },
       [](double x, double t) { return softplus_of(-x * t); }},
      {"hinge_embedding_loss", [](X x, X t, R r) { return hinge_embedding_loss(x, t, 0.5, r); },
       [](double x, double t) { return t == 1 ? x : std::max(0.0, 0.5 - x); }, is_sign},
      {"margin_ranking_loss", [](X x, X t, R r) { return margin_ranking_loss(x, ones_like(x) * 0.5, t, 0.25, r); },
       [](double x, double t) { return std::max(0.0, -t * (x - 0.5) + 0.25); }, is_sign},
      {"gaussian_nll_loss", [](X x, X t, R r) { return gaussian_nll_loss(x, t, ones_like(x) * 4, false, 1e-6, r); },
       [](double x, double t) { return 0.5 * (std::log(4.0) + (x - t) * (x - t) / 4); }},
      {"gaussian_nll_loss, full", [](X x, X t, R r) { return gaussian_nll_loss(x, t, zeros_like(x), true, 0.5, r); },
       [](double x, double t) {
         return 0.5 * (std::log(0.5) + (x - t) * (x - t) / 0.5 + std::log(2 * std::numbers::pi));
       }},
  };
  for (const double limit : {0.25, 0.5, 1.0, 2.0}) {
    losses.push_back({"smooth_l1_loss", [=](X x, X t, R r) { return smooth_l1_loss(x, t, r, limit); },
                      [=](double x, double t) {
                        const double d = std::abs(x - t);
                        return d < limit ? 0.5 * d * d / limit : d - 0.5 * limit;
                      }});
    losses.push_back({"huber_loss", [=](X x, X t, R r) { return huber_loss(x, t, r, limit); },
                      [=](double x, double t) {
                        const double d = std::abs(x - t);
                        return d <= limit ? 0.5 * d * d : limit * (d - 0.5 * limit);
                      }});
  }
  const Numbers inputs = {-3, -1, -0.5, 0, 0.25, 0.5, 0.75, 1, 2, 3};
  for (const ElementLoss& loss : losses) {
    INFO(loss.name);
    Numbers left, right, wanted;
    double total = 0;
    for (const double x : inputs)
      for (const double t : {-1.0, -0.25, 0.0, 0.5, 1.0, 2.0, 3.5}) {
        if (!loss.takes(x, t)) continue;
        left.push_back(x), right.push_back(t), wanted.push_back(loss.formula(x, t));
        total += wanted.back();
      }
    const Tensor x = tensor(left, kDouble), t = tensor(right, kDouble);
    REQUIRE(left.size() > 8);
    CHECK(loss.run(x, t, Reduction::none).allclose(tensor(wanted, kDouble), 1e-10, 1e-10));
    CHECK(loss.run(x, t, Reduction::sum).item<double>() == Approx(total));
    CHECK(loss.run(x, t, Reduction::mean).item<double>() == Approx(total / static_cast<double>(left.size())));
    const Tensor single = loss.run(x.to(kFloat), t.to(kFloat), Reduction::none);
    CHECK(single.dtype() == kFloat);
    CHECK(single.allclose(tensor(wanted, kFloat), 1e-5, 1e-5));
  }
  CHECK(kl_div(zeros({4, 2}), ones({4, 2}) * 0.5, kBatchMean).item<double>() == Approx(std::log(0.5)));
}

TEST_CASE("losses of rows follow their formulas") {
  const int64_t rows = 6, size = 4;
  const auto numbers = [](const Shape& shape, double step) {
    return (arange(1, 1 + numel_of(shape), kDouble) * step).sin().reshape(shape);
  };
  const Tensor a = numbers({rows, size}, 1.1), b = numbers({rows, size}, 2.3), c = numbers({rows, size}, 3.7);
  const auto row = [](const Tensor& x, int64_t i) {
    const double* const first = x.data_ptr<double>() + i * x.size(1);
    return Numbers(first, first + x.size(1));
  };
  const auto distance = [](const Numbers& x, const Numbers& y, double p, double eps) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += std::pow(std::abs(x[i] - y[i] + eps), p);
    return std::pow(sum, 1 / p);
  };
  const auto check = [&](const Tensor& found, const std::function<double(int64_t)>& formula) {
    REQUIRE(found.sizes() == Shape{rows});
    for (int64_t i = 0; i < rows; ++i) CHECK(found[i].item<double>() == Approx(formula(i)).margin(1e-9));
  };
  for (const double p : {1.0, 2.0, 3.0})
    for (const double margin : {0.0, 0.5, 2.0})
      for (const bool swap : {false, true}) {
        CAPTURE(p, margin, swap);
        check(triplet_margin_loss(a, b, c, margin, p, 1e-6, swap, Reduction::none), [&](int64_t i) {
          const double near = distance(row(a, i), row(b, i), p, 1e-6), far = distance(row(a, i), row(c, i), p, 1e-6);
          const double other = distance(row(b, i), row(c, i), p, 1e-6);
          return std::max(0.0, near - (swap ? std::min(far, other) : far) + margin);
        });
      }
  const Tensor signs = tensor({1.0, -1.0, -1.0, 1.0, -1.0, 1.0}, kDouble);
  for (const double margin : {0.0, 0.3, -0.5})
    check(cosine_embedding_loss(a, b, signs, margin, Reduction::none), [&](int64_t i) {
      const Numbers x = row(a, i), y = row(b, i);
      double xy = 0, xx = 0, yy = 0;
      for (size_t k = 0; k < x.size(); ++k) xy += x[k] * y[k], xx += x[k] * x[k], yy += y[k] * y[k];
      const double cosine = xy / std::sqrt(xx * yy);
      return signs[i].item<double>() == 1 ? 1 - cosine : std::max(0.0, cosine - margin);
    });
  const Tensor classes = tensor({0, 3, 1, 2, 2, 0}), weight = tensor({0.5, 1.0, 2.0, 3.0}, kDouble);
  for (const int64_t p : {1, 2})
    for (const double margin : {1.0, 0.25})
      for (const bool weighed : {false, true})
        check(multi_margin_loss(a, classes, p, margin, weighed ? weight : Tensor(), Reduction::none), [&](int64_t i) {
          const Numbers x = row(a, i);
          const auto own = static_cast<size_t>(classes[i].item<int64_t>());
          double sum = 0;
          for (size_t k = 0; k < x.size(); ++k)
            if (k != own) sum += std::pow(std::max(0.0, margin - x[own] + x[k]), static_cast<double>(p));
          return sum / static_cast<double>(size) * (weighed ? weight[static_cast<int64_t>(own)].item<double>() : 1);
        });
  const Tensor labels = (numbers({rows, size}, 5.1) > 0).to(kDouble);
  for (const bool weighed : {false, true})
    check(multilabel_soft_margin_loss(a, labels, weighed ? weight : Tensor(), Reduction::none), [&](int64_t i) {
      const Numbers x = row(a, i), t = row(labels, i), w = {0.5, 1, 2, 3};
      double sum = 0;
      for (size_t k = 0; k < x.size(); ++k)
        sum += (weighed ? w[k] : 1) * (t[k] * softplus_of(-x[k]) + (1 - t[k]) * softplus_of(x[k]));
      return sum / static_cast<double>(size);
    });
  // Classes: weights, smoothing and rows that are left out.
  const auto log_of = [&](int64_t i, size_t k) {
    const Numbers x = row(a, i);
    double sum = 0;
    for (const double number : x) sum += std::exp(number);
    return x[k] - std::log(sum);
  };
  for (const double smoothing : {0.0, 0.3, 1.0})
    for (const bool weighed : {false, true})
      for (const int64_t ignored : {-100, 2}) {
        CAPTURE(smoothing, weighed, ignored);
        const Numbers w = weighed ? Numbers{0.5, 1, 2, 3} : Numbers{1, 1, 1, 1};
        const auto loss = [&](int64_t i) {
          const int64_t own = classes[i].item<int64_t>();
          if (own == ignored) return 0.0;
          double spread = 0;
          for (size_t k = 0; k < 4; ++k) spread -= w[k] * log_of(i, k);
          const auto at = static_cast<size_t>(own);
          return -(1 - smoothing) * w[at] * log_of(i, at) + smoothing / 4 * spread;
        };
        const Tensor given = weighed ? weight : Tensor();
        check(cross_entropy(a, classes, given, Reduction::none, ignored, smoothing), loss);
        double total = 0, weights = 0;
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t own = classes[i].item<int64_t>();
          total += loss(i), weights += own == ignored ? 0 : w[static_cast<size_t>(own)];
        }
        const auto reduced = [&](Reduction how) {
          return cross_entropy(a, classes, given, how, ignored, smoothing).item<double>();
        };
        CHECK(reduced(Reduction::sum) == Approx(total));
        CHECK(reduced(Reduction::mean) == Approx(total / weights));
        const Tensor images = a.reshape({2, 3, size}).transpose(1, 2), of_images = classes.reshape({2, 3});
        CHECK(cross_entropy(images, of_images, given, Reduction::mean, ignored, smoothing).item<double>() ==
              Approx(total / weights));
        CHECK(cross_entropy(images, of_images, given, Reduction::none, ignored, smoothing)
                  .flatten()
                  .allclose(cross_entropy(a, classes, given, Reduction::none, ignored, smoothing), 1e-12, 1e-12));
        if (smoothing == 0) {
          const Tensor logs = log_softmax(a, 1);
          check(nll_loss(logs, classes, given, Reduction::none, ignored), loss);
          CHECK(nll_loss(logs, classes, given, Reduction::mean, ignored).item<double>() == Approx(total / weights));
          CHECK(nll_loss(logs, classes, given, Reduction::sum, ignored).item<double>() == Approx(total));
        }
      }
}

TEST_CASE("losses refuse targets of other shapes, and inputs of integers") {
  using X = const Tensor&;
  struct Pair {
    const char* name;
    Tensor (*run)(X x, X target);
    bool broadcasts;  // whether one operand may be broadcast to the other
  };
  const std::vector<Pair> losses = {
      {"mse_loss", [](X x, X t) { return mse_loss(x, t); }, true},
      {"l1_loss", [](X x, X t) { return l1_loss(x, t); }, true},
      {"smooth_l1_loss", [](X x, X t) { return smooth_l1_loss(x, t); }, true},
      {"huber_loss", [](X x, X t) { return huber_loss(x, t); }, true},
      {"poisson_nll_loss", [](X x, X t) { return poisson_nll_loss(x, t); }, true},
      {"gaussian_nll_loss", [](X x, X t) { return gaussian_nll_loss(x, t, ones_like(x)); }, true},
      {"kl_div", [](X x, X t) { return kl_div(x, t); }, true},
      {"soft_margin_loss", [](X x, X t) { return soft_margin_loss(x, t); }, true},
      {"hinge_embedding_loss", [](X x, X t) { return hinge_embedding_loss(x, t); }, true},
      {"margin_ranking_loss", [](X x, X t) { return margin_ranking_loss(x, t, ones_like(x)); }, true},
      {"margin_ranking_loss of a target", [](X x, X t) { return margin_ranking_loss(x, x, t); }, true},
      {"margin_ranking_loss of the second input", [](X x, X t) { return margin_ranking_loss(ones({}), x, t); }, true},
      {"triplet_margin_loss, positive", [](X x, X t) { return triplet_margin_loss(x, t, x); }, true},
      {"triplet_margin_loss, negative", [](X x, X t) { return triplet_margin_loss(x, x, t); }, true},
      {"triplet_margin_loss of both", [](X x, X t) { return triplet_margin_loss(ones({1}), x, t); }, true},
      {"binary_cross_entropy", [](X x, X t) { return binary_cross_entropy(x, t); }, false},
      {"binary_cross_entropy_with_logits", [](X x, X t) { return binary_cross_entropy_with_logits(x, t); }, false},
      {"multilabel_soft_margin_loss", [](X x, X t) { return multilabel_soft_margin_loss(x, t); }, false},
      {"cosine_embedding_loss", [](X x, X t) { return cosine_embedding_loss(x, t, ones({4})); }, false},
  };
  for (const Pair& loss : losses) {
    INFO(loss.name);
    CHECK_NOTHROW(loss.run(ones({4, 3}), ones({4, 3})));
    if (loss.broadcasts) {
      CHECK_NOTHROW(loss.run(ones({4, 3}), ones({3})));
      CHECK_THROWS_WITH(loss.run(ones({4, 3}), ones({2})),
                        contains("(4, 3)") && contains("(2,) cannot be broadcast to each other"));
      CHECK_THROWS_WITH(loss.run(ones({4, 1}), ones({3})),
                        contains("(4, 1)") && contains("(3,) would both be broadcast to (4, 3)"));
    } else {
      for (const Shape& shape : {Shape{3}, Shape{4, 1}, Shape{2, 3}, Shape{1, 4, 3}})
        CHECK_THROWS_WITH(
            loss.run(ones({4, 3}), ones(shape)),
            contains("input of shape (4, 3) needs a ") && contains("of the same shape, got " + to_string(shape)));
    }
    CHECK_THROWS_WITH(loss.run(ones({4, 3}, kLong), ones({4, 3}, kLong)),
                      contains("must be of a floating type, got int64"));
  }
  struct Wrong {
    const char* message;
    std::function<Tensor()> run;
  };
  const Tensor x = ones({4, 3}), row = ones({3}), classes = zeros({4}, kLong);
  for (const Wrong& wrong : std::vector<Wrong>{
           {"beta must not be negative, got -1", [&] { return smooth_l1_loss(x, x, Reduction::mean, -1); }},
           {"delta must be positive, got 0", [&] { return huber_loss(x, x, Reduction::mean, 0); }},
           {"variance must be not negative, got numbers from -1 to -1", [&] { return gaussian_nll_loss(x, x, -x); }},
           {"variance of shape (2,) cannot be broadcast", [&] { return gaussian_nll_loss(row, row, ones({2})); }},
           {"input must be between 0 and 1, got numbers from 2 to 2", [&] { return binary_cross_entropy(x * 2, x); }},
           {"input must be between 0 and 1, got numbers from -1 to -1", [&] { return binary_cross_entropy(-x, x); }},
           {"weight of shape (2,) cannot be broadcast", [&] { return binary_cross_entropy(x, x, ones({2})); }},
           {"pos_weight of shape (2,) cannot be broadcast",
            [&] { return binary_cross_entropy_with_logits(x, x, {}, ones({2})); }},
           {"input must be (…, C), got shape ()", [&] { return multilabel_soft_margin_loss(ones({}), ones({})); }},
           {"anchor must be (N, D) or (D), got shape ()",
            [&] { return triplet_margin_loss(ones({}), ones({}), ones({})); }},
           {"need (N, D) and a target (N), or (D) and a scalar target, got (3,)",
            [&] { return cosine_embedding_loss(x, x, row); }},
           {"need (N, D) and a target (N), or (D) and a scalar target, got ()",
            [&] { return cosine_embedding_loss(x, x, ones({})); }},
           {"need (N, D) and a target (N), or (D) and a scalar target, got (1,)",
            [&] { return cosine_embedding_loss(row, row, ones({1})); }},
           {"p must be 1 or 2, got 3", [&] { return multi_margin_loss(x, classes, 3); }},
           {"input must be (N, C) with a target (N)", [&] { return multi_margin_loss(x, classes.slice(0, 1)); }},
           {"input must be (N, C) with a target (N)", [&] { return multi_margin_loss(row, classes); }},
           {"input must be (N, C) with a target (N)",
            [&] {
              return multi_margin_loss(ones({4, 3, 2}), classes);
            }},
           {"needs a weight of shape (3,), got (4,)", [&] { return multi_margin_loss(x, classes, 1, 1, ones({4})); }},
           {"needs a weight of shape (3,), got (4,)", [&] { return cross_entropy(x, classes, ones({4})); }},
           {"needs a weight of shape (3,), got (4,)", [&] { return cross_entropy(x, x, ones({4})); }},
           {"needs a weight of shape (3,), got (4,)", [&] { return nll_loss(x, classes, ones({4})); }},
           {"label_smoothing must be in [0, 1], got 1.5",
            [&] { return cross_entropy(x, classes, {}, Reduction::mean, -100, 1.5); }},
           {"label_smoothing must be in [0, 1], got -0.5",
            [&] { return cross_entropy(x, classes, {}, Reduction::mean, -100, -0.5); }},
           {"input of shape (3,) needs a scalar target, got shape (4,)", [&] { return cross_entropy(row, classes); }},
           {"input of shape (2, 3, 4) needs a target of shape (2, 4), got (4,)", [&] {
              return nll_loss(ones({2, 3, 4}), classes);
            }}})
    CHECK_THROWS_WITH(wrong.run(), contains(wrong.message));
  CHECK_NOTHROW(cosine_embedding_loss(x, x, ones({1})));
  CHECK_NOTHROW(smooth_l1_loss(x, x, Reduction::mean, 0));
  CHECK_NOTHROW(gaussian_nll_loss(x, x, zeros({4})));
}

}  // namespace losses_test
