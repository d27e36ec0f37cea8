// Operators that move elements: each element of the result comes from one place of the operand, and gradients go back
// there. All sizes of the operands differ.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/catch.h>

namespace places_test {

using namespace gradus;
using Index = std::vector<int64_t>;

int64_t place_of(const Shape& shape, const Index& index) {
  int64_t place = 0;
  for (int i = 0; i < shape.size(); ++i) place = place * shape[i] + index[static_cast<size_t>(i)];
  return place;
}

Index index_of(const Shape& shape, int64_t place) {
  Index index(static_cast<size_t>(shape.size()));
  for (int i = shape.size() - 1; i >= 0; place /= shape[i--]) index[static_cast<size_t>(i)] = place % shape[i];
  return index;
}

/// Where the element of the result at an index comes from; empty: it is 0.
using Source = std::function<Index(Index to)>;

/// Checks the shape of run(x), its elements, and its gradient.
void check(const char* name, const Shape& of_x, const std::function<Tensor(const Tensor&)>& run, const Shape& of_y,
           const Source& source) {
  INFO(name << " of " << to_string(of_x));
  const Tensor x = arange(1, 1 + numel_of(of_x), dtype(kDouble)).reshape(of_x).requires_grad_(true);
  const Tensor y = run(x), wanted = zeros(of_y, kDouble), dx = zeros(of_x, kDouble);
  const Tensor dy = arange(1, 1 + numel_of(of_y), kDouble).reshape(of_y).square();
  REQUIRE(y.sizes() == of_y);
  for (int64_t i = 0; i < numel_of(of_y); ++i) {
    const Index from = source(index_of(of_y, i));
    if (from.empty() && of_x.size() > 0) continue;
    const int64_t place = place_of(of_x, from);
    wanted.data_ptr<double>()[i] = static_cast<double>(place + 1);
    dx.data_ptr<double>()[place] += dy.data_ptr<double>()[i];
  }
  CHECK(y.detach().equal(wanted));
  CHECK(autograd::grad({y}, {x}, {dy})[0].equal(dx));
}

TEST_CASE("views begin, end and step where their arguments say") {
  const Shape shape = {2, 3, 5};
  using X = const Tensor&;
  check(
      "narrow", shape, [](X x) { return x.narrow(2, 1, 3); }, {2, 3, 3}, [](Index i) { return i[2] += 1, i; });
  check(
      "narrow from the end", shape, [](X x) { return x.narrow(1, -2, 2); }, {2, 2, 5},
      [](Index i) { return i[1] += 1, i; });
  check(
      "narrow from the very end", shape, [](X x) { return x.narrow(-1, -5, 2); }, {2, 3, 2}, [](Index i) { return i; });
  check(
      "narrow to nothing", shape, [](X x) { return x.narrow(0, 2, 0); }, {0, 3, 5}, [](Index i) { return i; });
  check(
      "slice", shape, [](X x) { return x.slice(2, -4, -1, 2); }, {2, 3, 2},
      [](Index i) { return i[2] = 1 + 2 * i[2], i; });
  check(
      "slice to the end", shape, [](X x) { return x.slice(1, 1); }, {2, 2, 5}, [](Index i) { return ++i[1], i; });
  check(
      "slice from the start", shape, [](X x) { return x.slice(0, {}, 1); }, {1, 3, 5}, [](Index i) { return i; });
  check(
      "select", shape, [](X x) { return x.select(1, -1); }, {2, 5},
      [](Index i) {
        return Index{i[0], 2, i[1]};
      });
  check(
      "select from the last", shape, [](X x) { return x.select(-1, 2); }, {2, 3},
      [](Index i) {
        return Index{i[0], i[1], 2};
      });
  check(
      "unfold", shape, [](X x) { return x.unfold(2, 3, 2); }, {2, 3, 2, 3},
      [](Index i) {
        return Index{i[0], i[1], 2 * i[2] + i[3]};
      });
  check(
      "unfold the middle", shape, [](X x) { return x.unfold(1, 2, 1); }, {2, 2, 5, 2},
      [](Index i) {
        return Index{i[0], i[1] + i[3], i[2]};
      });
  check(
      "unfold to windows of no elements", shape, [](X x) { return x.unfold(1, 0, 2); }, {2, 2, 5, 0},
      [](Index i) { return i; });
  check(
      "unfold a scalar", {}, [](X x) { return x.unfold(0, 1, 1); }, {1}, [](Index) { return Index{}; });
  check(
      "as_strided", shape,
      [](X x) {
        return x.as_strided({2, 3}, {7, 2}, 4);
      },
      {2, 3},
      [&](Index i) {
        return index_of({2, 3, 5}, 4 + 7 * i[0] + 2 * i[1]);
      });
  for (const int64_t offset : {-2, -1, 0, 1, 4, 5, -3}) {
    const int64_t rows = offset < 0 ? -offset : 0, columns = offset > 0 ? offset : 0;
    const int64_t length = std::max<int64_t>(0, std::min(2 - rows, 5 - columns));
    check(
        "diagonal", shape, [=](X x) { return x.diagonal(offset, 0, 2); }, {3, length},
        [=](Index i) {
          return Index{i[1] + rows, i[0], i[1] + columns};
        });
    const int64_t turned = std::max<int64_t>(0, std::min(5 - rows, 2 - columns));
    check(
        "diagonal of the last and the first dimension", shape, [=](X x) { return x.diagonal(offset, -1, 0); },
        {3, turned},
        [=](Index i) {
          return Index{i[1] + columns, i[0], i[1] + rows};
        });
  }
  const Tensor x = arange(30).reshape(shape);
  CHECK_THROWS_AS(x.narrow(1, 2, 2), IndexError);
  CHECK_THROWS_AS(x.narrow(1, -4, 1), IndexError);
  CHECK_THROWS_AS(x.narrow(1, 4, 0), IndexError);
  CHECK_THROWS_AS(x.narrow(1, 0, -1), IndexError);
  CHECK_THROWS_AS(x.unfold(1, 4, 1), ShapeError);
}

TEST_CASE("dimensions are exchanged, inserted, merged and split") {
  const Shape shape = {2, 3, 5};
  using X = const Tensor&;
  check(
      "permute", shape,
      [](X x) {
        return x.permute({2, 0, 1});
      },
      {5, 2, 3},
      [](Index i) {
        return Index{i[1], i[2], i[0]};
      });
  check(
      "transpose", shape, [](X x) { return x.transpose(0, -1); }, {5, 3, 2},
      [](Index i) {
        return Index{i[2], i[1], i[0]};
      });
  check(
      "movedim to the end", shape, [](X x) { return x.movedim(0, 2); }, {3, 5, 2},
      [](Index i) {
        return Index{i[2], i[0], i[1]};
      });
  check(
      "movedim to the start", shape, [](X x) { return x.movedim(-1, 0); }, {5, 2, 3},
      [](Index i) {
        return Index{i[1], i[2], i[0]};
      });
  check(
      "movedim of two", shape,
      [](X x) {
        return x.movedim({0, 2}, {1, 0});
      },
      {5, 2, 3},
      [](Index i) {
        return Index{i[1], i[2], i[0]};
      });
  check(
      "movedim of none", shape, [](X x) { return x.movedim(IntArrayRef{}, IntArrayRef{}); }, shape,
      [](Index i) { return i; });
  check(
      "t", {2, 3}, [](X x) { return x.t(); }, {3, 2},
      [](Index i) {
        return Index{i[1], i[0]};
      });
  check(
      "unsqueeze", shape, [](X x) { return x.unsqueeze(1); }, {2, 1, 3, 5},
      [](Index i) {
        return Index{i[0], i[2], i[3]};
      });
  check(
      "unsqueeze at the end", shape, [](X x) { return x.unsqueeze(-1); }, {2, 3, 5, 1},
      [](Index i) {
        return Index{i[0], i[1], i[2]};
      });
  check(
      "squeeze", {2, 1, 3, 1}, [](X x) { return x.squeeze(); }, {2, 3},
      [](Index i) {
        return Index{i[0], 0, i[1], 0};
      });
  check(
      "squeeze of one", {2, 1, 3, 1}, [](X x) { return x.squeeze(1); }, {2, 3, 1},
      [](Index i) {
        return Index{i[0], 0, i[1], 0};
      });
  check(
      "squeeze of a longer one", {2, 1, 3, 1}, [](X x) { return x.squeeze(-2); }, {2, 1, 3, 1},
      [](Index i) { return i; });
  check(
      "flatten", shape, [](X x) { return x.flatten(0, 1); }, {6, 5},
      [](Index i) {
        return Index{i[0] / 3, i[0] % 3, i[1]};
      });
  check(
      "flatten from 1", shape, [](X x) { return x.flatten(1); }, {2, 15},
      [](Index i) {
        return Index{i[0], i[1] / 5, i[1] % 5};
      });
  check(
      "unflatten", {2, 15},
      [](X x) {
        return x.unflatten(1, {3, -1});
      },
      {2, 3, 5},
      [](Index i) {
        return Index{i[0], 5 * i[1] + i[2]};
      });
  check(
      "unflatten the first", {6, 5},
      [](X x) {
        return x.unflatten(-2, {2, 3});
      },
      {2, 3, 5},
      [](Index i) {
        return Index{3 * i[0] + i[1], i[2]};
      });
  check(
      "expand", {3, 1},
      [](X x) {
        return x.expand({2, -1, 4});
      },
      {2, 3, 4},
      [](Index i) {
        return Index{i[1], 0};
      });
  check(
      "broadcast_to", {3, 1},
      [](X x) {
        return broadcast_to(x, {2, 3, 4});
      },
      {2, 3, 4},
      [](Index i) {
        return Index{i[1], 0};
      });
  check(
      "expand a scalar", {},
      [](X x) {
        return x.expand({2, 3});
      },
      {2, 3}, [](Index) { return Index{}; });
  check(
      "atleast_3d", {2, 3}, [](X x) { return atleast_3d(x); }, {2, 3, 1},
      [](Index i) {
        return Index{i[0], i[1]};
      });
  check(
      "atleast_3d of a vector", {3}, [](X x) { return atleast_3d(x); }, {1, 3, 1}, [](Index i) { return Index{i[1]}; });
  check(
      "atleast_2d of a vector", {3}, [](X x) { return atleast_2d(x); }, {1, 3}, [](Index i) { return Index{i[1]}; });
  check(
      "atleast_1d of a scalar", {}, [](X x) { return atleast_1d(x); }, {1}, [](Index) { return Index{}; });
}

TEST_CASE("elements are repeated, reversed, shifted and cut off") {
  const Shape shape = {2, 3, 5};
  using X = const Tensor&;
  check(
      "repeat", shape,
      [](X x) {
        return x.repeat({2, 1, 3});
      },
      {4, 3, 15},
      [](Index i) {
        return Index{i[0] % 2, i[1], i[2] % 5};
      });
  check(
      "repeat with more dimensions", {2, 3},
      [](X x) {
        return x.repeat({2, 1, 2});
      },
      {2, 2, 6},
      [](Index i) {
        return Index{i[1], i[2] % 3};
      });
  check(
      "repeat no times", {2, 3},
      [](X x) {
        return x.repeat({0, 1});
      },
      {0, 3}, [](Index i) { return i; });
  check(
      "tile", shape, [](X x) { return tile(x, {2}); }, {2, 3, 10},
      [](Index i) {
        return Index{i[0], i[1], i[2] % 5};
      });
  check(
      "tile with more dimensions", {3},
      [](X x) {
        return tile(x, {2, 3});
      },
      {2, 9}, [](Index i) { return Index{i[1] % 3}; });
  check(
      "repeat_interleave", shape, [](X x) { return x.repeat_interleave(2, 1); }, {2, 6, 5},
      [](Index i) {
        return Index{i[0], i[1] / 2, i[2]};
      });
  check(
      "repeat_interleave the last", shape, [](X x) { return x.repeat_interleave(3, -1); }, {2, 3, 15},
      [](Index i) {
        return Index{i[0], i[1], i[2] / 3};
      });
  check(
      "repeat_interleave all", {2, 3}, [](X x) { return x.repeat_interleave(2); }, {12},
      [](Index i) {
        return Index{i[0] / 6, i[0] / 2 % 3};
      });
  check(
      "repeat_interleave once", {2, 3}, [](X x) { return x.repeat_interleave(1, 0); }, {2, 3},
      [](Index i) { return i; });
  check(
      "repeat_interleave a number", {}, [](X x) { return x.repeat_interleave(3, 0); }, {3},
      [](Index) { return Index{}; });
  check(
      "flip", shape,
      [](X x) {
        return x.flip({0, 2});
      },
      shape,
      [](Index i) {
        return Index{1 - i[0], i[1], 4 - i[2]};
      });
  check(
      "flip the last", shape, [](X x) { return x.flip({-1}); }, shape,
      [](Index i) {
        return Index{i[0], i[1], 4 - i[2]};
      });
  check(
      "flip nothing", shape, [](X x) { return x.flip(IntArrayRef{}); }, shape, [](Index i) { return i; });
  check(
      "fliplr", shape, [](X x) { return fliplr(x); }, shape,
      [](Index i) {
        return Index{i[0], 2 - i[1], i[2]};
      });
  check(
      "flipud", {3}, [](X x) { return flipud(x); }, {3}, [](Index i) { return Index{2 - i[0]}; });
  check(
      "roll", shape, [](X x) { return x.roll({1}, {2}); }, shape,
      [](Index i) {
        return Index{i[0], i[1], (i[2] + 4) % 5};
      });
  check(
      "roll back", shape, [](X x) { return x.roll({-2}, {-2}); }, shape,
      [](Index i) {
        return Index{i[0], (i[1] + 2) % 3, i[2]};
      });
  check(
      "roll far", shape, [](X x) { return x.roll({-12}, {2}); }, shape,
      [](Index i) {
        return Index{i[0], i[1], (i[2] + 2) % 5};
      });
  check(
      "roll two", shape,
      [](X x) {
        return x.roll({1, 2}, {0, 2});
      },
      shape,
      [](Index i) {
        return Index{(i[0] + 1) % 2, i[1], (i[2] + 3) % 5};
      });
  check(
      "roll all", shape, [](X x) { return x.roll({7}, IntArrayRef{}); }, shape,
      [](Index i) {
        return index_of({2, 3, 5}, (place_of({2, 3, 5}, i) + 23) % 30);
      });
  for (const int64_t k : {-4, -3, -1, 0, 1, 4, 5, 6}) {
    CAPTURE(k);
    check(
        "tril", {2, 3, 5}, [=](X x) { return x.tril(k); }, {2, 3, 5},
        [=](Index i) { return i[2] - i[1] <= k ? i : Index{}; });
    check(
        "triu", {2, 3, 5}, [=](X x) { return x.triu(k); }, {2, 3, 5},
        [=](Index i) { return i[2] - i[1] >= k ? i : Index{}; });
    const int64_t size = 3 + std::abs(k);
    check(
        "diag of a vector", {3}, [=](X x) { return diag(x, k); }, {size, size},
        [=](Index i) { return i[1] - i[0] == k ? Index{std::min(i[0], i[1])} : Index{}; });
    const int64_t rows = std::max<int64_t>(-k, 0), columns = std::max<int64_t>(k, 0);
    const int64_t length = std::max<int64_t>(0, std::min(3 - rows, 5 - columns));
    check(
        "diag of a matrix", {3, 5}, [=](X x) { return diag(x, k); }, {length},
        [=](Index i) {
          return Index{i[0] + rows, i[0] + columns};
        });
  }
}

TEST_CASE("parts of a split, chunk and unbind, and what joins them") {
  const Shape shape = {2, 3, 7};
  const Tensor x = arange(42).reshape(shape).to(kDouble).requires_grad_(true);
  for (const int64_t dim : {0, 1, 2, -1}) {
    CAPTURE(dim);
    const int64_t size = x.size(dim);
    for (const int64_t step : {1, 2, 3, 7, 8}) {
      const TensorList parts = x.split(step, dim);
      int64_t start = 0;
      for (const Tensor& part : parts) {
        CHECK(part.equal(x.narrow(dim, start, std::min(step, size - start))));
        start += part.size(dim);
      }
      CHECK(start == size);
      CHECK(cat(parts, dim).equal(x));
      const TensorList chunks = x.chunk(step, dim);
      const int64_t each = (size + step - 1) / step;
      CHECK(chunks.size() == static_cast<size_t>((size + each - 1) / each));
      CHECK(chunks[0].size(dim) == each);
      CHECK(cat(chunks, dim).equal(x));
    }
    const TensorList slices = x.unbind(dim);
    REQUIRE(slices.size() == static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) CHECK(slices[static_cast<size_t>(i)].equal(x.select(dim, i)));
    CHECK(stack(slices, dim).equal(x));
    // The gradient of a part that is not used is 0.
    const size_t last = slices.size() - 1;
    const Tensor dx = autograd::grad({slices[last].sum() * 3}, {x})[0];
    CHECK(dx.select(dim, -1).equal(full(slices[0].sizes(), 3.0, kDouble)));
    CHECK(dx.sum().item<double>() == 3.0 * static_cast<double>(slices[0].numel()));
  }
  const TensorList parts = x.split({1, 0, 4, 2}, 2);
  CHECK(parts[0].equal(x.narrow(2, 0, 1)));
  CHECK(parts[1].sizes() == Shape{2, 3, 0});
  CHECK(parts[2].equal(x.narrow(2, 1, 4)));
  CHECK(parts[3].equal(x.narrow(2, 5, 2)));
  const Tensor dx = autograd::grad({(parts[2] * 2).sum() + parts[3].sum()}, {x})[0];
  CHECK(dx.equal(cat({zeros({2, 3, 1}, kDouble), full({2, 3, 4}, 2.0, kDouble), ones({2, 3, 2}, kDouble)}, 2)));
  CHECK(zeros({0, 2}).split(3).size() == 1);
  CHECK(zeros({0, 2}).split(0).size() == 1);
  CHECK(zeros({0, 2}).chunk(3).size() == 3);
  const Tensor a = arange(3), b = arange(3, 6);
  CHECK(hstack({a, b}).equal(arange(6)));
  CHECK(hstack({a.unsqueeze(1), b.unsqueeze(1)}).equal(stack({a, b}, 1)));
  CHECK(vstack({a, b}).equal(stack({a, b})));
  CHECK(vstack({a.unsqueeze(0), b}).equal(stack({a, b})));
  CHECK(dstack({a, b}).equal(stack({a, b}, 1).unsqueeze(0)));
  CHECK(stack({a, b}, -1).equal(stack({a, b}, 1)));
  CHECK(stack({a, b}, -2).equal(stack({a, b}, 0)));
}

TEST_CASE("views and joined tensors have a history where an operand has one and gradients are recorded") {
  const Tensor leaf = ones({2, 4}, dtype(kDouble).requires_grad(true)), plain = ones({2, 4}, kDouble);
  const auto all_of = [](const Tensor& x, const Tensor& y) {
    TensorList results = {cat({x, y}), stack({x, y}), hstack({x, y}),   x.view({8}),
                          x.t(),       x[0],          x.slice(1, 0, 2), x.index({y > 0})};
    for (const TensorList& parts : {x.split(1), x.chunk(2, 1), x.unbind(0)})
      results.insert(results.end(), parts.begin(), parts.end());
    return results;
  };
  for (const Tensor& y : all_of(leaf, plain)) CHECK((y.requires_grad() && y.grad_fn()));
  for (const Tensor& y : all_of(plain, plain)) CHECK_FALSE((y.requires_grad() || y.grad_fn()));
  const NoGradGuard no_grad;
  // A view of a tensor that requires gradients says so, although it has no history.
  for (const Tensor& y : all_of(leaf, leaf)) CHECK((!y.grad_fn() && y.requires_grad() == y.is_view()));
}

TEST_CASE("resize_ keeps the elements that fit, in row-major order") {
  const auto numbers = [] { return arange(6).reshape({2, 3}); };
  CHECK(numbers().resize_({4}).equal(arange(4)));
  CHECK(numbers().resize_({6}).equal(arange(6)));
  const Tensor longer = numbers();
  const void* const before = longer.data_ptr();
  longer.resize_({2, 4});
  CHECK(longer.data_ptr() != before);
  CHECK(longer.sizes() == Shape{2, 4});
  CHECK(longer.flatten().slice(0, 0, 6).equal(arange(6)));
  const Tensor tail = numbers().slice(0, 1);  // 3, 4, 5
  tail.resize_({3});
  CHECK(tail.equal(arange(3, 6)));
  tail.resize_({5});
  CHECK(tail.slice(0, 0, 3).equal(arange(3, 6)));
  const Tensor none = zeros({0}, kLong);
  CHECK(none.resize_({2}).sizes() == Shape{2});
}

}  // namespace places_test
