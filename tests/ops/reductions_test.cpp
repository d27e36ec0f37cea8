// Reductions over every set of dimensions against their definitions, with gradients.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/tests/catch.h>

namespace reductions_test {

using namespace gradus;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Reduction {
  const char* name;
  std::function<Tensor(const Tensor& x, IntArrayRef dims, bool keepdim)> run;
  std::function<double(const std::vector<double>&)> formula;
};

double sum_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double number : x) sum += number;
  return sum;
}

double variance_of(const std::vector<double>& x, double correction) {
  const double mean = sum_of(x) / static_cast<double>(x.size());
  double squares = 0;
  for (const double number : x) squares += (number - mean) * (number - mean);
  return squares / std::max(0.0, static_cast<double>(x.size()) - correction);
}

double norm_of(const std::vector<double>& x, double p) {
  double sum = 0;
  for (const double number : x) sum += std::pow(std::abs(number), p);
  return std::pow(sum, 1 / p);
}

std::vector<Reduction> reductions() {
  using X = const Tensor&;
  using D = IntArrayRef;
  using Numbers = const std::vector<double>&;
  std::vector<Reduction> list = {
      {"sum", [](X x, D d, bool keep) { return x.sum(d, keep); }, sum_of},
      {"mean", [](X x, D d, bool keep) { return x.mean(d, keep); },
       [](Numbers x) { return sum_of(x) / static_cast<double>(x.size()); }},
      {"amax", [](X x, D d, bool keep) { return x.amax(d, keep); },
       [](Numbers x) { return *std::ranges::max_element(x); }},
      {"amin", [](X x, D d, bool keep) { return x.amin(d, keep); },
       [](Numbers x) { return *std::ranges::min_element(x); }},
      {"logsumexp", [](X x, D d, bool keep) { return logsumexp(x, d, keep); },
       [](Numbers x) {
         double sum = 0;
         for (const double number : x) sum += std::exp(number);
         return std::log(sum);
       }},
      {"norm of order 0", [](X x, D d, bool keep) { return norm(x, 0, d, keep); },
       [](Numbers x) { return static_cast<double>(x.size()); }},
      {"norm of infinity", [](X x, D d, bool keep) { return norm(x, kInf, d, keep); },
       [](Numbers x) { return std::max(*std::ranges::max_element(x), -*std::ranges::min_element(x)); }},
      {"norm of -infinity", [](X x, D d, bool keep) { return norm(x, -kInf, d, keep); },
       [](Numbers x) {
         double least = kInf;
         for (const double number : x) least = std::min(least, std::abs(number));
         return least;
       }},
  };
  for (const double p : {1.0, 2.0, 3.0, 0.5})
    list.push_back(
        {"norm", [p](X x, D d, bool keep) { return norm(x, p, d, keep); }, [p](Numbers x) { return norm_of(x, p); }});
  for (const double correction : {0.0, 1.0, 2.5}) {
    list.push_back({"var", [=](X x, D d, bool keep) { return x.var(d, correction, keep); },
                    [=](Numbers x) { return variance_of(x, correction); }});
    list.push_back({"std", [=](X x, D d, bool keep) { return x.std(d, correction, keep); },
                    [=](Numbers x) { return std::sqrt(variance_of(x, correction)); }});
    list.push_back({"var_mean", [=](X x, D d, bool keep) { return std::get<0>(var_mean(x, d, correction, keep)); },
                    [=](Numbers x) { return variance_of(x, correction); }});
    list.push_back({"mean of std_mean",
                    [=](X x, D d, bool keep) { return std::get<1>(std_mean(x, d, correction, keep)); },
                    [](Numbers x) { return sum_of(x) / static_cast<double>(x.size()); }});
  }
  return list;
}

/// Calls body(numbers, index of the result) for each group of elements of x that is reduced to one.
template <class Body>
void for_each_group(const Tensor& x, const std::vector<bool>& reduced, const Body& body) {
  std::vector<std::vector<double>> groups;
  const double* const numbers = x.data_ptr<double>();
  for (int64_t count = 0; count < x.numel(); ++count) {
    int64_t rest = count, group = 0, factor = 1;
    for (int i = static_cast<int>(x.dim()) - 1; i >= 0; rest /= x.size(i--)) {
      if (reduced[static_cast<size_t>(i)]) continue;
      group += rest % x.size(i) * factor;
      factor *= x.size(i);
    }
    if (groups.size() <= static_cast<size_t>(group)) groups.resize(static_cast<size_t>(group) + 1);
    groups[static_cast<size_t>(group)].push_back(numbers[count]);
  }
  for (size_t group = 0; group < groups.size(); ++group) body(groups[group], group);
}

