// Properties of indexing that the op cases do not test: which results are views, and that sums at equal indices do not
// depend on the number of threads.
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;
using namespace gradus::op_testing;

TEST_CASE("integers, slices, None and Ellipsis give views, index tensors and masks copies") {
  const Tensor x = arange(12).view({3, 4});
  const auto shares = [&](const Tensor& y) { return y.array().storage() == x.array().storage(); };
  CHECK(shares(x.index({1})));
  CHECK(shares(x.index({Slice(None, 2), None, 0})));
  CHECK(shares(x.index({"...", Slice(1, None, 2)})));
  CHECK(shares(x.index({Ellipsis})));
  CHECK(shares(tensor(3).index({Ellipsis})) == false);
  CHECK(shares(x.index({tensor(1)})));
  CHECK_FALSE(shares(x.index({tensor({1})})));
  CHECK_FALSE(shares(x.index({x > 3})));
  CHECK_FALSE(shares(x.index({true})));
  CHECK(x.index({true}).sizes() == Shape{1, 3, 4});
  CHECK_THROWS_AS(x.index({"row"}), ValueError);
}

TEST_CASE("a mask of several dimensions can be combined with an index tensor before or after it") {
  const Tensor x = arange(2 * 3 * 4).view({2, 3, 4}), mask = tensor({{0, 1, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}}) > 0;
  CHECK(x.index({tensor({1, 0, 1}), mask}).equal(tensor({12 + 1, 4 + 3, 12 + 8})));
  const Tensor last = arange(3 * 4 * 2).view({3, 4, 2});
  CHECK(last.index({mask, tensor({1, 0, 1})}).equal(tensor({2 * 1 + 1, 2 * 7, 2 * 8 + 1})));
}

TEST_CASE("indices are given as a vector too") {
  const Tensor x = arange(6).view({2, 3});
  const std::vector<TensorIndex> where{1, Slice(1)};
  CHECK(x.index(where).equal(tensor({4, 5})));
  x.index_put_(where, 0);
  CHECK(x.equal(tensor({{0, 1, 2}, {3, 0, 0}})));
}

TEST_CASE("values that are assigned broadcast to the indexed part, and only leading ones are dropped") {
  const auto put = [](const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate = false) {
    return arange(6).view({2, 3}).index_put_(indices, value, accumulate);
  };
  const Tensor places = tensor({0, 2}), mask = tensor({{1, 0, 1}, {0, 0, 1}}) > 0;
  CHECK(put({1}, full({1, 1, 3}, 7)).equal(tensor({{0, 1, 2}, {7, 7, 7}})));
  CHECK(put({1}, full({1, 1, 1}, 7)).equal(tensor({{0, 1, 2}, {7, 7, 7}})));
  CHECK(put({Slice(), places}, tensor({{{7, 8}}})).equal(tensor({{7, 1, 8}, {7, 4, 8}})));
  CHECK(put({Slice(), places}, tensor({{7}, {8}})).equal(tensor({{7, 1, 7}, {8, 4, 8}})));
  CHECK(put({mask}, tensor({7, 8, 9})).equal(tensor({{7, 1, 8}, {3, 4, 9}})));
  CHECK(put({mask}, tensor({7})).equal(tensor({{7, 1, 7}, {3, 4, 7}})));
  CHECK(put({mask}, tensor({7}), true).equal(tensor({{7, 1, 9}, {3, 4, 12}})));
  CHECK(put({mask}, tensor(7), true).equal(tensor({{7, 1, 9}, {3, 4, 12}})));
  for (const std::vector<TensorIndex>& indices : {std::vector<TensorIndex>{1}, {Slice(), tensor({0, 1, 2})}}) {
    CHECK_THROWS_AS(put(indices, ones({2, 1, 3}, kLong)), ShapeError);
    CHECK_THROWS_AS(put(indices, ones({1, 2, 1, 3}, kLong)), ShapeError);
    CHECK_THROWS_AS(put(indices, ones({2}, kLong)), ShapeError);
  }
}

TEST_CASE("of equal places the last source wins, in gradients too") {
  const Tensor x = zeros({3}, dtype(kDouble).requires_grad(true)),
               source = tensor({1., 2., 3.}, dtype(kDouble).requires_grad(true));
  const Tensor y = x.scatter(0, tensor({1, 1, 0}), source);
  CHECK(y.detach().equal(tensor({3., 2., 0.}, kDouble)));
  CHECK(index_put(x, {tensor({1, 1, 0})}, source).detach().equal(y.detach()));
}

