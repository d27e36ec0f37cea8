// Element types of results: PyTorch's promotion rules for each pair of types (torch.result_type), and the default types
// of creation operators.
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;

namespace {

// promoted[i][j] is torch.promote_types(types[i], types[j]).
const DType types[] = {kByte, kInt, kLong, kHalf, kBFloat16, kFloat, kDouble, kBool};
const DType promoted[8][8] = {
    {kByte, kInt, kLong, kHalf, kBFloat16, kFloat, kDouble, kByte},
    {kInt, kInt, kLong, kHalf, kBFloat16, kFloat, kDouble, kInt},
    {kLong, kLong, kLong, kHalf, kBFloat16, kFloat, kDouble, kLong},
    {kHalf, kHalf, kHalf, kHalf, kFloat, kFloat, kDouble, kHalf},
    {kBFloat16, kBFloat16, kBFloat16, kFloat, kBFloat16, kFloat, kDouble, kBFloat16},
    {kFloat, kFloat, kFloat, kFloat, kFloat, kFloat, kDouble, kFloat},
    {kDouble, kDouble, kDouble, kDouble, kDouble, kDouble, kDouble, kDouble},
    {kByte, kInt, kLong, kHalf, kBFloat16, kFloat, kDouble, kBool},
};

}  // namespace

TEST_CASE("two tensors promote as in PyTorch") {
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      CAPTURE(name(types[i]), name(types[j]));
      const Tensor a = ones({2}, types[i]), b = ones({2}, types[j]);
      CHECK((a + b).dtype() == promoted[i][j]);
      CHECK((a * b).dtype() == promoted[i][j]);
      CHECK((a == b).dtype() == kBool);
      CHECK((a / b).dtype() == (is_floating(promoted[i][j]) ? promoted[i][j] : kFloat));
      CHECK(where(ones({2}, kBool), a, b).dtype() == promoted[i][j]);
      CHECK(cat({a, b}).dtype() == promoted[i][j]);
      CHECK((a * b).to(kDouble).equal(ones({2}, kDouble)));
    }
  }
}

TEST_CASE("numbers and scalar tensors promote only to a higher kind") {
  for (DType dtype : types) {
    CAPTURE(name(dtype));
    const Tensor x = ones({2}, dtype);
    const DType with_integer = dtype == kBool ? kLong : dtype, with_real = is_floating(dtype) ? dtype : kFloat;
    CHECK((x + 1).dtype() == with_integer);
    CHECK((1 + x).dtype() == with_integer);
    CHECK((x * 1.5).dtype() == with_real);
    CHECK((x + true).dtype() == dtype);
    CHECK((x + full({}, 1, kLong)).dtype() == with_integer);
    CHECK((x * full({}, 1.5, kDouble)).dtype() == (is_floating(dtype) ? dtype : kDouble));
    CHECK((x > 0.5).equal(ones({2}, kBool)));
    CHECK((x + 0.5).to(kDouble).equal(full({2}, 1.5, kDouble)));
  }
}

TEST_CASE("a real number is not truncated to the type of an integer tensor") {
  const Tensor x = tensor({1, 2, 3});
  CHECK((x > 1.5).equal(tensor({false, true, true})));
  CHECK((x * 0.5).equal(tensor({0.5, 1., 1.5})));
  CHECK(maximum(x, 1.5).equal(tensor({1.5, 2., 3.})));
  CHECK(x.pow(0.5).allclose(tensor({1., 1.41421356, 1.7320508})));
}