TEST_CASE("reductions over any dimensions follow their definitions, and gradients agree with finite differences") {
  const Shape shape = {2, 3, 4};
  const Tensor x = (arange(1, 25, kDouble) * 1.3).sin().reshape(shape).mul(2).requires_grad_(true);
  const std::vector<std::vector<int64_t>> lists = {{0},    {1},    {2},     {-1},      {-3}, {0, 1},
                                                   {0, 2}, {2, 1}, {-1, 0}, {0, 1, 2}, {}};
  for (const Reduction& reduction : reductions())
    for (const std::vector<int64_t>& dims : lists) {
      INFO(reduction.name << " over " << to_string(dims));
      std::vector<bool> reduced(3, dims.empty());
      for (const int64_t dim : dims) reduced[static_cast<size_t>((dim + 3) % 3)] = true;
      Shape kept, dropped;
      for (int i = 0; i < 3; ++i) {
        kept.push_back(reduced[static_cast<size_t>(i)] ? 1 : shape[i]);
        if (!reduced[static_cast<size_t>(i)]) dropped.push_back(shape[i]);
      }
      const Tensor y = reduction.run(x, dims, false), wanted = zeros(dropped, kDouble);
      REQUIRE(y.sizes() == dropped);
      for_each_group(x, reduced, [&](const std::vector<double>& numbers, size_t group) {
        wanted.data_ptr<double>()[group] = reduction.formula(numbers);
      });
      if (!std::isfinite(wanted.sum().item<double>())) continue;  // a correction as large as the number of elements
      CHECK(y.detach().allclose(wanted, 1e-12, 1e-12));
      const Tensor wide = reduction.run(x, dims, true);
      REQUIRE(wide.sizes() == kept);
      CHECK(wide.detach().flatten().equal(y.detach().flatten()));
      for (const bool keepdim : {false, true}) {
        const auto run = [&](const TensorList& of) { return TensorList{reduction.run(of[0], dims, keepdim)}; };
        CHECK(autograd::gradcheck(run, {x}, 1e-6, 1e-6, 1e-5, false));
      }
    }
}

TEST_CASE("extremes, medians and order statistics along a dimension have the values and indices of a sort") {
  const Shape shape = {2, 5, 3};
  const Tensor x = (arange(1, 31, kDouble) * 1.7).sin().reshape(shape).requires_grad_(true);
  using Both = std::tuple<Tensor, Tensor>;
  for (const int64_t dim : {0, 1, 2, -1, -2}) {
    CAPTURE(dim);
    const int axis = static_cast<int>((dim + 3) % 3);
    const int64_t size = shape[axis];
    const Tensor ascending = std::get<0>(x.sort(dim)), order = std::get<1>(x.sort(dim));
    // One row for each line along the dimension.
    const Tensor lines = x.detach().movedim(axis, 2).reshape({-1, size}).contiguous();
    const Tensor sorted = ascending.detach().movedim(axis, 2).reshape({-1, size});
    for (int64_t row = 0; row < lines.size(0); ++row) {
      std::vector<double> line(lines[row].data_ptr<double>(), lines[row].data_ptr<double>() + size);
      std::ranges::sort(line);
      CHECK(sorted[row].equal(tensor(line, kDouble)));
    }
    CHECK(x.gather(dim, order).equal(ascending));
    CHECK(x.argsort(dim).equal(order));
    const auto [descending, reverse] = x.sort(dim, true);
    CHECK(descending.equal(ascending.flip({dim})));
    CHECK(reverse.equal(order.flip({dim})));
    const auto is_element = [&](const Both& found, int64_t place, const char* what) {
      INFO(what);
      const Tensor values = ascending.narrow(axis, place, 1), indices = order.narrow(axis, place, 1);
      CHECK(std::get<0>(found).detach().equal(values.detach().squeeze(axis)));
      CHECK(std::get<1>(found).equal(indices.squeeze(axis)));
      const Tensor dx = autograd::grad({(std::get<0>(found) * 3).sum()}, {x}, {}, true)[0];
      CHECK(dx.equal(zeros(shape, kDouble).scatter(axis, indices, full(indices.sizes(), 3.0, kDouble))));
    };
    is_element(x.max(dim), size - 1, "max");
    is_element(x.min(dim), 0, "min");
    is_element(x.median(dim), (size - 1) / 2, "median");
    CHECK(x.argmax(dim).equal(std::get<1>(x.max(dim))));
    CHECK(x.argmin(dim).equal(std::get<1>(x.min(dim))));
    CHECK(x.argmax(dim, true).equal(std::get<1>(x.max(dim)).unsqueeze(axis)));
    const auto is_kept = [&](const Both& wide, const Both& narrow) {
      CHECK(std::get<0>(wide).equal(std::get<0>(narrow).unsqueeze(axis)));
      CHECK(std::get<1>(wide).equal(std::get<1>(narrow).unsqueeze(axis)));
    };
    is_kept(x.max(dim, true), x.max(dim));
    is_kept(x.min(dim, true), x.min(dim));
    is_kept(x.median(dim, true), x.median(dim));
    is_kept(x.kthvalue(1, dim, true), x.kthvalue(1, dim));
    for (int64_t k = 1; k <= size; ++k) {
      is_element(x.kthvalue(k, dim), k - 1, "kthvalue");
      const auto [largest, of_largest] = x.topk(k, dim);
      CHECK(largest.equal(descending.narrow(axis, 0, k)));
      CHECK(of_largest.equal(reverse.narrow(axis, 0, k)));
      const auto [least, of_least] = x.topk(k, dim, false);
      CHECK(least.equal(ascending.narrow(axis, 0, k)));
      CHECK(of_least.equal(order.narrow(axis, 0, k)));
    }
    CHECK_THROWS_AS(x.kthvalue(0, dim), IndexError);
    CHECK_THROWS_AS(x.kthvalue(size + 1, dim), IndexError);
    CHECK_THROWS_AS(x.topk(size + 1, dim), IndexError);
    CHECK_THROWS_AS(x.topk(-1, dim), IndexError);
  }
  CHECK(x.argmax().item<int64_t>() == x.flatten().argmax(0).item<int64_t>());
  CHECK(x.argmax({}, true).sizes() == Shape{1, 1, 1});
  CHECK(x.median().item<double>() == std::get<0>(x.flatten().sort(0))[14].item<double>());
}