TEST_CASE("a source may be the tensor that is written") {
  const Tensor x = arange(4).to(kFloat).view({4, 1});
  x.index_add_(0, tensor({3, 2, 1, 0}), x);
  CHECK(x.equal(full({4, 1}, 3.0)));
  const Tensor places = tensor({2, 0, 1});
  places.scatter_(0, places, tensor({7, 8, 9}));
  CHECK(places.equal(tensor({8, 9, 7})));
}

TEST_CASE("operators in place may read the tensor that they write through any view of it") {
  static constexpr int64_t kSize = 40;
  struct Views {
    const char* name;
    Tensor (*written)(const Tensor&);
    Tensor (*read)(const Tensor&);
  };
  const Views pairs[] = {
      {"itself", [](const Tensor& x) { return x; }, [](const Tensor& x) { return x; }},
      {"transposed", [](const Tensor& x) { return x; }, [](const Tensor& x) { return x.t(); }},
      {"one row earlier", [](const Tensor& x) { return x.slice(0, 1, kSize); },
       [](const Tensor& x) { return x.slice(0, 0, kSize - 1); }},
      {"one column later", [](const Tensor& x) { return x.slice(1, 0, kSize - 1); },
       [](const Tensor& x) { return x.slice(1, 1, kSize); }},
      {"every second row", [](const Tensor& x) { return x.slice(0, 0, kSize / 2); },
       [](const Tensor& x) { return x.slice(0, 0, kSize, 2); }},
      {"one row, broadcast", [](const Tensor& x) { return x; }, [](const Tensor& x) { return x[7]; }},
      {"one column, broadcast", [](const Tensor& x) { return x; }, [](const Tensor& x) { return x.slice(1, 3, 4); }},
  };
  struct Operator {
    const char* name;
    void (*in_place)(const Tensor& y, const Tensor& x);
    Tensor (*apart)(const Tensor& y, const Tensor& x);
  };
  const Operator operators[] = {
      {"add_", [](const Tensor& y, const Tensor& x) { y.add_(x); },
       [](const Tensor& y, const Tensor& x) { return y + x; }},
      {"sub_", [](const Tensor& y, const Tensor& x) { y.sub_(x); },
       [](const Tensor& y, const Tensor& x) { return y - x; }},
      {"x - y into y",
       [](const Tensor& y, const Tensor& x) {
         const Array into = y.array();
         ops::binary(BinaryOp::sub, x.array(), into, &into);
       },
       [](const Tensor& y, const Tensor& x) { return x - y; }},
      {"copy_", [](const Tensor& y, const Tensor& x) { y.copy_(x); },
       [](const Tensor& y, const Tensor& x) { return x.expand(y.sizes()).clone(); }},
      {"-x into y",
       [](const Tensor& y, const Tensor& x) {
         const Array into = y.array();
         ops::unary(UnaryOp::neg, x.array().expand(into.shape()), {}, &into);
       },
       [](const Tensor& y, const Tensor& x) { return -x.expand(y.sizes()); }},
      {"1 - x into y",
       [](const Tensor& y, const Tensor& x) {
         const Array into = y.array();
         ops::binary_scalar(BinaryOp::sub, x.array().expand(into.shape()), 1, true, &into);
       },
       [](const Tensor& y, const Tensor& x) { return 1 - x.expand(y.sizes()); }},
  };
  on_each_cpu_backend([&] {
    for (const Views& views : pairs)
      for (const Operator& op : operators) {
        INFO(op.name << ", " << views.name);
        const Tensor x = arange(kSize * kSize).to(kFloat).view({kSize, kSize});
        const Tensor y = views.written(x), expected = op.apart(y, views.read(x));
        op.in_place(y, views.read(x));
        CHECK(y.equal(expected));
      }
  });
}

TEST_CASE("sums over equal indices do not depend on the number of threads") {
  const BackendGuard guard("openmp");
  const int threads = num_threads();
  manual_seed(3);
  const Tensor rows = randint(40, {5000}), values = randn({5000, 70}), grid = randint(40, {5000, 70});
  const Tensor numbers = randn({5000});
  std::vector<TensorList> results;
  for (int count : {1, 2, 5}) {
    set_num_threads(count);
    results.push_back({zeros({40, 70}).index_add_(0, rows, values), zeros({40, 70}).scatter_add_(0, grid, values),
                       zeros({5000, 70}).scatter_add_(1, grid, values), zeros({40}).index_add_(0, rows, numbers),
                       zeros({40, 70}).scatter_(0, grid, values), values.index({values > 0})});
  }
  set_num_threads(threads);
  const BackendGuard reference("naive");
  results.push_back({zeros({40, 70}).index_add_(0, rows, values), zeros({40, 70}).scatter_add_(0, grid, values),
                     zeros({5000, 70}).scatter_add_(1, grid, values), zeros({40}).index_add_(0, rows, numbers),
                     zeros({40, 70}).scatter_(0, grid, values), values.index({values > 0})});
  for (size_t i = 1; i < results.size(); ++i)
    for (size_t j = 0; j < results[0].size(); ++j) CHECK(results[i][j].equal(results[0][j]));
}