TEST_CASE("default types of new tensors") {
  CHECK(zeros({1}).dtype() == kFloat);
  CHECK(rand({1}).dtype() == kFloat);
  CHECK(full({1}, 1).dtype() == kLong);
  CHECK(full({1}, 1.0).dtype() == kFloat);
  CHECK(full({1}, true).dtype() == kBool);
  CHECK(arange(3).dtype() == kLong);
  CHECK(arange(0, 1, 0.25).dtype() == kFloat);
  CHECK(linspace(0, 1, 3).dtype() == kFloat);
  CHECK(randint(0, 3, {2}).dtype() == kLong);
  CHECK(randperm(3).dtype() == kLong);
  CHECK(tensor({1, 2}).dtype() == kLong);
  CHECK(tensor({1., 2.}).dtype() == kFloat);
  CHECK(tensor({true, false}).dtype() == kBool);
  CHECK(tensor(std::vector<double>{1}).dtype() == kFloat);
  CHECK(tensor(std::vector<int>{1}).dtype() == kLong);
  CHECK(tensor(std::vector<uint8_t>{1}).dtype() == kByte);
  CHECK(tensor(2.5).dim() == 0);
  CHECK(zeros({1}, dtype(kDouble).requires_grad(true)).requires_grad());
}

TEST_CASE("sums of integers are int64, sums of halves accumulate wider") {
  CHECK(ones({3}, kInt).sum().dtype() == kLong);
  CHECK(ones({3}, kBool).sum().item<int64_t>() == 3);
  CHECK(full({3}, 200, kByte).sum().item<int64_t>() == 600);
  CHECK(ones({5000}, kHalf).sum().item<float>() == 5000.0f);
  CHECK(full({4096}, 1, kBFloat16).sum().item<float>() == 4096.0f);
  CHECK(full({3}, 40000, kHalf).mean().item<float>() == Approx(40000).epsilon(1e-3));
}

TEST_CASE("the type that is given to a sum or product is the one that its terms are converted to, as in PyTorch") {
  const Tensor x = tensor({0.5, 1.5, 2.5}, kDouble), whole = tensor({100, 100, 100}, kInt);
  for (const std::string backend_name : {"naive", "openmp"}) {
    if (!has_backend(backend_name)) continue;
    const BackendGuard guard(backend_name);
    CHECK(x.sum(kLong).equal(full({}, 3)));
    CHECK(x.sum({0}, true, kInt).equal(full({1}, 3, kInt)));
    CHECK(x.slice(0, 1).prod(kLong).equal(full({}, 2)));
    CHECK(x.slice(0, 1).prod(0, false, kLong).equal(full({}, 2)));
    CHECK(x.cumsum(0, kLong).equal(tensor({0, 1, 3})));
    CHECK(x.slice(0, 1).cumprod(0, kLong).equal(tensor({1, 2})));
    CHECK(x.sum(kFloat).equal(full({}, 4.5)));
    CHECK(whole.sum().equal(full({}, 300)));
    CHECK(whole.sum(kByte).equal(full({}, 44, kByte)));
    CHECK(whole.sum(kDouble).equal(full({}, 300.0, kDouble)));
    CHECK(whole.prod(kLong).equal(full({}, 1'000'000)));
    CHECK(whole.mean(kFloat).equal(full({}, 100.0)));
    CHECK(whole.cumsum(0).dtype() == kLong);
    CHECK((whole > 0).sum().equal(full({}, 3)));
    CHECK(tensor({1, -1}).sum(kBool).equal(full({}, true)));  // both terms are true
    CHECK(tensor({1, -1}).cumsum(0, kBool).equal(tensor({true, true})));
    CHECK(tensor({2, 0}).prod(kBool).equal(full({}, false)));
    CHECK(tensor({(1 << 24) + 1, -(1 << 24)}).sum(kFloat).equal(full({}, 0.0)));  // the first is no float32
  }
}

