// Products of vectors, matrices and batches against einsum, which einsum_test.cpp compares with sums.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/tests/catch.h>

namespace products_test {

using namespace gradus;
using test::contains;

Tensor numbers(const Shape& shape, double step) {
  return (arange(1, 1 + numel_of(shape), kDouble) * step).sin().reshape(shape).requires_grad_(true);
}

/// Compares results and gradients.
void check_same(const std::function<Tensor(const TensorList&)>& found,
                const std::function<Tensor(const TensorList&)>& wanted, const TensorList& x) {
  const Tensor y = found(x), z = wanted(x);
  REQUIRE(y.sizes() == z.sizes());
  CHECK(y.detach().allclose(z.detach(), 1e-10, 1e-10));
  const Tensor dy = (arange(1, 1 + y.numel(), kDouble) * 0.7).cos().reshape(y.sizes());
  const TensorList dx = autograd::grad({y}, x, {dy}, {}, false, true),
                   dz = autograd::grad({z}, x, {dy}, {}, false, true);
  for (size_t i = 0; i < x.size(); ++i) {
    CAPTURE(i);
    const Tensor d = dx[i].defined() ? dx[i] : zeros_like(x[i]);
    CHECK(d.allclose(dz[i].defined() ? dz[i] : zeros_like(x[i]), 1e-10, 1e-10));
  }
}

TEST_CASE("matmul broadcasts batches, and takes a vector as a row or a column") {
  struct Product {
    Shape a, b;
    const char* equation;
  };
  for (const Product& p : {Product{{3}, {3}, "k,k->"},
                           {{2, 3}, {3}, "mk,k->m"},
                           {{3}, {3, 4}, "k,kn->n"},
                           {{2, 3}, {3, 4}, "mk,kn->mn"},
                           {{5, 2, 3}, {3}, "bmk,k->bm"},
                           {{5, 2, 3}, {3, 4}, "bmk,kn->bmn"},
                           {{3}, {5, 3, 4}, "k,bkn->bn"},
                           {{2, 3}, {5, 3, 4}, "mk,bkn->bmn"},
                           {{5, 2, 3}, {5, 3, 4}, "bmk,bkn->bmn"},
                           {{1, 2, 3}, {5, 3, 4}, "...mk,...kn->...mn"},
                           {{5, 2, 3}, {1, 3, 4}, "...mk,...kn->...mn"},
                           {{6, 1, 2, 3}, {5, 3, 4}, "...mk,...kn->...mn"},
                           {{5, 2, 3}, {6, 1, 3, 4}, "...mk,...kn->...mn"},
                           {{2, 0}, {0, 4}, "mk,kn->mn"},
                           {{0, 3}, {3, 4}, "mk,kn->mn"}}) {
    INFO(to_string(p.a) << " times " << to_string(p.b));
    check_same([](const TensorList& x) { return matmul(x[0], x[1]); },
               [&](const TensorList& x) {
                 return einsum(p.equation, {x[0], x[1]});
               },
               {numbers(p.a, 1.1), numbers(p.b, 1.7)});
  }
}

TEST_CASE("products with a name take operands of their ranks alone") {
  const Tensor v = numbers({3}, 1.1), w = numbers({3}, 1.3), long_vector = numbers({4}, 0.9), m = numbers({2, 3}, 1.7),
               n = numbers({3, 4}, 1.9), batch = numbers({5, 2, 3}, 0.7), other = numbers({5, 3, 4}, 2.1);
  const auto same = [](const auto& found, const char* equation, const TensorList& x) {
    INFO(equation);
    check_same(
        found, [&](const TensorList& x) { return einsum(equation, x); }, x);
  };
  using X = const TensorList&;
  same([](X x) { return dot(x[0], x[1]); }, "i,i->", {v, w});
  same([](X x) { return outer(x[0], x[1]); }, "i,j->ij", {v, long_vector});
  same([](X x) { return mv(x[0], x[1]); }, "ij,j->i", {m, v});
  same([](X x) { return mm(x[0], x[1]); }, "ij,jk->ik", {m, n});
  same([](X x) { return bmm(x[0], x[1]); }, "bij,bjk->bik", {batch, other});
  same([](X x) { return trace(x[0].slice(1, 0, 2)); }, "ii->", {numbers({2, 2}, 0.4)});
  same([](X x) { return linear(x[0], x[1]); }, "bij,kj->bik", {batch, numbers({4, 3}, 0.3)});
  CHECK(trace(numbers({2, 5}, 1)).item<double>() == Approx(std::sin(1.0) + std::sin(7.0)));
  struct Wrong {
    const char* message;
    std::function<Tensor()> run;
  };
  for (const Wrong& wrong : std::vector<Wrong>{{"needs two vectors of one length", [&] { return dot(v, long_vector); }},
                                               {"needs two vectors of one length", [&] { return dot(v, m); }},
                                               {"needs two vectors of one length", [&] { return dot(m, v); }},
                                               {"needs two vectors, got shapes", [&] { return outer(v, m); }},
                                               {"needs two vectors, got shapes", [&] { return outer(m, v); }},
                                               {"matrix must have 2 dimensions (M, N)", [&] { return mv(v, v); }},
                                               {"vector must have 1 dimension (N)", [&] { return mv(m, n); }},
                                               {"mm needs two matrices", [&] { return mm(m, v); }},
                                               {"mm needs two matrices", [&] { return mm(v, n); }},
                                               {"needs two batches", [&] { return bmm(batch, n); }},
                                               {"needs two batches", [&] { return bmm(m, other); }},
                                               {"needs two batches", [&] { return bmm(batch, other.slice(0, 0, 4)); }},
                                               {"inner sizes differ", [&] { return bmm(batch, batch); }},
                                               {"x must have 2 dimensions (M, N)", [&] { return trace(v); }}})
    CHECK_THROWS_WITH(wrong.run(), contains(wrong.message));
}

TEST_CASE("a product is added to beta x, scaled by alpha, and a beta of 0 leaves x out") {
  const Tensor m = numbers({2, 3}, 1.7), n = numbers({3, 4}, 1.9), v = numbers({3}, 0.8),
               batch = numbers({5, 2, 3}, 0.7), other = numbers({5, 3, 4}, 2.1);
  using X = const TensorList&;
  for (const double beta : {0.0, 1.0, -0.5})
    for (const double alpha : {0.0, 1.0, 3.0}) {
      CAPTURE(beta, alpha);
      for (const Shape& shape : {Shape{2, 4}, Shape{4}, Shape{2, 1}, Shape{}})
        check_same([=](X x) { return addmm(x[0], x[1], x[2], beta, alpha); },
                   [=](X x) { return x[0] * beta + matmul(x[1], x[2]) * alpha; }, {numbers(shape, 0.6), m, n});
      for (const Shape& shape : {Shape{5, 2, 4}, Shape{4}, Shape{1, 2, 1}})
        check_same([=](X x) { return x[0].baddbmm(x[1], x[2], beta, alpha); },
                   [=](X x) { return x[0] * beta + matmul(x[1], x[2]) * alpha; }, {numbers(shape, 0.6), batch, other});
      for (const Shape& shape : {Shape{2}, Shape{1}})
        check_same([=](X x) { return addmv(x[0], x[1], x[2], beta, alpha); },
                   [=](X x) { return x[0] * beta + matmul(x[1], x[2]) * alpha; }, {numbers(shape, 0.6), m, v});
    }
  const Tensor nan = full({2, 4}, NAN, dtype(kDouble).requires_grad(true));
  const Tensor y = addmm(nan, m, n, 0);
  CHECK(y.detach().equal(matmul(m, n).detach()));
  CHECK(autograd::grad({y.sum()}, {nan})[0].equal(zeros({2, 4}, kDouble)));
  CHECK_THROWS_WITH(addmm(numbers({3, 4}, 1), m, n), contains("shapes (3, 4) and (2, 4) do not broadcast"));
  CHECK_THROWS_WITH(addmm(numbers({1, 2, 4}, 1), m, n, 2),
                    contains("x of shape (1, 2, 4) does not broadcast to the product's (2, 4)"));
  CHECK_THROWS_WITH(addmm(m, v, n), contains("a must have 2 dimensions (M, K)"));
  CHECK_THROWS_WITH(addmm(m, m, v), contains("b must have 2 dimensions (K, N)"));
  CHECK_THROWS_WITH(addmm(m, n, m), contains("inner sizes differ"));
}

TEST_CASE("products over no terms are 0, or the bias alone") {
  const auto dirty = [] {  // leaves memory for the next results that does not hold 0
    for (const int64_t size : {1, 2, 3, 4, 6, 12, 24}) full({size}, 7);
  };
  struct Product {
    Shape a, b, y;
  };
  for (const Product& p : {Product{{3, 0}, {0, 2}, {3, 2}},
                           {{2, 3, 0}, {0, 2}, {2, 3, 2}},
                           {{2, 3, 0}, {2, 0, 2}, {2, 3, 2}},
                           {{3, 0}, {0}, {3}},
                           {{0}, {0, 2}, {2}},
                           {{0}, {0}, {}},
                           {{0, 3}, {3, 2}, {0, 2}}}) {
    INFO("(" << p.a << ") times (" << p.b << ")");
    dirty();
    CHECK(matmul(ones(p.a), ones(p.b)).equal(zeros(p.y)));
  }
  const Tensor bias = arange(4).to(kFloat);
  for (const Shape& lead : {Shape{}, Shape{3}, Shape{2, 3}, Shape{2, 0}}) {
    Shape in = lead, out = lead, none = lead;
    in.push_back(0), out.push_back(4), none.push_back(0);
    dirty();
    CHECK(linear(ones(in), ones({4, 0}), bias).equal(bias.expand(out)));
    dirty();
    CHECK(linear(ones(in), ones({4, 0})).equal(zeros(out)));
    CHECK(linear(ones(in), ones({0, 0})).equal(zeros(none)));
    dirty();
    CHECK(linear(ones(out), ones({0, 4})).equal(zeros(none)));
  }
  CHECK(addmm(bias, ones({3, 0}), ones({0, 4})).equal(bias.expand({3, 4})));
}

TEST_CASE("tensordot sums over any pairs of dimensions, cross over the next two") {
  const Tensor a = numbers({2, 3, 4}, 1.1), b = numbers({4, 3, 5}, 1.3), c = numbers({3, 2}, 0.9);
  using X = const TensorList&;
  const auto same = [](const Dims& of_a, const Dims& of_b, const char* equation, const TensorList& x) {
    INFO(equation);
    check_same([&](X x) { return tensordot(x[0], x[1], of_a, of_b); }, [&](X x) { return einsum(equation, x); }, x);
  };
  same({2}, {0}, "ijk,klm->ijlm", {a, b});
  same({1, 2}, {1, 0}, "ijk,kjm->im", {a, b});
  same({2, 1}, {0, 1}, "ijk,kjm->im", {a, b});
  same({-1, -2}, {0, 1}, "ijk,kjm->im", {a, b});
  same({0}, {1}, "ijk,li->jkl", {a, c});
  same({0, 1}, {1, 0}, "ijk,ji->k", {a, c});
  same({}, {}, "ij,klm->ijklm", {c, b});
  CHECK_THROWS_WITH(tensordot(a, b, {0}, {0}),
                    contains("dimension 0 of shape (2, 3, 4) and dimension 0 of shape (4, 3, 5) differ"));
  CHECK_THROWS_WITH(tensordot(a, b, {0, 1}, {0}), contains("differ in number"));
  for (const Shape& shape : {Shape{2, 3}, Shape{3, 2}, Shape{4, 3, 2}, Shape{3, 3}}) {
    const int axis = shape[0] == 3 ? 0 : 1;  // the first dimension of size 3
    const Tensor x = numbers(shape, 1.1), y = numbers(shape, 1.9);
    const auto at = [&](const Tensor& x, int64_t i) { return x.select(axis, i % 3); };
    check_same([](X x) { return cross(x[0], x[1]); },
               [&](X x) {
                 TensorList parts;
                 for (int64_t i = 0; i < 3; ++i)
                   parts.push_back(at(x[0], i + 1) * at(x[1], i + 2) - at(x[0], i + 2) * at(x[1], i + 1));
                 return stack(parts, axis);
               },
               {x, y});
  }
  const Tensor square = numbers({3, 3}, 1.1), other = numbers({3, 3}, 1.9);
  CHECK(cross(square, other, 1).equal(cross(square.t(), other.t(), 0).t()));
  CHECK(cross(square, other, -1).equal(cross(square, other, 1)));
  CHECK_THROWS_WITH(cross(a.slice(1, 0, 2), a.slice(1, 0, 2)), contains("needs a dimension of size 3"));
  CHECK_THROWS_WITH(cross(a, a, 0), contains("needs a dimension of size 3"));
  CHECK_THROWS_WITH(cross(a, b), contains("the tensors must have one shape"));
}

TEST_CASE("similarities and distances of vectors along a dimension") {
  const Tensor a = numbers({2, 3, 4}, 1.1), b = numbers({2, 3, 4}, 1.9);
  for (const int64_t dim : {0, 1, 2, -2}) {
    CAPTURE(dim);
    const auto length = [=](const Tensor& x) { return norm(x, 2, {dim}); };
    const Tensor wanted = (a * b).sum({dim}) / (length(a) * length(b));
    CHECK(cosine_similarity(a, b, dim).allclose(wanted, 1e-10, 1e-10));
    CHECK(cosine_similarity(a, b, dim, 10).allclose((a * b).sum({dim}) / 100, 1e-10, 1e-10));
  }
  CHECK(cosine_similarity(a, b.slice(0, 0, 1), 1)
            .allclose(cosine_similarity(a, b.slice(0, 0, 1).expand({2, 3, 4}), 1), 1e-12, 1e-12));
  CHECK(cosine_similarity(a.to(kFloat), b.to(kDouble), 1).dtype() == kDouble);
  for (const double p : {1.0, 2.0, 3.0})
    for (const double eps : {0.0, 0.1}) {
      const Tensor wanted = norm(a - b + eps, p, {-1});
      CHECK(pairwise_distance(a, b, p, eps).allclose(wanted, 1e-12, 1e-12));
      CHECK(pairwise_distance(a, b, p, eps, true).equal(pairwise_distance(a, b, p, eps).unsqueeze(-1)));
    }
}

}  // namespace products_test