TEST_CASE("parts of a split are views whose writes reach the whole") {
  const Tensor x = ones({4, 2}, dtype(kDouble).requires_grad(true));
  const Tensor y = x * 2;
  const TensorList parts = y.chunk(2);
  parts[0].mul_(3);
  CHECK(y.detach().select(0, 0).equal(full({2}, 6.0, kDouble)));
  (y.sum() + parts[1].sum()).backward();
  CHECK(x.grad().equal(tensor({{6., 6.}, {6., 6.}, {4., 4.}, {4., 4.}}, kDouble)));
}

TEST_CASE("einsum orders an implicit result as NumPy does") {
  const Tensor x = randn({2, 3, 4});
  CHECK(einsum("bac", {x}).equal(x.permute({1, 0, 2})));
  CHECK(einsum("b...a", {x}).equal(x.permute({1, 2, 0})));
}

TEST_CASE("each letter of einsum's result occurs in an operand, and once in the result") {
  const Tensor x = ones({2, 2});
  for (const char* equation : {"ij->k", "ij->ki", "ij->ik", "ij->iij", "ij->iji", "ij->jii"})
    CHECK_THROWS_WITH(einsum(equation, {x}), test::contains("occurs twice in the result or in no operand"));
}

TEST_CASE("diagonals far away are no diagonals") {
  const Tensor x = ones({2, 3});
  CHECK(x.diagonal(INT64_MAX).numel() == 0);
  CHECK(x.diagonal(INT64_MIN).numel() == 0);
  CHECK(x.tril(INT64_MAX).equal(x));
  CHECK(x.triu(INT64_MIN).equal(x));
  CHECK(x.tril(INT64_MIN).equal(zeros({2, 3})));
  CHECK(tril_indices(2, 3, INT64_MAX).size(1) == 6);
  CHECK(triu_indices(2, 3, INT64_MAX).size(1) == 0);
  CHECK(x.roll({INT64_MIN}, {1}).equal(x));
  constexpr int64_t least = -(int64_t{1} << 31), most = int64_t{1} << 31;
  for (const int64_t diagonal : {least + 1, most - 1}) CHECK(x.diag(diagonal).numel() == 0);
  for (const int64_t diagonal : {least, most}) CHECK_THROWS_AS(x.diag(diagonal), ValueError);
}

TEST_CASE("triangles compare positions exactly that float32 does not represent") {
  constexpr int64_t size = (1 << 24) + 2;
  const Tensor x = ones({1, 1}, kBool).expand({1, size});
  const auto end = [](const Tensor& row) { return row.slice(1, size - 3); };
  CHECK(end(x.tril(size - 3)).equal(tensor({{true, false, false}})));
  CHECK(end(x.triu(size - 1)).equal(tensor({{false, false, true}})));
}

TEST_CASE("attention drops weights and keeps their mean") {
  manual_seed(4);
  const Tensor q = zeros({1, 8}), k = zeros({4000, 8}), v = ones({4000, 1});
  const double kept = scaled_dot_product_attention(q, k, v, {}, 0.5).item<double>();
  CHECK(kept == Approx(1).margin(0.1));
  CHECK(kept != 1.0);
  CHECK(scaled_dot_product_attention(q, k, v).item<double>() == Approx(1));
}

TEST_CASE("embedding_renorm_ scales long rows alone, and only those that are looked up") {
  const Tensor weight = tensor({{3., 4.}, {0.3, 0.4}, {30., 40.}}, dtype(kDouble).requires_grad(true));
  embedding_renorm_(weight, tensor({0, 1, 0}), 1.0);
  CHECK(weight.detach().allclose(tensor({{0.6, 0.8}, {0.3, 0.4}, {30., 40.}}, kDouble), 1e-6));
  embedding_renorm_(weight, tensor({2}), 7.0, 1);
  CHECK(weight.detach()[2].allclose(tensor({3., 4.}, kDouble), 1e-6));
  CHECK(weight.is_leaf());
}
