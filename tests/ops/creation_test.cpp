// New tensors: their types, shapes and elements, and the memory that from_blob takes.
#include <cmath>
#include <functional>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/catch.h>

namespace creation_test {

using namespace gradus;
using test::contains;

TEST_CASE("to() returns the tensor itself where nothing changes, unless it is asked for a copy") {
  const Tensor x = rand({2, 3, 4, 5});
  CHECK(x.to(kCPU, kFloat, false, false, std::nullopt).is_same(x));
  const Tensor copy = x.to(kCPU, kFloat, false, true, std::nullopt);
  CHECK_FALSE(copy.array().storage() == x.array().storage());
  CHECK(copy.equal(x));
  CHECK(x.to(kCPU, kFloat, true, false, std::nullopt).is_same(x));
  const Tensor last = x.to(kCPU, kDouble, false, false, MemoryFormat::channels_last);
  CHECK((last.dtype() == kDouble && last.is_contiguous(MemoryFormat::channels_last)));
  CHECK(last.equal(x.to(kDouble)));
}

TEST_CASE("new tensors have the type, the layout and the history that their options say, or those of a model") {
  const Tensor model = ones({2, 3, 4, 5}, kDouble).contiguous(MemoryFormat::channels_last), counts = ones({2, 3}, kInt);
  struct Call {
    const char* name;
    std::function<Tensor(const TensorOptions&)> run;
    DType dtype;  // without options
  };
  const std::vector<Call> calls = {
      {"empty",
       [](const TensorOptions& o) {
         return empty({2, 3}, o);
       },
       kFloat},
      {"zeros",
       [](const TensorOptions& o) {
         return zeros({2, 3}, o);
       },
       kFloat},
      {"ones",
       [](const TensorOptions& o) {
         return ones({2, 3}, o);
       },
       kFloat},
      {"full",
       [](const TensorOptions& o) {
         return full({2, 3}, 2.5, o);
       },
       kFloat},
      {"full of an integer",
       [](const TensorOptions& o) {
         return full({2, 3}, 2, o);
       },
       kLong},
      {"full of a boolean",
       [](const TensorOptions& o) {
         return full({2, 3}, true, o);
       },
       kBool},
      {"eye", [](const TensorOptions& o) { return eye(3, o); }, kFloat},
      {"arange", [](const TensorOptions& o) { return arange(3, o); }, kLong},
      {"arange of a fraction", [](const TensorOptions& o) { return arange(2.5, o); }, kFloat},
      {"arange by a fraction", [](const TensorOptions& o) { return arange(0, 3, 0.5, o); }, kFloat},
      {"arange from a fraction", [](const TensorOptions& o) { return arange(0.5, 3, o); }, kFloat},
      {"linspace", [](const TensorOptions& o) { return linspace(0, 3, 4, o); }, kFloat},
      {"logspace", [](const TensorOptions& o) { return logspace(0, 2, 3, 10, o); }, kFloat},
      {"rand",
       [](const TensorOptions& o) {
         return rand({2, 3}, o);
       },
       kFloat},
      {"randn",
       [](const TensorOptions& o) {
         return randn({2, 3}, o);
       },
       kFloat},
      {"normal",
       [](const TensorOptions& o) {
         return normal(1, 2, {2, 3}, o);
       },
       kFloat},
      {"randint",
       [](const TensorOptions& o) {
         return randint(5, {2, 3}, o);
       },
       kLong},
      {"randperm", [](const TensorOptions& o) { return randperm(5, o); }, kLong},
      {"empty_like", [&](const TensorOptions& o) { return empty_like(model, o); }, kDouble},
      {"zeros_like", [&](const TensorOptions& o) { return zeros_like(model, o); }, kDouble},
      {"ones_like", [&](const TensorOptions& o) { return ones_like(model, o); }, kDouble},
      {"full_like", [&](const TensorOptions& o) { return full_like(model, 3, o); }, kDouble},
      {"rand_like", [&](const TensorOptions& o) { return rand_like(model, o); }, kDouble},
      {"randn_like", [&](const TensorOptions& o) { return randn_like(model, o); }, kDouble},
      {"randint_like", [&](const TensorOptions& o) { return randint_like(counts, 5, o); }, kInt},
      {"new_empty", [&](const TensorOptions& o) { return model.new_empty({2}, o); }, kDouble},
      {"new_zeros", [&](const TensorOptions& o) { return model.new_zeros({2}, o); }, kDouble},
      {"new_ones", [&](const TensorOptions& o) { return model.new_ones({2}, o); }, kDouble},
      {"new_full", [&](const TensorOptions& o) { return model.new_full({2}, 3, o); }, kDouble},
      {"tensor",
       [](const TensorOptions& o) {
         return tensor({1.5, 2.5}, o);
       },
       kFloat},
      {"tensor of integers",
       [](const TensorOptions& o) {
         return tensor({1, 2}, o);
       },
       kLong},
  };
  for (const Call& call : calls) {
    INFO(call.name);
    CHECK(call.run({}).dtype() == call.dtype);
    CHECK_FALSE(call.run({}).requires_grad());
    for (const DType type : {kDouble, kHalf}) {
      const Tensor x = call.run(dtype(type).requires_grad(true));
      CHECK(x.dtype() == type);
      CHECK((x.requires_grad() && x.is_leaf()));
    }
    if (call.run({}).dim() == 4) CHECK(call.run({}).is_contiguous(MemoryFormat::channels_last));
  }
  set_default_dtype(kDouble);
  for (const Call& call : calls) CHECK(call.run({}).dtype() == (call.dtype == kFloat ? kDouble : call.dtype));
  set_default_dtype(kFloat);
}

TEST_CASE("nested braces give a tensor of their shape, and of the type of all numbers") {
  CHECK(tensor({{1, 2, 3}, {4, 5, 6}}).equal(arange(1, 7).reshape({2, 3})));
  CHECK(tensor({{{1.5}, {2.5}}}).sizes() == Shape{1, 2, 1});
  CHECK(tensor(5).equal(full({}, 5)));
  CHECK(tensor({true, false}).dtype() == kBool);
  CHECK(tensor({1, 2}, kByte).dtype() == kByte);
  CHECK_THROWS_WITH(tensor({{1, 2}, {3}}), contains("rows of different lengths: 2 and 1"));
  CHECK_THROWS_WITH(tensor({{1, 2}, {3, 4, 5}}), contains("rows of different lengths: 2 and 3"));
  CHECK_THROWS_WITH(tensor({{1, 2}, 3}), contains("found a number instead of a row of 2"));
  CHECK_THROWS_WITH(tensor({1, {2, 3}}), contains("found a row instead of a number"));
  CHECK_THROWS_WITH(tensor({1, 300}, kByte), contains("300 is outside the range of uint8"));
  CHECK(tensor(std::vector<float>{1, 2}).dtype() == kFloat);
  CHECK(tensor(std::vector<double>{1, 2}).dtype() == kFloat);
  CHECK(tensor(std::vector<int>{1, 2}).dtype() == kLong);
  CHECK(tensor(std::vector<uint8_t>{1, 2}).dtype() == kByte);
  CHECK(tensor(std::vector<double>{0.1}, kDouble).item<double>() == 0.1);
  CHECK(tensor(std::vector<float>{}).sizes() == Shape{0});
}

TEST_CASE("sequences begin and end where they should") {
  CHECK(arange(2, 9, 3).equal(tensor({2, 5, 8})));
  CHECK(arange(2, 8, 3).equal(tensor({2, 5})));
  CHECK(arange(5, 0, -2).equal(tensor({5, 3, 1})));
  CHECK(arange(1, 2, 0.25, kDouble).equal(tensor({1.0, 1.25, 1.5, 1.75}, kDouble)));
  CHECK(linspace(-1, 2, 4, kDouble).equal(tensor({-1.0, 0.0, 1.0, 2.0}, kDouble)));
  CHECK(linspace(3, 9, 1, kDouble).equal(tensor({3.0}, kDouble)));
  CHECK(linspace(0, 10, 5, kLong).equal(tensor({0, 2, 5, 7, 10})));
  CHECK(linspace(10, 0, 5, kLong).equal(tensor({10, 7, 5, 2, 0})));
  CHECK(linspace(0.9, 3.9, 4, kLong).equal(tensor({0, 1, 2, 3})));
  CHECK(logspace(-1, 2, 4, 10, kDouble).allclose(tensor({0.1, 1.0, 10.0, 100.0}, kDouble), 1e-14, 0));
  CHECK(logspace(0, 3, 4, 2, kDouble).equal(tensor({1.0, 2.0, 4.0, 8.0}, kDouble)));
  CHECK(logspace(0, 18, 19, 10, kLong)[18].item<int64_t>() == 1'000'000'000'000'000'000);
  CHECK(logspace(0.9, 3.9, 4, 10, kLong).equal(tensor({1, 10, 100, 1000})));
  CHECK_THROWS_AS(logspace(0, 1, 2, 10, kBool), DTypeError);
  CHECK(eye(2, 3).equal(tensor({{1.0, 0.0, 0.0}, {0.0, 1.0, 0.0}})));
  CHECK(eye(3, 2).equal(tensor({{1.0, 0.0}, {0.0, 1.0}, {0.0, 0.0}})));
  CHECK_THROWS_AS(eye(-1, 2), ValueError);
  CHECK_THROWS_AS(eye(2, -1), ValueError);
  for (const int64_t offset : {-3, -1, 0, 1, 2, 5}) {
    CAPTURE(offset);
    const Tensor lower = tril_indices(3, 4, offset), upper = triu_indices(3, 4, offset), all = ones({3, 4}, kLong);
    CHECK(lower.equal(all.tril(offset).nonzero().t()));
    CHECK(upper.equal(all.triu(offset).nonzero().t()));
  }
  for (const Tensor& indices : {tril_indices(0, 4), tril_indices(4, 0), triu_indices(0, 4), triu_indices(4, 0)})
    CHECK(indices.sizes() == Shape{2, 0});
  CHECK_THROWS_AS(tril_indices(2, -1), ValueError);
  CHECK(tril_indices(2, 2, 0, kInt).dtype() == kInt);
  CHECK_THROWS_AS(tril_indices(-1, 2), ValueError);
  CHECK_THROWS_AS(triu_indices(2, -1), ValueError);
}

TEST_CASE("from_blob shares the given memory, and calls the deleter once") {
  std::vector<float> memory = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  int deleted = 0;
  {
    const Tensor x = from_blob(memory.data(), {2, 3}, [&](void* data) { deleted += data == memory.data(); });
    CHECK(x.equal(tensor({{0.0, 1.0, 2.0}, {3.0, 4.0, 5.0}})));
    x.fill_(7);
    CHECK((memory[0] == 7 && memory[5] == 7 && memory[6] == 6));
    const Tensor part = x[1];
    CHECK(deleted == 0);
  }
  CHECK(deleted == 1);
  const Tensor strided = from_blob(memory.data() + 6, {2, 2}, {1, 2});
  CHECK(strided.equal(tensor({{6.0, 8.0}, {7.0, 9.0}})));
  CHECK(strided.array().storage().bytes() == 16);
  CHECK(from_blob(memory.data(), {4}, IntArrayRef{0}).array().storage().bytes() == 4);
  CHECK(from_blob(memory.data(), {3}, IntArrayRef{3}).array().storage().bytes() == 28);
  CHECK(from_blob(memory.data(), {2, 0, 3}).array().storage().bytes() == 0);
  CHECK(from_blob(memory.data(), {}).item<float>() == 7);
  CHECK(from_blob(nullptr, {0}).numel() == 0);
  CHECK(from_blob(memory.data(), {0}, IntArrayRef{-1}).numel() == 0);
  CHECK_THROWS_WITH(from_blob(nullptr, {1}), contains("the address is null but the shape (1,) has elements"));
  CHECK_THROWS_WITH(from_blob(memory.data(), {2, 2}, IntArrayRef{1}), contains("strides (1,) for a shape (2, 2)"));
  CHECK_THROWS_WITH(from_blob(memory.data(), {2}, IntArrayRef{-1}),
                    contains("strides must not be negative, got (-1,)"));
  CHECK_THROWS_AS(from_blob(memory.data(), {3}, IntArrayRef{INT64_MAX}), ShapeError);
  CHECK(from_blob(memory.data(), {2}, dtype(kFloat).requires_grad(true)).requires_grad());
}

TEST_CASE("random tensors have the moments of their distributions, and the limits that they are given") {
  manual_seed(5);
  const auto moments = [](const Tensor& x) {
    const Tensor wide = x.to(kDouble);
    return std::pair(wide.mean().item<double>(), wide.var({}, 0).item<double>());
  };
  const auto check = [&](const Tensor& x, double mean, double variance) {
    const auto found = moments(x);
    CHECK(found.first == Approx(mean).margin(0.05 * std::sqrt(variance)));
    CHECK(found.second == Approx(variance).epsilon(0.08));
  };
  const Tensor model = empty({20000});
  check(rand({20000}), 0.5, 1.0 / 12);
  check(rand_like(model), 0.5, 1.0 / 12);
  check(randn({20000}), 0, 1);
  check(randn_like(model), 0, 1);
  check(normal(3, 2, {20000}), 3, 4);
  check(bernoulli(full({20000}, 0.3)), 0.3, 0.21);
  check(randint(2, 6, {20000}), 3.5, 1.25);
  check(randint(4, {20000}), 1.5, 1.25);
  check(randint_like(model, 2, 6), 3.5, 1.25);
  check(randint_like(model, 4), 1.5, 1.25);
  const Tensor whole = randint(-2, 1, {1000});
  CHECK((whole.min().item<int64_t>() == -2 && whole.max().item<int64_t>() == 0));
  const Tensor unit = rand({20000});
  CHECK((unit.min().item<float>() >= 0 && unit.max().item<float>() < 1));
  for (const double wrong : {-0.01, 1.01, std::nan("")}) CHECK_THROWS_AS(bernoulli(full({2}, wrong)), ValueError);
}

TEST_CASE("to() keeps a tensor that is as wanted, copies on request, and hands gradients back in the old type") {
  const Tensor x = ones({2, 3}, dtype(kDouble).requires_grad(true));
  CHECK(x.to(kDouble).is_same(x));
  CHECK(x.to(kCPU).is_same(x));
  CHECK_FALSE(x.to(kCPU, kDouble, false, true).array().storage() == x.array().storage());
  const Tensor y = x.to(kFloat);
  CHECK(y.dtype() == kFloat);
  y.sum().backward();
  CHECK(x.grad().dtype() == kDouble);
  CHECK(x.grad().equal(ones({2, 3}, kDouble)));
  for (const DType type : {kFloat, kHalf, kBFloat16, kLong, kInt, kByte, kBool}) {
    const Tensor numbers = tensor({0.0, 1.0, 2.75}, kDouble).to(type);
    const bool whole = is_integral(type) && type != kBool;
    CHECK(numbers.to(kDouble).equal(tensor({0.0, 1.0, type == kBool ? 1.0 : whole ? 2.0 : 2.75}, kDouble)));
  }
}

}  // namespace creation_test