TEST_CASE("running sums and products end with the total") {
  const Shape shape = {2, 4, 3};
  const Tensor x = (arange(1, 25, kDouble) * 1.1).sin().reshape(shape).requires_grad_(true);
  for (const int64_t dim : {0, 1, 2, -1}) {
    CAPTURE(dim);
    const int64_t size = x.size(dim);
    const Tensor sums = x.cumsum(dim), products = x.cumprod(dim);
    for (int64_t i = 0; i < size; ++i) {
      CAPTURE(i);
      const Tensor part = x.narrow(dim, 0, i + 1);
      CHECK(sums.select(dim, i).allclose(part.sum({dim}), 1e-12, 1e-12));
      CHECK(products.select(dim, i).allclose(part.prod(dim), 1e-12, 1e-12));
    }
    for (const auto& run : {+[](const Tensor&x, int64_t dim) { return x.cumsum(dim); },
                            +[](const Tensor&x, int64_t dim) { return x.cumprod(dim); },
                            +[](const Tensor&x, int64_t dim) { return x.prod(dim); }})
      CHECK(autograd::gradcheck([&](const TensorList& of) { return TensorList{run(of[0], dim)}; }, {x}, 1e-6, 1e-6,
                                1e-5, false));
  }
  CHECK(x.prod().item<double>() == Approx(x.flatten().cumprod(0)[23].item<double>()));
}

TEST_CASE("truth and counts of elements along dimensions") {
  const Tensor x = tensor({{0, 1, 0}, {2, 3, 0}}), none = zeros({2, 0}, kLong);
  CHECK(x.any(0).equal(tensor({1, 1, 0}) > 0));
  CHECK(x.any(-1, true).equal(tensor({{1}, {1}}) > 0));
  CHECK(x.all(0).equal(tensor({0, 1, 0}) > 0));
  CHECK(x.all(1).equal(tensor({0, 0}) > 0));
  CHECK((x.any().item<bool>() && !x.all().item<bool>()));
  CHECK((none.all(1).all().item<bool>() && !none.any(1).any().item<bool>()));
  CHECK(count_nonzero(x, {}).item<int64_t>() == 3);
  CHECK(count_nonzero(x, {0}).equal(tensor({1, 2, 0})));
  CHECK(count_nonzero(x, {1}).equal(tensor({1, 2})));
}

}  // namespace reductions_test