TEST_CASE("int64 keeps its digits beyond 2^53") {
  constexpr int64_t odd = (int64_t{1} << 53) + 1, most = INT64_MAX;
  for (const std::string& backend_name : backend_names()) {
    if (!op_testing::device_of(backend_name).is_cpu()) continue;
    CAPTURE(backend_name);
    const BackendGuard guard(backend_name);
    const Tensor x = tensor({odd, -odd, most, int64_t{0}});
    const auto is = [](const Tensor& y, std::initializer_list<int64_t> wanted) {
      return y.equal(tensor(std::vector<int64_t>(wanted)));
    };
    CHECK(x[0].item<int64_t>() == odd);
    CHECK(is(clamp(x, 1 - most, most - 1), {odd, -odd, most - 1, 0}));
    CHECK(is(clamp(x, odd + 2), {odd + 2, odd + 2, most, odd + 2}));
    CHECK(is(x.clone().clamp_(-odd + 1, odd - 1), {odd - 1, -odd + 1, odd - 1, 0}));
    CHECK(is(clamp(x, tensor(odd + 2), tensor(odd + 4)), {odd + 2, odd + 2, odd + 4, odd + 2}));
    CHECK(is(hardtanh(tensor({odd, -odd}), 0, 1e18), {odd, 0}));
    CHECK(is(maximum(x, odd - 1), {odd, odd - 1, most, odd - 1}));
    CHECK(is(minimum(odd - 1, x), {odd - 1, -odd, odd - 1, 0}));
    CHECK(is(x + odd, {2 * odd, 0, INT64_MIN + odd - 1, odd}));
    CHECK(is(sub(odd, x), {0, 2 * odd, odd - most, odd}));
    CHECK(is(add(tensor({odd}), tensor({odd}), 3), {4 * odd}));
    CHECK(is(x.narrow(0, 0, 2) * 3, {3 * odd, -3 * odd}));
    CHECK(is(x.remainder(10), {odd % 10, 10 - odd % 10, most % 10, 0}));
    CHECK(is(x.fmod(odd - 1), {1, -1, most % (odd - 1), 0}));
    CHECK(is(x.div(3, "trunc"), {odd / 3, -odd / 3, most / 3, 0}));
    CHECK(is(x.div(-2, "floor"), {-odd / 2 - 1, odd / 2, -most / 2 - 1, 0}));
    CHECK(is(tensor({INT64_MIN, INT64_MIN}).div(tensor({-1, 3}), "floor"), {INT64_MIN, INT64_MIN / 3 - 1}));
    CHECK(is(pow(tensor({int64_t{208065}, int64_t{3}}), 3), {int64_t{208065} * 208065 * 208065, 27}));
    CHECK(is(pow(tensor({int64_t{3}}), 39), {4052555153018976267}));
    CHECK(is(square(tensor({int64_t{94906267}})), {int64_t{94906267} * 94906267}));
    CHECK(is((x == odd).to(kLong), {1, 0, 0, 0}));
    CHECK(is((x == odd - 1).to(kLong), {0, 0, 0, 0}));
    CHECK(is((x < odd).to(kLong), {0, 1, 0, 1}));
    CHECK(is((x <= odd - 1).to(kLong), {0, 1, 0, 1}));
    CHECK(is((x > odd - 1).to(kLong), {1, 0, 1, 0}));
    CHECK(is(x & odd, {odd, 1, odd, 0}));
    CHECK(is(where(x > 0, odd, most), {odd, most, odd, most}));
    CHECK(is(where(x > 0, x, odd), {odd, odd, most, odd}));
    CHECK(is(masked_fill(x, x == 0, odd), {odd, -odd, most, odd}));
    CHECK(is(index_fill(x, 0, tensor({3}), odd), {odd, -odd, most, odd}));
    CHECK(is(index_add(x, 0, tensor({3, 3}), tensor({odd, int64_t{1}})), {odd, -odd, most, odd + 1}));
    CHECK(is(x.scatter(0, tensor({3}), odd), {odd, -odd, most, odd}));
    CHECK(is(x.scatter_add(0, tensor({3, 3}), tensor({odd, int64_t{1}})), {odd, -odd, most, odd + 1}));
    CHECK(is(full({1}, odd), {odd}));
    CHECK(is(zeros({1}, kLong).fill_(odd), {odd}));
    CHECK(is(gather(x, 0, tensor({2, 0})), {most, odd}));
    CHECK(sum(tensor({odd, int64_t{1}, int64_t{1}})).item<int64_t>() == odd + 2);
    CHECK(prod(tensor({odd, int64_t{3}})).item<int64_t>() == 3 * odd);
    CHECK(is(cumsum(tensor({odd, int64_t{1}, int64_t{1}}), 0), {odd, odd + 1, odd + 2}));
    CHECK(is(cumprod(tensor({odd, int64_t{3}}), 0), {odd, 3 * odd}));
    CHECK(max(x).item<int64_t>() == most);
    CHECK(amin(x).item<int64_t>() == -odd);
    CHECK(argmax(tensor({odd - 1, odd, odd - 2})).item<int64_t>() == 1);
    CHECK(is(std::get<1>(sort(tensor({odd, odd - 1, odd + 1}))), {1, 0, 2}));
    CHECK(is(std::get<0>(topk(tensor({odd, odd - 1, odd + 1}), 1)), {odd + 1}));
    CHECK(median(tensor({odd, odd - 1, odd + 1})).item<int64_t>() == odd);
    CHECK(is(std::get<0>(_unique2(tensor({odd, odd - 1, odd}))), {odd - 1, odd}));
    CHECK(matmul(tensor({{odd, int64_t{1}}}), tensor({{int64_t{1}}, {int64_t{1}}})).item<int64_t>() == odd + 1);
    CHECK(abs(tensor({-odd}))[0].item<int64_t>() == odd);
    CHECK(addcmul(tensor({odd}), tensor({int64_t{1}}), tensor({int64_t{1}})).item<int64_t>() == odd + 1);
    CHECK(cat({tensor({odd}), tensor({1}, kInt)})[0].item<int64_t>() == odd);
    CHECK_FALSE(tensor({odd}).equal(tensor({odd - 1})));
  }
}

