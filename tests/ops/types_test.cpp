// Element types of results: PyTorch's promotion rules, pair by pair (torch.result_type), and defaults of creation.
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;

namespace {

// torch.promote_types in the order of the list: u8 i32 i64 f16 bf16 f32 f64 bool.
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
  CHECK(tensor(std::vector<double>{1}).dtype() == kDouble);
  CHECK(tensor(std::vector<uint8_t>{1}).dtype() == kByte);
  CHECK(tensor(2.5).dim() == 0);
  CHECK(zeros({1}, dtype(kDouble).requires_grad()).requires_grad());
}

TEST_CASE("sums of integers are int64, sums of halves accumulate wider") {
  CHECK(ones({3}, kInt).sum().dtype() == kLong);
  CHECK(ones({3}, kBool).sum().item<int64_t>() == 3);
  CHECK(full({3}, 200, kByte).sum().item<int64_t>() == 600);
  CHECK(ones({5000}, kHalf).sum().item<float>() == 5000.0f);
  CHECK(full({4096}, 1, kBFloat16).sum().item<float>() == 4096.0f);
  CHECK(full({3}, 40000, kHalf).mean().item<float>() == Approx(40000).epsilon(1e-3));
}
