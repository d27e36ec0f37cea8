// Normalisation against its definition: which elements share a mean, which parameters scale them, and how running
// statistics move. All sizes differ.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/tests/catch.h>

namespace norms_test {

using namespace gradus;
using Index = std::vector<int64_t>;

Tensor numbers(const Shape& shape, double step) {
  return (arange(1, 1 + numel_of(shape), kDouble) * step).sin().reshape(shape) + 0.3;
}

struct Statistics {
  double sum = 0, squares = 0, count = 0;
  double mean() const { return sum / count; }
  double variance() const { return squares / count - mean() * mean(); }
};

/// Calls body(index, place) for each element of a tensor of this shape.
template <class Body>
void for_each_element(const Shape& shape, const Body& body) {
  for (int64_t place = 0; place < numel_of(shape); ++place) {
    Index index(static_cast<size_t>(shape.size()));
    int64_t rest = place;
    for (int i = shape.size() - 1; i >= 0; rest /= shape[i--]) index[static_cast<size_t>(i)] = rest % shape[i];
    body(index, place);
  }
}

using Key = std::function<Index(const Index&)>;

std::map<Index, Statistics> statistics_of(const Tensor& x, const Key& group) {
  std::map<Index, Statistics> all;
  for_each_element(x.sizes(), [&](const Index& index, int64_t place) {
    Statistics& one = all[group(index)];
    const double number = x.data_ptr<double>()[place];
    one.sum += number, one.squares += number * number, ++one.count;
  });
  return all;
}

/// (x - mean) / sqrt(variance + eps) * weight + bias, where `parameter` is the place of an element's weight and bias.
Tensor normalized(const Tensor& x, const Key& group, const std::function<int64_t(const Index&)>& parameter,
                  const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor y = zeros(x.sizes(), kDouble);
  const auto statistics = statistics_of(x, group);
  for_each_element(x.sizes(), [&](const Index& index, int64_t place) {
    const Statistics& one = statistics.at(group(index));
    const double h = (x.data_ptr<double>()[place] - one.mean()) / std::sqrt(one.variance() + eps);
    const int64_t at = parameter(index);
    const double scale = weight.defined() ? weight.data_ptr<double>()[at] : 1;
    y.data_ptr<double>()[place] = h * scale + (bias.defined() ? bias.data_ptr<double>()[at] : 0);
  });
  return y;
}

TEST_CASE("normalisations share means as they say, and scale each channel or place") {
  for (const Shape& shape : {Shape{2, 6, 5, 4}, Shape{3, 6, 4}, Shape{2, 6, 2, 3, 4}, Shape{5, 6}})
    for (const int which : {0, 1, 2, 3}) {  // bit 0: a weight, bit 1: a bias
      CAPTURE(to_string(shape), which);
      const Tensor x = numbers(shape, 1.3), weight = which & 1 ? numbers({6}, 2.1) : Tensor(),
                   bias = which & 2 ? numbers({6}, 0.7) : Tensor();
      const auto channel = [](const Index& i) { return i[1]; };
      const double eps = 0.01;
      CHECK(batch_norm(x, {}, {}, weight, bias, true, 0.1, eps)
                .allclose(normalized(
                              x, [](const Index& i) { return Index{i[1]}; }, channel, weight, bias, eps),
                          1e-9, 1e-9));
      CHECK(batch_norm_relu(x, {}, {}, weight, bias, true, 0.1, eps)
                .allclose(relu(normalized(
                              x, [](const Index& i) { return Index{i[1]}; }, channel, weight, bias, eps)),
                          1e-9, 1e-9));
      for (const int64_t groups : {1, 2, 3, 6}) {
        if (shape.size() == 2 && groups == 6) continue;  // means of single elements
        CHECK(group_norm(x, groups, weight, bias, eps)
                  .allclose(normalized(
                                x,
                                [=](const Index& i) {
                                  return Index{i[0], i[1] / (6 / groups)};
                                },
                                channel, weight, bias, eps),
                            1e-9, 1e-9));
      }
      if (shape.size() > 2)
        CHECK(instance_norm(x, {}, {}, weight, bias, true, 0.1, eps)
                  .allclose(normalized(
                                x,
                                [](const Index& i) {
                                  return Index{i[0], i[1]};
                                },
                                channel, weight, bias, eps),
                            1e-9, 1e-9));
      for (int count = 1; count <= shape.size(); ++count) {
        Shape ending;
        for (int i = shape.size() - count; i < shape.size(); ++i) ending.push_back(shape[i]);
        const Tensor w = which & 1 ? numbers(ending, 2.1) : Tensor(), b = which & 2 ? numbers(ending, 0.7) : Tensor();
        const auto lead = static_cast<std::ptrdiff_t>(shape.size() - count);
        const auto place = [&](const Index& i) {
          int64_t at = 0;
          for (int k = 0; k < ending.size(); ++k) at = at * ending[k] + i[static_cast<size_t>(k + lead)];
          return at;
        };
        CHECK(
            layer_norm(x, ending, w, b, eps)
                .allclose(normalized(
                              x, [=](const Index& i) { return Index(i.begin(), i.begin() + lead); }, place, w, b, eps),
                          1e-9, 1e-9));
      }
    }
}

TEST_CASE("running statistics move towards those of the batch, and normalise in evaluation") {
  const Shape shape = {4, 3, 5};
  const double eps = 0.02;
  const Tensor x = numbers(shape, 1.7), weight = numbers({3}, 2.1), bias = numbers({3}, 0.7);
  for (const double momentum : {0.1, 0.5, 1.0, 0.0}) {
    CAPTURE(momentum);
    for (const bool of_batch : {true, false}) {
      const Tensor mean = numbers({3}, 4.1), variance = numbers({3}, 5.3).abs() + 1, batches = full({}, 6, kLong);
      const Tensor mean_before = mean.clone(), variance_before = variance.clone();
      if (of_batch) batch_norm(x, mean, variance, weight, bias, true, momentum, eps, batches);
      else instance_norm(x, mean, variance, weight, bias, true, momentum, eps, batches);
      CHECK(batches.item<int64_t>() == 7);
      const auto groups = statistics_of(x, [&](const Index& i) { return of_batch ? Index{i[1]} : Index{i[0], i[1]}; });
      for (int64_t c = 0; c < 3; ++c) {
        // Of instances, the mean of their statistics.
        double means = 0, variances = 0, count = 0;
        for (const auto& [key, one] : groups) {
          if (key.back() != c) continue;
          means += one.mean(), variances += one.variance() * one.count / (one.count - 1), ++count;
        }
        CHECK(mean[c].item<double>() ==
              Approx((1 - momentum) * mean_before[c].item<double>() + momentum * means / count));
        CHECK(variance[c].item<double>() ==
              Approx((1 - momentum) * variance_before[c].item<double>() + momentum * variances / count));
      }
      const Tensor evaluated = of_batch ? batch_norm(x, mean, variance, weight, bias, false, momentum, eps)
                                        : instance_norm(x, mean, variance, weight, bias, false, momentum, eps);
      const auto column = [](const Tensor& parameter) { return parameter.reshape({3, 1}); };
      const Tensor wanted = (x - column(mean)) / (column(variance) + eps).sqrt() * column(weight) + column(bias);
      CHECK(evaluated.allclose(wanted, 1e-10, 1e-10));
      CHECK(batches.item<int64_t>() == 7);
    }
  }
}

TEST_CASE("normalize divides by a norm, and local_response_norm by a mean over neighbouring channels") {
  const Tensor x = numbers({2, 5, 3, 4}, 1.9).requires_grad_(true);
  for (const double p : {1.0, 2.0, 3.0})
    for (const int64_t dim : {0, 1, 3, -2}) {
      CAPTURE(p, dim);
      CHECK(normalize(x, p, dim).allclose(x / norm(x, p, {dim}, true), 1e-10, 1e-10));
      CHECK(normalize(x, p, dim, 100).allclose(x / 100, 1e-10, 1e-10));
    }
  CHECK(normalize(zeros({2, 3}), 2, 1).equal(zeros({2, 3})));
  for (const int64_t size : {1, 2, 3, 4, 7}) {
    CAPTURE(size);
    const double alpha = 0.3, beta = 0.6, k = 1.5;
    const Tensor y = local_response_norm(x, size, alpha, beta, k), wanted = zeros(x.sizes(), kDouble);
    for_each_element(x.sizes(), [&](const Index& i, int64_t place) {
      double squares = 0;
      for (int64_t c = std::max<int64_t>(0, i[1] - size / 2); c < std::min<int64_t>(5, i[1] - size / 2 + size); ++c)
        squares += std::pow(x.data_ptr<double>()[place + (c - i[1]) * 12], 2);
      wanted.data_ptr<double>()[place] =
          x.data_ptr<double>()[place] / std::pow(k + alpha * squares / static_cast<double>(size), beta);
    });
    CHECK(y.detach().allclose(wanted, 1e-10, 1e-10));
  }
  const auto run = [](const TensorList& of) { return TensorList{local_response_norm(of[0], 2, 0.3, 0.6, 1.5)}; };
  CHECK(autograd::gradcheck(run, {numbers({1, 3, 2}, 1.1).requires_grad_(true)}, 1e-6, 1e-6, 1e-5, false));
}

TEST_CASE("training needs several values for each mean") {
  CHECK_NOTHROW(batch_norm(ones({2, 3}), {}, {}, {}, {}, true));
  CHECK_THROWS_AS(batch_norm(ones({1, 3}), {}, {}, {}, {}, true), ShapeError);
  CHECK_NOTHROW(batch_norm(ones({1, 3, 2}), {}, {}, {}, {}, true));
  CHECK_THROWS_AS(batch_norm(ones({1, 3, 1}), {}, {}, {}, {}, true), ShapeError);
  CHECK_NOTHROW(batch_norm(ones({1, 3}), zeros({3}), ones({3})));
  CHECK_NOTHROW(instance_norm(ones({1, 3, 2})));
  CHECK_THROWS_AS(instance_norm(ones({4, 3, 1})), ShapeError);
  CHECK_NOTHROW(batch_norm(ones({0, 3}), {}, {}, {}, {}, true));
  CHECK_NOTHROW(instance_norm(ones({0, 3, 1})));
}

}  // namespace norms_test