TEST_CASE("bounds that a type does not have are the nearest ones that it has") {
  const Tensor bytes = tensor({0, 7, 255}, kByte);
  CHECK(bytes.clamp(-1, 300).equal(bytes));
  CHECK(bytes.clamp(-9, 6).equal(tensor({0, 6, 6}, kByte)));
  CHECK(bytes.clamp(0.5, 7.5).dtype() == kFloat);  // fractional bounds make the result floating
  CHECK(tensor({1, 2}, kInt).clamp(int64_t{1} << 40).equal(full({2}, INT32_MAX, kInt)));
}

TEST_CASE("a view of another type has the same bytes") {
  const Tensor x = arange(8, kFloat).view({2, 4});
  CHECK(x.view(kInt)[0][1].item<int>() == 0x3f800000);
  CHECK(x.view(kInt).strides() == x.strides());
  CHECK(x.view(kHalf).sizes() == Shape({2, 8}));
  CHECK(x.view(kHalf).strides() == Strides({8, 1}));
  CHECK(x.view(kLong).sizes() == Shape({2, 2}));
  CHECK(x[1].view(kByte)[3].item<int>() == 0x40);  // the highest byte of 4.0f
  CHECK(x.view(kDouble).view(kFloat).equal(x));
  CHECK(x.t().view(kInt).sizes() == Shape({4, 2}));
  x.view(kInt).zero_();
  CHECK(x.equal(zeros({2, 4})));
  CHECK_FALSE(x.clone().requires_grad_().view(kInt).requires_grad());
  CHECK_THROWS_AS(x.t().view(kHalf), ShapeError);
  CHECK_THROWS_AS(x.narrow(1, 0, 3).view(kDouble), ShapeError);
  CHECK_THROWS_AS(x.narrow(1, 1, 2).view(kDouble), ShapeError);  // begins between two doubles
  CHECK_THROWS_AS(tensor(1.0).view(kDouble), ShapeError);
  CHECK(tensor({1}).view({}).dim() == 0);  // {} is an empty list of sizes, not a dtype
}
